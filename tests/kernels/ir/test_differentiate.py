"""Derived derivatives: random formulas against finite differences, on both devices, and what a formula of rows means.

The oracle computes a formula with NumPy on arrays of the full shape, step by step, in float64.
"""

import operator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.layer_helpers import TARGETS, call
from tritium.kernels.declare.reduction import ReductionOp
from tritium.kernels.declare.traced import TracedOp
from tritium.kernels.ir import lang
from tritium.kernels.ir.expr import cast
from tritium.kernels.op import Req, Spec
from tritium.kernels.params import Params

FLOAT, SINGLE, WHOLE = np.dtype("float64"), np.dtype("float32"), np.dtype("int32")
NONE = Params({})

#: name -> (how many values it takes, as a formula, with NumPy)
STEPS = {
    "add": (2, operator.add, np.add),
    "sub": (2, operator.sub, np.subtract),
    "mul": (2, operator.mul, np.multiply),
    "div": (2, lambda a, b: a / (1 + b * b), lambda a, b: a / (1 + b * b)),
    "maximum": (2, lang.maximum, np.maximum),
    "minimum": (2, lang.minimum, np.minimum),
    "hypot": (2, lambda a, b: lang.hypot(a, 1 + abs(b)), lambda a, b: np.hypot(a, 1 + np.abs(b))),
    "power": (2, lambda a, b: lang.power(1.5 + lang.tanh(a), lang.tanh(b)), lambda a, b: (1.5 + np.tanh(a)) ** np.tanh(b)),
    "where": (4, lambda a, b, c, d: lang.where(a < b, c, d), lambda a, b, c, d: np.where(a < b, c, d)),
    "and": (4, lambda a, b, c, d: lang.where((a < b) & (c < 1), d, a), lambda a, b, c, d: np.where((a < b) & (c < 1), d, a)),
    "neg": (1, operator.neg, np.negative),
    "abs": (1, abs, np.abs),
    "square": (1, lang.square, np.square),
    "tanh": (1, lang.tanh, np.tanh),
    "sigmoid": (1, lang.sigmoid, lambda a: 0.5 * (1 + np.tanh(a / 2))),
    "sin": (1, lang.sin, np.sin),
    "exp": (1, lambda a: lang.exp(lang.tanh(a)), lambda a: np.exp(np.tanh(a))),
    "expm1": (1, lambda a: lang.expm1(lang.sin(a)), lambda a: np.expm1(np.sin(a))),
    "log": (1, lambda a: lang.log(1 + a * a), lambda a: np.log1p(a * a)),
    "sqrt": (1, lambda a: lang.sqrt(1 + a * a), lambda a: np.hypot(1, a)),
    "rsqrt": (1, lambda a: lang.rsqrt(2 + lang.cos(a)), lambda a: (2 + np.cos(a)) ** -0.5),
    "arctan": (1, lang.arctan, np.arctan),
    "reciprocal": (1, lambda a: lang.reciprocal(2 + lang.sin(a)), lambda a: 1 / (2 + np.sin(a))),
    "scaled": (1, lambda a: 0.5 * a - 1, lambda a: 0.5 * a - 1),
    "number": (1, lambda a: lang.cast_like(1.5, a), lambda a: np.full_like(a, 1.5)),
    "floor": (1, lambda a: a + lang.floor(a), lambda a: a + np.floor(a)),
    "whole": (1, lambda a: a - cast(cast(a, WHOLE), FLOAT), lambda a: a - np.trunc(a)),
    "truth": (2, lambda a, b: cast(a > b, FLOAT) * a, lambda a, b: (a > b) * a),
    "there and back": (1, lambda a: cast(cast(a, SINGLE), FLOAT), lambda a: a),
    "row_sum": (1, lang.row_sum, lambda a: 0 * a + a.sum(-1, keepdims=True)),
    "row_mean": (1, lambda a: lang.row_sum(a) / lang.row_sum(1), lambda a: 0 * a + a.mean(-1, keepdims=True)),
    "row_max": (1, lang.row_max, lambda a: 0 * a + a.max(-1, keepdims=True)),
    "row_count": (2, lambda a, b: b * lang.row_sum(a > b), lambda a, b: b * (a > b).sum(-1, keepdims=True)),
    "softmax": (1, lambda a: lang.exp(a - lang.row_max(a)) / lang.row_sum(lang.exp(a - lang.row_max(a))),
                lambda a: np.exp(a - a.max(-1, keepdims=True)) / np.exp(a - a.max(-1, keepdims=True)).sum(-1, keepdims=True)),
}
ROUNDED = 3  # with NumPy, and what goes through single precision rounded; without, it is smooth
ROWS = {name for name in STEPS if name.startswith("row") or name == "softmax"}


class Formula(TracedOp):
    """A formula that was drawn: steps on what came before, the first values being the inputs."""

    broadcast = True

    def __init__(self, n_inputs, steps, results):
        super().__init__()
        self.name, self.input_names = "formula", tuple(f"x{i}" for i in range(n_inputs))
        self.steps, self.results = steps, results

    def __repr__(self):
        return f"<{self.steps} -> {self.results}>"

    def outputs(self, p):
        return tuple(f"y{i}" for i in range(len(self.results)))

    def trace(self, p, inputs):
        return tuple(self.walk(list(inputs), 1))

    def walk(self, values, way):
        for name, places in self.steps:
            given = [values[i] for i in places]
            rounded = way == ROUNDED and name == "there and back"
            values.append(given[0].astype(SINGLE).astype(FLOAT) if rounded else STEPS[name][min(way, 2)](*given))
        return [values[i] for i in self.results]

    def oracle(self, arrays, way=2):
        full = np.broadcast_shapes(*(a.shape for a in arrays))
        return self.walk([np.broadcast_to(a, full) + np.zeros(full) for a in arrays], way)


