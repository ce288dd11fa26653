"""The standard proof of an elementwise operator, from its declaration alone: what `op.check()` runs and prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...context import GPU_MODE
from ...dtype import DTYPES
from ...errors import ContextError, MXNetError, OperatorError
from ..ir.expr import formulas
from ..kernel import HostRun
from ..op import Op, Req, Reqs, Spec, compiled, is_known
from ..params import Params
from ..tolerance import differs

RANDOM = (17, 0)  # the seed and the offset of a check's random numbers
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (7,), (3, 5), (2, 129))


def run_cpu(op: Op, p: Params, inputs: Sequence[np.ndarray], reqs: Reqs | None = None,
            outputs: Sequence[np.ndarray] | None = None, train: bool = False, random: tuple[int, int] | None = None
            ) -> list[np.ndarray]:
    """Run op once on NumPy arrays, without engine or memory pool. States among the inputs are changed in place.

    random: the seed and the offset of its random numbers, if it draws any.
    """
    ins = tuple(Spec(a.shape, a.dtype) for a in inputs)
    if outputs is None:
        _, shapes = op.infer_shape(p, [s.shape for s in ins])
        _, dtypes = op.infer_dtype(p, [s.dtype for s in ins])
        outputs = [np.empty(s, d) for s, d in zip(shapes, dtypes) if s is not None and d is not None]
    outs = tuple(Spec(a.shape, a.dtype) for a in outputs)
    reqs = tuple(reqs or [Req.WRITE] * len(outs))
    more = {"random": random or RANDOM} if op.random_count(p, ins, outs) else {}
    compiled(op, p, ins, outs, reqs, "cpu", train)(HostRun(), list(inputs), list(outputs), **more)
    return list(outputs)


def run_backward(op: Op, p: Params, inputs: Sequence[np.ndarray], dy: np.ndarray | Sequence[np.ndarray],
                 ys: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Return the derivatives {input number: array} of one run whose result was ys. dy: of the output, or one of each."""
    g = op.gradient_of(p)
    if g is None:
        return {}
    source = {"dy": [dy] if isinstance(dy, np.ndarray) else dy, "x": inputs, "y": ys}
    needs = [source[kind][i] for kind, i in g.needs]
    outs = [np.empty_like(inputs[i]) for i in g.gives]
    run_cpu(g.op, p, needs, outputs=outs)
    return dict(zip(g.gives, outs))


def directional_error(op: Op, p: Params, inputs: Sequence[np.ndarray], rng: np.random.Generator, eps: float = 1e-6) -> float:
    """Return the relative difference of ⟨u, (f(x+εv) - f(x-εv))/2ε⟩ and ⟨∇f(x; u), v⟩ for random u, v, in float64."""
    xs = [a.astype("float64") for a in inputs]
    draws = draws_numbers(op, p, xs)
    ys = run_cpu(op, p, [a.copy() for a in xs], train=draws)
    us = [rng.normal(size=y.shape) * (y.dtype.kind == "f") for y in ys[:op.visible_outputs(p)]]
    dx = run_backward(op, p, xs, [u.astype(y.dtype) for u, y in zip(us, ys)], ys)
    vs = [rng.normal(size=a.shape) if i in dx else np.zeros(a.shape) for i, a in enumerate(xs)]
    up = run_cpu(op, p, [a + eps * v for a, v in zip(xs, vs)], train=draws)
    down = run_cpu(op, p, [a - eps * v for a, v in zip(xs, vs)], train=draws)
    want = float(sum(np.sum(u * (a - b) / (2 * eps)) for u, a, b in zip(us, up, down) if a.dtype.kind == "f"))
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


