"""cumsum: against MXNet and NumPy, along every axis, longer than a block, dtypes, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ShapeError


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("cumsum")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_running_sums(axis, target, rng):
    x = rng.standard_normal((3, 150, 2))
    close(forward("cumsum", [x], target, axis=axis)[0], np.cumsum(x, axis=axis))
    check_gradient("cumsum", [x], rng, target, axis=axis)
    check_requests("cumsum", [x], [rng.standard_normal(x.shape if axis is not None else x.size)], target, axis=axis)


@pytest.mark.parametrize("target", TARGETS)
def test_dtypes(target):
    assert forward("cumsum", [np.array([100, 100], "int8")], target)[0].tolist() == [100, -56]
    assert forward("cumsum", [np.array([1.7, 2.0, 3.0], "f4")], target, dtype="float64")[0].dtype == np.float64
    ones = forward("cumsum", [np.full(4000, 0.25, "f2")], target)[0]
    assert ones.dtype == np.float16 and ones[-1] == 1000  # added up in float32


def test_errors():
    with pytest.raises(ShapeError, match="_np_cumsum: axis 2 is out of range for an array of 1 axes"):
        forward("cumsum", [np.zeros(3)], axis=2)
