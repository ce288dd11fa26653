"""Scans: running sums and the like along every axis, in both directions, on both devices; oracle: a loop."""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from support.operator_jobs import jobs_of
from tritium.errors import MXNetError, OperatorError, ShapeError
from tritium.kernels.gpu.codegen_checks import wrong_with
from tritium.kernels.gpu.compile import compile_all
from tritium.lang import exp, logaddexp, uniform

squares = mx.scan(lambda x, *, power: x**power, name="_test_squares", combine="add", replace=True)


@mx.scan(name="_test_sums_of_squares", combine="add", replace=True)
def sums_of_squares(x):
    """Running sums of squares."""
    return x * x


sums = mx.scan(lambda x: 2 * x, name="_test_sums", combine="add", replace=True)
peaks = mx.scan(lambda x: x, name="_test_peaks", combine="maximum", differentiable=False, replace=True)
products = mx.scan(lambda x: x, name="_test_products", combine="mul", differentiable=False, replace=True)
log_sums = mx.scan(lambda x: x, name="_test_log_sums", combine=logaddexp, identity=-math.inf, differentiable=False, replace=True)
lasts = mx.scan(lambda x: x, name="_test_lasts", combine=lambda a, b: b + 0 * a, identity=0, differentiable=False, replace=True)

CASES = [(sums_of_squares, lambda x: x * x, lambda a, b: a + b, 0), (peaks, lambda x: x, max, -math.inf),
         (products, lambda x: x, lambda a, b: a * b, 1), (log_sums, lambda x: x, np.logaddexp, -math.inf)]


def by_loop(x, each, combine, start, axis, reverse, exclusive):
    """The scan of x, element by element in float64."""
    x = each(x.astype("float64"))
    if axis is None:
        x, axis = x.reshape(-1), 0
    lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    out = np.empty_like(lines)
    for line, made in zip(lines, out):
        state = start
        for j in (range(len(line))[::-1] if reverse else range(len(line))):
            after = combine(state, line[j])
            made[j] = state if exclusive else after
            state = after
    return np.moveaxis(out.reshape(np.moveaxis(x, axis, -1).shape), -1, axis)


@pytest.mark.parametrize("op, each, combine, start", CASES, ids=["sums", "peaks", "products", "log_sums"])
@pytest.mark.parametrize("shape, axis", [((1,), 0), ((7,), None), ((3, 33), 1), ((33, 3), 0), ((2, 9, 4), -2), ((3, 4), None)])
def test_scans_along_every_axis(ctx, rng, op, each, combine, start, shape, axis):
    x = rng.normal(size=shape).astype("float32")
    for reverse, exclusive in ((False, False), (True, False), (False, True), (True, True)):
        y = op(mx.nd.array(x, ctx), axis=axis, reverse=reverse, exclusive=exclusive)
        assert_close(y, by_loop(x, each, combine, start, axis, reverse, exclusive), scale=10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int8"])
def test_dtypes(ctx, dtype):
    y = sums(mx.nd.array([[1, 2, 3], [4, 5, 60]], ctx, dtype=dtype), axis=1)
    assert y.dtype == mx.nd.zeros((1,), dtype=dtype).dtype
    want = np.array([[2, 6, 12], [8, 18, 138]])
    np.testing.assert_array_equal(y.asnumpy().astype(float), want.astype("int8") if dtype == "int8" else want)


def test_half_precision_is_added_up_in_float32(ctx):
    assert sums(mx.nd.array(np.full(3000, 0.125), ctx, dtype="float16"))[-1].asscalar() == 750


@pytest.mark.parametrize("reverse, exclusive", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_derivatives_of_running_sums(ctx, rng, axis, reverse, exclusive):
    for op in (sums_of_squares, sums):
        check_gradient(lambda x, op=op: op(x, axis=axis, reverse=reverse, exclusive=exclusive), rng.normal(size=(4, 5)), ctx, rng)
    assert sums.gradient_of(sums.parse({})).needs == (("dy", 0),)  # a linear body keeps nothing


def test_the_order_is_kept_where_combine_does_not_commute(ctx, rng):
    x = rng.normal(size=(2, 37)).astype("float32")
    np.testing.assert_array_equal(lasts(mx.nd.array(x, ctx), axis=1).asnumpy(), x)


def test_scans_in_graphs_and_of_nothing(ctx, rng):
    x = rng.normal(size=(3, 8))
    out = mx.sym.relu(getattr(mx.sym, "_test_sums")(mx.sym.Variable("x"), axis=1))  # noqa: B009
    ex = out.simple_bind(ctx, x=(3, 8), grad_req="add")
    for _ in range(2):
        ex.forward(is_train=True, x=x)
        ex.backward(mx.nd.ones((3, 8), ctx))
    y = np.cumsum(2 * x, 1)
    assert_close(ex.outputs[0], np.maximum(y, 0))
    assert_close(ex.grad_dict["x"], 2 * 2 * np.cumsum((y > 0)[:, ::-1], 1)[:, ::-1])
    assert peaks(mx.nd.zeros((0, 3), ctx), axis=0).shape == (0, 3) and sums(mx.nd.array(5.0, ctx).reshape(())).shape == (1,)


def test_parameters_of_a_body(ctx):
    assert squares(mx.nd.array([1.0, 2, 3], ctx), power=2).asnumpy().tolist() == [1, 5, 14]


def test_errors():
    x = mx.nd.ones((2, 3))
    with pytest.raises(ShapeError, match=r"_test_sums: axis 2 does not exist in an array of 2 axes\."):
        sums(x, axis=2)
    x.attach_grad()
    underived = mx.scan(lambda x: x, name="_test_bad", combine="mul", replace=True)
    with pytest.raises(OperatorError, match=r"_test_bad: the derivative of a scan by anything but add is not derived"):
        with mx.autograd.record():
            underived(x).backward()
    with pytest.raises(OperatorError, match=r"_test_bad: the derivative of a scan is no formula of one element"):
        underived.gradient(lambda dy: dy)
    with pytest.raises(OperatorError, match=r"_test_bad: a scan takes one array, and parameters that are fixed"):
        mx.scan(lambda x, y: x, name="_test_bad", combine="add", replace=True)
    drawing = mx.scan(lambda x: x * uniform(), name="_test_bad", combine="add", replace=True)
    with pytest.raises(MXNetError, match=r"_test_bad: the body of a scan draws random numbers"):
        drawing(mx.nd.ones((2,))).wait_to_read()


def test_kernels_compile_for_every_target():
    pytest.importorskip("triton")
    softly = mx.scan(lambda x: exp(x), name="_test_softly", combine=logaddexp, identity=-math.inf, differentiable=False,
                     replace=True)
    jobs = [job for target in (80, 90, 100) for job in jobs_of(softly, [(64, 1000)], {"axis": "1"}, np.dtype("float32"), target)]
    for job, kernel in zip(jobs, compile_all(jobs)):
        assert not [w for w in wrong_with(job, kernel) if "spill" in w], job.name
