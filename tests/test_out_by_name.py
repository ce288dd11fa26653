"""`out` is given to NumPy by name: by position it is deprecated, for some functions from NumPy 2.5 on. Looked for in the text of
everything that is written by hand, and of the kernels that are generated, so that it is seen with an older NumPy, too."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from test_registry import USES, inputs_of, spec
from tritium.kernels.cpu.numpy_printer import numpy_source
from tritium.kernels.ir.expr import load, prim
from tritium.kernels.ir.primitives import PRIMITIVES
from tritium.kernels.op import Expression, Req, Spec

PACKAGE = Path(__file__).parents[1]
FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if not {"tests", "perf", "build"} & {*p.relative_to(PACKAGE).parts}
         and not any(part.startswith(".") for part in p.relative_to(PACKAGE).parts)]
METHODS = {"reduce": 3, "accumulate": 3, "reduceat": 4}  # of a ufunc: where `out` stands
OTHERS = {"dot": 2, "concatenate": 2, "vdot": 2, "inner": 2}  # functions that tell no signature


def place_of_out(call):
    """The position at which a call of NumPy would take `out`; None where it is none, or takes none."""
    f = call.func
    if not isinstance(f, ast.Attribute):
        return None
    if f.attr in METHODS and isinstance(f.value, ast.Attribute) and isinstance(getattr(np, f.value.attr, None), np.ufunc):
        return METHODS[f.attr]
    function = getattr(np, f.attr, None) if isinstance(f.value, ast.Name) and f.value.id in ("np", "numpy") else None
    if isinstance(function, np.ufunc):
        return function.nin
    if function is None or f.attr in OTHERS:
        return OTHERS.get(f.attr) if function is not None else None
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    by_place = [n for n, p in names.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return by_place.index("out") if "out" in by_place else None


def positional(text):
    """The calls in a text that give `out` by position."""
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    return [ast.unparse(n) for n in calls if (at := place_of_out(n)) is not None and len(n.args) > at]


@pytest.mark.parametrize("text, wrong", [
    ("np.maximum(a, b, out)", True), ("np.maximum(a, b, out=out)", False), ("np.exp(a, a)", True), ("np.exp(a)", False),
    ("np.add.reduce(a, 0, None, out)", True), ("np.add.reduce(a, 0)", False), ("np.dot(a, b, out)", True),
    ("np.clip(a, 0, 1)", False), ("np.clip(a, 0, 1, out)", True), ("np.sum(a, 0, None, out)", True), ("p_erf(a, out)", False)])
def test_what_is_looked_for(text, wrong):
    assert bool(positional(text)) is wrong


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_in_what_is_written_by_hand(path):
    assert positional(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", [n for n, p in PRIMITIVES.items() if p.numpy is not None])
def test_in_what_is_generated_for_a_primitive(name):
    x = [load(i, np.dtype("float32")) for i in range(PRIMITIVES[name].arity)]
    one = Spec((5,), np.dtype("float32"))
    text = numpy_source(Expression((prim(name, *x),)), [one] * len(x), [one], [Req.WRITE])
    assert positional(text) == []


@pytest.mark.parametrize("op, inputs, params", USES)
def test_in_what_is_generated_for_an_operator(op, inputs, params):
    """Forward and backward, written and added."""
    p = op.parse(params)
    arrays, outs = inputs_of(op, p, inputs, "float32")
    ins = [spec(a) for a in arrays]
    gradient = op.gradient_of(p)
    groups = {"dy": outs, "x": ins, "y": outs}
    uses = [(op, ins, outs)]
    if gradient is not None:
        uses.append((gradient.op, [groups[kind][i] for kind, i in gradient.needs], [ins[i] for i in gradient.gives]))
    for part, given, made in uses:
        e = part.expression(p, [s.dtype for s in given])
        for req in (Req.WRITE, Req.ADD) if e is not None else ():
            assert positional(numpy_source(e, given, made, [req] * len(made))) == [], part.name
