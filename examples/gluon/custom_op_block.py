"""A block around a CustomOp: a clip whose derivative lets gradients through (a straight-through estimator)."""

import tritium as mx
from formula import fill, noise
from tritium import autograd, gluon
from tritium.gluon import nn


class StraightThroughSign(mx.operator.CustomOp):
    """Forward: the sign. Backward: the head gradient where |x| <= limit, else 0."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], mx.nd.sign(in_data[0]))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * (mx.nd.abs(in_data[0]) <= self.limit))


@mx.operator.register("straight_through_sign")
class StraightThroughSignProp(mx.operator.CustomOpProp):
    """The shapes and the parameter of StraightThroughSign."""

    def __init__(self, limit):
        super().__init__(need_top_grad=True)
        self.limit = float(limit)

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return StraightThroughSign(self.limit)


class Binarize(gluon.HybridBlock):
    """Numbers of -1 and 1."""

    def __init__(self, limit=1.0, **kwargs):
        super().__init__(**kwargs)
        self._limit = limit

    def hybrid_forward(self, F, x):
        return F.Custom(x, limit=self._limit, op_type="straight_through_sign")


def main():
    x = noise((32, 8))
    target = mx.nd.array(x[:, :1] * x[:, 1:2])
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(16), Binarize(limit=1.5), nn.Dense(1))
    net.initialize()
    net(mx.nd.array(x))
    fill(net, mx.nd.array, scale=1.5)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    loss_of = gluon.loss.L2Loss()
    for step in range(6):
        if step == 3:
            net.hybridize()
        with autograd.record():
            loss = loss_of(net(mx.nd.array(x)), target)
        loss.backward()
        trainer.step(32)
        print(f"{'hybridized' if step >= 3 else 'imperative'}: {loss.mean().asscalar():.4f}")


if __name__ == "__main__":
    main()
