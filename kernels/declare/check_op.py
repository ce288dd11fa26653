"""The standard proof of an elementwise operator, from its declaration alone: what `op.check()` runs and prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...context import GPU_MODE
from ...dtype import DTYPES
from ...errors import ContextError
from ..ir.expr import formulas
from ..kernel import HostRun
from ..op import Op, Req, Reqs, Spec, compiled
from ..params import Params
from ..tolerance import differs

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (7,), (3, 5), (2, 129))


def run_cpu(op: Op, p: Params, inputs: Sequence[np.ndarray], reqs: Reqs | None = None,
            outputs: Sequence[np.ndarray] | None = None, train: bool = False) -> list[np.ndarray]:
    """Run op once on NumPy arrays, without engine or memory pool. States among the inputs are changed in place."""
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
    """Return the derivatives {input number: array} of one run whose result was ys."""
    g = op.gradient_of(p)
    if g is None:
        return {}
    source = {"dy": [dy], "x": inputs, "y": ys}
    needs = [source[kind][i] for kind, i in g.needs]
    outs = [np.empty_like(inputs[i]) for i in g.gives]
    run_cpu(g.op, p, needs, outputs=outs)
    return dict(zip(g.gives, outs))


def directional_error(op: Op, p: Params, inputs: Sequence[np.ndarray], rng: np.random.Generator, eps: float = 1e-6) -> float:
    """Return the relative difference of ⟨u, (f(x+εv) - f(x-εv))/2ε⟩ and ⟨∇f(x; u), v⟩ for random u, v, in float64."""
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
    """Return values where op is defined and smooth: from the table of domains, else in (-3, 3) away from integers."""
    low, high = _DOMAIN.get(op.name, (-3.0, 3.0))
    x = rng.uniform(low, high, size=shape)
    x = np.where(np.abs(x - np.round(x)) < 0.05, x + 0.1 * (high - low) / 6, x)
    return x.astype(dtype) if dtype.kind != "b" else x > 0


_DOMAIN = {"erfinv": (-0.8, 0.8),
           "log": (0.2, 4), "log2": (0.2, 4), "log10": (0.2, 4), "log1p": (-0.5, 4), "sqrt": (0.2, 4), "rsqrt": (0.2, 4),
           "arcsin": (-0.8, 0.8), "arccos": (-0.8, 0.8), "arctanh": (-0.8, 0.8), "arccosh": (1.2, 4), "cbrt": (0.2, 4),
           "rcbrt": (0.2, 4), "reciprocal": (0.3, 4), "tan": (-1.2, 1.2), "_power": (0.3, 3), "broadcast_power": (0.3, 3),
           "_power_scalar": (0.3, 3), "_rpower_scalar": (0.3, 3), "_div": (0.3, 3), "elemwise_div": (0.3, 3),
           "broadcast_div": (0.3, 3), "_rdiv_scalar": (0.3, 3), "broadcast_mod": (0.3, 3), "_mod": (0.3, 3),
           "_rmod_scalar": (0.3, 3), "adam_update": (0.3, 3), "gamma": (0.3, 3), "gammaln": (0.3, 3), "digamma": (0.3, 3),
           "ftml_update": (0.3, 3), "lamb_update_phase1": (0.3, 3), "lamb_update_phase2": (0.3, 3), "multi_lars": (0.3, 3)}


def check_op(op: Op, params: Mapping[str, object] | None = None, say: Callable[[str], object] = print) -> None:
    """Check values for all shapes and dtypes, requests, in place, gradient, CPU against GPU. Print one line per item.

    Raises AssertionError for the first item that fails, with the values.
    """
    p = op.parse(params or {})
    rng = np.random.default_rng(0)
    n = len(op.arguments(p)) + len(op.auxiliaries(p))
    dtypes = ("float64", "float32", "float16", "bfloat16")
    for name in dtypes:
        for shape in SHAPES:
            _prove_values(op, p, name, [domain(op, shape, DTYPES[name], rng) for _ in range(n)])
    say(f"{op.name}: values    {' '.join(dtypes)}, {len(SHAPES)} shapes")
    _prove_requests(op, p, [domain(op, (3, 5), DTYPES["float32"], rng) for _ in range(n)])
    say(f"{op.name}: requests  write, add, in place on {len(op.inplace(p))} of {n} inputs")
    gradient = op.gradient_of(p)
    if gradient is None:
        say(f"{op.name}: gradient  none: not differentiable")
    else:
        error = directional_error(op, p, [domain(op, (3, 5), DTYPES["float64"], rng) for _ in range(n)], rng)
        assert error < 1e-6, f"{op.name}: gradient is off by {error:.2g} along a random direction"
        keeps = [name for (kind, _), name in zip(gradient.needs, needed_names(op, p)) if kind != "dy"]
        say(f"{op.name}: gradient  within {error:.0e} along a random direction; backward keeps {', '.join(keeps) or 'nothing'}")
    try:
        run_gpu = _GpuRunner.run
        if run_gpu is None:
            raise ContextError("no package has set one")
        _prove_gpu(op, p, [domain(op, (2, 129), DTYPES["float32"], rng) for _ in range(n)], rng, run_gpu)
    except ContextError:
        say(f"{op.name}: gpu       none here; with TRITIUM_GPU=interpret it would be interpreted")
        return
    say(f"{op.name}: gpu       {'interpreted' if GPU_MODE == 'interpret' else 'compiled'}, equals the CPU, forward"
        f"{' and backward' if gradient is not None else ''}")


class _GpuRunner:
    """run(op, p, inputs, outputs) -> outputs, computed on gpu(0): set by the package that knows devices."""

    run: Callable[..., list[np.ndarray]] | None = None


def use_gpu(run: Callable[..., list[np.ndarray]] | None) -> None:
    """Let `check_op` compare with run(op, p, inputs, outputs), which leaves its results in a list, on the host."""
    _GpuRunner.run = staticmethod(run) if run is not None else None  # type: ignore[assignment]


def _prove_values(op: Op, p: Params, dtype: str, xs: Sequence[np.ndarray]) -> None:
    """Check that the results in dtype are those in float64, rounded."""
    y, *_ = run_cpu(op, p, [x.copy() for x in xs])
    wide, *_ = run_cpu(op, p, [x.astype("float64") for x in xs])
    with np.errstate(over="ignore"):
        wrong = differs(y, wide.astype(y.dtype), dtype, scale=20)
    assert not wrong, f"{op.name} {dtype}{list(xs[0].shape) if xs else ''}: {wrong}"


def _prove_requests(op: Op, p: Params, xs: Sequence[np.ndarray]) -> None:
    y, *_ = run_cpu(op, p, [x.copy() for x in xs])
    added = np.ones_like(y)
    run_cpu(op, p, [x.copy() for x in xs], [Req.ADD], [added])
    assert not differs(added, y + 1, "float32"), f"{op.name}: request add: {differs(added, y + 1, 'float32')}"
    for i, o in op.inplace(p):
        copies = [x.copy() for x in xs]
        run_cpu(op, p, copies, [Req.INPLACE], [copies[i]])
        assert np.array_equal(copies[i], y, equal_nan=True), f"{op.name}: in place on input {i}, output {o} differs"


def _prove_gpu(op: Op, p: Params, xs: Sequence[np.ndarray], rng: np.random.Generator, run_gpu: Any) -> None:
    ys = run_cpu(op, p, [x.copy() for x in xs])
    for got, want in zip(run_gpu(op, p, xs, ys), ys):
        wrong = differs(got, want, "float32", scale=4)
        assert not wrong, f"{op.name}: gpu: {wrong}"
    g = op.gradient_of(p)
    if g is None:
        return
    dy = rng.normal(size=ys[0].shape).astype(ys[0].dtype)
    want = run_backward(op, p, xs, dy, ys)
    source = {"dy": [dy], "x": xs, "y": ys}
    found = run_gpu(g.op, p, [source[kind][i] for kind, i in g.needs], [want[i] for i in g.gives])
    for i, got in zip(g.gives, found):
        wrong = differs(got, want[i], "float32", scale=10)
        assert not wrong, f"{op.name}: gpu: derivative of input {i}: {wrong}"


# ---- reading a derivative -------------------------------------------------------------------------------------------
def needed_names(op: Op, p: Params) -> list[str]:
    """Return the names of what backward reads, in order, in the declaration's words: dy, y, or an input's name."""
    g = op.gradient_of(p)
    inputs = (*op.arguments(p), *op.auxiliaries(p))
    outputs = op.outputs(p)
    many = len(outputs) > 1
    spoken = {"dy": lambda i: f"d{outputs[i]}" if many else "dy", "y": lambda i: outputs[i] if many else "y",
              "x": lambda i: inputs[i]}
    return [] if g is None else [spoken[kind](i) for kind, i in g.needs]


def gradient_source(op: Op, p: Params, dtype: DTypeLike = "float32") -> str:
    """Return the derivative as formulas: one line per intermediate that is used twice, and the arrays that backward keeps."""
    g = op.gradient_of(p)
    if g is None:
        return f"# {op.name} is not differentiable: its derivative is zero\n"
    names = needed_names(op, p)
    e = g.op.expression(p, [DTYPES[np.dtype(dtype).name]] * len(names))
    inputs = op.arguments(p)
    lines = [f"# backward keeps {', '.join(n for (k, _), n in zip(g.needs, names) if k != 'dy') or 'nothing'}"]
    if e is None:
        lines.append(f"# {g.op.name} is a kernel, not a formula; it gives {', '.join(f'd{inputs[i]}' for i in g.gives)}")
    else:
        texts, shared = formulas(e.outputs, names)
        lines += shared + [f"d{inputs[i]} = {t}" for i, t in zip(g.gives, texts)]
    return "\n".join(lines) + "\n"
