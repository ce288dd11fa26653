"""BilinearResize2D and AdaptiveAvgPooling2D: MXNet's values, loops over points, gradients, requests, errors."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, check_gradient, check_requests, close, forward
from tritium.errors import ParameterError, ShapeError
from tritium.kernels import op as ops

RESIZE, POOL = "_contrib_BilinearResize2D", "_contrib_AdaptiveAvgPooling2D"
plane = lambda *s: np.arange(np.prod(s), dtype="f4").reshape(1, 1, *s)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("x, params, want", [  # MXNet 1.9.1 printed these
    (plane(2, 3), {"height": 4, "width": 5}, [[0, .5, 1, 1.5, 2], [1, 1.5, 2, 2.5, 3], [2, 2.5, 3, 3.5, 4], [3, 3.5, 4, 4.5, 5]]),
    (plane(2, 3), {"height": 4, "width": 5, "align_corners": False},
     [[0, .4, 1, 1.6, 2], [.75, 1.15, 1.75, 2.35, 2.75], [2.25, 2.65, 3.25, 3.85, 4.25], [3, 3.4, 4, 4.6, 5]]),
    (plane(4, 4), {"height": 2, "width": 3, "align_corners": False},
     [[2.1666665, 3.5, 4.8333335], [10.1666667, 11.5, 12.8333333]]),
    (plane(4, 4), {"height": 1, "width": 3}, [[0, 1.5, 3]]),
    (plane(3, 4), {"scale_height": 1.5, "scale_width": 0.5}, [[0, 3], [2.6666667, 5.6666667], [5.3333333, 8.3333333], [8, 11]]),
])
def test_mxnet_resizes_the_same(x, params, want, target):
    close(forward(RESIZE, [x], target, **params)[0][0, 0], np.array(want, "f4"))


def test_sizes_by_mode():
    op = ops.get(RESIZE)
    for shape, sizes in (((5, 6), {"odd_scale": (7, 3), "to_even_down": (4, 6), "to_even_up": (6, 6), "to_odd_down": (5, 5),
                                   "to_odd_up": (5, 7)}),
                         ((6, 7), {"odd_scale": (9, 4), "to_even_down": (6, 6), "to_even_up": (6, 8), "to_odd_down": (5, 7),
                                   "to_odd_up": (7, 7)})):
        for mode, want in sizes.items():
            p = op.parse({"mode": mode, "scale_height": 1.5, "scale_width": 0.5})
            got = op.infer_shape(p, [(1, 1, *shape)])[1][0][2:]
            assert got == want, (mode, shape)
    p = op.parse({"mode": "like"})
    assert op.arguments(p) == ("data", "like") and op.infer_shape(p, [(1, 2, 5, 6), (1, 1, 7, 9)])[1] == [(1, 2, 7, 9)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [(), (2,), (3, 7), (5, 4), (1, 9), (1, 2)])
def test_means_by_hand(size, target, rng):
    x = rng.standard_normal((2, 3, 5, 4))
    y = forward(POOL, [x], target, output_size=size)[0]
    oh, ow = (size or (1, 1))[0], (size or (1, 1))[-1]
    for i in range(oh):
        for j in range(ow):
            part = x[:, :, i * 5 // oh:-(-(i + 1) * 5 // oh), j * 4 // ow:-(-(j + 1) * 4 // ow)]
            np.testing.assert_allclose(y[:, :, i, j], part.mean((2, 3)), rtol=1e-12)  # closer than the table
    check_gradient(POOL, [x], rng, target, output_size=size)
    check_requests(POOL, [x], [rng.standard_normal(y.shape)], target, output_size=size)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("align", [True, False])
def test_resize_gradient_and_requests(align, target, rng):
    x = rng.standard_normal((2, 2, 3, 5))
    for params in ({"height": 7, "width": 2}, {"height": 3, "width": 5}):
        check_gradient(RESIZE, [x], rng, target, align_corners=align, **params)
        dy = rng.standard_normal((2, 2, params["height"], params["width"]))
        check_requests(RESIZE, [x], [dy], target, align_corners=align, **params)
    half = forward(RESIZE, [x.astype("f2")], target, height=7, width=9)[0]
    close(half, forward(RESIZE, [x.astype("f2").astype("f4")], height=7, width=9)[0].astype("f2"))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: forward(RESIZE, [np.zeros((3, 4))]), ShapeError, r"data \(3, 4\) must be \[n, c, h, w\]"),
    (lambda: forward(RESIZE, [np.zeros((1, 1, 3, 4))], height=0),
     ShapeError, r"planes of \(3, 4\) cannot be resized to \(0, 1\)"),
    (lambda: ops.get(POOL).parse({"output_size": 0}), ParameterError, r"output_size=\(0,\) must be one or two sizes"),
])
def test_invalid_arguments_are_rejected(call, error, text):
    with pytest.raises(error, match=text):
        call()
