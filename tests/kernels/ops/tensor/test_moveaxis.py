"""_split_v2 and moveaxis: against NumPy, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_gradient, check_requests, close, forward
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("params, at", [({"indices": (0, 2, 2, 5), "axis": 1}, [2, 2, 5]), ({"sections": 3, "axis": -1}, 3),
                                        ({"indices": (0, 6), "axis": 1}, [6])])
def test_numpy_splits_the_same(params, at, target, rng):
    x = rng.standard_normal((2, 6)) if params["axis"] != -1 else rng.standard_normal((2, 1, 6))
    parts = forward("_split_v2", [x], target, **params)
    want = np.split(x, at, axis=params["axis"])
    assert len(parts) == len(want)
    for a, b in zip(parts, want):
        close(a, np.ascontiguousarray(b))
    check_gradient("_split_v2", [x], rng, target, **params)
    check_requests("_split_v2", [x], [rng.standard_normal(p.shape) for p in parts], target, **params)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source, destination", [(0, -1), ((0, 1), (2, 0)), (-1, 0), ((2, 0), (0, 1))])
def test_numpy_moves_the_same(source, destination, target, rng):
    x = rng.standard_normal((2, 3, 4))
    close(forward("moveaxis", [x], target, source=source, destination=destination)[0],
          np.ascontiguousarray(np.moveaxis(x, source, destination)))
    check_gradient("moveaxis", [x], rng, target, source=source, destination=destination)


def test_squeezed_parts():
    parts = forward("_split_v2", [np.arange(4.0).reshape(2, 2)], sections=2, squeeze_axis=True)
    assert [p.tolist() for p in parts] == [[0, 2], [1, 3]]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward("_split_v2", [np.zeros(5)], sections=2, axis=0),
     ShapeError, "_split_v2: an axis of size 5 does not divide into 2 equal parts"),
    (lambda: forward("_split_v2", [np.zeros(5)], indices=(0, 9), axis=0),
     ShapeError, r"_split_v2: indices=\(0, 9\) exceed an axis of size 5"),
    (lambda: ops.get("_split_v2").parse({"indices": (3, 2)}),
     ParameterError, r"_split_v2: sections=0, indices=.*: give a number of parts"),
    (lambda: forward("moveaxis", [np.zeros((2, 3))], source=(0, 0), destination=(0, 1)),
     ShapeError, r"_np_moveaxis: source=.* must name the same number of axes, each once"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
