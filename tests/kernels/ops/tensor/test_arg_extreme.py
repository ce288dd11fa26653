"""argmax, argmin, argmax_channel: against MXNet and NumPy, ties, NaN, dtypes, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_requests, forward, golden_cases
from tritium.errors import ShapeError


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("argmax", "argmin", "argmax_channel")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_numpy_says_the_same(name, dtype, target, rng):
    x = rng.integers(0, 50, (3, 200, 2)).astype(dtype)
    if x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.004] = np.nan
        x[0, :, 0] = -np.inf
        x[0, :, 1] = np.inf
    for axis in (0, 1, -1, None):
        got = forward(name, [x], target, axis=axis)[0]
        want = np.atleast_1d(getattr(np, name)(x, axis=axis))
        assert got.dtype == x.dtype and (got == want.astype(dtype)).all()
        assert forward(name, [x], target, axis=axis, keepdims=True)[0].ndim == 3


@pytest.mark.parametrize("target", TARGETS)
def test_nan_beats_everything(target):
    for line, at in (([1, np.nan, 2], 1), ([np.nan, 1, np.nan], 0), ([np.inf, np.nan], 1), ([-np.inf, -np.inf], 0)):
        for name in ("argmax", "argmin"):
            assert forward(name, [np.array(line, "f4")], target)[0] == [at]
    check_requests("argmax", [np.arange(6.0).reshape(2, 3)], [], target, axis=1)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("argmax", [np.zeros(2)], axis=3), ShapeError, "argmax: axis 3 is out of range for an array of 1 axes"),
    (lambda: forward("argmin", [np.zeros((2, 0))], axis=1), ShapeError, r"argmin: data \(2, 0\) has no element along axis 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
