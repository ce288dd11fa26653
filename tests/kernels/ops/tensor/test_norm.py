"""norm: values along axes, both orders, the dtype asked for, derivatives, NaN at a vector of zeros, errors."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import check_gradient
from support.layer_helpers import TARGETS, check_golden, close, forward, golden_cases
from tritium.errors import ParameterError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("norm")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("axis, keepdims", [(None, False), (1, False), ((0, 2), True), (-1, True)])
def test_length(order, axis, keepdims, target, rng):
    x = rng.standard_normal((2, 3, 4))
    want = np.abs(x).sum(axis, keepdims=keepdims) if order == 1 else np.sqrt((x * x).sum(axis, keepdims=keepdims))
    params = {"ord": order, "axis": axis, "keepdims": keepdims}
    close(forward("norm", [x], target, **params)[0], np.atleast_1d(want))
    check_gradient(lambda a: mx.nd.norm(a, **params), x, mx.Context(target, 0), rng)


@pytest.mark.parametrize("target", TARGETS)
def test_dtype_asked_for_and_zero_vectors(target):
    x = np.full((4, 300), 100, "float16")
    y = forward("norm", [x], target, axis=1, out_dtype="float32")[0]
    close(y, np.full(4, 100 * np.sqrt(300), "f"))
    for order, want in ((2, np.nan), (1, 0.0)):
        zero = mx.nd.zeros((1, 3), ctx=mx.Context(target, 0))
        zero.attach_grad()
        with mx.autograd.record():
            y = mx.nd.norm(zero, ord=order, axis=1)
        y.backward()
        np.testing.assert_array_equal(zero.grad.asnumpy(), np.full((1, 3), want))


def test_errors():
    with pytest.raises(ParameterError, match="norm: ord=3 is not one of 1, 2"):
        ops.get("norm").parse({"ord": 3})
