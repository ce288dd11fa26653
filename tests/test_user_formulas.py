"""Formulas of users over rows, and their reductions: values, derivatives once and twice, alone and in graphs."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import MXNetError
from tritium.graph import options
from tritium.lang import exp, row_max, row_sum, sin, sqrt


def slopes(fn, *arrays):
    """The sum of fn's derivatives by arrays, to be differentiated again."""
    for a in arrays:
        if a.grad is None:
            a.attach_grad()
    with mx.autograd.record():
        found = mx.autograd.grad([fn(*arrays)], list(arrays), create_graph=True)
        return found[0] if len(found) == 1 else mx.nd.broadcast_add(*found)


@mx.simple_op(name="_test_row_softmax", replace=True)
def row_softmax(x):
    e = exp(x - row_max(x))
    return e / row_sum(e)


@mx.simple_op(name="_test_rms", replace=True, broadcast=True)
def rms(x, gamma, bias):
    return x * gamma / sqrt(row_sum(x * x) / row_sum(1) + 1e-3) + row_sum(bias) * bias


def test_a_softmax_by_formula_has_softmax_s_derivative(ctx, rng):
    x, u = mx.nd.array([[1.0, 2, 3]], ctx), mx.nd.array([[1.0, 0, 0]], ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = row_softmax(x)
    y.backward(u)
    p = np.exp([1.0, 2, 3]) / np.exp([1.0, 2, 3]).sum()
    assert_close(x.grad, [p[0] * (np.array([1, 0, 0]) - p)])
    check_gradient(row_softmax, rng.normal(size=(4, 5)), ctx, rng)


def test_arrays_that_are_broadcast_along_the_row(ctx, rng):
    x, gamma, bias = rng.normal(size=(2, 3, 4)), rng.normal(size=4), rng.normal(size=(2, 1, 1))
    want = x * gamma / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) + 4 * bias * bias
    assert_close(rms(*(mx.nd.array(a, ctx, dtype="float64") for a in (x, gamma, bias))), want)
    check_gradient(rms, [x, gamma, bias], ctx, rng)


def test_a_formula_over_rows_is_differentiated_twice(ctx, rng):
    one = mx.nd.ones((1,), ctx, dtype="float64")
    check_gradient(lambda *arrays: slopes(lambda x, bias: sin(rms(x, one, bias)), *arrays),
                   [rng.normal(size=(3, 4)), rng.normal(size=(3, 1))], ctx, rng)


@pytest.mark.parametrize("fuse", [False, True])
def test_a_formula_over_rows_in_a_graph(ctx, rng, fuse):
    """Fused with what is one value a row, forward and backward: its neighbours' derivatives are the same along the row."""
    x, b = rng.normal(size=(3, 4)), rng.normal(size=(3, 1))
    a, c = mx.sym.Variable("x"), mx.sym.Variable("b")
    net = mx.sym.sum(mx.sym.tanh(mx.sym._test_row_softmax(a * 2)) * 3, axis=1)
    net = net + mx.sym.mean(mx.sym._test_rms(a, c, c), axis=1)
    arrays = {"x": mx.nd.array(x, ctx, dtype="float64"), "b": mx.nd.array(b, ctx, dtype="float64")}
    grads = {n: mx.nd.zeros_like(a) for n, a in arrays.items()}
    with options(fuse=fuse):
        ex = net.bind(ctx, arrays, grads)

    def oracle(x, b):
        e = np.exp(2 * x)
        normed = x * b / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) + 4 * b * b
        return 3 * np.tanh(e / e.sum(-1, keepdims=True)).sum(-1) + normed.mean(-1)

    assert_close(ex.forward(is_train=True)[0], oracle(x, b))
    u, vx, vb = rng.normal(size=3), rng.normal(size=x.shape), rng.normal(size=b.shape)
    ex.backward(mx.nd.array(u, ctx, dtype="float64"))
    slope = np.sum(u * (oracle(x + 1e-6 * vx, b + 1e-6 * vb) - oracle(x - 1e-6 * vx, b - 1e-6 * vb))) / 2e-6
    found = np.sum(grads["x"].asnumpy() * vx) + np.sum(grads["b"].asnumpy() * vb)
    assert abs(found - slope) < 1e-6 * max(1, abs(slope))


