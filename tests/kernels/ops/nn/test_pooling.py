"""Pooling against MXNet and loops over windows; gradient, ties, requests, errors."""

from itertools import product

import numpy as np
import pytest
import tritium as mx
from support.layer_helpers import (
    TARGETS,
    backward,
    check_golden,
    check_gradient,
    check_requests,
    close,
    forward,
    golden_cases,
)
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("Pooling")])
def test_golden(m, z, target):
    check_golden(m, z, target)


def by_loops(x, kernel, stride, pad, kind, counted):
    n, c, h, w = x.shape
    oh, ow = ((s + 2 * p - k) // t + 1 for s, k, t, p in zip((h, w), kernel, stride, pad))
    y = np.zeros((n, c, oh, ow))
    for i, j, r, q in product(range(n), range(c), range(oh), range(ow)):
        places = [(r * stride[0] - pad[0] + a, q * stride[1] - pad[1] + b) for a, b in product(*map(range, kernel))]
        inside = [x[i, j, a, b] for a, b in places if 0 <= a < h and 0 <= b < w]
        padded = [p for p in places if p[0] < h + pad[0] and p[1] < w + pad[1]]
        y[i, j, r, q] = {"max": max(inside), "sum": sum(inside), "avg": sum(inside) / len(padded if counted else inside),
                         "lp": sum(abs(v) ** 2 for v in inside) ** 0.5}[kind]
    return y


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize("counted", [True, False])
def test_loops_gradient_requests(kind, counted, target, rng):
    x = rng.standard_normal((2, 3, 7, 6))
    params = {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "pool_type": kind, "count_include_pad": counted, "p_value": 2}
    y = by_loops(x, (3, 2), (2, 1), (1, 1), kind, counted)
    close(forward("Pooling", [x], target, **params)[0], y)
    check_gradient("Pooling", [x], rng, target, **params)
    check_requests("Pooling", [x], [rng.standard_normal(y.shape)], target, **params)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 2, 40, 35), (3, 1, 1, 1), (2, 2, 5), (2, 2, 3, 2, 4)], ids=str)
def test_global(kind, shape, target, rng):
    x, params = rng.standard_normal(shape), {"global_pool": True, "pool_type": kind, "p_value": 3}
    planes, kept = x.reshape(*shape[:2], -1), (*shape[:2], *(1,) * (len(shape) - 2))
    want = {"max": planes.max(-1), "sum": planes.sum(-1), "avg": planes.mean(-1), "lp": (np.abs(planes) ** 3).sum(-1) ** (1 / 3)}
    close(forward("Pooling", [x], target, **params)[0], want[kind].reshape(kept))
    check_gradient("Pooling", [x], rng, target, **params)
    check_requests("Pooling", [x], [rng.standard_normal(kept)], target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_global_edges(target):
    """Of equal greatest elements the first gets the derivative; NaN is the greatest; all may be minus infinity."""
    x = np.array([[3, 7, 1, 7, 7], [1, np.nan, 9, 2, 3], [-np.inf] * 5], "f")[None]
    params = {"global_pool": True, "pool_type": "max"}
    np.testing.assert_array_equal(forward("Pooling", [x], target, **params)[0][0, :, 0], [7, np.nan, -np.inf])
    dx = backward("Pooling", [x], [np.ones((1, 3, 1), "f")], target, **params)[0][0]
    assert dx[0].tolist() == [0, 1, 0, 0, 0] and dx[2].tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_of_equal_greatest_the_first_gets_the_derivative(target):
    x = np.zeros((1, 1, 3, 3), "f")
    dx = backward("Pooling", [x], [np.ones((1, 1, 2, 2), "f")], target, kernel=(2, 2))[0]
    assert dx[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_channels_last(kind, target, rng):
    x = rng.standard_normal((2, 3, 6, 5)).astype("f")
    params = {"kernel": (2, 3), "stride": (2, 2), "pool_type": kind, "pooling_convention": "full"}
    y = forward("Pooling", [x], target, **params)[0]
    moved = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    close(forward("Pooling", [moved], target, layout="NHWC", **params)[0], y.transpose(0, 2, 3, 1))
    dx = backward("Pooling", [x], [y], target, **params)[0]
    got = backward("Pooling", [moved], [np.ascontiguousarray(y.transpose(0, 2, 3, 1))], target, layout="NHWC", **params)[0]
    close(got, dx.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("shape, kernel, stride, pad", [((2, 3, 8), (2,), (2, 3), (1, 0)),
                                                        ((2, 3, 8, 7), (2, 3), (2, 1, 4), (1, 0, 0))])
def test_numbers_beyond_those_of_the_kernel_are_not_read(shape, kernel, stride, pad, rng):
    x, n = mx.nd.array(rng.standard_normal(shape)), len(kernel)
    want = mx.nd.Pooling(x, kernel=kernel, stride=stride[:n], pad=pad[:n])
    np.testing.assert_array_equal(mx.nd.Pooling(x, kernel=kernel, stride=stride, pad=pad).asnumpy(), want.asnumpy())


@pytest.mark.parametrize("params, shape, error, text", [
    ({"kernel": (4, 4)}, (1, 1, 3, 3), ShapeError, r"kernel \(4, 4\) is larger than the input, 3 with pad 0"),
    ({"kernel": (2, 2)}, (1, 1, 3), ShapeError, r"data \(1, 1, 3\) has 1 spatial axes, kernel=\(2, 2\) has 2"),
    ({"kernel": (2, 2), "pooling_convention": "same"}, (1, 1, 4, 4), ShapeError, r"'same' needs one spatial axis, data .* has 2"),
    ({"global_pool": True, "pooling_convention": "same"}, (1, 1, 4, 4), ShapeError, "Use 'valid' or 'full'"),
    ({"kernel": (2, 2), "pool_type": "maxx"}, None, ParameterError, "pool_type='maxx' is not one of"),
    ({"pool_type": "max"}, None, ParameterError, r"kernel=\(\) must be one to three sizes .* or global_pool=True"),
    ({"kernel": (2,), "pool_type": "lp"}, None, ParameterError, "needs p_value 1, 2 or 3, not None"),
])
def test_errors(params, shape, error, text):
    op = ops.get("Pooling")
    with pytest.raises(error, match=text):
        op.infer_shape(op.parse(params), [shape])
