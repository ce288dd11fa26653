"""RROIAlign and DeformablePSROIPooling. Values of MXNet: tests/test_golden_operators.py; slopes: tests/test_every_operator.py."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import ParameterError, ShapeError

C = mx.nd.contrib


def test_a_quarter_turn_reads_what_the_turned_picture_has(ctx, rng):
    x = rng.normal(size=(1, 2, 7, 7))

    def read(picture, region):
        given = [mx.nd.array(a, ctx=ctx, dtype="float64") for a in (picture, [region])]
        return C.RROIAlign(*given, pooled_size=(4, 2), spatial_scale=1.0, sampling_ratio=2).asnumpy()

    turned = np.rot90(x, axes=(2, 3)).copy()
    assert_close(read(turned, [0, 4, 4, 2, 4, 90]), read(x, [0, 2, 4, 2, 4, 0]))


def test_a_region_of_no_image_is_zero(ctx):
    x = mx.nd.ones((1, 4, 3, 3), ctx=ctx)
    y = C.RROIAlign(x, mx.nd.array([[-1, 1, 1, 2, 2, 0], [1, 1, 1, 2, 2, 0]], ctx=ctx), pooled_size=(2, 2), spatial_scale=1)
    assert y.shape == (2, 4, 2, 2) and not y.asnumpy().any()
    y = C.DeformablePSROIPooling(x, mx.nd.array([[-1, 0, 0, 2, 2], [1, 0, 0, 2, 2]], ctx=ctx), spatial_scale=1, output_dim=1,
                                 group_size=2, pooled_size=2, no_trans=True)
    assert y.shape == (2, 1, 2, 2) and not y.asnumpy().any()


PSROI = {"spatial_scale": 1, "output_dim": 1, "group_size": 2, "pooled_size": 2}


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: C.RROIAlign(mx.nd.ones((1, 4, 3, 3)), mx.nd.ones((1, 5)), pooled_size=(2, 2), spatial_scale=1),
     ShapeError, r"_contrib_RROIAlign: data .* must be .*, and rois \(1, 5\) \[regions, 6\]"),
    (lambda: C.RROIAlign(mx.nd.ones((1, 4, 3, 3)), mx.nd.ones((1, 6)), pooled_size=(0, 2), spatial_scale=1),
     ParameterError, r"pooled_size=\(0, 2\) must be \(height, width\), both at least 1"),
    (lambda: C.DeformablePSROIPooling(mx.nd.ones((1, 4, 3, 3)), mx.nd.ones((1, 5)), mx.nd.ones((1, 3, 2, 2)), **PSROI),
     ShapeError, r"trans \(1, 3, 2, 2\) must be \[1, 2 · classes, 2, 2\], where the number of classes divides"),
    (lambda: C.DeformablePSROIPooling(mx.nd.ones((1, 3, 3, 3)), mx.nd.ones((1, 5)), **PSROI, no_trans=True),
     ShapeError, r"data \(1, 3, 3, 3\) must be \[n, 4, h, w\] for output_dim=1 and group_size=2"),
    (lambda: C.DeformablePSROIPooling(mx.nd.ones((1, 4, 3, 3)), mx.nd.ones((1, 5)), **{**PSROI, "pooled_size": 0}, no_trans=True),
     ParameterError, "pooled_size=0, sample_per_part=1 must be at least 1"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
