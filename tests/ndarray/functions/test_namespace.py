"""mx.nd.X: functions from the registry, their signatures, names that appear later."""

import difflib
import inspect

import numpy as np
import pytest
from tritium import ndarray as nd
from tritium import symbol
from tritium.errors import DTypeError, OperatorError, ParameterError
from tritium.kernels.op import Op, register, registered
from tritium.kernels.params import Param
from tritium.ndarray.functions import random
from tritium.ndarray.functions.namespace import signature


class Scale(Op):
    """x times by, plus bias."""

    doc = "x times by."
    name, input_names = "_test_scale", ("x", "bias")
    params = (Param("by", "float", doc="the factor"), Param("no_bias", "bool", False), Param("mode", "str", "a", ("a", "b")))
    aliases = ("_test_Scale",)

    def arguments(self, p):
        return ("x",) if p.no_bias else ("x", "bias")

    def infer_shape(self, p, inputs, outputs=None):
        return list(inputs), [inputs[0]]

    def kernel(self, p, ins, outs, reqs, target, train=False):
        def kernel(run, inputs, outputs):
            outputs[0][...] = inputs[0] * p.by + (0 if p.no_bias else inputs[1])

        return kernel


SCALE = register(Scale(), module=__name__)
X = nd.array([1, 2])


def test_every_registered_name_is_a_function_with_a_signature():
    for name, op in registered().items():
        assert getattr(nd, name) is not None
        assert isinstance(inspect.signature(nd.functions.namespace.function_of(name, op)), inspect.Signature)
        assert list(signature(op).parameters)[-1] in ("name", "out")


def test_signature_and_document():
    f = nd._test_scale
    assert str(inspect.signature(f)) == "(x, bias=None, *, by, no_bias=False, mode='a', out=None, name=None)"
    assert f.__name__ == "_test_scale" and f.__doc__.startswith("x times by.")
    assert "Arrays: x, bias." in f.__doc__ and "Returns: an array." in f.__doc__
    assert "mode: str, one of 'a', 'b', default 'a'." in f.__doc__ and "by: float, required. the factor" in f.__doc__
    assert "_test_scale" in dir(nd) and "_test_scale" in dir(nd._internal) and "test_scale" in dir(nd._internal)


@pytest.mark.parametrize("call", [
    lambda: nd._test_scale(X, nd.ones((2,)), by=2),
    lambda: nd._test_scale(X, nd.ones((2,)), 2.0),
    lambda: nd._test_scale(x=X, bias=nd.ones((2,)), by="2"),
    lambda: nd._test_Scale(X, bias=nd.ones((2,)), by=2, name="n"),
    lambda: nd._internal._test_scale(X, by=2, no_bias=True) + 1,
    lambda: nd._internal.test_scale(X, None, by=2, no_bias=True) + 1,
    lambda: nd.op._test_scale(X, bias=None, by=2, no_bias=True) + 1,
    lambda: SCALE(X, nd.ones((2,)), by=2),
    lambda: nd._test_scale(X, nd.ones((2,)), by=2, out=nd.zeros((2,))),
])
def test_ways_to_call(call):
    assert call().tolist() == [3, 5]


def test_out_is_returned():
    out = nd.zeros((2,))
    assert nd._test_scale(X, by=3, no_bias=True, out=out) is out and out.tolist() == [3, 6]


@pytest.mark.parametrize("call, error, reason", [
    (lambda: nd._test_scale(X, by=1), OperatorError, "bias is missing. Its arrays: x, bias"),
    (lambda: nd._test_scale(X, X, X, by=1), OperatorError, "takes 2 arrays"),
    (lambda: nd._test_scale(X, x=X, by=1), OperatorError, "array 'x' is given twice"),
    (lambda: nd._test_scale(X, y=X, by=1), OperatorError, "'y' is not one of its arrays"),
    (lambda: nd._test_scale(X, X, 1, by=1), OperatorError, "parameter 'by' is given twice"),
    (lambda: nd._test_scale(X, X, 1, False, "a", 7), DTypeError, "7 is neither an array nor one of its parameters"),
    (lambda: nd._test_scale(X, X), ParameterError, "parameter 'by' .* is required"),
    (lambda: nd._test_scale(X, X, by=1, mod="a"), ParameterError, "unknown parameter 'mod'.*'mode'"),
])
def test_errors(call, error, reason):
    with pytest.raises(error, match=reason):
        call()


def test_unknown_names_propose_near_ones():
    with pytest.raises(AttributeError, match=r"nd\._test_scal: no such operator or function.*'_test_scale'"):
        nd._test_scal
    assert not hasattr(nd, "no_such_thing_at_all")


