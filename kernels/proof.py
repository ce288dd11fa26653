"""The standard proof of an elementwise operator, from its declaration alone: what `op.check()` runs and prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..context import GPU_MODE
from ..dtype import DTYPES
from .op import Op, Req, Spec, compiled
from .params import Params
from .tolerance import differs

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (7,), (3, 5), (2, 129))


class HostRun:
    """What a kernel is handed where no engine is: one thread, fresh scratch."""

    stream = None

    def parallel(self, fn: Any, n: int) -> None:
        for i in range(n):
            fn(i)

    def space(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.empty(shape, dtype)


def run_cpu(op: Op, p: Params, inputs: Sequence[np.ndarray], reqs: Sequence[Req] | None = None,
            outputs: Sequence[np.ndarray] | None = None, train: bool = False) -> list[np.ndarray]:
    """One run of op on NumPy arrays, without engine or memory pool. States among the inputs are changed in place."""
    ins = tuple(Spec(a.shape, a.dtype) for a in inputs)
    if outputs is None:
        _, shapes = op.infer_shape(p, [s.shape for s in ins])
        _, dtypes = op.infer_dtype(p, [s.dtype for s in ins])
        outputs = [np.empty(s, d) for s, d in zip(shapes, dtypes) if s is not None and d is not None]
    outs = tuple(Spec(a.shape, a.dtype) for a in outputs)
    reqs = tuple(reqs or [Req.WRITE] * len(outs))
    compiled(op, p, ins, outs, reqs, "cpu", train)(HostRun(), list(inputs), list(outputs))
    return list(outputs)


def run_backward(op: Op, p: Params, inputs: Sequence[np.ndarray], dy: np.ndarray, ys: Sequence[np.ndarray]
                 ) -> dict[int, np.ndarray]:
    """Derivatives {input number: array} of one run whose result was ys."""
    g = op.gradient(p)
    if g is None:
        return {}
    source = {"dy": [dy], "x": inputs, "y": ys}
    needs = [source[kind][i] for kind, i in g.needs]
    outs = [np.empty_like(inputs[i]) for i in g.gives]
    run_cpu(g.op, p, needs, outputs=outs)
    return dict(zip(g.gives, outs))


def directional_error(op: Op, p: Params, inputs: Sequence[np.ndarray], rng: np.random.Generator, eps: float = 1e-6) -> float:
    """Relative difference of ⟨u, (f(x+εv) - f(x-εv))/2ε⟩ and ⟨∇f(x; u), v⟩ for random u, v, in float64."""
    xs = [a.astype("float64") for a in inputs]
    (y, *_) = run_cpu(op, p, [a.copy() for a in xs])
    u = rng.normal(size=y.shape)
    dx = run_backward(op, p, xs, u, [y])
    vs = [rng.normal(size=a.shape) if i in dx else np.zeros(a.shape) for i, a in enumerate(xs)]
    up, *_ = run_cpu(op, p, [a + eps * v for a, v in zip(xs, vs)])
    down, *_ = run_cpu(op, p, [a - eps * v for a, v in zip(xs, vs)])
    want = float(np.sum(u * (up - down) / (2 * eps)))
    got = float(sum(np.sum(d * vs[i]) for i, d in dx.items()))
    return abs(got - want) / max(1.0, abs(want))


def domain(op: Op, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Values an operator is smooth and defined on: its table of domains, else away from whole numbers in (-3, 3)."""
    low, high = _DOMAIN.get(op.name, (-3.0, 3.0))
    x = rng.uniform(low, high, size=shape)
    x = np.where(np.abs(x - np.round(x)) < 0.05, x + 0.1 * (high - low) / 6, x)
    return x.astype(dtype) if dtype.kind != "b" else x > 0


_DOMAIN = {"log": (0.2, 4), "log2": (0.2, 4), "log10": (0.2, 4), "log1p": (-0.5, 4), "sqrt": (0.2, 4), "rsqrt": (0.2, 4),
           "arcsin": (-0.8, 0.8), "arccos": (-0.8, 0.8), "arctanh": (-0.8, 0.8), "arccosh": (1.2, 4), "cbrt": (0.2, 4),
           "rcbrt": (0.2, 4), "reciprocal": (0.3, 4), "tan": (-1.2, 1.2), "_power": (0.3, 3), "broadcast_power": (0.3, 3),
           "_power_scalar": (0.3, 3), "_rpower_scalar": (0.3, 3), "_div": (0.3, 3), "elemwise_div": (0.3, 3),
           "broadcast_div": (0.3, 3), "_rdiv_scalar": (0.3, 3), "broadcast_mod": (0.3, 3), "_mod": (0.3, 3),
           "_rmod_scalar": (0.3, 3), "adam_update": (0.3, 3)}


def check_op(op: Op, params: dict[str, Any] | None = None, say: Any = print) -> None:
    """Values on every shape, requests, in-place, gradient, CPU against GPU. Prints one line per item."""
    p = op.parse(params or {})
    rng = np.random.default_rng(0)
    n = len(op.arguments(p)) + len(op.auxiliaries(p))
    for name in ("float64", "float32", "float16"):
        for shape in SHAPES:
            xs = [domain(op, shape, DTYPES[name], rng) for _ in range(n)]
            (y, *_) = run_cpu(op, p, [x.copy() for x in xs])
            wide, *_ = run_cpu(op, p, [x.astype("float64") for x in xs])
            wrong = differs(y, wide.astype(y.dtype), name, scale=20)
            assert not wrong, f"{op.name} {name}{list(shape)}: {wrong}"
    say(f"{op.name}: values  float64 float32 float16 x {len(SHAPES)} shapes")
    xs = [domain(op, (3, 5), DTYPES["float32"], rng) for _ in range(n)]
    y, *_ = run_cpu(op, p, [x.copy() for x in xs])
    added = np.ones_like(y)
    run_cpu(op, p, [x.copy() for x in xs], [Req.ADD], [added])
    assert not differs(added, y + 1, "float32"), f"{op.name}: request add: {differs(added, y + 1, 'float32')}"
    for i, o in op.inplace(p):
        copies = [x.copy() for x in xs]
        run_cpu(op, p, copies, [Req.INPLACE], [copies[i]])
        assert np.array_equal(copies[i], y, equal_nan=True), f"{op.name}: in place on input {i}, output {o} differs"
    say(f"{op.name}: requests write add, in place on {len(op.inplace(p))} inputs")
    if op.gradient(p) is not None:
        error = directional_error(op, p, [domain(op, (3, 5), DTYPES["float64"], rng) for _ in range(n)], rng)
        assert error < 1e-6, f"{op.name}: gradient is off by {error:.2g} along a random direction"
        say(f"{op.name}: gradient within {error:.1g} along a random direction")
    if GPU_MODE == "interpret":
        say(f"{op.name}: gpu(0) is interpreted here; `make test` compares it")
