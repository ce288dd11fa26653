"""ROIPooling, ROIAlign. Oracle: bins walked element by element; planes whose means are known."""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.layer_helpers import Run
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops
from tritium.kernels.cpu import c_compile
from tritium.kernels.op import Req, Spec
from tritium.kernels.ops.vision import c_roi


def away(x):
    return math.copysign(math.floor(abs(x) + 0.5), x)


def pooled(data, rois, size, scale):
    y = np.zeros((len(rois), data.shape[1], *size))
    for r, (image, *box) in enumerate(rois):
        left, top, right, bottom = (away(v * scale) for v in box)
        high, wide = (max(b - a + 1, 1) / n for a, b, n in ((top, bottom, size[0]), (left, right, size[1])))
        for i in range(size[0]):
            for j in range(size[1]):
                inside = [(h, w) for h in range(data.shape[2]) for w in range(data.shape[3])
                          if math.floor(i * high) + top <= h < math.ceil((i + 1) * high) + top
                          and math.floor(j * wide) + left <= w < math.ceil((j + 1) * wide) + left]
                if inside and 0 <= image < len(data):
                    y[r, :, i, j] = [max(plane[at] for at in inside) for plane in data[int(image)]]
    return y


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_pooling_walks_its_bins(rng, ctx, dtype, scale):
    data = rng.normal(size=(2, 3, 6, 5)).astype(dtype)
    rois = np.array([[0, 0, 0, 4, 5], [1, 1.5, 2.5, 3, 4], [1, -3, -2, 9, 9], [0, 4, 4, 2, 2], [-1, 0, 0, 2, 2], [0, 8, 8, 9, 9]])
    got = mx.nd.ROIPooling(mx.nd.array(data, ctx=ctx, dtype=dtype), mx.nd.array(rois, ctx=ctx, dtype=dtype),
                           pooled_size=(2, 3), spatial_scale=scale)
    np.testing.assert_array_equal(got.asnumpy(), pooled(data, rois, (2, 3), scale).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_its_derivative_goes_to_the_largest_and_adds_up(rng, ctx, dtype):
    data = mx.nd.array(rng.permutation(36).reshape(1, 1, 6, 6), ctx=ctx, dtype=dtype)
    rois = mx.nd.array([[0, 0, 0, 5, 5]] * 3, ctx=ctx, dtype=dtype)
    data.attach_grad("add")
    data.grad[:] = 1
    with mx.autograd.record():
        y = mx.nd.ROIPooling(data, rois, pooled_size=(1, 1), spatial_scale=1.0)
    y.backward()
    want = np.ones(36)
    want[data.asnumpy().ravel().argmax()] += 3
    np.testing.assert_array_equal(data.grad.asnumpy().ravel(), want)


@pytest.mark.parametrize("sample_ratio", [2, -1])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align_of_a_slope_is_its_middle(ctx, sample_ratio, aligned):
    y, x = np.mgrid[:12, :10].astype("float64")
    data = mx.nd.array([[2 * y + 3 * x, np.ones_like(x)]], ctx=ctx)
    rois = np.array([[0, 2.0, 3.0, 14.0, 17.0], [0, 4.0, 4.0, 12.0, 12.0], [3, 0, 0, 4, 4]])
    got = mx.nd.contrib.ROIAlign(data, mx.nd.array(rois, ctx=ctx), pooled_size=(2, 2), spatial_scale=0.5,
                                 sample_ratio=sample_ratio, aligned=aligned).asnumpy()
    for r, (_, left, top, right, bottom) in enumerate(rois[:2] / 2):
        shift = 0.5 if aligned else 0.0
        for i in range(2):
            for j in range(2):
                middle = top + (i + 0.5) * (bottom - top) / 2 - shift, left + (j + 0.5) * (right - left) / 2 - shift
                assert abs(got[r, 0, i, j] - (2 * middle[0] + 3 * middle[1])) < 1e-4
    assert (abs(got[:2, 1] - 1) < 1e-6).all() and (got[2] == 0).all()


def test_position_sensitive_bins_read_their_own_channels(ctx):
    data = mx.nd.array(np.arange(8.0).reshape(1, 8, 1, 1) * np.ones((1, 8, 6, 6)), ctx=ctx)
    got = mx.nd.contrib.ROIAlign(data, mx.nd.array([[0, 1, 1, 4, 4]], ctx=ctx), pooled_size=(2, 2), spatial_scale=1.0,
                                 sample_ratio=2, position_sensitive=True)
    assert_close(got, np.arange(8.0).reshape(1, 2, 2, 2))


@pytest.mark.parametrize("call, error, text", [
    (lambda d, r: mx.nd.ROIPooling(d, r, pooled_size=(2,), spatial_scale=1.0), ParameterError,
     r"ROIPooling: pooled_size=\(2,\) must"),
    (lambda d, r: mx.nd.ROIPooling(d, r, pooled_size=(2, 2), spatial_scale=0.0), ParameterError,
     "spatial_scale=0.0 must be above 0"),
    (lambda d, r: mx.nd.ROIPooling(d, d, pooled_size=(2, 2), spatial_scale=1.0), ShapeError,
     r"rois \(1, 6, 4, 4\) \[regions, 5\]"),
    (lambda d, r: mx.nd.contrib.ROIAlign(d, r, pooled_size=(2, 2), spatial_scale=1.0, position_sensitive=True), ShapeError,
     "position_sensitive needs channels in a multiple of the 4 bins, not 6"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(mx.nd.ones((1, 6, 4, 4)), mx.nd.ones((3, 5)))


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
@pytest.mark.parametrize("wanted", [(0, 1), (0,), (1,)])
def test_c_pools_with_the_bits_of_numpy(rng, monkeypatch, wanted):
    """Of equal elements the first counts, and NaN is the largest; regions may lie outside, be reversed, or have no image."""
    data = rng.integers(-3, 3, (2, 70, 9, 11)).astype("f")
    data[1, 3, 4:6, 2:7] = np.nan
    rois = np.concatenate([rng.integers(-1, 4, (20, 1)) - 0.5, rng.uniform(-6, 16, (20, 4))], axis=1).astype("f")
    rois[0], rois[1] = [1, 0, 0, 10, 8], [1, np.nan, np.inf, -np.inf, 2.5]
    specs = [Spec((20, 70, 3, 4), np.dtype("f")), Spec((20, 70, 3, 4), np.dtype("i4"))]
    reqs, op = [Req.WRITE if i in wanted else Req.NULL for i in (0, 1)], ops.get("ROIPooling")
    found = []
    for in_c in (True, False):
        monkeypatch.setattr(c_roi, "in_c", lambda *_, in_c=in_c: in_c)
        outs = [np.full(s.shape, 7, s.dtype) for s in specs]
        given = op.parse({"pooled_size": (3, 4), "spatial_scale": 0.7})
        kernel = op.kernel(given, [Spec(a.shape, a.dtype) for a in (data, rois)], specs, reqs, "cpu")
        kernel(Run(), [data, rois], outs)
        found.append([a.tobytes() for a in outs])
    assert found[0] == found[1]
