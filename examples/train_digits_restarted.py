"""Train on the digits with Module.fit and workers that may be killed at any time.

    tritium launch -n 2 --policy wait --restarts 3 python -m tritium.examples.train_digits_restarted checkpoints/digits

A restarted worker continues at the step for which the others wait. If it was killed between two steps, the weights equal those
of an undisturbed run, bit for bit. If it was killed during a step, some keys may have been sent: the other workers then compute
gradients with some weights that are one step newer, so the bits differ. A restarted job continues from the last checkpoint of
worker 0, which has weights and optimizer states.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tritium as mx

from .digits import load_digits
from .networks import NETWORKS
from .train_digits import fingerprint
from .train_digits_dist import arguments, print_result


def train(prefix: str, *, kvstore: str = "dist_sync", network: str = "mlp", epochs: int = 4, batch_size: int = 64,
          batch_end_callback: Any = None) -> tuple[str, mx.kv.KVStore]:
    """Return (SHA-256 of the weights, the store). Writes checkpoints PREFIX-0001.params and so on."""
    kv = mx.kv.create(kvstore)
    training, _ = load_digits()
    mine = batch_size // kv.num_workers
    batches = len(training.images) // batch_size  # one step each; every worker has the same number
    rows = slice(kv.rank * batches * mine, (kv.rank + 1) * batches * mine)
    data = mx.io.NDArrayIter(training.images[rows], training.labels[rows], mine)

    # The first epoch of this job: the store keeps the value of worker 0, also for workers that join later.
    last = mx.model.last_checkpoint(prefix)
    began = mx.nd.array([last or 0], dtype="int32")
    kv.init("the job's first epoch", began)
    kv.pull("the job's first epoch", began)

    # The current step of the job, 0 at first. Skip the completed batches: fit continues with the next batch of the data.
    done = kv.resume()
    epoch, batch = divmod(done, batches)
    epoch += int(began.asscalar())
    for _ in range(batch):
        data.next()

    if last is None:
        module = mx.mod.Module(NETWORKS[network]())
    else:  # in a running job, the servers have newer states than the file
        module = mx.mod.Module.load(prefix, last, load_optimizer_states=done == 0)
    mx.random.seed(0)
    written = [mx.callback.module_checkpoint(module, prefix, save_optimizer_states=True)] if kv.rank == 0 else []
    module.fit(data, begin_epoch=epoch, num_epoch=epochs, kvstore=kv, initializer=mx.init.Xavier(), optimizer="sgd",
               optimizer_params={"learning_rate": 0.1, "momentum": 0.9}, epoch_end_callback=written,
               batch_end_callback=batch_end_callback)
    return fingerprint(module), kv


def main() -> None:
    parser = arguments("Train on the digits with workers that may be restarted.")
    parser.add_argument("prefix", help="prefix of the checkpoint files")
    args = parser.parse_args()
    Path(args.prefix).parent.mkdir(parents=True, exist_ok=True)
    digest, kv = train(**vars(args))
    print_result(kv, weights=digest)


if __name__ == "__main__":
    main()
