"""Train a network on the bundled digits. The command `tritium train` calls this and shows its progress."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tritium as mx

from .digits import Split, load_digits
from .networks import NETWORKS


@dataclass(frozen=True)
class Report:
    """Results of a training run. Memory in bytes; `naive_bytes` is the memory without sharing between arrays."""

    network: str
    device: str
    seed: int
    epochs: int
    batch_size: int
    accuracy: float
    loaded_accuracy: float
    held_out: int
    train_seconds: float
    images_per_s: float
    planned_bytes: int
    naive_bytes: int
    fused_operators: int
    weights_sha256: str
    symbol_file: str
    params_file: str


def train_digits(network: str = "lenet", ctx: mx.Context | None = None, *, epochs: int = 12, batch_size: int = 32,
                 seed: int = 0, learning_rate: float = 0.05, momentum: float = 0.9, out: str | Path = "out",
                 after_batch: Callable[[int, int, dict[str, float]], None] = lambda epoch, batch, metrics: None,
                 after_epoch: Callable[[int, float, dict[str, float]], None] = lambda epoch, speed, metrics: None,
                 ) -> Report:
    """Train, score on the held-out digits, write a checkpoint, load it and score again.

    network:      "mlp" or "lenet".
    out:          folder for digits-NETWORK-symbol.json and digits-NETWORK-EPOCH.params.
    after_batch:  called with epoch and batch, both from 0, and the metrics so far.
    after_epoch:  called with epoch, images per second, and the metrics of the epoch.
    The same seed gives the same weights, bit for bit, with any number of threads.
    """
    ctx = ctx or mx.current_context()
    training, held_out = load_digits()
    mx.random.seed(seed)  # the initial weights
    batches = mx.io.NDArrayIter(training.images, training.labels, batch_size, shuffle=True, seed=seed)
    module = mx.mod.Module(NETWORKS[network](), context=ctx)

    speeds: list[float] = []
    clock = time.perf_counter()
    metrics: dict[str, float] = {}

    def batch_done(param):
        metrics.update(param.eval_metric.get_name_value())
        after_batch(param.epoch, param.nbatch, metrics)

    def epoch_done(epoch, *_):
        nonlocal clock
        speeds.append(len(training.labels) / (time.perf_counter() - clock))
        after_epoch(epoch, speeds[-1], metrics)
        clock = time.perf_counter()

    module.fit(batches, num_epoch=epochs, kvstore="local", initializer=mx.init.Xavier(), eval_metric=["acc", "ce"],
               optimizer="sgd", optimizer_params={"learning_rate": learning_rate, "momentum": momentum},
               batch_end_callback=batch_done, epoch_end_callback=epoch_done)

    Path(out).mkdir(parents=True, exist_ok=True)
    prefix = str(Path(out) / f"digits-{network}")
    module.save_checkpoint(prefix, epochs)
    loaded = mx.mod.Module.load(prefix, epochs, context=ctx)
    loaded.bind(batches.provide_data, batches.provide_label, for_training=False)

    executor = module._exec_group.execs[0]
    plan = executor.memory_plan()
    return Report(
        network=network, device=str(ctx), seed=seed, epochs=epochs, batch_size=batch_size,
        accuracy=accuracy(module, held_out, batch_size),
        loaded_accuracy=accuracy(loaded, held_out, batch_size),
        held_out=len(held_out.labels),
        train_seconds=sum(len(training.labels) / s for s in speeds),
        images_per_s=statistics.median(speeds),
        planned_bytes=plan.planned_bytes, naive_bytes=plan.naive_bytes, fused_operators=executor.fused_operators,
        weights_sha256=fingerprint(module),
        symbol_file=f"{prefix}-symbol.json", params_file=f"{prefix}-{epochs:04d}.params",
    )


def accuracy(module: mx.mod.Module, split: Split, batch_size: int) -> float:
    """Return the share of images that the module classifies correctly; each image counts once."""
    output = module.predict(mx.io.NDArrayIter(split.images, split.labels, batch_size)).asnumpy()
    return float(np.mean(output.argmax(axis=1) == split.labels))


def fingerprint(module: mx.mod.Module) -> str:
    """Return the SHA-256 of the names and bytes of all weights, in the order of their names."""
    args, auxs = module.get_params()
    digest = hashlib.sha256()
    for name, value in sorted({**args, **auxs}.items()):
        digest.update(name.encode() + value.asnumpy().tobytes())
    return digest.hexdigest()