@pytest.mark.parametrize(("name", "searches"), [("__wrapped__", 0), ("tahn", 1)])
def test_near_names_are_looked_for_once_and_never_for_pythons_own(monkeypatch, name, searches):
    """`import tritium` asks for such names: the search took a tenth of it."""
    asked, search = [], difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", lambda word, *a, **k: asked.append(word) or search(word, *a, **k))
    for where in (nd, symbol):
        asked.clear()
        with pytest.raises(AttributeError, match=name):
            getattr(where, name)
        assert len(asked) == searches


def test_an_operator_declared_later_is_available_at_once():
    assert not hasattr(nd, "_test_born_later")

    class Later(Scale):
        name, aliases = "_test_born_later", ()

    register(Later(), module=__name__)
    assert nd._test_born_later(X, by=5, no_bias=True).tolist() == [5, 10]


def test_a_function_that_was_used_is_forgotten_when_its_name_is_declared_again():
    class Again(Scale):
        name, aliases = "_test_declared_again", ()

    register(Again(), module=__name__)
    before = nd._test_declared_again
    assert vars(nd)["_test_declared_again"] is before is nd._test_declared_again  # Python finds it without a call
    register(Again(), module=__name__)
    assert nd._test_declared_again is not before
    nd._test_declared_again = mine = lambda: 1  # what a user puts there stays
    register(Again(), module=__name__)
    assert nd._test_declared_again is mine
    del nd._test_declared_again


def test_zeros_of_either_sign_are_different_calls():
    one, zero = nd.array([1.0]), nd.array([-0.0])
    for sign in (1, -1, 1):
        assert np.copysign(1, nd.clip(-one, sign * 0.0, 2.0).asscalar()) == sign  # a number of each run
        assert np.copysign(1, nd._test_scale(one, zero, by=sign * 0.0).asscalar()) == sign  # a part of the kernel


def test_variadic():
    a, b = nd.array([[1, 2]]), nd.array([[3, 4]])
    assert nd.concat(a, b, dim=0).tolist() == [[1, 2], [3, 4]]
    assert nd.concat(*[a, b], dim=1).tolist() == nd.concat([a, b], dim=1).tolist() == [[1, 2, 3, 4]]
    assert nd.concatenate([a, b], axis=0).shape == (2, 2) and nd.concatenate([a], always_copy=False) is a


def test_functions_of_two_arguments():
    a = nd.array([1.0, 5.0])
    assert nd.maximum(a, 3).tolist() == [3, 5] and nd.minimum(3, a).tolist() == [1, 3]
    assert nd.maximum(a, nd.array([[2.0], [9.0]])).tolist() == [[2, 5], [9, 9]]
    assert nd.add(a, 1).tolist() == [2, 6] and nd.subtract(1, a).tolist() == [0, -4] and nd.power(a, 2).tolist() == [1, 25]
    assert nd.equal(a, 1).tolist() == [1, 0] and nd.lesser_equal(a, a).tolist() == [1, 1]
    with pytest.raises(DTypeError, match="maximum: str and int"):
        nd.maximum("1", 2)


def test_random():
    random.seed(7)
    a, b = random.uniform(shape=(50, 40)).asnumpy(), random.uniform(shape=(50, 40)).asnumpy()
    random.seed(7)
    assert np.array_equal(random.uniform(shape=(50, 40)).asnumpy(), a) and not np.array_equal(a, b)
    assert a.min() >= 0 and a.max() < 1 and abs(a.mean() - 0.5) < 0.05
    n = nd.random.normal(2, 3, shape=(100, 100)).asnumpy()
    assert abs(n.mean() - 2) < 0.2 and abs(n.std() - 3) < 0.2
    i = random.randint(2, 5, shape=(300,))
    assert i.dtype is np.int32 and set(i.tolist()) == {2, 3, 4}
    out = nd.zeros((5,))
    assert random.uniform(10, 11, out=out) is out and out.asnumpy().min() >= 10
    assert random.randn(2, 3).shape == (2, 3)
    with pytest.raises(OperatorError, match=r"random\.uniform: low, high must be all arrays"):
        random.uniform(low=nd.ones((1,)))


def test_the_context_of_operators_without_arrays(ctx):
    assert nd._random_uniform(shape=(2,), ctx=ctx).ctx == ctx
    assert nd._random_uniform(shape=(2,), ctx=str(ctx)).ctx == ctx
    with ctx:
        assert nd._random_uniform(shape=(2,)).ctx == ctx
    assert random.uniform(shape=(2,), ctx=ctx).ctx == ctx


