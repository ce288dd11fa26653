"""diag and Crop: against MXNet and NumPy, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("diag", "Crop")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape, params", [((3, 4), {"k": 1}), ((4, 3), {"k": -2}), ((2, 3, 2), {"axis1": 0, "axis2": 2}),
                                           ((2, 3, 2), {"axis1": 2, "axis2": 1, "k": 1}),
                                           ((2, 3, 2), {"axis1": -2, "axis2": -1})])
def test_diagonals(shape, params, target, rng):
    x = rng.standard_normal(shape)
    y = forward("diag", [x], target, **params)[0]
    close(y, np.ascontiguousarray(np.diagonal(x, params.get("k", 0), params.get("axis1", 0), params.get("axis2", 1))))
    check_gradient("diag", [x], rng, target, **params)
    check_requests("diag", [x], [rng.standard_normal(y.shape)], target, **params)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("k", [0, 1, -2])
def test_a_line_becomes_a_matrix(k, target, rng):
    x = rng.standard_normal(3)
    close(forward("diag", [x], target, k=k)[0], np.diag(x, k))
    check_gradient("diag", [x], rng, target, k=k)
    check_requests("diag", [x], [rng.standard_normal((3 + abs(k),) * 2)], target, k=k)


@pytest.mark.parametrize("target", TARGETS)
def test_windows(target, rng):
    x, like = rng.standard_normal((2, 3, 7, 6)), np.zeros((1, 1, 2, 3))
    close(forward("Crop", [x], target, num_args=1, offset=(1, 2), h_w=(3, 4))[0], x[:, :, 1:4, 2:6].copy())
    close(forward("Crop", [x], target, num_args=1, h_w=(2, 3), center_crop=True)[0], x[:, :, 2:4, 1:4].copy())
    close(forward("Crop", [x, like], target, num_args=2, offset=(5, 0))[0], x[:, :, 5:7, :3].copy())
    check_gradient("Crop", [x, like], rng, target, num_args=2, offset=(5, 0))
    check_requests("Crop", [x, like], [rng.standard_normal((2, 3, 2, 3))], target, num_args=2)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("diag", [np.zeros((2, 3))], k=5),
     ShapeError, r"diag: diagonal k=5 does not exist in axes 0 and 1 of data \(2, 3\)"),
    (lambda: forward("diag", [np.zeros((2, 3))], axis1=1, axis2=-1), ShapeError, "diag: axis1=1 and axis2=-1 are the same axis"),
    (lambda: forward("Crop", [np.zeros((1, 1, 4, 4))], num_args=1, offset=(3, 2), h_w=(2, 2)),
     ShapeError, r"Crop: a window of \(2, 2\) at offset=\(3, 2\) does not fit in the planes"),
    (lambda: forward("Crop", [np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 5, 2))], num_args=2),
     ShapeError, r"Crop: a window of \(5, 2\) is larger than the planes"),
    (lambda: ops.get("Crop").parse({"num_args": 1}), ParameterError, r"Crop: h_w=\(0, 0\) must be at least 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
