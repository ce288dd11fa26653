"""Helpers of all tests: one comparison with one tolerance table, samples of arrays, the gradient check."""

from __future__ import annotations

import contextlib

import numpy as np
import tritium as mx
from tritium.engine import ThreadedEngine, set_current
from tritium.kernels.tolerance import differs


def host(x):
    """x as a NumPy array."""
    return x.asnumpy() if hasattr(x, "asnumpy") else np.asarray(x)


def assert_close(got, want, *, scale: float = 1.0, dtype=None):
    """got equals want within the tolerance of got's dtype times scale. A scale other than 1 has its reason beside the call.

    Tests that ask for less than the table allows, such as a relative difference alone, call np.testing.assert_allclose.
    """
    got, want = host(got), np.asarray(host(want))
    wrong = differs(got, want, dtype or got.dtype, scale=scale)
    assert not wrong, wrong


def samples(*dtypes: str, seed: int = 0):
    """Arrays of the usual dtypes and awkward shapes: (), (0,), (1,), (7,), (3, 5), (2, 129)."""
    rng = np.random.default_rng(seed)
    shapes = ((), (0,), (1,), (7,), (3, 5), (2, 129))
    return [rng.normal(size=s).astype(d) for d in dtypes or ("float32", "float64", "float16") for s in shapes]


def describe(x) -> str:
    """A test id for an array."""
    return f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else str(x)


def check_gradient(fn, xs, ctx, rng, *, eps: float = 1e-5, tolerance: float = 1e-5):
    """⟨u, (f(x+εv) - f(x-εv)) / 2ε⟩ equals ⟨∇f(x; u), v⟩ in float64 for random u, v. fn: NDArrays -> NDArray."""
    xs = [np.asarray(x, "float64") for x in (xs if isinstance(xs, (list, tuple)) else [xs])]
    arrays = [mx.nd.array(x, ctx=ctx, dtype="float64") for x in xs]
    for a in arrays:
        a.attach_grad()
    with mx.autograd.record():
        y = fn(*arrays)
    u, vs = rng.normal(size=y.shape), [rng.normal(size=x.shape) for x in xs]
    y.backward(mx.nd.array(u, ctx=ctx, dtype="float64"))

    def at(sign):
        moved = [mx.nd.array(x + sign * eps * v, ctx=ctx, dtype="float64") for x, v in zip(xs, vs)]
        with mx.autograd.train_mode():
            return fn(*moved).asnumpy()

    numeric = np.sum(u * (at(1) - at(-1)) / (2 * eps))
    exact = sum(np.sum(a.grad.asnumpy() * v) for a, v in zip(arrays, vs))
    assert abs(numeric - exact) <= tolerance * max(1.0, abs(numeric)), f"{exact} along a random direction, numerically {numeric}"


@contextlib.contextmanager
def threaded_engine(workers: int):
    """A threaded engine with so many workers, as long as it is used."""
    made = ThreadedEngine(workers)
    before = set_current(made)
    try:
        yield made
    finally:
        made.stop()
        set_current(before)
