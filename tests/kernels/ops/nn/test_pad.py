"""Pad: against MXNet and NumPy, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("Pad")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("shape, widths", [((2, 2, 4, 3), (3, 1, 0, 2)), ((1, 2, 3, 3, 4), (1, 2, 0, 0, 2, 1)),
                                           ((1, 1, 2, 2), (0, 0, 0, 0)), ((3, 5, 30, 40), (1, 0, 2, 1)),
                                           ((2, 5, 13, 14, 15), (0, 1, 1, 0, 1, 1))])
def test_numpy_pads_the_same(shape, widths, mode, target, rng):
    x = rng.standard_normal(shape)
    params = {"mode": mode, "pad_width": (0, 0, 0, 0, *widths), "constant_value": 2.5 if mode == "constant" else 0.0}
    pairs = [(0, 0), (0, 0), *zip(widths[::2], widths[1::2])]
    want = np.pad(x, pairs, mode=mode, **({"constant_values": 2.5} if mode == "constant" else {}))
    close(forward("Pad", [x], target, **params)[0], want)
    check_gradient("Pad", [x], rng, target, **params)
    check_requests("Pad", [x], [rng.standard_normal(want.shape)], target, **params)


@pytest.mark.parametrize("target", TARGETS)
def test_negative_widths_cut(target, rng):
    x, widths = rng.standard_normal((1, 1, 3, 4)), (0, 0, 0, 0, -1, 2, 1, -2)
    want = np.zeros((1, 1, 4, 3))
    want[:, :, :2, 1:] = x[:, :, 1:, :2]
    close(forward("Pad", [x], target, mode="constant", pad_width=widths)[0], want)
    check_gradient("Pad", [x], rng, target, mode="constant", pad_width=widths)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("Pad").parse({"mode": "edge", "pad_width": (0, 0, 1, 1)}),
     ParameterError, r"Pad: pad_width=.* must be 8 or 10 numbers"),
    (lambda: ops.get("Pad").parse({"mode": "edge", "pad_width": (0, 0, 1, 0, 1, 1, 0, 0)}),
     ParameterError, r"Pad: pad_width=.* 0 for the first two axes"),
    (lambda: forward("Pad", [np.zeros((1, 1, 2, 2))], mode="reflect", pad_width=(0, 0, 0, 0, 2, 2, 0, 0)),
     ShapeError, "cannot be padded by 2 and 2 on an axis of 2, mode 'reflect'"),
    (lambda: forward("Pad", [np.zeros((1, 2, 3))], mode="edge", pad_width=(0,) * 8),
     ShapeError, r"Pad: data \(1, 2, 3\) has 3 axes, pad_width=.* is for 4"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
