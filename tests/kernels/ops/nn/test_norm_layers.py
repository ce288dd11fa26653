"""LayerNorm, GroupNorm, InstanceNorm, L2Normalization, moments: against NumPy, MXNet's cases, slopes, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_gradient, check_requests, close, forward, golden_cases
from support.layer_helpers import check_golden as check
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(
    "LayerNorm", "GroupNorm", "InstanceNorm", "L2Normalization", "moments")])
def test_golden(m, z, target):
    check(m, z, target)


CASES = [("LayerNorm", (5, 7), 7, {}, (1,)), ("LayerNorm", (2, 5, 3), 5, {"axis": 1, "eps": 0.1}, (1,)),
         ("LayerNorm", (4, 3, 2), 4, {"axis": 0}, (0,)), ("InstanceNorm", (2, 3, 4, 2), 3, {}, (2, 3))]


def channel(v, shape, axis):
    return v.reshape([-1 if i == axis else 1 for i in range(len(shape))])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, shape, c, params, axes", CASES)
def test_normalized(name, shape, c, params, axes, target, rng):
    x, gamma, beta = rng.standard_normal(shape), rng.standard_normal(c), rng.standard_normal(c)
    eps = params.get("eps", 1e-3 if name == "InstanceNorm" else 1e-5)
    unit = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    at = 1 if name == "InstanceNorm" else axes[0]
    want = unit * channel(gamma, shape, at) + channel(beta, shape, at)
    close(forward(name, [x, gamma, beta], target, **params)[0], want)
    half = [a.astype("float16") for a in (x, gamma, beta)]
    close(forward(name, half, target, **params)[0], want.astype("float16"), scale=2)  # 2: three rounded inputs
    check_gradient(name, [x, gamma, beta], rng, target, **{k: v for k, v in params.items() if k != "eps"})
    check_requests(name, [x, gamma, beta], [rng.standard_normal(shape)], target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_groups_are_normalized_each(target, rng):
    x, gamma, beta = rng.standard_normal((2, 6, 5)), np.array([2.0, -1, 3]), np.array([0.5, 1, 0])
    got = forward("GroupNorm", [x, gamma, beta], target, num_groups=3)[0]
    for n in range(2):
        for g in range(3):
            part = x[n, 2 * g:2 * g + 2]
            close(got[n, 2 * g:2 * g + 2], (part - part.mean()) / np.sqrt(part.var() + 1e-5) * gamma[g] + beta[g])
    check_gradient("GroupNorm", [x, gamma, beta], rng, target, num_groups=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [1, 2])
def test_statistics_are_outputs_when_asked_for(axis, target, rng):
    x = rng.standard_normal((2, 3, 4))
    c = x.shape[axis]
    _, mean, std = forward("LayerNorm", [x, np.ones(c), np.zeros(c)], target, axis=axis, output_mean_var=True)
    close(mean, x.mean(axis, keepdims=True))
    close(std, np.sqrt(x.var(axis, keepdims=True) + 1e-5))


@pytest.mark.parametrize("target", TARGETS)
def test_long_rows(target, rng):
    x = rng.standard_normal((3, 70000)).astype("float32") + 100  # the mean is taken off before squares are summed
    got = forward("LayerNorm", [x, np.ones(70000, "f"), np.zeros(70000, "f")], target)[0]
    wide = x.astype("float64")
    close(got, ((wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)).astype("f"), scale=5)  # 5: x near 100


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode, axes", [("instance", (1, 2)), ("channel", 1), ("spatial", 2)])
def test_l2_normalization(mode, axes, target, rng):
    x = rng.standard_normal((2, 3, 4))
    close(forward("L2Normalization", [x], target, mode=mode)[0], x / np.sqrt((x * x).sum(axes, keepdims=True)))
    check_gradient("L2Normalization", [x], rng, target, mode=mode)
    check_requests("L2Normalization", [x], [x], target, mode=mode)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axes, keepdims", [(None, False), ((1,), True), ((0, 2), False), ((-1,), False)])
def test_moments(axes, keepdims, target, rng):
    x = rng.standard_normal((2, 3, 4))
    mean, var = forward("moments", [x], target, axes=axes, keepdims=keepdims)
    close(mean, np.atleast_1d(x.mean(axes, keepdims=keepdims)))
    close(var, np.atleast_1d(x.var(axes, keepdims=keepdims)))
    check_gradient("moments", [x], rng, target, axes=axes, keepdims=keepdims)
    check_requests("moments", [x], [mean, var], target, axes=axes, keepdims=keepdims)


def infer(name, shapes, **params):
    return ops.get(name).infer_shape(ops.get(name).parse(params), shapes)


@pytest.mark.parametrize("name, shapes, params, error, message", [
    ("LayerNorm", [(2, 3, 4), (3,), None], {}, ShapeError, r"gamma \(3,\) must be \(4,\) for data \(2, 3, 4\)"),
    ("LayerNorm", [(2, 3, 4), None, None], {"axis": 3}, ShapeError, "axis 3 is out of range for an array of 3 axes"),
    ("GroupNorm", [(2, 3, 4), None, None], {"num_groups": 2}, ShapeError,
     r"data \(2, 3, 4\) has 3 channels, not a multiple of num_groups=2"),
    ("GroupNorm", [(2, 3, 4), None, None], {"num_groups": 0}, ParameterError, "num_groups=0 must be at least 1"),
    ("InstanceNorm", [(2, 3), None, None], {}, ShapeError, r"data \(2, 3\) needs a batch, channels and"),
    ("L2Normalization", [(2, 3)], {"mode": "channel"}, ShapeError, r"data \(2, 3\) has too few axes for mode='channel'")])
def test_errors(name, shapes, params, error, message):
    with pytest.raises(error, match=f"{name}: {message}"):
        infer(name, shapes, **params)


def test_unknown_shapes_are_inferred():
    assert infer("LayerNorm", [(2, 3, 4), None, None], axis=1) == ([(2, 3, 4), (3,), (3,)], [(2, 3, 4)])
