"""Pooling in C: the results of NumPy's kernels for windows of every kind, with NaN, equal maxima and windows of padding alone."""

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from support.layer_helpers import Run
from tritium.errors import ShapeError
from tritium.kernels import op as ops
from tritium.kernels.cpu import c_compile
from tritium.kernels.kernel import Kernel
from tritium.kernels.op import Req, Spec
from tritium.kernels.ops.nn import c_pool

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
POOLING = ops.builtin("Pooling")
AXIS = st.tuples(st.integers(1, 13), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))  # size, kernel, stride, pad


def both(prop, x, dy, y0, dx0, req, backwards=False):
    """Return the result and the derivative."""
    y, dx = y0.copy(), dx0.copy()
    kind, write = prop.pool_type, y0.copy()

    def specs(*arrays):
        return [Spec(a.shape, a.dtype) for a in arrays]

    def run(kernel, inputs, outputs):
        (kernel if isinstance(kernel, Kernel) else Kernel(kernel))(Run(backwards=backwards), inputs, outputs)

    run(prop.forward_kernel(specs(x), specs(y), (req,), "cpu", True), [x], [y])
    run(prop.forward_kernel(specs(x), specs(y), (Req.WRITE,), "cpu", True), [x], [write])
    reads = [dy, x, write] if kind == "max" else [dy]
    run(prop.backward_kernel(specs(*reads), specs(x), (req,), "cpu", True), reads, [dx])
    return y, dx


@given(n=st.integers(1, 3), c=st.sampled_from([1, 2, 3, 16, 20, 70, 130]), axes=st.one_of(st.tuples(AXIS), st.tuples(AXIS, AXIS)),
       kind=st.sampled_from(["max", "avg", "sum"]), last=st.booleans(), full=st.booleans(), count=st.booleans(),
       whole=st.integers(0, 5), equal=st.booleans(), nan=st.booleans(), add=st.booleans(), backwards=st.booleans())
def test_it_equals_numpy(n, c, axes, kind, last, full, count, whole, equal, nan, add, backwards):
    rng = np.random.default_rng(n * c)
    size, kernel, stride, pad = zip(*axes)
    layout = {(1, False): "NCW", (1, True): "NWC", (2, False): "NCHW", (2, True): "NHWC"}[len(size), last]
    shape = (n, *size, c) if last else (n, c, *size)
    x = rng.integers(-2, 3, shape).astype("f") if equal else rng.normal(size=shape).astype("f")
    if nan:
        x.flat[rng.integers(x.size)] = np.nan
    try:
        p = POOLING.parse({"kernel": kernel, "stride": stride, "pad": pad, "pool_type": kind, "layout": layout,
                           "pooling_convention": "full" if full else "valid", "count_include_pad": count,
                           "global_pool": whole == 0})
        out = POOLING.infer_shape(p, [shape])[1][0]
    except ShapeError:
        reject()
    prop, req = POOLING.property(p), Req.ADD if add else Req.WRITE
    given_arrays = x, *(rng.normal(size=s).astype("f") for s in (out, out, shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITIUM_CPU_CODE", "numpy")
        want = both(prop, *given_arrays, req)
        patch.setenv("TRITIUM_CPU_CODE", "c")
        assert c_pool.in_c(prop.geometry(shape), kind, x.dtype)
        got = both(prop, *given_arrays, req, backwards)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "shape", "dtype", "yes"), [
    ("max", (64, 20, 24, 24), "float32", True), ("lp", (64, 20, 24, 24), "float32", False),
    ("max", (64, 20, 24, 24), "float64", False), ("max", (1, 2, 4, 4), "float32", False),
    ("max", (8, 20, 4, 24, 24), "float32", False)])
def test_what_c_computes(kind, shape, dtype, yes, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    rank = len(shape) - 2
    prop = POOLING.property(POOLING.parse({"kernel": (2,) * rank, "pool_type": kind, "p_value": 2 if kind == "lp" else None}))
    assert c_pool.in_c(prop.geometry(shape), kind, np.dtype(dtype)) == yes


def test_few_large_images_are_cut_into_channels():
    """So that both threads have work with a batch of one."""
    prop = POOLING.property(POOLING.parse({"kernel": (3, 3), "layout": "NHWC"}))
    call, images = c_pool._call("pool_forward", prop.geometry((1, 112, 112, 256)), "max", False)
    assert (call.pieces, images) == (4, 1)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("size", "kernel", "stride"), [
    ((2, 2), (2, 2), (2, 2)), ((5, 31), (2, 2), (2, 2)), ((24, 24), (2, 2), (2, 2)), ((6, 34), (3, 2), (2, 2)),
    ((7, 67), (2, 2), (3, 2)), ((8, 64), (1, 2), (1, 2)), ((35,), (2,), (2,))])
def test_columns_in_pairs(size, kernel, stride, add, kind, monkeypatch):
    """Windows of two columns side by side, of which rows are read as they lie: the bits of NumPy's."""
    rng = np.random.default_rng(5)
    shape = (2, 3, *size)
    x = rng.integers(-2, 3, shape).astype("f")
    x.flat[3] = np.nan
    x.flat[[0, 1]] = np.inf, -np.inf if kind == "max" else np.inf
    p = POOLING.parse({"kernel": kernel, "stride": stride, "pool_type": kind, "pooling_convention": "full"})
    if size[-1] % 2:
        p = POOLING.parse({"kernel": kernel, "stride": stride, "pool_type": kind})
    out = POOLING.infer_shape(p, [shape])[1][0]
    prop, arrays = POOLING.property(p), (x, *(rng.integers(-3, 4, s).astype("f") for s in (out, out, shape)))
    results = []
    for code in ("numpy", "c"):
        monkeypatch.setenv("TRITIUM_CPU_CODE", code)
        results.append(both(prop, *arrays, Req.ADD if add else Req.WRITE))
    (y, dx), (y_c, dx_c) = results
    np.testing.assert_array_equal(y_c, y)
    np.testing.assert_allclose(dx_c, dx, rtol=0 if kind == "max" else 1e-6)  # shares of an average are added in another order
