"""_points, GridGenerator, BilinearSampler, SpatialTransformer, deformable convolutions.
Oracle: hats over all elements, in a loop."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import ParameterError, ShapeError


def hat(distance):
    return max(0.0, 1 - abs(distance))


def at_point(plane, y, x):
    return sum(plane[i, j] * hat(y - i) * hat(x - j) for i in range(plane.shape[0]) for j in range(plane.shape[1]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_points_are_mixes_of_four(rng, ctx, dtype):
    data = rng.normal(size=(2, 3, 4, 5)).astype(dtype)
    y, x = rng.uniform(-1.5, 4.5, (3, 6)).astype(dtype), rng.uniform(-1.5, 5.5, (3, 6)).astype(dtype)
    y[0, 0], x[0, 1], y[1, :3] = 2.0, 4.0, (np.nan, np.inf, -np.inf)
    image = np.array([1, 0, 7], dtype)
    got = mx.nd._internal._points(*(mx.nd.array(a, ctx=ctx, dtype=dtype) for a in (data, y, x, image)))
    want = np.zeros((3, 3, 6))
    for g, i in enumerate((1, 0)):
        for p in range(6):
            if np.isfinite(y[g, p]):
                want[g, :, p] = [at_point(plane.astype("float64"), float(y[g, p]), float(x[g, p])) for plane in data[i]]
    assert_close(got, want, dtype=np.dtype(dtype), scale=4)  # 4: a sum of four products


def test_the_plain_grid_gives_the_data_back(rng, ctx):
    data = rng.normal(size=(2, 3, 4, 5))
    plain = mx.nd.array(np.tile([1.0, 0, 0, 0, 1, 0], (2, 1)), ctx=ctx)
    x = mx.nd.array(data, ctx=ctx)
    kept = mx.nd.SpatialTransformer(x, plain, target_shape=(4, 5), transform_type="affine", sampler_type="bilinear")
    assert_close(kept, data, scale=10)  # 10: the grid is rounded
    grid = mx.nd.GridGenerator(mx.nd.zeros((2, 2, 4, 5), ctx=ctx), transform_type="warp")
    assert_close(mx.nd.BilinearSampler(x, grid), data, scale=10)
    moved = mx.nd.BilinearSampler(x, mx.nd.GridGenerator(mx.nd.ones((2, 2, 4, 5), ctx=ctx), transform_type="warp")).asnumpy()
    assert_close(moved[:, :, :3, :4], data[:, :, 1:, 1:], scale=10)  # 10: rounded in another order
    assert (abs(moved[:, :, 3]) < 1e-4).all()


def test_a_plane_of_one_row_has_a_finite_grid(ctx):
    grid = mx.nd.GridGenerator(mx.nd.zeros((1, 2, 1, 3), ctx=ctx), transform_type="warp").asnumpy()  # MXNet divides by zero
    np.testing.assert_allclose(grid, [[[[-1, 0, 1]], [[-1, -1, -1]]]])


CONV = {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 1), "num_filter": 4, "num_group": 2}


def test_without_offsets_it_is_a_convolution(rng, ctx):
    data, weight, bias = (mx.nd.array(rng.normal(size=s), ctx=ctx) for s in ((2, 4, 6, 7), (4, 2, 3, 2), (4,)))
    want = mx.nd.Convolution(data, weight, bias, **CONV).asnumpy()
    offset = mx.nd.zeros((2, 12, *want.shape[2:]), ctx=ctx)
    assert_close(mx.nd.contrib.DeformableConvolution(data, offset, weight, bias, **CONV), want, scale=10)  # 10: 12 products
    mask = mx.nd.ones((2, 6, *want.shape[2:]), ctx=ctx) * 0.5
    got = mx.nd.contrib.ModulatedDeformableConvolution(data, offset, mask, weight, bias, **CONV)
    assert_close(got, (want + bias.asnumpy().reshape(1, -1, 1, 1)) / 2, scale=10)


def test_offsets_move_what_is_read(rng, ctx):
    data = rng.normal(size=(1, 1, 5, 5))
    offset = np.zeros((1, 2, 5, 5))
    offset[:, 0], offset[:, 1] = 1, 0.5  # a row down, half a column right
    got = mx.nd.contrib.DeformableConvolution(*(mx.nd.array(a, ctx=ctx) for a in (data, offset, np.ones((1, 1, 1, 1)))),
                                              kernel=(1, 1), num_filter=1, no_bias=True).asnumpy()
    assert_close(got[0, 0, :4, :4], (data[0, 0, 1:, :4] + data[0, 0, 1:, 1:]) / 2)
    assert (got[0, 0, 4] == 0).all()
    # 0.1: closer than the table: few roundings
    assert_close(got[0, 0, :4, 4], data[0, 0, 1:, 4], scale=0.1)  # less than one column beyond: the edge itself


def test_symbols_infer_the_shapes_of_a_deformable_layer():
    data = mx.sym.Variable("data")
    p = {"kernel": (3, 3), "num_filter": 8, "pad": (1, 1)}
    net = mx.sym.contrib.DeformableConvolution(data, mx.sym.Variable("offset"), name="dcn", **p)
    shapes, outs, _ = net.infer_shape(data=(2, 4, 6, 7))
    assert dict(zip(net.list_arguments(), shapes)) == {"data": (2, 4, 6, 7), "offset": (2, 18, 6, 7),
                                                       "dcn_weight": (8, 4, 3, 3), "dcn_bias": (8,)}
    assert outs == [(2, 8, 6, 7)]


@pytest.mark.parametrize("call, error, text", [
    (lambda: mx.nd.GridGenerator(mx.nd.ones((2, 6)), transform_type="affine"), ParameterError,
     r"GridGenerator: target_shape=\(0, 0\) must be \(height, width\)"),
    (lambda: mx.nd.GridGenerator(mx.nd.ones((2, 5)), transform_type="affine", target_shape=(2, 2)), ShapeError,
     r"GridGenerator: data \(2, 5\) must be \[n, 6\]"),
    (lambda: mx.nd.GridGenerator(mx.nd.ones((2, 6)), transform_type="warp"), ShapeError, r"GridGenerator: data \(2, 6\) must be"),
    (lambda: mx.nd.BilinearSampler(mx.nd.ones((2, 1, 3, 3)), mx.nd.ones((1, 2, 3, 3))), ShapeError,
     r"BilinearSampler: data \(2, 1, 3, 3\) must be \[n, c, h, w\] with n=1, the number of grids"),
    (lambda: mx.nd.BilinearSampler(mx.nd.ones((2, 1, 3, 3)), mx.nd.ones((2, 3, 3))), ShapeError,
     r"BilinearSampler: grid \(2, 3, 3\)"),
    (lambda: mx.nd._internal._points(*[mx.nd.ones((2, 3))] * 4), ShapeError, r"_points: data \(2, 3\) must be \[n, c, h, w\]"),
    (lambda: mx.nd.contrib.DeformableConvolution(*[mx.nd.ones((1, 2, 5, 5))] * 3, kernel=(3,), num_filter=2, no_bias=True),
     ParameterError, r"DeformableConvolution: kernel=\(3,\)"),
    (lambda: mx.nd.contrib.DeformableConvolution(*[mx.nd.ones((1, 2, 5, 5))] * 3, kernel=(3, 3), num_filter=3, num_group=2,
                                                 no_bias=True), ParameterError,
     r"num_filter=3 must be a multiple of num_group=2"),
    (lambda: mx.nd.contrib.DeformableConvolution(*[mx.nd.ones((1, 2, 5, 5))] * 3, kernel=(3, 3), num_filter=2, no_bias=True),
     ShapeError, r"DeformableConvolution: for data \(1, 2, 5, 5\), input 1 must be \(1, 18, 3, 3\), not"),
    (lambda: mx.nd.contrib.DeformableConvolution(*[mx.nd.ones((1, 2, 5, 5))] * 3, kernel=(7, 3), num_filter=2, no_bias=True),
     ShapeError, r"DeformableConvolution: kernel \(7, 3\) is larger than the padded data"),
])
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()
