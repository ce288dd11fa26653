"""gather_nd, scatter_nd, ravel and unravel: against MXNet, against loops, repeated places, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, backward, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops

NAMES = ("gather_nd", "scatter_nd", "ravel_multi_index", "unravel_index")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases(*NAMES)])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_gather_by_hand(axes, target, rng):
    x = rng.standard_normal((3, 4, 2))
    at = np.stack([rng.integers(-d, d, (2, 3)) for d in x.shape[:axes]]).astype("f4")
    y = forward("gather_nd", [x, at], target)[0]
    for i in np.ndindex(2, 3):
        assert (y[i] == x[tuple(at[(slice(None), *i)].astype(int))]).all()
    check_gradient("gather_nd", [x, at], rng, target)
    check_requests("gather_nd", [x, at], [rng.standard_normal(y.shape)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_scatter_by_hand(target, rng):
    data, at = rng.standard_normal((4, 2)), np.array([[2, 0, 2, -1]])
    want, sums = np.zeros((3, 2)), np.zeros((3, 2))
    for i, row in zip(at[0], data):
        want[i], sums[i] = row, sums[i] + row
    close(forward("scatter_nd", [data, at], target, shape=(3, 2))[0], want)
    close(forward("_backward_gather_nd", [data, at], target, shape=(3, 2))[0], sums)
    dy = rng.standard_normal((3, 2))
    close(backward("scatter_nd", [data, at], [dy], target, shape=(3, 2))[0], dy[at[0]])
    for name in ("scatter_nd", "_backward_gather_nd"):
        check_requests(name, [data, at], [dy], target, shape=(3, 2))
    check_gradient("_backward_gather_nd", [data, at], rng, target, shape=(3, 2))


@pytest.mark.parametrize("target", TARGETS)
def test_ravel_and_back(target):
    dims = (3, 4, 2, 5)
    flat = np.array([0, 17, 119, 64], "int64")
    apart = forward("unravel_index", [flat], target, shape=dims)[0]
    assert (apart == np.stack(np.unravel_index(flat, dims))).all()
    assert (forward("ravel_multi_index", [apart], target, shape=dims)[0] == flat).all()
    got = forward("unravel_index", [np.array([99, -1], "int32")], target, shape=(-1, 6))[0]
    assert got.tolist() == [[16, 0], [3, -1]]  # as MXNet: the first is not folded, negative ones are cut towards zero
    check_requests("unravel_index", [flat], [], target, shape=dims)
    check_requests("ravel_multi_index", [apart], [], target, shape=dims)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("gather_nd", [np.zeros((2, 3)), np.array([[2], [0]])]),
     ShapeError, "gather_nd: index 2 is out of range for axis 0 of size 2"),
    (lambda: forward("gather_nd", [np.zeros((2, 3)), np.array([1])]),
     ShapeError, r"gather_nd: indices \(1,\) must have at least two axes"),
    (lambda: forward("gather_nd", [np.zeros((2, 3)), np.zeros((3, 1))]),
     ShapeError, r"holds 3 indices per slice, but \(2, 3\) has 2 axes"),
    (lambda: forward("scatter_nd", [np.zeros(4), np.zeros((1, 3))], shape=(5,)),
     ShapeError, r"scatter_nd: for indices \(1, 3\) and shape=\(5,\), data must be \(3,\)"),
    (lambda: ops.get("scatter_nd").parse({"shape": (0,)}),
     ParameterError, r"scatter_nd: all sizes of shape=\(0,\) must be at least 1"),
    (lambda: ops.get("unravel_index").parse({}), ParameterError, r"_unravel_index: shape=None must be 1 to 8 sizes"),
    (lambda: forward("ravel_multi_index", [np.zeros((3, 2))], shape=(4, 5)),
     ShapeError, r"_ravel_multi_index: data \(3, 2\) must be \(2, n\)"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
