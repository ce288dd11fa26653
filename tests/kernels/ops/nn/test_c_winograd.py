"""Convolutions in tiles of 2 × 2 outputs against sums in float64: any sizes, with and without bias, pieces in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import layer_helpers
from tritium.kernels.cpu import c_compile
from tritium.kernels.op import Req
from tritium.kernels.ops.nn import c_conv, c_winograd
from tritium.kernels.ops.nn.conv_geometry import ConvolutionGeometry
from tritium.kernels.tolerance import tolerance

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


class Run(layer_helpers.Run):
    """Scratch memory without a value that could be right by chance."""

    def workspace(self, shape, dtype):
        return np.full(shape, np.nan, dtype)


def geometry(n, channels, filters, height, width, pad, weight_first=True):
    out = tuple(s + 2 * p - 2 for s, p in zip((height, width), pad))
    return ConvolutionGeometry(n, channels, filters, 1, (height, width), out, (3, 3), (1, 1), (1, 1), pad, True, weight_first)


def convolve(g, bias=True, run=None, seed=0):
    """Return the result in tiles, after it was compared with sums in float64."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((g.n, *g.spatial, g.c)).astype("f")
    w = rng.standard_normal((g.f, g.c, 3, 3)).astype("f")
    b = rng.standard_normal(g.f).astype("f")
    y = np.full((g.n, *g.out, g.f), np.nan, "f")
    given = w if g.weight_first else np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    kept = c_conv.Forward(g, bias).keep((x, given, b), y)
    kept.prepare(Run())
    kept.run(run or Run())
    (height, width), (p, q) = g.out, g.pad
    padded = np.pad(x.astype("d"), ((0, 0), (p, p), (q, q), (0, 0)))
    want, size = (sum(f(padded[:, i:i + height, j:j + width]) @ f(w[:, :, i, j].T.astype("d")) for i in range(3)
                      for j in range(3)) for f in (np.asarray, np.abs))
    want = want + b if bias else want
    relative, absolute = tolerance("float32")
    # no more than a sum's rounding errors: relative to the absolute values of what is added, whose sum may cancel
    assert (np.abs(y - want) <= absolute + relative * size / 8).all()
    return y


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 4), channels=st.sampled_from([32, 48, 80]), filters=st.sampled_from([32, 48, 96, 112]),
       height=st.integers(4, 15), width=st.integers(4, 15), pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
       bias=st.booleans(), weight_first=st.booleans(), seed=st.integers(0, 99))
def test_any_sizes(n, channels, filters, height, width, pad, bias, weight_first, seed):
    g = geometry(n, channels, filters, height, width, pad, weight_first)
    if min(g.out) >= 4:
        assert c_winograd.winograd(g) is not None
        convolve(g, bias, seed=seed)


@pytest.mark.parametrize("g", [geometry(1, 64, 64, 28, 28, (1, 1)), geometry(2, 256, 256, 14, 14, (1, 1)),
                               geometry(3, 128, 512, 7, 7, (1, 1)), geometry(33, 32, 32, 8, 8, (1, 1))])
def test_pieces_in_any_order(g):
    images, rows, filters = c_winograd.winograd(g).blocks()
    assert images < g.n or rows < (g.out[0] + 1) // 2 or filters < g.f
    one, other = (convolve(g, run=Run(backwards=b)) for b in (False, True))
    assert (one == other).all()


@pytest.mark.parametrize("weight_first", [False, True])
@pytest.mark.parametrize("pad", [(0, 0), (1, 1), (2, 1)])
def test_the_derivative_by_data(pad, weight_first):
    g = geometry(2, 48, 32, 9, 10, pad, weight_first)
    rng = np.random.default_rng(4)
    dy, w = rng.standard_normal((g.n, *g.out, g.f)).astype("f"), rng.standard_normal((g.f, g.c, 3, 3)).astype("f")
    given = w if weight_first else np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    dx = np.full((g.n, *g.spatial, g.c), np.nan, "f")
    assert c_winograd.winograd_of_gradient(g) is not None
    c_conv.bind_backward(g, dy, dx, given, [dx, None], [Req.WRITE, Req.NULL])(Run())
    padded, size = np.zeros((2, g.n, g.spatial[0] + 2 * pad[0], g.spatial[1] + 2 * pad[1], g.c))
    for i in range(3):
        for j in range(3):
            for total, f in ((padded, np.asarray), (size, np.abs)):
                total[:, i:i + g.out[0], j:j + g.out[1]] += f(dy.astype("d")) @ f(w[:, :, i, j].astype("d"))
    inside = np.s_[:, pad[0]:pad[0] + g.spatial[0], pad[1]:pad[1] + g.spatial[1]]
    relative, absolute = tolerance("float32")
    assert (np.abs(dx - padded[inside]) <= absolute + relative * size[inside] / 8).all()


def test_special_values_stay_where_their_window_is():
    g = geometry(1, 32, 32, 12, 12, (1, 1))
    x, w = np.ones((1, 12, 12, 32), "f"), np.ones((32, 32, 3, 3), "f")
    x[0, 4, 4, 3] = np.nan
    y = np.empty((1, 12, 12, 32), "f")
    kept = c_conv.Forward(g, False).keep((x, w), y)
    kept.prepare(Run())
    kept.run(Run())
    reached = np.isnan(y).any(-1)[0]
    assert reached[3:6, 3:6].all()
    reached[2:8, 2:8] = False  # a tile computes its four outputs from common sums
    assert not reached.any()


def test_sizes_alone_decide():
    assert c_winograd.winograd(geometry(1, 32, 32, 7, 7, (1, 1))) is not None
    for g in (geometry(1, 40, 32, 7, 7, (1, 1)), geometry(1, 32, 24, 7, 7, (1, 1)), geometry(1, 16, 64, 7, 7, (1, 1)),
              geometry(1, 32, 32, 3, 9, (1, 1)),
              ConvolutionGeometry(1, 64, 64, 1, (7, 7), (4, 4), (3, 3), (2, 2), (1, 1), (1, 1), True),
              ConvolutionGeometry(1, 64, 64, 2, (7, 7), (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), True),
              ConvolutionGeometry(1, 64, 64, 1, (7, 7), (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), False)):
        assert c_winograd.winograd(g) is None