def check_op(op: Op, params: Mapping[str, object] | None = None, say: Callable[[str], object] = print,
             shapes: Sequence[Sequence[int]] | None = None, inputs: Sequence[np.ndarray] | None = None) -> None:
    """Check values for all shapes and dtypes, requests, in place, gradient, CPU against GPU. Print one line per item.

    shapes:  of the inputs; None: each of SHAPES that the operator takes.
    inputs:  the inputs themselves; floats whose dtype is not free are converted to each dtype.
    Raises:  AssertionError for the first item that fails, with the values. OperatorError if the operator takes none of SHAPES.
    """
    p = op.parse(params or {})
    rng = np.random.default_rng(0)
    n = len(op.arguments(p)) + len(op.auxiliaries(p))
    taken = [tuple(tuple(s) for s in shapes or ())] if inputs is None else [tuple(a.shape for a in inputs)]
    if shapes is None and inputs is None and n:
        taken = [t for s in SHAPES if (t := _all_shapes(op, p, s, n))]
    if not taken or any(len(t) != n for t in taken):
        raise OperatorError(f"{op.name}: takes none of the shapes {', '.join(map(str, SHAPES))}. Give those of its {n} inputs: "
                            f"check(shapes=[...]).")
    small = next((t for t in taken if max(t, default=()) == (3, 5)), taken[-1])

    def arrays(sizes: Sequence[tuple[int, ...]], dtype: str) -> list[np.ndarray]:
        if inputs is not None:
            free = getattr(op, "free", ())
            return [a.astype(DTYPES[dtype]) if a.dtype.kind == "f" and name not in free else a
                    for name, a in zip(op.arguments(p), inputs)]
        return [domain(op, s, DTYPES[dtype], rng) for s in sizes]

    draws = draws_numbers(op, p, arrays(small, "float32"))
    dtypes = ("float64", "float32", "float16", "bfloat16")
    for name in dtypes:
        for sizes in taken:
            (_prove_draws if draws else _prove_values)(op, p, name, arrays(sizes, name))
    how = ", equal for equal seeds, others for others" if draws else ""
    say(f"{op.name}: values    {' '.join(dtypes)}, {len(taken)} shape{'s' * (len(taken) > 1)}{how}")
    if _prove_body(op, p, arrays(small, "float32")):
        say(f"{op.name}: cpu       the body for the CPU equals the formula")
    _prove_requests(op, p, arrays(small, "float32"))
    say(f"{op.name}: requests  write, add, in place on {len({i for i, _ in op.inplace(p)})} of {n} inputs")
    gradient = op.gradient_of(p)
    if gradient is None:
        say(f"{op.name}: gradient  none: not differentiable")
    else:
        error = directional_error(op, p, arrays(small, "float64"), rng)
        assert error < 1e-6, f"{op.name}: gradient is off by {error:.2g} along a random direction"
        keeps = [name for (kind, _), name in zip(gradient.needs, needed_names(op, p)) if kind != "dy"]
        say(f"{op.name}: gradient  within {error:.0e} along a random direction; backward keeps {', '.join(keeps) or 'nothing'}")
    try:
        run_gpu = _GpuRunner.run
        if run_gpu is None:
            raise ContextError("no package has set one")
        _prove_gpu(op, p, arrays(taken[-1], "float32"), rng, run_gpu)
    except ContextError:
        say(f"{op.name}: gpu       none here; with TRITIUM_GPU=interpret it would be interpreted")
        return
    say(f"{op.name}: gpu       {'interpreted' if GPU_MODE == 'interpret' else 'compiled'}, equals the CPU, forward"
        f"{' and backward' if gradient is not None else ''}")


def _all_shapes(op: Op, p: Params, shape: tuple[int, ...], n: int) -> tuple[tuple[int, ...], ...]:
    """Return shapes of all inputs of which the first is this one; () if the operator does not take them."""
    for given in ([shape, *[None] * (n - 1)], [shape] * n):
        try:
            ins, outs = op.infer_shape(p, given[:n])
        except (MXNetError, TypeError, ValueError, IndexError):
            continue
        if all(is_known(s) for s in (*ins, *outs)):
            return tuple(s for s in ins if s is not None)
    return ()


class _GpuRunner:
    """run(op, p, inputs, outputs, random) -> outputs, computed on gpu(0): set by the package that knows devices."""

    run: Callable[..., list[np.ndarray]] | None = None


def use_gpu(run: Callable[..., list[np.ndarray]] | None) -> None:
    """Let `check_op` compare with run(op, p, inputs, outputs, random), which leaves its results in a list, on the host."""
    _GpuRunner.run = staticmethod(run) if run is not None else None  # type: ignore[assignment]


def draws_numbers(op: Op, p: Params, xs: Sequence[np.ndarray]) -> bool:
    """Return whether one run of op on xs draws random numbers."""
    return bool(op.random_count(p, *_specs(op, p, xs)))


def _specs(op: Op, p: Params, xs: Sequence[np.ndarray]) -> tuple[list[Spec], list[Spec]]:
    _, shapes = op.infer_shape(p, [a.shape for a in xs])
    _, dtypes = op.infer_dtype(p, [a.dtype for a in xs])
    return [Spec(a.shape, a.dtype) for a in xs], [Spec(s, d) for s, d in zip(shapes, dtypes) if s is not None and d is not None]


def _folded(xs: Sequence[np.ndarray], y: np.ndarray) -> float:
    """Return by how much the errors of so many elements, added up in one, are larger than that of one."""
    return max(1.0, (max((x.size for x in xs), default=1) / max(y.size, 1)) ** 0.5)


