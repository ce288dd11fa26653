"""Convolution on a GPU, channels last: all three directions against sums written as loops, and guard pages."""

import types
from itertools import product

import numpy as np
import pytest
from support.guard_pages import dies_of, guarded
from tritium.integers import cdiv
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.op import Req
from tritium.kernels.ops.nn import triton_conv, triton_conv_nhwc
from tritium.kernels.ops.nn.conv_geometry import ConvolutionGeometry
from tritium.kernels.ops.nn.triton_conv_nhwc import phases

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
torch = pytest.importorskip("torch")
RUN = types.SimpleNamespace(stream=None, workspace=lambda s, d: torch.from_numpy(guarded(np.full(s, np.nan, d))))


def geometry(n, c, f, groups, spatial, kernel, stride, dilate, pad, last=True):
    out = tuple((s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, d, p in zip(spatial, kernel, stride, dilate, pad))
    return ConvolutionGeometry(n, c, f, groups, spatial, out, kernel, stride, dilate, pad, last)


CASES = {
    "3x3": geometry(2, 8, 16, 1, (7, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    "3x3 stride 2": geometry(2, 8, 5, 1, (8, 7), (3, 3), (2, 2), (1, 1), (1, 1)),
    "stride beyond the kernel": geometry(1, 3, 4, 1, (9, 8), (2, 1), (3, 4), (1, 1), (0, 0)),
    "dilated": geometry(2, 4, 8, 1, (9, 9), (3, 2), (2, 1), (2, 3), (2, 3)),
    "dilated by the stride": geometry(1, 4, 8, 1, (9, 10), (3, 3), (2, 2), (2, 2), (2, 2)),
    "grouped": geometry(2, 16, 8, 2, (5, 5), (3, 3), (1, 2), (1, 1), (1, 1)),
    "plain 1x1": geometry(3, 8, 16, 1, (4, 5), (1, 1), (1, 1), (1, 1), (0, 0)),
    "1x1 stride 2": geometry(2, 8, 8, 1, (5, 4), (1, 1), (2, 2), (1, 1), (0, 0)),
    "depthwise": geometry(2, 9, 9, 9, (6, 7), (3, 3), (2, 1), (1, 2), (1, 2)),
    "one dimension": geometry(2, 6, 4, 1, (11,), (4,), (3,), (1,), (2,)),
    "depth": geometry(2, 8, 5, 1, (5, 4, 6), (3, 3, 2), (1, 2, 1), (1, 1, 2), (1, 1, 0)),
    "depth, strides and dilations": geometry(2, 3, 4, 1, (7, 5, 4), (3, 2, 2), (2, 1, 1), (2, 1, 1), (1, 0, 1)),
    "depth beyond the data": geometry(1, 8, 4, 1, (2, 3, 3), (4, 1, 1), (1, 1, 1), (2, 1, 1), (5, 0, 0)),
    "depth, grouped": geometry(2, 16, 8, 2, (4, 5, 5), (2, 3, 3), (1, 1, 2), (1, 1, 1), (0, 1, 1)),
    "depth, depthwise": geometry(2, 9, 9, 9, (4, 5, 3), (3, 2, 2), (1, 1, 1), (1, 1, 1), (1, 0, 1)),
    "depth, depthwise, strides": geometry(2, 8, 8, 8, (7, 4, 5), (2, 3, 1), (3, 2, 1), (2, 1, 1), (2, 1, 0)),
    "depth, more taps than bits": geometry(1, 16, 16, 2, (5, 4, 4), (4, 3, 3), (1, 1, 1), (1, 1, 1), (2, 1, 1)),
    "slices apart": geometry(2, 8, 5, 1, (4, 5, 6), (1, 3, 3), (1, 2, 1), (1, 1, 1), (0, 1, 1)),
    "plain 1x1x1": geometry(2, 8, 16, 1, (3, 4, 5), (1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0)),
}


def by_loops(g, x, w, dy):
    """y, dx and dw of one convolution, tap by tap in float64. Arrays as the geometry says they lie, channels last."""
    c, f = g.c // g.groups, g.f // g.groups
    y, dw = np.zeros((g.n, *g.out, g.f)), np.zeros(w.shape)
    padded = np.zeros((g.n, *(s + 2 * p for s, p in zip(g.spatial, g.pad)), g.c))
    inside = (slice(None), *(slice(p, p + s) for s, p in zip(g.spatial, g.pad)))
    padded[inside] = x
    spread = np.zeros(padded.shape)
    for tap in product(*map(range, g.kernel)):
        seen = (slice(None), *(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, g.dilate, g.out, g.stride)))
        for i in range(g.groups):
            cs, fs = slice(i * c, i * c + c), slice(i * f, i * f + f)
            window, weight = padded[seen][..., cs], w[(fs, *tap)].astype("float64")
            y[..., fs] += window @ weight.T
            spread[seen][..., cs] += dy[..., fs].astype("float64") @ weight
            dw[(fs, *tap)] += dy[..., fs].reshape(-1, f).astype("float64").T @ window.reshape(-1, c)
    return y, spread[inside], dw


def arrays(g, rng, dtype="float32"):
    """x, weight, bias, dy, guarded, channels last."""
    c = g.c // g.groups
    shapes = [(g.n, *g.spatial, g.c), (g.f, *g.kernel, c), (g.f,), (g.n, *g.out, g.f)]
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def first(a):
    return np.ascontiguousarray(np.moveaxis(a, -1, 1))


def check(g, rng, turned=False, dtype="float32"):
    x, w, bias, dy = arrays(g, rng, dtype)
    y, dx, dw = by_loops(g, x, w, dy)
    y += bias
    move = first if turned else lambda a: a
    if turned:
        g = geometry(g.n, g.c, g.f, g.groups, g.spatial, g.kernel, g.stride, g.dilate, g.pad, last=False)
    x, w, bias, dy = (torch.from_numpy(guarded(a if a.ndim == 1 else move(a))) for a in (x, w, bias, dy))
    for add in (False, True):
        outs = [guarded(np.full(move(a).shape, 1 if add else np.nan, dtype)) for a in (y, dx, dw)]
        got = [torch.from_numpy(a) for a in outs]
        triton_conv.forward(RUN, g, x, w, bias, got[0], add=add)
        triton_conv.backward(RUN, g, dy, x, w, got[1:], [Req.ADD if add else Req.WRITE] * 2)
        for what, found, want in zip(("y", "dx", "dw"), outs, (y, dx, dw)):
            error = np.abs(found - add - move(want)).max() / np.abs(want).max()
            assert error < (5e-6 if dtype == "float32" else 5e-3), (what, add, error)


@pytest.mark.parametrize("case", CASES)
def test_channels_last(case, rng):
    check(CASES[case], rng)


@pytest.mark.parametrize("case", ["3x3 stride 2", "grouped", "depthwise", "plain 1x1", *(c for c in CASES if "depth," in c)])
def test_channels_first_by_turning(case, rng):
    check(CASES[case], rng, turned=True)


def test_half_precision(rng):
    check(CASES["3x3"], rng, dtype="float16")


@pytest.mark.parametrize("case", ["3x3 stride 2", "grouped", "depthwise", "dilated"])
def test_a_weight_gradient_is_the_sum_of_its_parts(case, rng, monkeypatch):
    """Parts that begin in the middle of images and rows, the last of them shorter."""
    made = []
    monkeypatch.setattr(triton_conv_nhwc, "splits_of", lambda rows, *given: made.append(cdiv(rows, 11)) or (made[-1], 11))
    check(CASES[case], rng)
    assert made and min(made) > 1


@pytest.mark.parametrize("case", ["3x3 stride 2", "dilated", "depthwise", "depth, strides and dilations", "depth, depthwise"])
def test_nothing_beyond_the_arrays_is_touched(case):
    assert dies_of(lambda: check(CASES[case], np.random.default_rng(0))) == 0
    assert dies_of(lambda: check(CASES[case], np.random.default_rng(0), turned=True)) == 0


@pytest.mark.parametrize("size, kernel", list(product((1, 7, 8), (1, 3, 4))))
def test_phases_meet_every_tap_once(size, kernel):
    for stride, dilate, pad in product((1, 2, 3), (1, 2, 3), (0, 2)):
        check_phases(size, kernel, stride, dilate, pad)


def check_phases(size, kernel, stride, dilate, pad):
    want = {(x, (x + pad - r * dilate) // stride, r) for x in range(size) for r in range(kernel)
            if (x + pad - r * dilate) % stride == 0}
    got = [(p.first + j * stride, j + p.offset + i * p.step, p.tap + i * p.tap_step)
           for p in phases(size, kernel, stride, dilate, pad) for j in range(p.positions) for i in range(p.taps)]
    assert set(got) == want and len(got) == len(want)


@pytest.mark.parametrize("rows, tiles, warps, least", [
    (401_408, 3, 8, 1.0), (100_352, 6, 8, 1.0), (25_088, 18, 8, 0.95), (6272, 72, 8, 0.8), (1_605_632, 7, 4, 0.95),
    (100_352, 1, 8, 0.95), (6272, 64, 8, 0.95)])
def test_the_parts_of_a_weight_gradient_fill_the_waves_of_the_machine(rows, tiles, warps, least):
    """ResNet-50's, on 132 multiprocessors: the share of the programs' places that have work."""
    parts, per = triton_conv_nhwc.splits_of(rows, tiles, 64, 132, warps)
    at_once = 132 * 8 // warps
    assert tiles * parts / (cdiv(tiles * parts, at_once) * at_once) >= least
    assert per % 64 == 0 and (parts - 1) * per < rows <= parts * per


def test_more_parts_are_made_only_where_they_save_more_than_they_cost():
    assert triton_conv_nhwc.splits_of(6272, 132, 64, 132, 8)[0] == 1  # a full wave without any
    assert triton_conv_nhwc.splits_of(10**7, 133, 64, 132, 8)[0] > 50  # one program in the second wave, of a long sum
    assert triton_conv_nhwc.splits_of(100, 1, 64, 132, 8) == (1, 128)  # one part has at least four steps
