"""Score a checkpoint of MXNet or Tritium on the held-out digits.

    python -m tritium.examples.score_checkpoint PREFIX EPOCH        reads PREFIX-symbol.json and PREFIX-0000.params
"""

from __future__ import annotations

import sys

import tritium as mx

from .digits import load_digits


def score_checkpoint(prefix: str, epoch: int, ctx: mx.Context | None = None) -> float:
    """Return the accuracy of a checkpoint with input [n, 1, 8, 8] or [n, 64], pixels from 0 to 1."""
    symbol, arg_params, aux_params = mx.model.load_checkpoint(prefix, epoch)
    _, held_out = load_digits()
    images = held_out.images
    weight = next((v for n, v in arg_params.items() if n.endswith("_weight")), None)
    if weight is not None and len(weight.shape) == 2:
        images = images.reshape(len(images), -1)
    module = mx.mod.Module(symbol, context=ctx or mx.current_context())
    data = mx.io.NDArrayIter(images, held_out.labels, 60)
    module.bind(data.provide_data, data.provide_label, for_training=False)
    module.set_params(arg_params, aux_params)
    return module.score(data, "acc")[0][1]


def main() -> None:
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        raise SystemExit(__doc__)
    print(f"accuracy on the held-out digits: {score_checkpoint(sys.argv[1], int(sys.argv[2])):.4f}")


if __name__ == "__main__":
    main()
