"""Composites that draw random numbers, and users' composites: names, mx.nd in bodies, mistakes. Oracle: the generator, NumPy."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import OperatorError
from tritium.kernels import op as registry
from tritium.kernels.philox import uniform


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Restore the registered names of operators after the test."""
    for table in ("_registry", "_declared_in"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))


def declare_masked():
    @mx.composite("_test_masked", draws=True, replace=True)
    def masked(x, *, rate: float = 0.5):
        """x² where a first number is above rate, and x times a second one."""
        kept = mx.nd.random_uniform_like(x) > rate
        return x * x * kept + x * mx.nd.random_uniform_like(x)

    return masked


def oracle(x, seed, offset):
    """Return the values, first and second derivatives of the sum."""
    n = x.size
    kept = uniform(seed, offset, n, np.dtype("float32")).reshape(x.shape) > 0.5
    second = uniform(seed, offset + n, n, np.dtype("float32")).reshape(x.shape)
    return x * x * kept + x * second, 2 * x * kept + second, 2.0 * kept


def test_each_call_in_a_body_has_its_share_of_the_numbers_and_derivatives_draw_them_again(ctx, rng):
    declare_masked()
    a = rng.normal(size=(3, 5)).astype("float32")
    mx.random.seed(7)
    mx.nd.random.uniform(shape=4, ctx=ctx)  # the composite's numbers begin behind these
    x = mx.nd.array(a, ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd._test_masked(x)
        slope = mx.autograd.grad([y], [x], create_graph=True)[0]
    slope.backward()
    for got, want in zip((y, slope, x.grad), oracle(a, 7, 4)):
        assert_close(got, want)


def test_a_composite_that_draws_in_a_graph(ctx, rng):
    declare_masked()
    a = rng.normal(size=(3, 5)).astype("float32")
    net = mx.sym.load_json((mx.sym._test_masked(mx.sym.Variable("x")) * 1).tojson())
    bound = net.simple_bind(ctx, x=(3, 5))
    bound.arg_dict["x"][:] = a
    mx.random.seed(7)
    first = bound.forward(is_train=True)[0].asnumpy()
    bound.backward(mx.nd.ones((3, 5), ctx))
    assert_close(first, oracle(a, 7, 0)[0])
    assert_close(bound.grad_dict["x"], oracle(a, 7, 0)[1])
    assert not np.array_equal(bound.forward(is_train=True)[0].asnumpy(), first)


def test_dropout_in_a_composite_drops_the_same_in_the_derivative(ctx):
    @mx.composite("_test_dropping", draws=True)
    def dropping(x):
        """Dropout of x, twice."""
        return mx.nd.Dropout(mx.nd.Dropout(x, p=0.3), p=0.3)

    x = mx.nd.ones((8, 16), ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = dropping(x)
    y.backward()
    values = y.asnumpy()
    assert 0 < np.count_nonzero(values) < values.size
    np.testing.assert_array_equal(x.grad.asnumpy(), values)  # it is linear, and x is 1
    assert dropping(x).tolist() == x.tolist()


def test_an_empty_array_draws_nothing(ctx):
    declare_masked()
    x = mx.nd.zeros((0, 3), ctx)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd._test_masked(x)
    y.backward()
    assert y.shape == x.grad.shape == (0, 3)


def test_a_composite_in_a_composite_draws_behind_the_numbers_before_it(ctx, rng):
    declare_masked()

    @mx.composite("_test_outer", draws=True, outputs=("first", "masked", "last"))
    def outer(x):
        """A number for each element, then _test_masked, then one more number."""
        return mx.nd.random_uniform_like(x), mx.nd._test_masked(x), mx.nd.random_uniform_like(x)

    a = rng.normal(size=(2, 3)).astype("float32")
    x = mx.nd.array(a, ctx)
    x.attach_grad()
    mx.random.seed(11)
    with mx.autograd.record():
        first, masked, last = mx.nd._test_outer(x)
    masked.backward()
    assert_close(first, uniform(11, 0, 6).reshape(2, 3))
    assert_close(masked, oracle(a, 11, 6)[0])
    assert_close(x.grad, oracle(a, 11, 6)[1])
    assert_close(last, uniform(11, 18, 6).reshape(2, 3))


def test_draws_do_not_depend_on_cpu_or_gpu_or_threads():
    declare_masked()
    found = []
    for ctx in (mx.cpu(), mx.gpu(0)):
        mx.random.seed(5)
        found.append([mx.nd._test_masked(mx.nd.ones((40, 50), ctx)).asnumpy() for _ in range(3)])
    np.testing.assert_array_equal(*found)


def test_a_body_may_call_mx_nd_and_methods_as_on_arrays(ctx, rng):
    @mx.composite("_test_body")
    def body(a, b, *, times: int = 2):
        """Many spellings of calls."""
        h = mx.nd.dot(a, b) if times > 1 else a
        h = mx.nd.FullyConnected(data=h, weight=b, no_bias=True, num_hidden=b.shape[0])
        return mx.nd.sum(h, 1, True) + h.max(axis=1, keepdims=True) + mx.lang.tanh(h).mean(1, keepdims=True)

    a, b = rng.normal(size=(4, 3)), rng.normal(size=(3, 5))
    h = a @ b @ b.T
    want = h.sum(1, keepdims=True) + h.max(1, keepdims=True) + np.tanh(h).mean(1, keepdims=True)
    assert_close(body(mx.nd.array(a, ctx, "float64"), mx.nd.array(b, ctx, "float64")), want)


def declare(module, factor, **options):
    def body(x):
        """x · factor"""
        return x * factor

    body.__module__ = module
    return mx.composite("_test_cell", **options)(body)


def test_a_cell_that_runs_again_replaces_the_composite_and_another_place_may_not(ctx):
    x = mx.nd.ones(2, ctx)
    for factor in (2, 3):
        declare("__main__", factor)
        bound = mx.sym._test_cell(mx.sym.Variable("x")).bind(ctx, {"x": x})
        assert mx.nd._test_cell(x).tolist() == bound.forward()[0].tolist() == [factor, factor]
    with pytest.raises(OperatorError, match=r"^_test_cell: is declared in __main__\. Give yours another name, or declare it with "
                                            r"replace=True"):
        declare("a_users_module", 4)
    declare("a_users_module", 5, replace=True)
    assert mx.nd._test_cell(x).tolist() == [5, 5]


OUTSIDE = mx.nd.ones(2)


@pytest.mark.parametrize(("body", "text"), [
    (lambda x: mx.nd.random_uniform_like(x) * x,
     r"^_test_mistake: _random_uniform_like in its body draws random numbers\. Declare it with draws=True\.$"),
    (lambda x: mx.nd.Dropout(x), r"^_test_mistake: Dropout in its body draws random numbers"),
    (lambda x: x * OUTSIDE, r"^_test_mistake: inside it, composite: NDArray in arithmetic with a traced value\. Give an array to "
                            r"the composite as an argument\.$"),
    (lambda x: mx.nd.dot(x, OUTSIDE), r"^_test_mistake: inside it, dot: got NDArray, an array from outside of the composite\."),
    (lambda x: 3.0, r"^_test_mistake: the body returned float\. Return a result of an operator for each output: output\.$"),
    (lambda x: (x, x), r"^_test_mistake: the body returned TracedValue, TracedValue\. Return a result"),
])
def test_mistakes_of_a_body_are_named(body, text):
    body.__module__ = "__main__"
    op = mx.composite("_test_mistake")(body)
    with pytest.raises(OperatorError, match=text):
        op(mx.nd.ones(2))
