"""FullyConnected: values against MXNet and sums written out, gradient, requests, errors. CPU and interpreted GPU."""

import numpy as np
import pytest
import tritium as mx
from layer_helpers import TARGETS, Run, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import DTypeError, ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("FullyConnected")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
def test_every_sum_written_out(target, rng):
    x, w, b = (rng.standard_normal(s).astype("f") for s in ((5, 2, 3), (4, 6), (4,)))
    want = np.zeros((5, 4))
    for i in range(5):
        for h in range(4):
            want[i, h] = b[h] + sum(float(x[i].ravel()[k]) * float(w[h, k]) for k in range(6))
    close(forward("FullyConnected", [x, w, b], target, num_hidden=4)[0], want.astype("f"))


@pytest.mark.parametrize(("target", "dtype"), [(t, d) for t in TARGETS for d in ("float16", "bfloat16")
                                               if (t, d) != ("cpu", "float16")])
def test_halves_add_up_in_float32(target, dtype, rng):
    from tritium.dtype import as_dtype

    x, w = np.ones((1, 4096)), np.full((1, 4096), 2.0**-12)  # a float16 sum would stop growing early
    got = forward("FullyConnected", [x.astype(as_dtype(dtype)), w.astype(as_dtype(dtype))], target, num_hidden=1, no_bias=True)[0]
    assert float(got[0, 0]) == 1.0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("flatten", [True, False])
def test_gradient_and_requests(target, flatten, rng):
    k = 6 if flatten else 3
    inputs = [rng.standard_normal(s) for s in ((4, 2, 3), (5, k), (5,))]
    check_gradient("FullyConnected", inputs, rng, target, num_hidden=5, flatten=flatten)
    head = rng.standard_normal((4, 5) if flatten else (4, 2, 5))
    check_requests("FullyConnected", inputs, [head], target, num_hidden=5, flatten=flatten)


@pytest.mark.parametrize("inplace", [False, True])
def test_large_derivatives_are_those_of_numpy_wherever_they_lie(inplace, rng):
    """dx may overwrite x, which the weight's derivative reads."""
    f, forward = np.dtype("float32"), ops.get("FullyConnected")
    p = forward.parse({"num_hidden": 300})
    dy, x, w = (rng.standard_normal(s).astype(f) for s in ((200, 300), (200, 400), (300, 400)))
    want = [dy @ w, dy.T @ x, dy.sum(0)]
    outs = [x if inplace else np.empty_like(x), np.empty_like(w), np.empty(300, f)]
    specs = [tuple(ops.Spec(a.shape, f) for a in arrays) for arrays in ((dy, x, w), outs)]
    reqs = (ops.Req.INPLACE if inplace else ops.Req.WRITE, ops.Req.WRITE, ops.Req.WRITE)
    ops.compiled(forward.gradient(p).op, p, *specs, reqs, "cpu", True)(Run(backwards=True), [dy, x, w], outs)
    for got, wanted in zip(outs, want):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_shapes_are_inferred_both_ways():
    op = ops.get("FullyConnected")
    p = op.parse({"num_hidden": "7"})
    assert op.infer_shape(p, [(2, 3, 4), None, None]) == ([(2, 3, 4), (7, 12), (7,)], [(2, 7)])
    assert op.infer_shape(p, [(-1, 12), None, None], [(2, 7)]) == ([(2, 12), (7, 12), (7,)], [(2, 7)])
    assert op.infer_shape(p, [None, (7, 12), None])[0] == [None, (7, 12), None]  # as MXNet: nothing without the data


def test_errors_state_the_shapes_and_the_rule():
    op = ops.get("FullyConnected")
    p = op.parse({"num_hidden": 7})
    with pytest.raises(ShapeError, match=r"FullyConnected: data \(2, 3\) and weight \(7, 4\) disagree. .* \(7, 3\)"):
        op.infer_shape(p, [(2, 3), (7, 4), None])
    with pytest.raises(ShapeError, match=r"FullyConnected: bias \(3,\) must be \(7,\) for num_hidden=7"):
        op.infer_shape(p, [(2, 3), None, (3,)])
    with pytest.raises(ParameterError, match="FullyConnected: num_hidden=0 must be at least 1"):
        op.parse({"num_hidden": 0})


def test_float16_is_refused_on_the_cpu():
    x, w = (mx.nd.ones(s, dtype="float16") for s in ((2, 3), (4, 3)))
    told = (r"FullyConnected: float16 is for GPUs only, as in MXNet: data float16\[2,3\] is on the CPU. "
            r"Cast data, weight and bias to float32, or use a gpu context")
    with pytest.raises(DTypeError, match=told):
        mx.nd.FullyConnected(x, w, num_hidden=4, no_bias=True)
    y = mx.sym.relu(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4))
    with pytest.raises(DTypeError, match=told):
        y.simple_bind(mx.cpu(), type_dict={"data": "float16"}, data=(2, 3))
    y = mx.sym.FullyConnected(mx.sym.Cast(mx.sym.Variable("data"), dtype="float32"), num_hidden=4)
    assert y.simple_bind(mx.cpu(), type_dict={"data": "float16"}, data=(2, 3)).forward()[0].dtype == np.float32
