"""LeakyReLU in all its kinds: MXNet's cases, formulas in plain Python, slopes, the random slope, errors."""

import math

import numpy as np
import pytest
from support.layer_helpers import TARGETS, backward, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops

ELU = {"leaky": lambda x: x if x > 0 else 0.25 * x, "elu": lambda x: x if x > 0 else 0.25 * (math.exp(x) - 1),
       "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * (math.exp(x) - 1)),
       "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("LeakyReLU")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ELU)
def test_formula_and_slope(kind, target, rng):
    x = rng.standard_normal((3, 7))
    close(forward("LeakyReLU", [x], target, act_type=kind)[0], np.vectorize(ELU[kind])(x))
    if kind != "selu":  # whose derivative is MXNet's, below
        check_gradient("LeakyReLU", [x], rng, target, act_type=kind)
    check_requests("LeakyReLU", [x], [x], target, act_type=kind)


def test_selu_has_the_derivative_of_mxnet():
    x = np.array([[-1.0, 2.0]])
    got = backward("LeakyReLU", [x], [np.ones((1, 2))], act_type="selu")[0]
    y = ELU["selu"](-1.0)
    close(got, np.array([[1.0507009873554805 * (y + 1.6732632423543772), 1.0507009873554805]]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape, n", [((2, 3, 4), 3), ((2, 3, 4), 1), ((4, 3), 3), ((5,), 1), ((5,), 5)])
def test_prelu_learns_a_slope_a_channel(shape, n, target, rng):
    x, gamma = rng.standard_normal(shape), rng.standard_normal(n)
    g = gamma.reshape((-1, 1) if len(shape) == 3 else -1)
    close(forward("LeakyReLU", [x, gamma], target, act_type="prelu")[0], np.where(x > 0, x, g * x))
    check_gradient("LeakyReLU", [x, gamma], rng, target, act_type="prelu")
    check_requests("LeakyReLU", [x, gamma], [x], target, act_type="prelu")


@pytest.mark.parametrize("target", TARGETS)
def test_rrelu_draws_a_slope_an_element(target, rng):
    x = -np.ones((40, 50), "float32")
    y, slope = forward("LeakyReLU", [x], target, random=(3, 8), act_type="rrelu", lower_bound=0.2, upper_bound=0.4)
    close(y, -slope)
    assert 0.2 <= slope.min() < 0.21 and 0.39 < slope.max() < 0.4
    close(slope, forward("LeakyReLU", [x], "cpu", random=(3, 8), act_type="rrelu", lower_bound=0.2, upper_bound=0.4)[1])
    d = backward("LeakyReLU", [x], [x], target, random=(3, 8), act_type="rrelu", lower_bound=0.2, upper_bound=0.4)[0]
    close(d, -slope)
    still = forward("LeakyReLU", [x], target, train=False, random=(3, 8), act_type="rrelu", lower_bound=0.2, upper_bound=0.4)[0]
    close(still, np.full_like(x, -0.3))


def test_what_backward_keeps_and_fusion_sees():
    op = ops.get("LeakyReLU")
    assert op.gradient_of(op.parse({"act_type": "elu"})).needs == (("dy", 0), ("y", 0))
    assert op.expression(op.parse({}), [np.dtype("float32")]) is not None
    assert op.expression(op.parse({"act_type": "prelu"}), [np.dtype("float32")] * 2) is None
    assert op.arguments(op.parse({"act_type": "prelu"})) == ("data", "gamma")
    random = op.parse({"act_type": "rrelu"})
    assert op.outputs(random) == ("output", "mask") and op.visible_outputs(random) == 1


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("LeakyReLU").parse({"act_type": "relu"}), ParameterError, "act_type='relu' is not one of 'elu', 'gelu'"),
    (lambda: ops.get("LeakyReLU").parse({"act_type": "rrelu", "lower_bound": 0.5, "upper_bound": 0.2}),
     ParameterError, r"lower_bound=0\.5 and upper_bound=0\.2 must satisfy 0 <= lower_bound"),
    (lambda: ops.get("LeakyReLU").infer_shape(ops.get("LeakyReLU").parse({"act_type": "prelu"}), [(4, 3), (2,)]),
     ShapeError, r"gamma \(2,\) must be \(3,\) or \(1,\): data \(4, 3\) has that many channels"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_valid_arguments_are_accepted():
    op = ops.get("LeakyReLU")
    assert op.infer_shape(op.parse({"act_type": "prelu"}), [(4, 3, 2), None])[0] == [(4, 3, 2), (3,)]


