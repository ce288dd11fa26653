"""Convolution against MXNet and seven nested loops; gradient, requests, threads, layouts, errors."""

from itertools import product

import numpy as np
import pytest
from support.layer_helpers import (
    TARGETS,
    Run,
    backward,
    check_golden,
    check_gradient,
    check_requests,
    close,
    forward,
    golden_cases,
)
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.ops.nn import convolution_cpu


def by_loops(x, w, b, stride, dilate, pad, groups):
    """Every product of the sum, one by one. x [n, c, h, w]."""
    n, _c, h, wd = x.shape
    f, cg, kh, kw = w.shape
    oh = (h + 2 * pad[0] - dilate[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (wd + 2 * pad[1] - dilate[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, f, oh, ow))
    for i, o, r, q in product(range(n), range(f), range(oh), range(ow)):
        y[i, o, r, q] = b[o]
        for ci, u, v in product(range(cg), range(kh), range(kw)):
            a, e = r * stride[0] - pad[0] + u * dilate[0], q * stride[1] - pad[1] + v * dilate[1]
            if 0 <= a < h and 0 <= e < wd:
                y[i, o, r, q] += x[i, o // (f // groups) * cg + ci, a, e] * w[o, ci, u, v]
    return y


CASES = [
    ((2, 3, 6, 5), 4, (3, 3), (1, 1), (1, 1), (0, 0), 1),
    ((2, 4, 7, 6), 6, (3, 2), (2, 1), (1, 1), (1, 1), 2),
    ((3, 2, 8, 9), 2, (2, 3), (1, 2), (2, 3), (2, 1), 2),
    ((2, 3, 5, 5), 4, (1, 1), (1, 1), (1, 1), (0, 0), 1),
    ((1, 4, 5, 5), 4, (1, 1), (2, 2), (1, 1), (1, 0), 4),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, z", [pytest.param(m, z, id=i) for i, m, z in golden_cases("Convolution")])
def test_golden(m, z, target):
    check_golden(m, z, target)


def arguments(case, rng):
    shape, f, kernel, stride, dilate, pad, groups = case
    inputs = [rng.standard_normal(s) for s in (shape, (f, shape[1] // groups, *kernel), (f,))]
    return inputs, {"kernel": kernel, "num_filter": f, "stride": stride, "dilate": dilate, "pad": pad, "num_group": groups}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_loops(case, target, rng):
    inputs, params = arguments(case, rng)
    close(forward("Convolution", inputs, target, **params)[0], by_loops(*inputs, *case[3:]))


@pytest.mark.parametrize("cache", [None, 600])  # 600 bytes: pieces of single rows
@pytest.mark.parametrize("case", CASES)
def test_gradient_and_requests_on_the_cpu(case, cache, rng, monkeypatch):
    if cache:
        monkeypatch.setattr(convolution_cpu, "_CACHE", cache)
    inputs, params = arguments(case, rng)
    check_gradient("Convolution", inputs, rng, **params)
    check_requests("Convolution", inputs, [rng.standard_normal(forward("Convolution", inputs, **params)[0].shape)], **params)


@pytest.mark.parametrize("case", CASES[1:3])
def test_gradient_and_requests_on_the_gpu(case, rng):
    for target in TARGETS[1:]:
        inputs, params = arguments(case, rng)
        head = rng.standard_normal(forward("Convolution", inputs, **params)[0].shape)
        for c, g in zip(*(backward("Convolution", inputs, [head], t, **params).values() for t in ("cpu", target))):
            close(g, c)
        check_requests("Convolution", inputs, [head], target, **params)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rank, last, first", [(1, "NWC", (0, 2, 1)), (2, "NHWC", (0, 3, 1, 2)), (3, "NDHWC", (0, 4, 1, 2, 3))])
def test_channels_last_is_channels_first_moved(rank, last, first, target, rng):
    back = tuple(np.argsort(first))
    inputs = [rng.standard_normal(s).astype("f") for s in ((2, 3, *(5, 4, 6)[:rank]), (4, 3, *(3, 2, 2)[:rank]), (4,))]
    params = {"kernel": (3, 2, 2)[:rank], "num_filter": 4, "pad": (1, 0, 1)[:rank]}
    moved = [a.transpose(back) if a.ndim > 1 else a for a in inputs]
    y = forward("Convolution", inputs, target, **params)[0]
    close(forward("Convolution", moved, target, layout=last, **params)[0], y.transpose(back))
    head = rng.standard_normal(y.shape).astype("f")
    want = backward("Convolution", inputs, [head], target, **params)
    got = backward("Convolution", moved, [head.transpose(back)], target, layout=last, **params)
    for i in range(3):
        close(got[i], want[i].transpose(back) if i < 2 else want[i])


def test_same_bits_in_any_order_of_pieces(rng, monkeypatch):
    monkeypatch.setattr(convolution_cpu, "_CACHE", 2000)
    inputs, params = arguments(CASES[0], rng)
    inputs = [np.repeat(inputs[0], 9, axis=0).astype("f"), *(a.astype("f") for a in inputs[1:])]
    head = rng.standard_normal(forward("Convolution", inputs, **params)[0].shape).astype("f")
    one, other = (backward("Convolution", inputs, [head], run=Run(backwards=b), **params) for b in (False, True))
    assert all((one[i] == other[i]).all() for i in one)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("groups, side, work, cache", [(1, 4, 1, None), (2, 5, 3 * 25 * 24, None), (2, 5, 1, 200),
                                                      (1, 3, 1, None)])
def test_a_pointwise_convolution_is_a_product_of_each_image(groups, side, work, cache, dtype, rng, monkeypatch):
    monkeypatch.setattr(convolution_cpu, "WORK", work)  # one image, three, or parts of one at a time; few positions: by windows
    if cache is not None:
        monkeypatch.setattr(convolution_cpu, "_CACHE", cache)
        monkeypatch.setitem(convolution_cpu.DEFAULT, "cache", cache)
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in ((5, 4, side, side), (6, 4 // groups, 1, 1), (6,)))
    got = forward("Convolution", [x, w, b], kernel=(1, 1), num_filter=6, num_group=groups)[0]
    parts = [np.einsum("nchw,fc->nfhw", data, weight[:, :, 0, 0]) for data, weight in zip(
        np.split(x.astype("float64"), groups, axis=1), np.split(w.astype("float64"), groups))]
    close(got, (np.concatenate(parts, axis=1) + b.astype("float64")[:, None, None]).astype(dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype, target, rng):
    from tritium.dtype import as_dtype

    inputs, params = arguments(CASES[1], rng)
    halves = [a.astype(as_dtype(dtype)) for a in inputs]
    want = by_loops(*(a.astype("d") for a in halves), *CASES[1][3:])
    close(forward("Convolution", halves, target, **params)[0], want.astype(as_dtype(dtype)))


def test_shapes_are_inferred_both_ways():
    op = ops.get("Convolution")
    p = op.parse({"kernel": "(3, 3)", "num_filter": "8", "pad": "(1, 1)"})
    assert op.infer_shape(p, [(2, 4, 7, 8), None, None]) == ([(2, 4, 7, 8), (8, 4, 3, 3), (8,)], [(2, 8, 7, 8)])
    assert op.infer_shape(p, [(-1, 4, -1, -1), None, None], [(2, 8, 7, 7)])[0][0] == (2, 4, 7, 7)


@pytest.mark.parametrize("params, shapes, error, text", [
    ({"kernel": (3, 3), "num_filter": 4}, [(2, 3, 2, 2), None, None],
     ShapeError, r"kernel \(3, 3\) .* more than data \(2, 3, 2, 2\) with pad \(0, 0\). Pad more"),
    ({"kernel": (3, 3), "num_filter": 4}, [(2, 3, 8, 8), (4, 2, 3, 3), None],
     ShapeError, r"data \(2, 3, 8, 8\) and weight \(4, 2, 3, 3\) disagree.*\(4, 3, 3, 3\)"),
    ({"kernel": (3, 3), "num_filter": 4}, [(2, 3, 8), None, None],
     ShapeError, r"data \(2, 3, 8\) has 3 axes; kernel=\(3, 3\) needs 4: NCHW"),
    ({"kernel": (3, 3), "num_filter": 4, "num_group": 2}, [(2, 3, 8, 8), None, None],
     ShapeError, "3 channels, not a multiple of num_group=2"),
    ({"kernel": (3, 3), "num_filter": 5, "num_group": 2}, [],
     ParameterError, "num_filter=5 must be a multiple of num_group=2"),
    ({"kernel": (3, 3), "num_filter": 4, "stride": (1,)}, [],
     ParameterError, r"stride=\(1,\) must have 2 numbers, as kernel has"),
    ({"kernel": (3, 3), "num_filter": 4, "kernal": 1}, [],
     ParameterError, "unknown parameter 'kernal'.* Did you mean 'kernel'"),
])
def test_errors(params, shapes, error, text):
    op = ops.get("Convolution")
    with pytest.raises(error, match=text):
        op.infer_shape(op.parse(params), shapes)
