"""simple_op beyond one formula of one shape: shape and dtype rules, several outputs, folds, operators without arrays, sharing."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import DTypeError, MXNetError, OperatorError, ShapeError
from tritium.lang import exp, log, log1p, maximum, normal, row_max, row_sum, uniform, where


def call(name, *args, **kwargs):
    return getattr(mx.nd, name)(*args, **kwargs)


def array(ctx, x):
    return mx.nd.array(x, ctx, dtype=x.dtype)


def same_or_scalar(data, label, *, outputs):
    """Data and label have one shape; every output has one element."""
    known = data or label
    if data and label and data != label:
        raise ValueError(f"data {data} and label {label} must have one shape")
    return [known, known], [(1,)]


@mx.simple_op(name="_test_binary_loss", shape=same_or_scalar, replace=True)
def binary_loss(data, label):
    """The cross entropy of scores and labels of 0 and 1, added up."""
    return maximum(data, 0) - data * label + log1p(exp(-abs(data)))


@mx.simple_op(name="_test_moments", outputs=("mean", "spread"), replace=True)
def moments(a, b):
    mean = (a + b) / 2
    return mean, (a - mean) * (a - mean)


@mx.simple_op(name="_test_largest", shape=lambda x: (x[0], 1), combine="maximum", replace=True)
def largest(x):
    return x * x


@mx.simple_op(name="_test_repeat", shape=lambda x, *, times: (times, *x), replace=True)
def repeat(x, *, times: int):
    return exp(x)


# ---- shape rules ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 7), (2, 0), (100, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_binary_loss_of_shape_1(ctx, rng, shape, dtype):
    x, t = rng.normal(size=shape).astype(dtype), (rng.random(shape) < 0.5).astype(dtype)
    a, b = array(ctx, x), array(ctx, t)
    a.attach_grad()
    with mx.autograd.record():
        y = binary_loss(a, b)
    y.backward()
    p = 1 / (1 + np.exp(-x.astype("float64")))
    want = -np.sum(np.log(np.where(t == 1, p, 1 - p)))
    assert y.shape == (1,)
    assert_close(y, [want], scale=max(1, np.sqrt(x.size)))
    assert_close(a.grad, p - t)


def test_a_loss_of_shape_1_in_a_graph_is_inferred_both_ways_and_trained(ctx, rng):
    data, label = mx.sym.Variable("data"), mx.sym.Variable("label")
    loss = getattr(mx.sym, "_test_binary_loss")(data * 2, label, name="loss")  # noqa: B009
    args, outs, _ = loss.infer_shape(data=(3, 4))
    assert args == [(3, 4), (3, 4)] and outs == [(1,)]
    args, _, _ = loss.infer_shape(label=(5,))
    assert args == [(5,), (5,)]
    x, t = rng.normal(size=(3, 4)), (rng.random((3, 4)) < 0.5).astype(float)
    ex = loss.simple_bind(ctx, data=(3, 4))
    ex.forward(is_train=True, data=x, label=t)
    ex.backward(mx.nd.array([2.0], ctx))
    p = 1 / (1 + np.exp(-2 * x))
    assert_close(ex.outputs[0], [-np.sum(np.log(np.where(t == 1, p, 1 - p)))], scale=4)
    assert_close(ex.grad_dict["data"], 2 * 2 * (p - t))


def test_an_output_larger_than_the_inputs(ctx, rng):
    x = rng.normal(size=(3, 5)).astype("float32")
    a = array(ctx, x)
    a.attach_grad()
    with mx.autograd.record():
        y = repeat(a, times=4)
    assert_close(y, np.exp(np.broadcast_to(x, (4, 3, 5))))
    u = rng.normal(size=(4, 3, 5)).astype("float32")
    y.backward(array(ctx, u))
    assert_close(a.grad, u.sum(0) * np.exp(x), scale=4)


def test_a_fold_by_maximum_and_its_derivative(ctx, rng):
    x = rng.normal(size=(3, 50)).astype("float32")
    check_gradient(largest, x, ctx, rng)
    assert_close(largest(array(ctx, x)), (x * x).max(1, keepdims=True))


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_requests_of_a_folded_operator(ctx, rng, req):
    x, t = rng.normal(size=(4, 6)), (rng.random((4, 6)) < 0.5).astype(float)
    loss = getattr(mx.sym, "_test_binary_loss")(mx.sym.Variable("data"), mx.sym.Variable("label"))  # noqa: B009
    ex = loss.simple_bind(ctx, data=(4, 6), grad_req={"data": req, "label": "null"})
    for _ in range(2):
        ex.forward(is_train=True, data=x, label=t)
        ex.backward(mx.nd.ones((1,), ctx))
    if req != "null":
        assert_close(ex.grad_dict["data"], (1 + (req == "add")) * (1 / (1 + np.exp(-x)) - t))


@pytest.mark.parametrize("rule, text", [
    (lambda a, b: "wide", r"_test_bad: the shape rule answered 'wide'\. Return a tuple of integers for each output \(output\), "
                          r"or \(\[shapes of inputs\], \[shapes of outputs\]\)\."),
    (lambda a, b: 7, r"the shape rule answered 7\. Return a tuple of integers"),
    (lambda a, b: (1.5, 2), r"the shape rule answered \(1\.5, 2\)\. Return a tuple of integers"),
    (lambda a, b: (-3,), r"the shape rule answered \(-3,\)\. Return a tuple of integers"),
    (lambda a, b: [(1,), (2,)],
     r"the shape rule answered 2 shapes, \[\(1,\), \(2,\)\], and the operator has 1 output \(output\)\."),
    (lambda a, b: ([a], [(1,)]),
     r"the shape rule answered 1 shapes of inputs, \[\(3, 4\)\], and the operator has 2 inputs \(a, b\)"),
    (lambda a, b: (3, 5),
     r"_test_bad: shapes do not broadcast: a \(3, 4\), b \(3, 4\), output \(3, 5\)\. Sizes must be equal or 1, "
                          r"axis by axis from the right\. The result's shape, which the shape rule answered, has 1 on the axes"),
    (lambda a, b: ([a, (9, 9)], [(1,)]), r"_test_bad: b would have to be both \(3, 4\) and \(9, 9\)\."),
])
def test_shape_rules_that_answer_nonsense(rule, text):
    op = mx.simple_op(lambda a, b: a + b, name="_test_bad", shape=rule, replace=True)
    with pytest.raises(ShapeError, match=text):
        op(mx.nd.ones((3, 4)), mx.nd.ones((3, 4)))


def test_a_shape_rule_refuses_shapes_in_its_own_words():
    with pytest.raises(ShapeError, match=r"_test_binary_loss: data \(3, 4\) and label \(4, 3\) must have one shape"):
        binary_loss(mx.nd.ones((3, 4)), mx.nd.ones((4, 3)))


@pytest.mark.parametrize("rule, text", [
    (lambda a: a, r"_test_bad: the shape rule takes 1 shapes \(a\), and the operator has 2 inputs \(a, b\)\."),
    (lambda a, b, *, m: a, r"_test_bad: the shape rule asks for the parameter 'm', which does not exist\. It can ask for k\."),
    (lambda a, b, *, s: a, r"_test_bad: the shape rule asks for the parameter 's', which is handed to the kernel at run time"),
    ((3, 4), r"_test_bad: shape=\(3, 4\) is not a function\."),
])
def test_shape_rules_that_do_not_fit_the_declaration(rule, text):
    def body(a, b, *, k: int = 1, s: mx.Scalar = 1.0):
        return a + b

    with pytest.raises(OperatorError, match=text):
        mx.simple_op(body, name="_test_bad", shape=rule, replace=True)


def test_a_product_of_all_elements_needs_a_derivative_of_its_own(ctx):
    op = mx.simple_op(lambda x: x, name="_test_product", shape=lambda x: (1,), combine="mul", replace=True)
    x = mx.nd.array([2.0, 3, 4], ctx)
    with pytest.raises(OperatorError, match=r"_test_product: the derivative of a product of all elements is not derived"):
        x.attach_grad()
        with mx.autograd.record():
            op(x).backward()

    @op.gradient
    def _(dy, y, x):
        return dy * y / x

    with mx.autograd.record():
        y = op(x)
    y.backward()
    assert_close(y, [24])
    assert_close(x.grad, [12, 8, 6])


# ---- several outputs --------------------------------------------------------------------------------------------------
def test_several_outputs_have_names_and_derivatives(ctx, rng):
    a, b = rng.normal(size=(2, 3, 4))
    mean, spread = moments(mx.nd.array(a, ctx), mx.nd.array(b, ctx))
    assert_close(mean, (a + b) / 2)
    assert_close(spread, ((a - b) / 2) ** 2)
    check_gradient(lambda x, y: (lambda m, s: m * 2 + s * s)(*moments(x, y)), [a, b], ctx, rng)
    check_gradient(lambda x, y: moments(x, y)[1], [a, b], ctx, rng)
    made = getattr(mx.sym, "_test_moments")(mx.sym.Variable("a"), mx.sym.Variable("b"), name="m")  # noqa: B009
    assert made.list_outputs() == ["m_mean", "m_spread"] and "Returns: a list: mean, spread." in mx.nd._test_moments.__doc__


def test_the_number_of_outputs_follows_from_the_body(ctx):
    pair = mx.simple_op(lambda x: (x + 1, x * 2, x * 0), name="_test_three", replace=True)
    assert [y.asnumpy().tolist() for y in pair(mx.nd.array([1.0, 2], ctx))] == [[2, 3], [2, 4], [0, 0]]
    assert pair.outputs(pair.parse({})) == ("output0", "output1", "output2")


@pytest.mark.parametrize("named", [False, True])
def test_a_gradient_names_derivatives_and_values_of_outputs(ctx, rng, named):
    op = mx.simple_op(lambda x: (exp(x), x * x), name="_test_two", outputs=("grown", "squared") if named else (), replace=True)
    if named:
        @op.gradient
        def _(dgrown, dsquared, x, grown):
            return dgrown * grown + dsquared * 2 * x
    else:
        @op.gradient
        def _(dy0, dy1, x, y0):
            return dy0 * y0 + dy1 * 2 * x
    check_gradient(lambda x: (lambda a, b: a * b)(*op(x)), rng.normal(size=(3, 4)), ctx, rng)


def test_errors_of_several_outputs():
    op = mx.simple_op(lambda x: (x, x, x), name="_test_bad", outputs=("a", "b"), replace=True)
    with pytest.raises(OperatorError, match=r"_test_bad: the body returned 3 values, not 2: 2 for a, b\."):
        op(mx.nd.ones((2,)))
    with pytest.raises(OperatorError, match=r"_test_bad: outputs='ab' is not a tuple of different names\."):
        mx.simple_op(lambda x: (x, x), name="_test_bad", outputs="ab", replace=True)
    two = mx.simple_op(lambda x: (x, x), name="_test_bad", outputs=("a", "b"), replace=True)
    with pytest.raises(OperatorError, match=r"_test_bad: the gradient asks for 'dc'\. It can ask for da, db, a, b, x\."):
        two.gradient(lambda dc, x: dc)
    with pytest.raises(OperatorError, match=r"_test_bad: the gradient must ask for dy\."):
        two.gradient(lambda x: x)


# ---- dtype rules ------------------------------------------------------------------------------------------------------
def test_dtype_rules(ctx, rng):
    x = rng.normal(size=(3, 4)).astype("float32")
    sign = mx.simple_op(lambda x: (x, x > 0), name="_test_sign_mask", dtype=(None, "uint8"), replace=True)
    y, mask = sign(array(ctx, x))
    assert (y.dtype, mask.dtype) == (np.float32, np.uint8)
    np.testing.assert_array_equal(mask.asnumpy(), x > 0)
    whole = mx.simple_op(lambda x, i: x * i, name="_test_by_index", dtype=lambda x, i: ([x, "int32"], [x]), replace=True)
    y = whole(array(ctx, x), mx.nd.array([[1, 2, 3, 4]] * 3, ctx, dtype="int32"))
    assert_close(y, x * [1, 2, 3, 4])
    half = mx.simple_op(lambda x, *, wide: x, name="_test_convert", dtype=lambda x, *, wide: "float64" if wide else "float16",
                        replace=True, params=(), )
    assert half(array(ctx, x), wide=True).dtype == np.float64 and half(array(ctx, x), wide=False).dtype == np.float16


def test_the_derivative_of_results_in_other_dtypes(ctx, rng):
    x = array(ctx, rng.uniform(1, 2, size=(5,)).astype("float32"))
    op = mx.simple_op(lambda x: (log(x), x > 1.5), name="_test_log_mask", dtype=("float64", "uint8"), replace=True)
    x.attach_grad()
    with mx.autograd.record():
        y, _ = op(x)
    y.backward()
    assert y.dtype == np.float64
    assert_close(x.grad, 1 / x.asnumpy())


@pytest.mark.parametrize("dtype, text", [
    ("floating", r"_test_bad: the dtype rule answered 'floating'\. Return a dtype for each output \(output\)"),
    (lambda x: (1, 2, 3), r"_test_bad: the dtype rule answered \(1, 2, 3\)\. Return a dtype"),
    (lambda x: ["float32", "float32"], r"_test_bad: the dtype rule answered 2 dtypes, .* and the operator has 1 output"),
    (lambda x: (["int32"], ["float32"]), r"_test_bad: x is float32, and its dtype rule says int32\. Convert it with astype\."),
])
def test_dtype_rules_that_answer_nonsense(dtype, text):
    op = mx.simple_op(lambda x: x, name="_test_bad", dtype=dtype, replace=True)
    with pytest.raises(DTypeError, match=text):
        op(mx.nd.ones((2,)))


# ---- operators without arrays, sharing ----------------------------------------------------------------------------------
@mx.simple_op(name="_test_noise_of_size", shape=lambda *, size: size, dtype=lambda *, kind: kind, replace=True)
def noise(*, size: mx.Ints, high: mx.Scalar = 1.0, kind: np.dtype = np.dtype("float32")):
    return uniform(0, high)


def test_an_operator_without_arrays(ctx):
    with ctx:
        mx.random.seed(4)
        y = call("_test_noise_of_size", size=(3, 40), high=2.0, kind="float64")
        assert y.ctx == ctx and y.shape == (3, 40) and y.dtype == np.float64
    mx.random.seed(4)
    want = mx.nd.random.uniform(0, 2, shape=(3, 40), dtype="float64", ctx=ctx)
    assert_close(y, want)
    with pytest.raises(OperatorError, match=r"_test_bad: the body takes no array, so the declaration must say the result"):
        mx.simple_op(lambda: 1, name="_test_bad", replace=True)


def test_results_may_share_memory_unless_forbidden():
    def pairs(**options):
        op = mx.simple_op(lambda x, y: x + y, name="_test_shared", replace=True, **options)
        return op.inplace(op.parse({}))

    assert pairs() == ((0, 0), (1, 0)) == pairs(shape=lambda x, y: x, inplace=True)
    assert pairs(inplace=False) == () == pairs(shape=lambda x, y: x)


def test_two_declarations_of_one_name():
    namespace = {"__name__": "another_module"}
    exec("import tritium as mx\n@mx.simple_op\ndef _test_mine(x):\n    return x", namespace)
    with pytest.raises(OperatorError, match=r"_test_mine: is declared in another_module\. Give yours another name, or "
                                            r"declare it with replace=True"):
        mx.simple_op(lambda x: x + 1, name="_test_mine")
    with pytest.raises(OperatorError, match=r"relu: is one of the framework's operators\. Give yours another name"):
        mx.simple_op(lambda x: x + 1, name="relu")
    assert call("_test_mine", mx.nd.ones((1,))).asscalar() == 1  # nothing was registered


def test_unknown_combine():
    with pytest.raises(MXNetError, match=r"_test_bad: combine='median' is none of add, mul, maximum, minimum\."):
        mx.simple_op(lambda x: where(x > 0, x, 0), name="_test_bad", shape=lambda x: (1,), combine="median")


# ---- rows along another axis ----------------------------------------------------------------------------------------------
@mx.simple_op(name="_test_softmax_along", rows="axis", replace=True)
def softmax_along(x, *, axis: int = -1):
    e = exp(x - row_max(x))
    return e / row_sum(e)


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -3])
def test_rows_along_any_axis(ctx, rng, axis):
    x = rng.normal(size=(3, 4, 5))
    e = np.exp(x)
    assert_close(softmax_along(mx.nd.array(x, ctx), axis=axis), e / e.sum(axis, keepdims=True))
    check_gradient(lambda a: softmax_along(a, axis=axis), x, ctx, rng)
    made = mx.sym.relu(getattr(mx.sym, "_test_softmax_along")(mx.sym.Variable("x") * 2, axis=axis))  # noqa: B009
    ex = made.simple_bind(ctx, x=(3, 4, 5))
    ex.forward(is_train=True, x=x)
    assert_close(ex.outputs[0], e * e / (e * e).sum(axis, keepdims=True))


def test_rows_along_any_axis_that_draw_on_cpu_and_gpu(rng):
    @mx.simple_op(name="_test_centred_along", rows="axis", replace=True)
    def centred(x, *, axis: int):
        n = x + normal()
        return n - row_sum(n) / row_sum(1)

    x = np.zeros((2, 30, 700), "float32")  # more than one tile on the CPU
    for axis, arrays in ((1, x), (0, np.zeros((400, 3000), "float32"))):
        found = []
        for ctx in (mx.cpu(), mx.gpu()):
            mx.random.seed(3)
            found.append(centred(mx.nd.array(arrays, ctx), axis=axis).asnumpy())
        np.testing.assert_allclose(found[1], found[0], atol=1e-5)
        np.testing.assert_allclose(found[0].mean(axis), 0, atol=1e-5)


def test_errors_of_rows_along_an_axis():
    with pytest.raises(ShapeError, match=r"_test_softmax_along: axis 3 does not exist in an array of 2 axes\."):
        softmax_along(mx.nd.ones((2, 3)), axis=3)
    with pytest.raises(OperatorError, match=r"_test_bad: rows='axes' is not the name of an integer parameter"):
        mx.simple_op(lambda x, *, axis=1: row_sum(x), name="_test_bad", rows="axes", replace=True)


def test_derivatives_beside_states(ctx, rng):
    op = mx.simple_op(lambda x, count: (x * x + count, count + 1), name="_test_counted", states=("count",), replace=True)
    x, count = mx.nd.array(rng.normal(size=4), ctx), mx.nd.zeros((4,), ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = op(x, count)
    y.backward(mx.nd.array([1, 2, 3, 4], ctx))
    assert_close(x.grad, 2 * x.asnumpy() * [1, 2, 3, 4])
    assert count.asnumpy().tolist() == [1] * 4
    op = mx.simple_op(lambda x, scale: (x * scale, scale + 1), name="_test_bad", states=("scale",), replace=True)
    with pytest.raises(OperatorError, match=r"_test_bad: its derivative reads the state scale, which forward has changed"):
        with mx.autograd.record():
            op(x, count).backward()
