"""A self-test of one context against NumPy, in a process of its own: `python -m tritium.cli.selftest gpu(0)`.

Prints one line of JSON after each check. No check begins after ten seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tritium as mx

SECONDS = 10.0


def close(got: mx.nd.NDArray, want: np.ndarray, tolerance: float = 1e-4) -> None:
    """Raise AssertionError with the largest difference."""
    worst = np.max(np.abs(got.asnumpy() - want), initial=0)
    assert worst <= tolerance * max(1.0, np.max(np.abs(want), initial=0)), f"differs from NumPy by {worst:.3g}"


def elementwise(ctx: mx.Context, rng: np.random.Generator) -> None:
    x = rng.normal(size=(37, 129)).astype("float32")
    close(mx.nd.tanh(mx.nd.array(x, ctx=ctx)) * 2 + 1, np.tanh(x) * 2 + 1)


def reduction(ctx: mx.Context, rng: np.random.Generator) -> None:
    x = rng.normal(size=(40, 300)).astype("float32")
    close(mx.nd.sum(mx.nd.array(x, ctx=ctx), axis=1), x.astype("float64").sum(1))


def product(ctx: mx.Context, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(65, 70)).astype("float32"), rng.normal(size=(70, 33)).astype("float32")
    close(mx.nd.dot(mx.nd.array(a, ctx=ctx), mx.nd.array(b, ctx=ctx)), a @ b)


def half(ctx: mx.Context, rng: np.random.Generator) -> None:
    x = rng.normal(size=(999,)).astype("float16")
    close(mx.nd.exp(mx.nd.array(x, ctx=ctx, dtype="float16")), np.exp(x.astype("float32")), 2e-3)


def convolution(ctx: mx.Context, rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(1, 2, 6, 6)).astype("float32"), rng.normal(size=(3, 2, 3, 3)).astype("float32")
    want = np.zeros((1, 3, 4, 4))
    for i in range(4):
        for j in range(4):
            want[0, :, i, j] = (w * x[0, :, i:i + 3, j:j + 3]).sum((1, 2, 3))
    close(mx.nd.Convolution(mx.nd.array(x, ctx=ctx), mx.nd.array(w, ctx=ctx), kernel=(3, 3), num_filter=3, no_bias=True), want)


def gradient(ctx: mx.Context, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(5, 4)).astype("float32"), rng.normal(size=(4, 3)).astype("float32")
    x = mx.nd.array(a, ctx=ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.sum(mx.nd.tanh(mx.nd.dot(x, mx.nd.array(b, ctx=ctx))))
    y.backward()
    close(x.grad, (1 - np.tanh(a @ b) ** 2) @ b.T)


def random_numbers(ctx: mx.Context, rng: np.random.Generator) -> None:
    drawn = []
    for _ in range(2):
        mx.random.seed(5)
        drawn.append(mx.nd.random.uniform(shape=(1000,), ctx=ctx).asnumpy())
    assert np.array_equal(*drawn), "the same seed gave other numbers"
    assert 0.4 < drawn[0].mean() < 0.6 and drawn[0].min() >= 0 and drawn[0].max() < 1, "not uniform in [0, 1)"


def training(ctx: mx.Context, rng: np.random.Generator) -> None:
    x = rng.normal(size=(64, 6)).astype("float32")
    y = (x[:, 0] > 0).astype("float32")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), name="softmax")
    module = mx.mod.Module(net, context=ctx)
    module.fit(mx.io.NDArrayIter(x, y, 32), num_epoch=3, optimizer="sgd", optimizer_params={"learning_rate": 1.0})
    found = dict(module.score(mx.io.NDArrayIter(x, y, 32), "acc"))["accuracy"]
    assert found > 0.8, f"a separable problem was learned to {found:.2f}"


def files(ctx: mx.Context, rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4)).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        name = str(Path(folder) / "x.params")
        mx.nd.save(name, {"x": mx.nd.array(x, ctx=ctx)})
        assert np.array_equal(mx.nd.load(name)["x"].asnumpy(), x), "what was loaded is not what was saved"


CHECKS: tuple[Callable[[mx.Context, np.random.Generator], None], ...] = (
    elementwise, reduction, product, half, convolution, gradient, random_numbers, training, files)


def main(device: str) -> None:
    """Run the checks on a context written as cpu(0)."""
    kind, number = device.rstrip(")").split("(")
    ctx, began = mx.Context(kind, int(number)), time.monotonic()
    for check in CHECKS:
        start = time.monotonic()
        if start - began > SECONDS:
            break
        wrong = ""
        try:
            check(ctx, np.random.default_rng(1))
        except Exception as e:
            wrong = f"{type(e).__name__}: {e}"[:300]
        print(json.dumps({"check": check.__name__, "wrong": wrong, "seconds": round(time.monotonic() - start, 3)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
