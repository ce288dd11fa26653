"""LRN: MXNet's cases, a plain loop over channels, the slope, requests, errors."""

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import TARGETS, Run, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.cpu import c_compile
from tritium.kernels.op import Req, Spec
from tritium.kernels.ops.nn import c_lrn


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("LRN")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("nsize", [1, 3, 9])  # 9: wider than there are channels
def test_windows(nsize, target, rng):
    x, params = rng.standard_normal((2, 5, 2, 3)), {"nsize": nsize, "alpha": 0.6, "beta": 0.4, "knorm": 1.5}
    want = np.empty_like(x)
    for c in range(5):
        around = x[:, max(0, c - nsize // 2):c + nsize // 2 + 1]
        want[:, c] = x[:, c] / (1.5 + 0.6 / nsize * (around ** 2).sum(1)) ** 0.4
    close(forward("LRN", [x], target, **params)[0], want)
    check_gradient("LRN", [x], rng, target, **params)
    check_requests("LRN", [x], [x], target, **params)


@pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 3, 7), (3, 16, 8, 8), (2, 7, 131), (5, 70, 3, 67), (2, 300, 217), (1, 4, 2100),
                                   (2, 4, 0)])
def test_c_has_numpys_bits(shape, add, monkeypatch, rng):
    """With infinities, NaN and zeros, for windows wider than there are channels, and pieces in any order."""
    x, dy, y, dx = (rng.normal(size=shape).astype("f") for _ in range(4))
    x.flat[::11] = 0
    for value, at in ((np.inf, 1), (-np.inf, 5), (np.nan, 9), (1e-30, 13), (3e38, 17)):
        x.flat[at:at + 1] = value
    monkeypatch.setenv("TRITIUM_CPU_CODE", "numpy")
    assert not c_lrn.in_c((2, 3, 4), np.dtype("f"), 0.75)
    for nsize in (1, 5, 9):
        prop = ops.get("LRN").property(ops.get("LRN").parse({"nsize": nsize, "alpha": 0.6, "knorm": 1.5}))
        results = []
        for code, backwards in (("numpy", False), ("c", False), ("c", True)):
            monkeypatch.setenv("TRITIUM_CPU_CODE", code)
            req, run, spec = Req.ADD if add else Req.WRITE, Run(backwards=backwards), Spec(shape, x.dtype)
            made = [y.copy(), dx.copy()]
            for kernel, ins, out in ((prop.forward_kernel([spec], [spec], (req,), "cpu", True), [x], made[:1]),
                                     (prop.backward_kernel([spec] * 2, [spec], (req,), "cpu", True), [dy, x], made[1:])):
                with np.errstate(all="ignore"):
                    (kernel.run if hasattr(kernel, "run") else kernel)(run, ins, out)
            results.append(made)
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)


@pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
def test_what_c_computes(monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    rows = (32, 16, 256)
    assert c_lrn.in_c(rows, np.dtype("f"), 0.75)
    assert not c_lrn.in_c(rows, np.dtype("d"), 0.75) and not c_lrn.in_c(rows, np.dtype("f"), 0.5)
    assert not c_lrn.in_c((1, 2, 3), np.dtype("f"), 0.75) and not c_lrn.in_c((1, 1 << 13, 64), np.dtype("f"), 0.75)
    x = mx.nd.array(np.random.default_rng(0).normal(size=(4, 8, 12, 12)))
    part = mx.nd.LRN(mx.nd.concat(x, x, dim=0)[1:5], nsize=5)  # a view
    np.testing.assert_array_equal(part.asnumpy()[:3], mx.nd.LRN(x, nsize=5).asnumpy()[1:])


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("LRN").parse({"nsize": 4}), ParameterError, "LRN: nsize=4 must be odd and at least 1"),
    (lambda: ops.get("LRN").infer_shape(ops.get("LRN").parse({"nsize": 3}), [(3,)]),
     ShapeError, r"LRN: data \(3,\) needs a batch and channels"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
