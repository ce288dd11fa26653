"""PSROIPooling. Oracle: loops over bins and their elements. Values of MXNet: tests/test_golden_operators.py."""

import math

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import ParameterError, ShapeError


def pooled(data, rois, scale, dim, size, groups):
    out = np.zeros((len(rois), dim, size, size))
    h, w = data.shape[2:]
    for r, (image, left, top, right, bottom) in enumerate(rois):
        x, y = left * scale, top * scale
        step = [max((end + 1) * scale - begin, 0.1) / size for begin, end in ((y, bottom), (x, right))]
        for c, i, j in np.ndindex(dim, size, size):
            group = (c * groups + i * groups // size) * groups + j * groups // size
            rows = range(min(max(math.floor(i * step[0] + y), 0), h), min(max(math.ceil((i + 1) * step[0] + y), 0), h))
            columns = range(min(max(math.floor(j * step[1] + x), 0), w), min(max(math.ceil((j + 1) * step[1] + x), 0), w))
            part = [data[int(image), group, a, b] for a in rows for b in columns]
            out[r, c, i, j] = sum(part) / len(part) if part else 0
    return out


@pytest.mark.parametrize("size, groups, dim", [(2, 2, 2), (3, 0, 1), (3, 2, 2), (2, 1, 3)])
def test_bins_read_their_own_channels(size, groups, dim, ctx, rng):
    data = rng.normal(size=(2, dim * (groups or size) ** 2, 6, 5))
    rois = np.array([[0, 0, 0, 3, 4], [1, 1, 2, 4, 5], [1, 3, 3, 30, 2]], "float64")  # the last leaves the image
    given = [mx.nd.array(a, ctx=ctx, dtype="float64") for a in (data, rois)]
    p = {"spatial_scale": 0.5, "output_dim": dim, "pooled_size": size, "group_size": groups}
    got = mx.nd.contrib.PSROIPooling(*given, **p).asnumpy()
    assert_close(got, pooled(data, rois, 0.5, dim, size, groups or size))
    check_gradient(lambda x: mx.nd.contrib.PSROIPooling(x, given[1], **p), [data], ctx, rng)


def test_a_region_of_no_image_is_zero(ctx):
    y = PSROI(mx.nd.ones((1, 4, 3, 3), ctx=ctx), mx.nd.array([[-1, 0, 0, 2, 2], [1, 0, 0, 2, 2]], ctx=ctx),
                                   spatial_scale=1, output_dim=1, pooled_size=2)
    assert y.shape == (2, 1, 2, 2) and not y.asnumpy().any()


PSROI = mx.nd.contrib.PSROIPooling


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: PSROI(mx.nd.ones((1, 3, 4, 4)), mx.nd.ones((1, 5)), spatial_scale=1, output_dim=1, pooled_size=2),
     ShapeError, r"data \(1, 3, 4, 4\) must be \[n, 4, h, w\] for output_dim=1 and 2 × 2 groups"),
    (lambda: PSROI(mx.nd.ones((1, 4, 4, 4)), mx.nd.ones((1, 5)), spatial_scale=1, output_dim=1, pooled_size=0),
     ParameterError, r"pooled_size=0, spatial_scale=1\.0 must be above 0"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
