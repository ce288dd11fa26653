"""One network with layers on two contexts. The weights equal those of a single context.

    python -m tritium.examples.model_parallel
"""

from __future__ import annotations

import numpy as np
import tritium as mx

from .digits import load_digits

CONTEXTS = {"lower": mx.cpu(0), "upper": mx.cpu(1)}


def split_mlp(classes: int = 10) -> mx.sym.Symbol:
    """Return a network with its hidden layer in ctx_group "lower" and its classifier in "upper", each with its parameters."""
    with mx.AttrScope(ctx_group="lower"):
        x = mx.sym.Flatten(2 * mx.sym.Variable("data") - 1)
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=64, name="fc1"), act_type="relu", name="relu1")
    with mx.AttrScope(ctx_group="upper"):
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=classes, name="fc2"), name="softmax")


def train_placed(group2ctxs: dict[str, mx.Context] | None, epochs: int = 3) -> tuple[dict[str, np.ndarray], float]:
    """Return (weights by name, accuracy on the held-out digits). group2ctxs=None trains on one context."""
    training, held_out = load_digits()
    batches = mx.io.NDArrayIter(training.images, training.labels, 64, last_batch_handle="discard")
    mx.random.seed(0)
    module = mx.mod.Module(split_mlp(), context=mx.cpu(0), group2ctxs=group2ctxs)
    module.fit(batches, num_epoch=epochs, initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    accuracy = dict(module.score(mx.io.NDArrayIter(held_out.images, held_out.labels, 64), "acc"))["accuracy"]
    return {name: value.asnumpy() for name, value in module.get_params()[0].items()}, accuracy


def main() -> None:
    (one, _), (two, accuracy) = train_placed(None), train_placed(CONTEXTS)
    difference = max(float(np.abs(one[n] - two[n]).max()) for n in one)
    print(f"accuracy on the held-out digits: {accuracy:.3f}; largest difference of a weight to one context: {difference:.2e}")


if __name__ == "__main__":
    main()
