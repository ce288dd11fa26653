"""Train on the digits with several processes: each computes its slice of every batch, and servers sum the gradients.

    tritium launch -n 2 python -m tritium.examples.train_digits_dist
    python -m tritium.examples.train_digits_dist --kvstore local        (the same in one process)

Batches are split by rank, so any number of workers makes the same steps on the same digits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import numpy as np
import tritium as mx

from .digits import load_digits
from .networks import NETWORKS
from .train_digits import fingerprint


def train(kvstore: str, *, network: str = "mlp", epochs: int = 4, batch_size: int = 64, learning_rate: float = 0.1
          ) -> tuple[float, str, mx.kv.KVStore]:
    """Return (accuracy on the held-out digits, SHA-256 of the weights, the store)."""
    kv = mx.kv.create(kvstore)
    n, rank = kv.num_workers, kv.rank
    if batch_size % n:
        raise SystemExit(f"batches of {batch_size} digits cannot be split into {n} equal parts")
    training, held_out = load_digits()
    mine = batch_size // n
    order = np.random.default_rng(0)
    mx.random.seed(0)
    module = mx.mod.Module(NETWORKS[network]())
    shape = (mine, *training.images.shape[1:])
    module.bind([("data", shape)], [("softmax_label", (mine,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore=kv, optimizer="sgd", optimizer_params={"learning_rate": learning_rate, "momentum": 0.9})
    for _ in range(epochs):
        shuffled = order.permutation(len(training.images))
        for start in range(0, len(shuffled) - batch_size + 1, batch_size):
            rows = shuffled[start + rank * mine:start + (rank + 1) * mine]
            batch = mx.io.DataBatch([mx.nd.array(training.images[rows])], [mx.nd.array(training.labels[rows])])
            module.forward_backward(batch)
            module.update()
    score = module.score(mx.io.NDArrayIter(held_out.images, held_out.labels, mine), "acc")
    return dict(score)["accuracy"], fingerprint(module), kv


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser for the settings of a job."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kvstore", default="dist_sync", help="dist_sync, dist_async, dist_device_sync, local")
    parser.add_argument("--network", default="mlp", choices=list(NETWORKS))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="digits of all workers in a step")
    return parser


def print_result(kv: mx.kv.KVStore, **values: object) -> None:
    """Print a worker's results as a line of JSON, in one write, because the workers share stdout."""
    line = json.dumps({"rank": kv.rank, "workers": kv.num_workers, **values})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main() -> None:
    args = arguments("Train on the digits with several processes.").parse_args()
    accuracy, digest, kv = train(**vars(args))
    print_result(kv, accuracy=round(accuracy, 4), weights=digest)


if __name__ == "__main__":
    main()
