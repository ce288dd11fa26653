"""A loss written in Python: softmax with its derivative, as a CustomOp at the end of a network.

    python -m tritium.examples.custom_softmax
"""

from __future__ import annotations

import tritium as mx

from .digits import load_digits


class Softmax(mx.operator.CustomOp):
    """Forward: probabilities. Backward: probabilities minus the one-hot label."""

    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0]
        e = mx.nd.exp(mx.nd.broadcast_sub(x, mx.nd.max(x, axis=1, keepdims=True)))
        self.assign(out_data[0], req[0], mx.nd.broadcast_div(e, mx.nd.sum(e, axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        y, label = out_data[0], in_data[1]
        self.assign(in_grad[0], req[0], y - mx.nd.one_hot(label, depth=y.shape[1]))


@mx.operator.register("example_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    """The arguments and shapes of Softmax, for symbols."""

    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Softmax()


def train_with_custom_softmax(epochs: int = 6, ctx: mx.Context | None = None) -> float:
    """Return the accuracy on the held-out digits."""
    training, held_out = load_digits()
    mx.random.seed(0)
    x = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=64, name="fc1")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu"), num_hidden=10, name="fc2")
    net = mx.sym.Custom(x, mx.sym.Variable("softmax_label"), name="softmax", op_type="example_softmax")
    module = mx.mod.Module(net, context=ctx or mx.current_context())
    module.fit(mx.io.NDArrayIter(training.images, training.labels, 32, shuffle=True, seed=0), num_epoch=epochs,
               initializer=mx.init.Xavier(), optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    return module.score(mx.io.NDArrayIter(held_out.images, held_out.labels, 60), "acc")[0][1]


def main() -> None:
    print(f"accuracy on the held-out digits: {train_with_custom_softmax():.3f}")


if __name__ == "__main__":
    main()
