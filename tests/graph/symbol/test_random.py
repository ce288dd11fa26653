"""mx.sym.random: the operator of each function, and its parameters in files."""

import math

import numpy as np
import pytest
import tritium as mx
from tritium.errors import GraphError

random, sym = mx.sym.random, mx.sym


@pytest.mark.parametrize("make, op, attrs", [
    (lambda: random.uniform(shape=2), "_random_uniform", {"low": "0", "high": "1", "shape": "2"}),
    (lambda: random.normal(0, 2, shape=(2, 3), dtype="float16"), "_random_normal",
     {"loc": "0", "scale": "2", "shape": "(2, 3)", "dtype": "float16"}),
    (lambda: random.randn(2, 3), "_random_normal", {"loc": "0", "scale": "1", "shape": "(2, 3)"}),
    (lambda: random.exponential(2, shape=2), "_random_exponential", {"lam": "0.5", "shape": "2"}),
    (lambda: random.gamma(2, 3, shape=2), "_random_gamma", {"alpha": "2", "beta": "3", "shape": "2"}),
    (lambda: random.poisson(2, shape=2), "_random_poisson", {"lam": "2", "shape": "2"}),
    (lambda: random.negative_binomial(2, 0.3, shape=2), "_random_negative_binomial", {"k": "2", "p": "0.3", "shape": "2"}),
    (lambda: random.generalized_negative_binomial(2, 0.3), "_random_generalized_negative_binomial", {"mu": "2", "alpha": "0.3"}),
    (lambda: random.randint(0, 3, shape=2), "_random_randint", {"low": "0", "high": "3", "shape": "2"}),
    (lambda: random.multinomial(sym.Variable("p")), "_sample_multinomial", {"dtype": "int32", "get_prob": "True"}),
    (lambda: random.normal(sym.Variable("m"), sym.Variable("s"), shape=2), "_sample_normal", {"shape": "2"}),
])
def test_nodes(make, op, attrs):
    made = make()
    assert made._outputs[0][0].op.name == op and made.list_attr() == attrs


def test_parameters_are_all_symbols_or_none():
    with pytest.raises(GraphError, match=r"random.normal: loc, scale must be all symbols or all numbers\."):
        random.normal(sym.Variable("m"), 1.0)


def test_values():
    drawn = random.uniform(sym.Variable("low"), sym.Variable("high"), shape=50).eval(
        low=mx.nd.array([0.0, 10.0]), high=mx.nd.array([1.0, 11.0]))[0].asnumpy()
    assert drawn.shape == (2, 50) and (drawn[0] < 1).all() and (drawn[1] >= 10).all() and len(set(drawn.ravel())) > 90


def test_zipfian_counts_are_those_of_the_formula():
    sampled, expected_true, expected = sym.contrib.rand_zipfian(sym.Variable("t"), 400, 50)
    drawn, true, counts = (a.asnumpy() for a in sym.Group([sampled, expected_true, expected]).eval(t=mx.nd.array([0, 3])))
    assert drawn.dtype == np.int64 and drawn.min() >= 0 and drawn.max() < 50 and true.dtype == counts.dtype == np.float64
    for classes, got in (([0, 3], true), (drawn, counts)):
        np.testing.assert_allclose(got, [400 * (math.log(k + 2) - math.log(k + 1)) / math.log(51) for k in classes], rtol=1e-12)
    assert abs((drawn == 0).sum() - true[0]) < 50