def test_split_v2():
    a = nd.array(np.arange(12.0).reshape(6, 2))
    for parts, want in ((nd.split_v2(a, (2, 3)), [2, 1, 3]), (nd.split_v2(a, 3), [2, 2, 2]), (a.split_v2((1, 4)), [1, 3, 2])):
        assert [p.shape[0] for p in parts] == want
        assert np.concatenate([p.asnumpy() for p in parts]).tolist() == a.tolist()


def test_logical_functions():
    a, b = nd.array([1, 0, 2]), nd.array([1, 1, 0])
    assert nd.logical_and(a, b).tolist() == [1, 0, 0] and nd.logical_or(a, 0).tolist() == [1, 0, 1]
    assert nd.logical_xor(a, b).tolist() == [0, 1, 1]


@pytest.mark.parametrize("draw, mean", [
    (lambda **k: random.exponential(4, **k), 4), (lambda **k: random.gamma(2, 3, **k), 6),
    (lambda **k: random.poisson(3, **k), 3),
    (lambda **k: random.negative_binomial(3, 0.5, **k), 3), (lambda **k: random.generalized_negative_binomial(2, 0.3, **k), 2),
], ids=["exponential", "gamma", "poisson", "negative_binomial", "generalized"])
def test_means_of_distributions(draw, mean):
    random.seed(11)
    x = draw(shape=(20000,)).asnumpy()
    assert abs(x.mean() - mean) < 5 * x.std() / np.sqrt(x.size)


def test_distributions_whose_parameters_are_arrays():
    random.seed(5)
    x = random.uniform(nd.array([0, 10]), nd.array([1, 11]), shape=1000).asnumpy()
    assert x.shape == (2, 1000) and (x[0] < 1).all() and (x[1] >= 10).all() and (x[1] < 11).all()
    y = random.normal(nd.array([0, 100.0]), nd.array([1, 0.1]), shape=1000).asnumpy()
    assert abs(y[1].mean() - 100) < 0.05 and abs(y[0].std() - 1) < 0.2
    assert random.multinomial(nd.array([0.0, 1.0]), shape=4).tolist() == [1] * 4
    with pytest.raises(OperatorError, match="low, high must be all arrays or all numbers"):
        random.uniform(nd.zeros((2,)), 1)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_results_without_elements(shape, ctx):
    assert random.uniform(shape=shape, ctx=ctx).shape == shape and nd.exp(nd.zeros(shape, ctx)).asnumpy().shape == shape


def test_cached_parameters_of_one_call_are_not_used_for_another():
    a, b = nd.array([[1.0, 2.0], [3.0, 4.0]]), nd.array([[1.0, 0.0], [1.0, 1.0]])
    for _ in range(2):  # the second time from what was kept
        assert nd.dot(a, b).asnumpy().tolist() == [[3.0, 2.0], [7.0, 4.0]]
        assert nd.dot(a, b, transpose_b=True).asnumpy().tolist() == [[1.0, 3.0], [3.0, 7.0]]
        assert nd.dot(a, b, transpose_a=True).asnumpy().tolist() == [[4.0, 3.0], [6.0, 4.0]]
        assert nd.dot(lhs=a, rhs=b, name="x").asnumpy().tolist() == [[3.0, 2.0], [7.0, 4.0]]
        assert nd.sum(a, axis=0).asnumpy().tolist() == [4.0, 6.0] and nd.sum(a, axis=(1,)).asnumpy().tolist() == [3.0, 7.0]
        assert nd.sum(a, 0).asnumpy().tolist() == [4.0, 6.0] and nd.sum(a).asnumpy().tolist() == [10.0]
        out = nd.zeros((2, 2))
        assert nd.dot(a, b, out=out) is out and out.asnumpy().tolist() == [[3.0, 2.0], [7.0, 4.0]]
        assert nd.clip(a, -0.0, 3).asnumpy().tolist() == [[1.0, 2.0], [3.0, 3.0]]
    with pytest.raises(OperatorError, match=r"dot: takes 2 arrays \(lhs, rhs\), 3 given."):
        nd.dot(a, b, b)
    with pytest.raises(OperatorError, match="dot: rhs is missing"):
        nd.dot(a)


def test_an_operator_without_parameters_ignores_keywords_with_a_warning():
    with pytest.warns(UserWarning, match="zeros_like: 'dtype' is ignored: no such parameter. Parameters: none"):
        assert nd.zeros_like(X, dtype="float64").dtype == np.float32


def test_what_is_taken_out_of_the_dictionary_of_a_namespace_is_gone():
    contrib = nd.contrib
    taken = vars(contrib).pop("box_encode")
    try:
        assert not hasattr(contrib, "box_encode") and "box_decode" in contrib.__dict__
    finally:
        contrib.box_encode = taken
    assert contrib.box_encode is taken
