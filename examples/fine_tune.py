"""A new last layer for a trained network: trained on the digits 0 to 4, then on 5 to 9 with fixed lower layers.

    python -m tritium.examples.fine_tune
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tritium as mx

from .digits import load_digits
from .networks import mlp


def batches(low: int, size: int = 32) -> tuple[Any, Any]:
    """Return iterators over the training and held-out digits low .. low + 4, with labels from 0."""
    iterators = []
    for split, shuffle in zip(load_digits(), (True, False)):
        keep = (split.labels >= low) & (split.labels < low + 5)
        iterators.append(mx.io.NDArrayIter(split.images[keep], split.labels[keep] - low, size, shuffle=shuffle, seed=0))
    return iterators[0], iterators[1]


def new_last_layer(symbol: Any, classes: int, after: str) -> Any:
    """Return the network up to the node called `after`, with a new classifier on top."""
    features = symbol.get_internals()[f"{after}_output"]
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(features, num_hidden=classes, name="new"), name="softmax")


def fine_tune(folder: str | Path, epochs: int = 4) -> tuple[float, float]:
    """Return (accuracy on 0 to 4, accuracy of the new layer on 5 to 9). Writes a checkpoint of the first network to folder."""
    prefix, settings = f"{folder}/low", {"learning_rate": 0.1, "momentum": 0.9}
    mx.random.seed(0)
    training, held_out = batches(0)
    first = mx.mod.Module(mlp(5))
    first.fit(training, num_epoch=epochs, initializer=mx.init.Xavier(), optimizer_params=settings,
              epoch_end_callback=mx.callback.do_checkpoint(prefix, epochs))
    before = first.score(held_out, "acc")[0][1]

    symbol, arg_params, aux_params = mx.model.load_checkpoint(prefix, epochs)
    net = new_last_layer(symbol, 5, after="relu2")
    fixed = [n for n in net.list_arguments() if n in arg_params and n not in ("data", "softmax_label")]
    second = mx.mod.Module(net, fixed_param_names=fixed)
    training, held_out = batches(5)
    second.fit(training, num_epoch=epochs, arg_params={n: arg_params[n] for n in fixed}, aux_params=aux_params,
               allow_missing=True, initializer=mx.init.Xavier(), optimizer_params=settings)
    for n in fixed:
        assert np.array_equal(second.get_params()[0][n].asnumpy(), arg_params[n].asnumpy()), f"{n} changed"
    return before, second.score(held_out, "acc")[0][1]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        before, after = fine_tune(folder)
    print(f"accuracy on the digits 0 to 4: {before:.3f}; of a new last layer on 5 to 9: {after:.3f}")


if __name__ == "__main__":
    main()
