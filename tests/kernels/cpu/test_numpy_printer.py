"""The NumPy tile program: sharing of memory between inputs and several outputs, tiles, broadcasting, empty arrays.

Oracle: the same formula in NumPy on copies.
"""

import numpy as np
import pytest
from tritium.kernels.cpu.numpy_printer import TILE, numpy_kernel, numpy_source
from tritium.kernels.declare.check_op import HostRun
from tritium.kernels.ir import lang
from tritium.kernels.ir.expr import load
from tritium.kernels.op import Expression, Req, Spec

F32 = np.dtype("float32")
X, Y = load(0, F32), load(1, F32)
PAIRS = {
    "swap": ((Y, X), lambda x, y: (y, x)),
    "derivative of a - b": ((Y, -Y), lambda x, y: (y, -y)),
    "both read both": ((X + Y, X * Y), lambda x, y: (x + y, x * y)),
    "one inside the other": ((lang.exp(X), lang.exp(X) * Y), lambda x, y: (np.exp(x), np.exp(x) * y)),
    "chains": ((lang.exp(X * Y) + 1, lang.exp(X - Y) * X), lambda x, y: (np.exp(x * y) + 1, np.exp(x - y) * x)),
    "where": ((lang.where(X > 0, X, Y), X - Y), lambda x, y: (np.where(x > 0, x, y), x - y)),
}


@pytest.mark.parametrize("n", [5, TILE // 2 + 7, TILE * 2 + 3])
@pytest.mark.parametrize("first, second", [(a, b) for a in range(3) for b in range(3) if a != b])
@pytest.mark.parametrize("name", PAIRS)
def test_outputs_may_lie_where_inputs_lie(name, first, second, n, rng):
    """first, second: where each output lies: on input 0, on input 1, or (2) on memory of its own."""
    roots, oracle = PAIRS[name]
    x, y = rng.normal(size=n).astype(F32), rng.normal(size=n).astype(F32)
    want = oracle(x.copy(), y.copy())
    memory = [x, y, np.empty_like(x)]
    outs = [memory[first], memory[second]]
    reqs = [Req.INPLACE if where < 2 else Req.WRITE for where in (first, second)]
    spec = Spec((n,), F32)
    numpy_kernel(Expression(roots), [spec] * 2, [spec] * 2, reqs)(HostRun(), [x, y], outs)
    for got, w in zip(outs, want):
        np.testing.assert_allclose(got, w, rtol=1e-6)  # closer than the table


def test_a_state_is_stored_into_its_input():
    x, m = np.ones(9, F32), np.full(9, 3, F32)
    e = Expression((X + Y, X * Y * 2), states=((1, 1),))
    spec = Spec((9,), F32)
    numpy_kernel(e, [spec, spec], [spec], [Req.INPLACE])(None, [x, m], [x])
    assert (x == 4).all() and (m == 6).all()


def test_a_state_is_not_stored_before_its_old_value_was_read():
    x, m = np.ones(9, F32), np.full(9, 3, F32)
    doubled = X * 2
    e = Expression((doubled + Y, doubled), states=((1, 1),))
    spec = Spec((9,), F32)
    numpy_kernel(e, [spec, spec], [spec], [Req.INPLACE])(None, [x, m], [x])
    assert (x == 5).all() and (m == 2).all()


def test_numbers_are_rounded_to_the_arrays_dtype():
    x, out, spec = np.full(3, 2, F32), np.empty(3, F32), [Spec((3,), F32)]
    numpy_kernel(Expression((X * 0.1 + 1e60,)), spec, spec, [Req.WRITE])(None, [x], [out])
    assert np.isinf(out).all()
    numpy_kernel(Expression((X * 0.1,)), spec, spec, [Req.WRITE])(None, [x], [out])
    assert (out == np.float32(2) * np.float32(0.1)).all()


@pytest.mark.parametrize("shapes", [((3, 1, 5), (1, 4, 1)), ((2, 50_000), (1, 50_000)), ((300, 1), (1, 700)), ((7,), ()),
                                    ((0, 3), (1, 3))])
def test_broadcast_and_folded_add(shapes, rng):
    a, b = (rng.normal(size=s).astype(F32) for s in shapes)
    full = np.broadcast_shapes(*shapes)
    out = np.ones(full, F32)
    fold = np.ones(shapes[1], F32)
    specs = [Spec(a.shape, F32), Spec(b.shape, F32)]
    e = Expression((X * Y, X * Y))
    numpy_kernel(e, specs, [Spec(full, F32), Spec(b.shape, F32)], [Req.WRITE, Req.ADD])(HostRun(), [a, b], [out, fold])
    np.testing.assert_allclose(out, a * b, rtol=1e-6)  # closer than the table
    wide = a.astype("float64") * b
    wide = wide.sum(axis=tuple(range(wide.ndim - b.ndim)))
    for axis, n in enumerate(b.shape):
        wide = wide.sum(axis=axis, keepdims=True) if n == 1 else wide
    np.testing.assert_allclose(fold, 1 + wide, rtol=1e-4, atol=1e-3)  # thousands of float32 terms


def test_a_chain_of_ufuncs_is_computed_in_the_output():
    spec = Spec((3, 5), F32)
    source = numpy_source(Expression((lang.exp(X * Y) + 1,)), [spec] * 2, [spec], [Req.WRITE])
    assert "r0" not in source and source.count("out=o0") == 3
    shared = numpy_source(Expression((lang.exp(X * Y) + X,)), [spec] * 2, [spec], [Req.INPLACE])
    assert shared.count("out=o0") == 1, "the output may be X, which is read last"
