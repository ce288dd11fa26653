"""One network on two contexts: each computes half of every batch, and the weights equal those of a single context.

    python -m tritium.examples.data_parallel
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tritium as mx

from .digits import load_digits
from .networks import mlp


def train_on(contexts: Sequence[mx.Context], steps: int = 50, batch_size: int = 64, kvstore: str = "local"
             ) -> dict[str, np.ndarray]:
    """Return the weights after `steps` batches of the digits, split over contexts."""
    training, _ = load_digits()
    batches = mx.io.NDArrayIter(training.images, training.labels, batch_size, last_batch_handle="discard")
    mx.random.seed(0)
    module = mx.mod.Module(mlp(), context=list(contexts))
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore=kvstore, optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    done = 0
    while done < steps:
        batches.reset()
        for batch in batches:
            if done < steps:
                module.forward_backward(batch)
                module.update()
                done += 1
    return {name: value.asnumpy() for name, value in module.get_params()[0].items()}


def largest_difference(steps: int = 50, kvstore: str = "local") -> float:
    """Return the largest difference of a weight between one and two contexts, after `steps` batches."""
    one, two = (train_on(c, steps, kvstore=kvstore) for c in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]))
    return max(float(np.abs(one[n] - two[n]).max()) for n in one)


def main() -> None:
    print(f"largest difference of a weight after 50 batches: {largest_difference():.2e}")


if __name__ == "__main__":
    main()
