"""Narrow products and sums over rows in C: equal to float64's, with the same bits for any pieces, and only in bound graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layer_helpers import Run
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.op import Req
from tritium.kernels.ops.linalg import c_narrow, gemm

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
WIDE = st.one_of(st.integers(8, 300), st.sampled_from([1, 2, 3, 4, 5, 8, 500]))


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


@given(few=st.integers(1, 13), many=WIDE, k=st.one_of(st.integers(16, 100), st.sampled_from([16, 31, 32, 33, 64, 1009])),
       turned=st.booleans(), add=st.booleans(), bias=st.booleans(), piece=st.sampled_from([16, 1000, 1 << 16]))
def test_it_equals_float64(few, many, k, turned, add, bias, piece):
    rng, was = np.random.default_rng(few * many * k), c_narrow.PIECE
    m, n = (many, few) if turned else (few, many)
    a, b = rng.normal(size=(m, k)).astype("f"), rng.normal(size=(n, k)).astype("f").T
    out, each = rng.normal(size=(m, n)).astype("f"), rng.normal(size=n).astype("f") if bias else None
    want, whole = a.astype("d") @ b + (out if add else 0) + (0 if each is None else each), out.copy()
    try:
        c_narrow.PIECE = piece
        gemm.gemm(a, b, out, add, each, in_graph=True)(Run(backwards=True))
    finally:
        c_narrow.PIECE = was
    size = np.abs(a).astype("d") @ np.abs(b) + 3
    assert (np.abs(out - want) <= 2e-7 * np.sqrt(k + 10) * size).all()
    step = c_narrow.prepare(a, b, whole, add, each)
    if c_narrow.better(m, n, k, 8):
        assert step is not None
        Phases([[step]])(None)
        np.testing.assert_array_equal(out, whole)


def test_special_values_stay_in_their_rows():
    a, b = np.ones((2, 40), "f"), np.ones((40, 30), "f", order="F")
    b[3, 7], b[39, 9], a[1, 38] = np.nan, np.inf, -0.0
    out = np.empty((2, 30), "f")
    gemm.gemm(a, b, out, in_graph=True)(None)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize(("a", "b", "in_graph"), [
    ((3, 40), (40, 50), False), ((3, 15), (15, 500), True), ((9, 40), (40, 50), True)],
    ids=["an imperative call", "short sums", "a wide product"])
def test_other_products_are_not_narrow(a, b, in_graph, monkeypatch):
    given = []
    monkeypatch.setattr(c_narrow, "Call", lambda *args: given.append(args))
    x, y = np.ones(a, "f"), np.ones(b[::-1], "f").T
    out = np.empty((a[0], b[1]), "f")
    gemm.gemm(x, y, out, in_graph=in_graph)(Run())
    assert not given and (out == a[1]).all()


@given(m=st.integers(1, 70), n=st.integers(1, 200), add=st.booleans(), summed=st.sampled_from([64, 1 << 16]))
def test_sums_over_rows_equal_float64s(m, n, add, summed):
    rng, was = np.random.default_rng(m * n), c_narrow.SUMMED
    a, out = rng.normal(size=(m, n)).astype("f"), rng.normal(size=n).astype("f")
    want = a.sum(axis=0, dtype="d") + (out if add else 0)
    try:
        c_narrow.SUMMED = summed
        gemm.sum_rows(a, out, Req.ADD if add else Req.WRITE)(Run(backwards=True))
    finally:
        c_narrow.SUMMED = was
    np.testing.assert_array_equal(out, want.astype("f"))
