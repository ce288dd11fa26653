"""Deconvolution: MXNet's cases, windows spread in a plain loop, slopes, target_shape, errors."""

from itertools import product

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_golden, check_gradient, check_requests, close, forward, golden_cases
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("Deconvolution")])
def test_golden(m, z, target):
    check_golden(m, z, target)


def spread(x, weight, groups, stride, dilate, pad, out):
    """Every element of x spreads its window, one addition at a time."""
    n, c = x.shape[:2]
    f = weight.shape[1]
    y = np.zeros((n, f * groups, *out))
    for i, ch, at, k in product(range(n), range(c), np.ndindex(x.shape[2:]), np.ndindex(weight.shape[2:])):
        to = tuple(a * s + b * d - p for a, s, b, d, p in zip(at, stride, k, dilate, pad))
        if all(0 <= t < o for t, o in zip(to, out)):
            g = ch // (c // groups)
            y[(i, slice(g * f, (g + 1) * f), *to)] += x[(i, ch, *at)] * weight[(ch, slice(None), *k)]
    return y


CASES = [((2, 3, 4, 3), {"kernel": (3, 2), "num_filter": 2, "stride": (2, 3), "pad": (1, 0), "adj": (1, 2)}, (8, 10)),
         ((1, 4, 5), {"kernel": (3,), "num_filter": 6, "num_group": 2, "dilate": (2,), "no_bias": False}, (9,)),
         ((1, 2, 3, 3), {"kernel": (3, 3), "num_filter": 1, "stride": (2, 2), "target_shape": (6, 5)}, (6, 5)),
         ((1, 2, 2, 2, 2), {"kernel": (2, 2, 2), "num_filter": 2, "stride": (2, 1, 2)}, (4, 3, 4))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape, params, out", CASES)
def test_windows_add_up(shape, params, out, target, rng):
    op = ops.get("Deconvolution")
    p = op.parse(params)
    ins, (y,) = op.infer_shape(p, [shape, *[None] * (len(op.arguments(p)) - 1)])
    assert y[2:] == out
    arrays = [rng.standard_normal(s) for s in ins]
    rank = len(p.kernel)
    pad = p.pad or (0,) * rank
    if p.target_shape:
        total = [t * (s - 1) + k for s, t, k in zip(shape[2:], p.stride, p.kernel)]
        pad = [(t - o + 1) // 2 for t, o in zip(total, out)]
    want = spread(*arrays[:2], p.num_group, p.stride or (1,) * rank, p.dilate or (1,) * rank, pad, out)
    if not p.no_bias:
        want += arrays[2].reshape(-1, *[1] * rank)
    close(forward("Deconvolution", arrays, target, **params)[0], want)
    check_gradient("Deconvolution", arrays, rng, target, **params)
    check_requests("Deconvolution", arrays, [want], target, **params)


@pytest.mark.parametrize("params, message", [
    ({"num_filter": 2, "stride": (2, 2), "adj": (2, 0)}, r"adj=\(2, 0\) must be smaller than stride=\(2, 2\)"),
    ({"num_filter": 3, "num_group": 2}, "num_filter=3 must be a multiple of num_group=2")])
def test_parameters_that_disagree_are_refused(params, message):
    with pytest.raises(ParameterError, match=message):
        ops.get("Deconvolution").parse({"kernel": (3, 3), **params})


@pytest.mark.parametrize("params, shapes, message", [
    ({"stride": (2, 2), "target_shape": (20, 30)}, [(1, 2, 4, 4), None],
     r"target_shape=\(20, 30\) is larger than \(9, 9\), the largest output for data"),
    ({}, [(1, 2, 4, 4), (2, 3, 3, 3)], r"data \(1, 2, 4, 4\) and weight \(2, 3, 3, 3\) disagree.* must be \(2, 2, 3, 3\)"),
    ({"pad": (2, 2)}, [(1, 2, 1, 1), None], r"leaves nothing of the \(3, 3\)")])
def test_shapes_that_do_not_fit_are_refused(params, shapes, message):
    op = ops.get("Deconvolution")
    with pytest.raises(ShapeError, match=message):
        op.infer_shape(op.parse({"kernel": (3, 3), "num_filter": 2, **params}), shapes)


def test_unknown_sizes_stay_unknown():
    op = ops.get("Deconvolution")
    assert op.infer_shape(op.parse({"kernel": (3, 3), "num_filter": 2}), [(-1, 2, 4, -1), None])[1] == [(-1, 2, 6, -1)]