def _prove_values(op: Op, p: Params, dtype: str, xs: Sequence[np.ndarray]) -> None:
    """Check that the results in dtype are those in float64, rounded."""
    found = run_cpu(op, p, [x.copy() for x in xs])
    wide = run_cpu(op, p, [x.astype("float64") for x in xs])
    for k, (y, exact) in enumerate(zip(found, wide)):
        with np.errstate(over="ignore"):
            wrong = differs(y, exact.astype(y.dtype), dtype, scale=20 * _folded(xs, y))
        which = f" {op.outputs(p)[k]}" if len(found) > 1 else ""
        assert not wrong, f"{op.name}{which} {dtype}{list(xs[0].shape) if xs else ''}: {wrong}"


def _prove_draws(op: Op, p: Params, dtype: str, xs: Sequence[np.ndarray]) -> None:
    """Check that equal seeds give equal results, in any order of the work, and that another seed gives others."""
    first, again, other = (run_cpu(op, p, [x.copy() for x in xs], train=True, random=r) for r in (RANDOM, RANDOM, (18, 4)))
    for y, same in zip(first, again):
        assert np.array_equal(y, same, equal_nan=y.dtype.kind == "f"), f"{op.name} {dtype}: equal seeds give different results"
    many = max((y.size for y in first), default=0) > 100
    assert not many or any(not np.array_equal(y, z) for y, z in zip(first, other)), f"{op.name} {dtype}: the seed changes nothing"


def _prove_body(op: Op, p: Params, xs: Sequence[np.ndarray]) -> bool:
    """Check that the body for the CPU gives what the formula gives. Return False without both."""
    formula = getattr(op, "formula_kernel", None)
    if formula is None or "cpu" not in op._devices or not op._has_formula(p):  # type: ignore[attr-defined]
        return False
    found = run_cpu(op, p, [x.copy() for x in xs])
    want = [np.empty_like(y) for y in found]
    ins, outs = _specs(op, p, xs)
    formula(p, ins, outs, [Req.WRITE] * len(outs), "cpu")(HostRun(), list(xs), want,
                                                          **({"scalars": p.scalars} if p.scalars else {}))
    for y, expected in zip(found, want):
        wrong = differs(y, expected, "float32", scale=4 * _folded(xs, y))
        assert not wrong, f"{op.name}: the body for the CPU and the formula differ: {wrong}"
    return True


def _prove_requests(op: Op, p: Params, xs: Sequence[np.ndarray]) -> None:
    ys = run_cpu(op, p, [x.copy() for x in xs], train=True)
    added = [np.ones_like(y) for y in ys]
    run_cpu(op, p, [x.copy() for x in xs], [Req.ADD] * len(ys), added, train=True)
    for y, total in zip(ys, added):
        wrong = differs(total, y | True if y.dtype == bool else y + y.dtype.type(1), "float32")
        assert not wrong, f"{op.name}: request add: {wrong}"
    for i, o in op.inplace(p):
        if (ys[o].shape, ys[o].dtype) != (xs[i].shape, xs[i].dtype):
            continue
        copies = [x.copy() for x in xs]
        outs = [copies[i] if k == o else np.empty_like(y) for k, y in enumerate(ys)]
        run_cpu(op, p, copies, [Req.INPLACE if k == o else Req.WRITE for k in range(len(ys))], outs, train=True)
        for k, (got, y) in enumerate(zip(outs, ys)):
            same = np.array_equal(got, y, equal_nan=y.dtype.kind == "f")
            assert same, f"{op.name}: in place on input {i}, output {k} differs"


def _prove_gpu(op: Op, p: Params, xs: Sequence[np.ndarray], rng: np.random.Generator, run_gpu: Any) -> None:
    random = RANDOM if draws_numbers(op, p, xs) else None
    ys = run_cpu(op, p, [x.copy() for x in xs], train=random is not None)
    for got, want in zip(run_gpu(op, p, xs, ys, random), ys):
        wrong = differs(got, want, "float32", scale=4 * _folded(xs, want))
        assert not wrong, f"{op.name}: gpu: {wrong}"
    g = op.gradient_of(p)
    if g is None:
        return
    dys = [rng.normal(size=y.shape).astype(y.dtype) for y in ys[:op.visible_outputs(p)]]
    want = run_backward(op, p, xs, dys, ys)
    source = {"dy": dys, "x": xs, "y": ys}
    found = run_gpu(g.op, p, [source[kind][i] for kind, i in g.needs], [want[i] for i in g.gives], None)
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
