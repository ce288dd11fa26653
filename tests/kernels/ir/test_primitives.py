"""Every row of the table: no gap in a column, and its derivative against finite differences in float64."""

import re

import numpy as np
import pytest
from tritium.kernels.cpu.c_math import FUNCTIONS
from tritium.kernels.cpu.numpy_printer import numpy_kernel
from tritium.kernels.ir.differentiate import derive
from tritium.kernels.ir.expr import load, prim
from tritium.kernels.ir.primitives import PRIMITIVES
from tritium.kernels.ir.special import erf, select
from tritium.kernels.op import Expression, Req, Spec

F64 = np.dtype("float64")
RANGE = {"log": (0.2, 3), "log2": (0.2, 3), "log10": (0.2, 3), "log1p": (-0.5, 3), "sqrt": (0.2, 3), "rsqrt": (0.2, 3),
         "cbrt": (0.2, 3), "arcsin": (-0.9, 0.9), "arccos": (-0.9, 0.9), "arctanh": (-0.9, 0.9), "arccosh": (1.2, 3),
         "pow": (0.3, 3), "div": (0.3, 3), "mod": (0.3, 3), "reciprocal": (0.3, 3), "tan": (-1.2, 1.2),
         "erfinv": (-0.9, 0.9), "gamma": (0.3, 3), "gammaln": (0.3, 3), "digamma": (0.3, 3)}


def run(roots, arrays):
    outs = [np.empty(arrays[0].shape) for _ in roots]
    specs = [Spec(a.shape, a.dtype) for a in arrays]
    kernel = numpy_kernel(Expression(tuple(roots)), specs, [Spec(o.shape, F64) for o in outs], [Req.WRITE] * len(outs))
    kernel(None, arrays, outs)
    return outs


@pytest.mark.parametrize("name", PRIMITIVES)
def test_no_column_is_empty(name):
    row = PRIMITIVES[name]
    assert row.doc and row.cost > 0 and row.derivative is not None
    assert "{0}" in row.triton and row.rule in ("same", "whole", "float", "compare", "logic", "where")
    assert row.triton.count("{1}") >= (row.arity >= 2)


def test_every_primitive_is_spelled_in_c_or_known_to_stay_numpy():
    """A gap is named here, and what is spelled calls functions that are defined, and takes its arguments."""
    gaps = {n for n, r in PRIMITIVES.items() if not r.c}
    assert gaps == {"pow", "whole_pow", "hypot", "arctan2", "cbrt", "exp2", "log2", "log10", "tan", "arcsin",
                    "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh", "arctanh", "erfinv", "gamma", "gammaln", "digamma"}
    for row in PRIMITIVES.values():
        called = re.findall(r"\b_(\w+)\(", row.c)
        assert all(any(f.startswith(f"{name}_") for f in FUNCTIONS) for name in called), row.name
        assert not row.c or (all(f"{{{i}}}" in row.c for i in range(row.arity)) and f"{{{row.arity}}}" not in row.c)


@pytest.mark.parametrize("name", [n for n, r in PRIMITIVES.items() if r.rule in ("same", "float")])
def test_derivative_is_the_slope(name, rng):
    row = PRIMITIVES[name]
    low, high = RANGE.get(name, (-3, 3))
    xs = [rng.uniform(low, high, size=64) for _ in range(row.arity)]
    xs = [np.where(np.abs(x - np.round(x)) < 0.02, x + 0.05, x) for x in xs]
    if name == "mod":
        xs = [x + 0.013 for x in xs]
    inputs = [load(i, F64) for i in range(row.arity)]
    y = prim(name, *inputs)
    for i, d in enumerate(derive([y], [load(9, F64)], inputs)):
        eps = 1e-6
        moved = [[x + (s * eps if j == i else 0) for j, x in enumerate(xs)] for s in (1, -1)]
        slope = (run([y], moved[0])[0] - run([y], moved[1])[0]) / (2 * eps)
        if d is None:
            assert np.allclose(slope, 0, atol=1e-6)  # slopes by finite differences
            continue
        ones = np.ones(64)
        (got,) = run([d], [*xs, *[ones] * (10 - len(xs))])
        smooth = np.abs(slope) < 1e3  # not across a jump
        np.testing.assert_allclose(got[smooth], slope[smooth], rtol=2e-5, atol=1e-6)  # slopes by finite differences


def test_erf_against_the_standard_library():
    import math

    x = np.concatenate([np.linspace(-7, 7, 4001), [0.46875, -0.46875, np.inf, -np.inf]])
    out = np.empty_like(x)
    erf(x, out)
    np.testing.assert_allclose(out, [math.erf(v) for v in x], rtol=0, atol=5e-16)  # closer than the table
    nan = np.array([np.nan])
    erf(nan, nan)
    assert np.isnan(nan[0])


def test_erf_in_single_precision():
    import math

    x = np.concatenate([np.linspace(-5, 5, 5001), [0.0, -0.0, 1e-30, np.inf, -np.inf]]).astype("float32")
    out = np.empty_like(x)
    erf(x, out)
    np.testing.assert_allclose(out, [math.erf(v) for v in x], rtol=1e-6, atol=0)  # closer than the table
    assert math.copysign(1, out[5002]) < 0
    nan = np.array([np.nan], "float32")
    erf(nan.copy(), nan)
    assert np.isnan(nan[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("n", [3, 5000])
def test_select_is_exact(dtype, n, rng):
    a, b = ((rng.normal(size=n) * 100).astype(dtype) for _ in range(2))
    if dtype.startswith("float"):
        a[0], b[1] = np.nan, -0.0
    c = rng.random(n) < 0.5
    for x, y in ((a, b), (a, 0), (0, b), (a, -0.0 if dtype.startswith("float") else 1), (a[:1], b), (1, 0)):
        out = np.empty(n, dtype)
        select(c, x, y, out)
        assert out.tobytes() == np.where(c, np.asarray(x, dtype), np.asarray(y, dtype)).tobytes()
    out = b.copy()
    select(c, a, out, out)
    assert out.tobytes() == np.where(c, a, b).tobytes()