class Fold(ReductionOp):
    """A reduction that was drawn."""

    COMBINE = {"add": np.sum, "mul": np.prod, "maximum": np.max, "minimum": np.min}
    FINISH = {None: lambda t, n: t, "mean": lambda t, n: t / n, "length": lambda t, n: (t * t + n) ** 0.5}

    def __init__(self, formula, combine, finish):
        self.inner, self.how = formula, (combine, finish)
        super().__init__(lambda x: formula.walk([x], 1)[0], name="fold", combine=combine,
                         finish=None if finish is None else lambda t, n: lang.sqrt(t * t + n) if finish == "length" else t / n)

    def oracle(self, arrays, way, axis, keepdims):
        (each,) = self.inner.oracle(arrays, way)
        folded = self.COMBINE[self.how[0]](each, axis=axis, keepdims=keepdims)
        count = each.size // max(1, np.sum(each, axis=axis).size)
        return [np.reshape(self.FINISH[self.how[1]](folded, count), np.shape(folded) or (1,))]


@st.composite
def formulas(draw, n_inputs, names, n_results):
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(names))
        before = st.integers(0, n_inputs + len(steps) - 1)
        steps.append((name, [draw(before) for _ in range(STEPS[name][0])]))
    last = n_inputs + len(steps) - 1
    return Formula(n_inputs, steps, [last, *(draw(st.integers(0, last)) for _ in range(n_results - 1))])


@st.composite
def shapes(draw, n):
    """n shapes that broadcast, the first to all of it."""
    full = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    out = [full]
    for _ in range(n - 1):
        shape = tuple(draw(st.sampled_from((d, 1))) for d in full)
        out.append(shape[draw(st.integers(0, len(shape))):])
    return out


@st.composite
def elementwise_cases(draw):
    """(operator, its parameters, shapes of the inputs, its oracle)."""
    n = draw(st.integers(1, 3))
    op = draw(formulas(n, sorted(STEPS), draw(st.integers(1, 3))))
    return op, NONE, draw(shapes(n)), op.oracle


@st.composite
def fold_cases(draw):
    inner = draw(formulas(1, sorted(STEPS.keys() - ROWS), 1))
    op = Fold(inner, draw(st.sampled_from(sorted(Fold.COMBINE))), draw(st.sampled_from(sorted(Fold.FINISH, key=str))))
    (shape,) = draw(shapes(1))
    axis = tuple(draw(st.lists(st.sampled_from(range(len(shape))), unique=True)))
    keepdims = draw(st.booleans())
    p = op.parse({"axis": axis, "keepdims": keepdims})
    return op, p, [shape], lambda arrays, way=2: op.oracle(arrays, way, axis or None, keepdims)


def check(target, case, seed):
    """Values equal the oracle's, and the derivative along a random direction equals the oracle's difference."""
    op, p, in_shapes, oracle = case
    rng = np.random.default_rng(seed)
    xs = [rng.normal(size=s) for s in in_shapes]
    want = oracle(xs, ROUNDED)
    assume(all(np.allclose(w, s, rtol=1e-4, atol=1e-4) for w, s in zip(want, oracle(xs))))  # no jump between rounded and not
    specs = [Spec(w.shape, FLOAT) for w in want]
    ys, _ = call(op, p, xs, specs, target=target)
    loose = 1e-5 if "there and back" in str(getattr(op, "inner", op).steps) else 1e-9  # through single precision
    for y, w in zip(ys, want):
        np.testing.assert_allclose(y, w, rtol=loose, atol=loose)
    us, vs = [rng.normal(size=w.shape) for w in want], [rng.normal(size=x.shape) for x in xs]

    def at(step):
        return sum(np.sum(u * y) for u, y in zip(us, oracle([x + step * v for x, v in zip(xs, vs)])))

    eps = 1e-6
    right, left = (at(eps) - at(0)) / eps, (at(0) - at(-eps)) / eps
    assume(abs(right - left) <= 1e-3 * max(1, abs(right)))  # not across a corner or a jump
    slope = (at(eps) - at(-eps)) / (2 * eps)
    g = op.gradient_of(p)
    found = 0.0
    if g is not None:
        read = {"dy": us, "x": xs, "y": ys}
        ins = [read[kind][i] for kind, i in g.needs]
        outs = [Spec(xs[i].shape, FLOAT) for i in g.gives]
        wrote, _ = call(g.op, p, ins, outs, target=target)
        added, _ = call(g.op, p, ins, outs, target=target, reqs=[Req.ADD] * len(outs), fill=2)
        for a, w in zip(added, wrote):
            np.testing.assert_allclose(a, w + 2, rtol=1e-9, atol=1e-9)  # derivatives of random formulas
        found = sum(np.sum(d * vs[i]) for d, i in zip(wrote, g.gives))
    assert abs(found - slope) <= max(1e-5, 100 * (loose > 1e-6) * loose) * max(1, abs(slope)), (found, slope)


SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=75)
@given(case=elementwise_cases(), seed=SEEDS)
def test_formulas(target, case, seed):
    check(target, case, seed)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=25)
@given(case=fold_cases(), seed=SEEDS)
def test_reductions(target, case, seed):
    check(target, case, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=1500)
@given(case=elementwise_cases(), seed=SEEDS)
def test_many_formulas(target, case, seed):
    check(target, case, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=500)
@given(case=fold_cases(), seed=SEEDS)
def test_many_reductions(target, case, seed):
    check(target, case, seed)
