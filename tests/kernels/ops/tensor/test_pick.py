"""pick and batch_take: against MXNet, numbers outside, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import DTypeError, ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("pick", "batch_take")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_every_line_by_hand(axis, mode, target, rng):
    x = rng.standard_normal((3, 4, 2))
    at = rng.integers(-6, 7, np.delete(x.shape, axis)).astype("f4")
    y = forward("pick", [x, at], target, axis=axis, mode=mode)[0]
    n, lines = x.shape[axis], np.moveaxis(x, axis, -1)
    for i in np.ndindex(at.shape):
        place = int(at[i]) % n if mode == "wrap" else min(max(int(at[i]), 0), n - 1)
        assert y[i] == lines[i][place]
    check_gradient("pick", [x, at], rng, target, axis=axis, mode=mode)
    check_requests("pick", [x, at], [rng.standard_normal(y.shape)], target, axis=axis, mode=mode)


@pytest.mark.parametrize("target", TARGETS)
def test_shapes_of_the_index(target):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    for at in ([1.9, -0.5], [[1], [0]]):
        close(forward("pick", [x, np.array(at, "f4")], target)[0], np.array([1, 3], "f4"))
        close(forward("pick", [x, np.array(at, "f4")], target, keepdims=True)[0], np.array([[1], [3]], "f4"))
    close(forward("pick", [x[0], np.array([2], "f4")], target)[0], np.array([2], "f4"))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("pick", [np.zeros((2, 3)), np.zeros(3)]),
     ShapeError, r"pick: for data \(2, 3\) and axis 1, index must be \(2,\) or \(2, 1\), not \(3,\)"),
    (lambda: ops.get("pick").parse({"axis": None}), ParameterError, "pick: axis=None is not an integer"),
    (lambda: forward("batch_take", [np.zeros((2, 3)), np.zeros(2, "f4")]),
     DTypeError, "batch_take: indices is float32, but must be int32"),
    (lambda: forward("batch_take", [np.zeros((2, 3)), np.zeros(3, "i4")]),
     ShapeError, r"batch_take: indices \(3,\) must hold one index for each of the 2 rows"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("target", TARGETS)
def test_one_element_of_each_row_is_replaced(target, rng):
    x, values, at = rng.standard_normal((4, 5)), rng.standard_normal(4), rng.integers(0, 5, 4) + 0.5  # truncated
    expected = x.copy()
    expected[np.arange(4), at.astype(int)] = values
    assert np.array_equal(forward("fill_element_0index", [x, values, at], target)[0], expected)
    check_gradient("fill_element_0index", [x, values, at], rng, target)
