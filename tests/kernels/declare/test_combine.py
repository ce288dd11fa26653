"""Reductions by a user's function: values, derivatives, requests, both devices, every axis; and what is refused."""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from support.operator_jobs import jobs_of
from tritium.errors import OperatorError
from tritium.kernels.gpu.codegen_checks import wrong_with
from tritium.kernels.gpu.compile import compile_all
from tritium.kernels.kernel import HostRun
from tritium.kernels.op import Req, Spec, compiled
from tritium.lang import exp, logaddexp, where


@mx.reduction(name="_test_log_sum", combine=logaddexp, identity=-math.inf, replace=True)
def log_sum(x):
    """ln Σ eˣ along axis."""
    return x


@log_sum.gradient
def _(dy, y, x):
    return dy * exp(x - y)


def larger_by_size(a, b):
    return where(abs(a) >= abs(b), where(abs(a) > abs(b), a, where(a > b, a, b)), b)


@mx.reduction(name="_test_farthest", combine=larger_by_size, identity=0, differentiable=False, replace=True)
def farthest(x):
    """The element farthest from zero; of x and -x the positive one."""
    return x


@pytest.mark.parametrize("shape, axis", [((), None), ((1,), None), ((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 129), None),
                                         ((4, 3, 50), (0, 2)), ((4, 300, 5), 1), ((1500, 3), 0), ((3, 1500), 1), ((40, 1), 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_log_sum(ctx, rng, shape, axis, dtype):
    x = rng.normal(scale=3, size=shape).astype(dtype)
    want = np.logaddexp.reduce(x.astype("float64").reshape(-1)) if axis is None else np.log(np.exp(x.astype("float64")).sum(axis))
    assert_close(log_sum(mx.nd.array(x, ctx, dtype=dtype), axis=axis), np.reshape(want, np.shape(want) or (1,)), scale=4)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "bfloat16"])
def test_exact_results_do_not_depend_on_the_order(ctx, rng, dtype):
    x = rng.integers(-100, 100, size=(30, 77)).astype("float32")
    for axis in (0, 1, None):
        flat = x.reshape(-1, 1) if axis is None else x if axis == 0 else x.T
        want = [max(column, key=lambda v: (abs(v), v)) for column in flat.T]
        np.testing.assert_array_equal(farthest(mx.nd.array(x, ctx, dtype=dtype), axis=axis).asnumpy().astype(float), want)


def test_values_at_the_edges(ctx):
    x = mx.nd.array([[-np.inf, -np.inf], [-np.inf, 2], [1000, 1000], [np.inf, 0], [np.nan, 1]], ctx)
    assert_close(log_sum(x, axis=1), [-np.inf, 2, 1000 + math.log(2), np.inf, np.nan])
    assert log_sum(mx.nd.zeros((3, 0), ctx), axis=1).asnumpy().tolist() == [-math.inf] * 3


def test_the_declared_derivative(ctx, rng):
    check_gradient(lambda x: log_sum(x, axis=1), rng.normal(size=(4, 9)), ctx, rng)
    check_gradient(log_sum, rng.normal(size=(3, 5)), ctx, rng)


def test_large_arrays_are_folded_in_one_order(rng):
    class Backwards:
        stream = None

        def parallel(self, fn, n):
            for i in reversed(range(n)):
                fn(i)

        def workspace(self, shape, dtype):
            return np.empty(shape, dtype)

    x = rng.normal(size=(600, 1100)).astype("float32")
    p = log_sum.parse({})
    kernel = compiled(log_sum, p, (Spec(x.shape, x.dtype),), (Spec((1,), x.dtype),), (Req.WRITE,), "cpu")
    found = [np.zeros(1, "float32") for _ in range(2)]
    kernel(HostRun(), [x], [found[0]])
    kernel(Backwards(), [x], [found[1]])
    assert found[0] == found[1]
    assert_close(found[0], [np.log(np.exp(x.astype("float64")).sum())])


def test_a_fold_in_graphs_and_with_a_shape_rule(ctx, rng):
    x = rng.normal(size=(4, 6)).astype("float32")
    out = mx.sym.exp(getattr(mx.sym, "_test_log_sum")(mx.sym.Variable("x") * 2, axis=1))  # noqa: B009
    ex = out.simple_bind(ctx, x=(4, 6))
    ex.forward(is_train=True, x=x)
    ex.backward(mx.nd.ones((4,), ctx))
    assert_close(ex.outputs[0], np.exp(2 * x.astype("float64")).sum(1), scale=4)
    assert_close(ex.grad_dict["x"], 2 * np.exp(2 * x.astype("float64")), scale=8)
    rows = mx.simple_op(lambda a, b: a * b, name="_test_rows", shape=lambda a, b: (a[0], 1), combine=logaddexp,
                        identity=-math.inf, replace=True)
    want = np.log(np.exp(x.astype("float64")**2).sum(1, keepdims=True))
    assert_close(rows(*(mx.nd.array(v, ctx) for v in (x, x))), want, scale=4)


@pytest.mark.parametrize("options, text", [
    ({"combine": "median"}, r"_test_bad: combine='median' is none of add, mul, maximum, minimum\. Give one of them, or"),
    ({"combine": logaddexp}, r"_test_bad: combine is a function, and needs identity=: the value that changes no other\."),
    ({"combine": "add", "identity": 0}, r"_test_bad: combine='add' has an identity already\. Leave identity out\."),
    ({"combine": lambda a, b: a * b, "identity": 0}, r"_test_bad: identity=0 changes 0\.25: combine\(0, 0\.25\) is 0\."),
    ({"combine": lambda a, b: a + b - 1, "identity": 0}, r"_test_bad: identity=0 changes 0: combine\(0, 0\) is -1\."),
])
def test_folds_that_make_no_sense(options, text):
    with pytest.raises(OperatorError, match=text):
        mx.reduction(lambda x: x, name="_test_bad", replace=True, **options)


def test_a_derivative_that_cannot_be_derived(ctx):
    op = mx.reduction(lambda x: x, name="_test_underived", combine=logaddexp, identity=-math.inf, replace=True)
    x = mx.nd.ones((3,), ctx)
    x.attach_grad()
    with pytest.raises(OperatorError, match=r"_test_underived: the derivative of a fold by a function of its own is not derived"
                                            r"\. Declare it with @_test_underived\.gradient, or say differentiable=False\."):
        with mx.autograd.record():
            op(x).backward()


def test_kernels_compile_for_every_target():
    pytest.importorskip("triton")
    jobs = [job for target in (80, 90, 100) for shape, axis in (((512, 640), "1"), ((640, 512), "0"))
            for job in jobs_of(log_sum, [shape], {"axis": axis}, np.dtype("float32"), target)]
    for job, kernel in zip(jobs, compile_all(jobs)):
        assert not [w for w in wrong_with(job, kernel) if "spill" in w], job.name
