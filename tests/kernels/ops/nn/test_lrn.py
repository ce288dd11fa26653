"""LRN: MXNet's cases, a plain loop over channels, the slope, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("LRN")])
def test_golden(m, z, target):
    check_golden(m, z, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("nsize", [1, 3, 9])  # 9: wider than there are channels
def test_windows(nsize, target, rng):
    x, params = rng.standard_normal((2, 5, 2, 3)), {"nsize": nsize, "alpha": 0.6, "beta": 0.4, "knorm": 1.5}
    want = np.empty_like(x)
    for c in range(5):
        around = x[:, max(0, c - nsize // 2):c + nsize // 2 + 1]
        want[:, c] = x[:, c] / (1.5 + 0.6 / nsize * (around ** 2).sum(1)) ** 0.4
    close(forward("LRN", [x], target, **params)[0], want)
    check_gradient("LRN", [x], rng, target, **params)
    check_requests("LRN", [x], [x], target, **params)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: ops.get("LRN").parse({"nsize": 4}), ParameterError, "LRN: nsize=4 must be odd and at least 1"),
    (lambda: ops.get("LRN").infer_shape(ops.get("LRN").parse({"nsize": 3}), [(3,)]),
     ShapeError, r"LRN: data \(3,\) needs a batch and channels"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