def test_a_row_counts_what_is_true_and_equal_ones_share(ctx):
    @mx.simple_op(name="_test_count_positive", replace=True)
    def positive(x):
        return row_sum(x > 0) + 0 * x

    assert positive(mx.nd.array([[1.0, -1, 2], [0, 0, 1]], ctx)).tolist() == [[2] * 3, [1] * 3]

    @mx.simple_op(name="_test_largest", replace=True)
    def largest(x):
        return row_max(x)

    x = mx.nd.array([[1.0, 3, 3], [2, 0, 1]], ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = largest(x)
    y.backward(mx.nd.array([[1.0, 0, 0], [1, 1, 1]], ctx))
    assert x.grad.tolist() == [[0, 0.5, 0.5], [3, 0, 0]]


# ---- a reduction ----------------------------------------------------------------------------------------------------
FINISHES = {"as it is": None, "finished": lambda t, n: sqrt(t * t + 1) / n}


@pytest.mark.parametrize("finish", FINISHES)
@pytest.mark.parametrize("combine", ["add", "mul", "maximum", "minimum"])
def test_a_reduction_without_a_gradient_derives_it(combine, finish, ctx, rng):
    @mx.reduction(name="_test_fold", replace=True, combine=combine, finish=FINISHES[finish])
    def fold(x, *, scale: mx.Scalar = 1.0, power: str = "two"):
        return scale * x * x + sin(x)

    for scale in (1.0, 0.5):  # a number given at run time is no part of the kernel
        check_gradient(lambda x: fold(x, axis=1, scale=scale), rng.normal(size=(2, 3, 4)), ctx, rng)  # noqa: B023
    check_gradient(lambda x: fold(x), rng.normal(size=(2, 3)), ctx, rng)
    check_gradient(lambda x: fold(x, axis=0, keepdims=True), rng.normal(size=(1, 3)), ctx, rng)

    def slope(x):
        return slopes(lambda x: fold(x, axis=1), x)

    if combine == "mul":
        with pytest.raises(MXNetError, match="second derivative of _test_fold, a product, which is not derived"):
            slope(mx.nd.ones((2, 2), ctx))
    else:
        check_gradient(slope, rng.normal(size=(2, 3)), ctx, rng)
    s = mx.sym.sum(mx.sym._test_fold(mx.sym.Variable("x") * 1.0, axis=(0,)))
    x = rng.normal(size=(3, 2))
    bound = s.bind(ctx, {"x": mx.nd.array(x, ctx, dtype="float64")}, {"x": mx.nd.zeros((3, 2), ctx, dtype="float64")})
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones(1, ctx, dtype="float64"))
    a = mx.nd.array(x, ctx, dtype="float64")
    a.attach_grad()
    with mx.autograd.record():
        y = fold(a, axis=0)
    y.backward()
    assert_close(bound.grad_dict["x"], a.grad)


def test_a_product_s_derivative_where_factors_are_zero(ctx):
    @mx.reduction(name="_test_product", replace=True, combine="mul")
    def product(x):
        return x - 1

    x = mx.nd.array([[3, 4, 5], [1, 4, 5], [1, 1, 5], [1, 1, 1]], ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = product(x, axis=1)
    y.backward()
    assert x.grad.tolist() == [[12, 8, 6], [12, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_largest_is_found_again_in_half_precision(dtype, ctx):
    """Its value was rounded when it was stored; the derivative compares unrounded ones."""
    @mx.reduction(name="_test_largest_square", replace=True, combine="maximum")
    def largest(x):
        return x * x

    x = mx.nd.array([1.003, -1.234, 0.5], ctx, dtype=dtype)
    x.attach_grad()
    with mx.autograd.record():
        y = largest(x)
    y.backward()
    assert x.grad.tolist() == [0, 2 * float(x[1].asscalar()), 0]


def test_a_declared_gradient_reads_the_number_of_this_call(ctx):
    @mx.reduction(name="_test_scaled", replace=True, combine="add")
    def scaled(x, *, scale: mx.Scalar = 1.0):
        return scale * x

    @scaled.gradient
    def _(dy, *, scale):
        return scale * dy

    x = mx.nd.ones(3, ctx)
    x.attach_grad()
    for scale in (2.0, 5.0):
        with mx.autograd.record():
            y = scaled(x, scale=scale)
        y.backward()
        assert x.grad.tolist() == [scale] * 3
