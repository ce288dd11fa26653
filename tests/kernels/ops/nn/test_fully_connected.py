"""FullyConnected: values against MXNet and sums written out, gradient, requests, errors. CPU and interpreted GPU."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.layer_helpers import TARGETS, Run, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.dtype import as_dtype
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops

HALVES = ["float16", "bfloat16"]


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
def test_halves_add_up_in_float32(target, dtype, rng):
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
    ops.compiled(forward.gradient_of(p).op, p, *specs, reqs, "cpu", True)(Run(backwards=True), [dy, x, w], outs)
    for got, wanted in zip(outs, want):
        assert_close(got, wanted, scale=10)  # 10: rounded in another order


def test_shapes_are_inferred_both_ways():
    op = ops.get("FullyConnected")
    p = op.parse({"num_hidden": "7"})
    assert op.infer_shape(p, [(2, 3, 4), None, None]) == ([(2, 3, 4), (7, 12), (7,)], [(2, 7)])
    assert op.infer_shape(p, [(-1, 12), None, None], [(2, 7)]) == ([(2, 12), (7, 12), (7,)], [(2, 7)])
    assert op.infer_shape(p, [None, (7, 12), None])[0] == [None, (7, 12), None]  # as MXNet: nothing without the data


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("FullyConnected").infer_shape(ops.get("FullyConnected").parse({"num_hidden": 7}), [(2, 3), (7, 4), None]),
     ShapeError, r"FullyConnected: data \(2, 3\) and weight \(7, 4\) disagree. .* \(7, 3\)"),
    (lambda: ops.get("FullyConnected").infer_shape(ops.get("FullyConnected").parse({"num_hidden": 7}), [(2, 3), None, (3,)]),
     ShapeError, r"FullyConnected: bias \(3,\) must be \(7,\) for num_hidden=7"),
    (lambda: ops.get("FullyConnected").parse({"num_hidden": 0}),
     ParameterError, "FullyConnected: num_hidden=0 must be at least 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


def eighths(rng, shape, dtype):
    """Random multiples of 1/8 up to 2, which every half has, and whose products and sums float32 has: no sum is rounded."""
    return (rng.integers(-16, 17, shape) / 8).astype(as_dtype(dtype))


@pytest.mark.parametrize("target, dtype", [(t, d) for t in TARGETS for d in HALVES
                                           if (t, d) != ("gpu", "bfloat16")])  # Triton's interpreter cuts it off, a GPU rounds
@pytest.mark.parametrize("seed", range(8))
def test_halves_are_rounded_once(target, dtype, seed):
    """Every bit of the forward pass and of the derivatives, for random sizes and requests, is that of the exact sum, rounded."""
    rng = np.random.default_rng(seed)
    n, k, h = (int(v) for v in rng.integers(1, 90, 3))
    flatten, bias, request = rng.random() < 0.5, rng.random() < 0.7, [ops.Req.WRITE, ops.Req.ADD][seed % 2]
    x, w, b, dy, before = (eighths(rng, s, dtype) for s in ((n, 2, k), (h, 2 * k if flatten else k), (h,),
                                                            (n, h) if flatten else (n, 2, h), (n * 2 * h * k,)))
    rows, heads = x.reshape(-1, w.shape[1]).astype("f8"), dy.reshape(-1, h).astype("f8")
    want = [rows @ w.T.astype("f8") + (b.astype("f8") if bias else 0)]
    slopes = [heads @ w.astype("f8"), heads.T @ rows, heads.sum(0)]
    op, given = ops.get("FullyConnected"), [x, w, b][:2 + bias]
    p = op.parse({"num_hidden": h, "flatten": flatten, "no_bias": not bias})
    for part, ins, exact, like in ((op, given, want, [dy]), (op.gradient_of(p).op, [dy, x, w], slopes[:2 + bias], given)):
        outs = [np.resize(before, a.shape).astype(a.dtype) for a in like]
        start = [a.astype("f8") if request == ops.Req.ADD else 0 for a in outs]
        specs = [tuple(ops.Spec(a.shape, a.dtype) for a in arrays) for arrays in (ins, outs)]
        ops.compiled(part, p, *specs, (request,) * len(outs), target, True)(Run(), ins, outs)
        for got, exactly, from_, a in zip(outs, exact, start, like):
            np.testing.assert_array_equal(got, (exactly.reshape(a.shape) + from_).astype(a.dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_a_network_of_halves_on_the_cpu(dtype, rng):
    """Through nd, autograd, bind and a fused rectifier behind it. Oracle: the same in float64, from the same halves."""
    x, w, b = (eighths(rng, s, dtype) for s in ((5, 3), (4, 3), (4,)))
    want = np.maximum(x.astype("f8") @ w.astype("f8").T + b.astype("f8"), 0)
    slope = (want > 0).T.astype("f8") @ x.astype("f8")
    arrays = {n: mx.nd.array(a, dtype=dtype) for n, a in (("data", x), ("fc_weight", w), ("fc_bias", b))}
    y = mx.sym.relu(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc"))
    grads = {n: mx.nd.zeros(a.shape, dtype=dtype) for n, a in arrays.items()}
    ex = y.bind(mx.cpu(), arrays, grads)
    np.testing.assert_array_equal(ex.forward(is_train=True)[0].asnumpy(), want.astype(as_dtype(dtype)))
    ex.backward(mx.nd.ones((5, 4), dtype=dtype))
    np.testing.assert_array_equal(grads["fc_weight"].asnumpy(), slope.astype(as_dtype(dtype)))
    arrays["fc_weight"].attach_grad()
    with mx.autograd.record():
        out = mx.nd.relu(mx.nd.FullyConnected(*arrays.values(), num_hidden=4))
    out.backward()
    np.testing.assert_array_equal(out.asnumpy(), want.astype(as_dtype(dtype)))
    np.testing.assert_array_equal(arrays["fc_weight"].grad.asnumpy(), slope.astype(as_dtype(dtype)))
