"""Convolution in C against the same in NumPy and float64: any sizes, both layouts, requests, pieces in any order."""

import numpy as np
import pytest
import tritium as mx
from hypothesis import given, settings
from hypothesis import strategies as st
from support import layer_helpers
from support.layer_helpers import close
from tritium.kernels.cpu import c_compile
from tritium.kernels.op import Req
from tritium.kernels.ops.nn import c_conv, convolution_cpu
from tritium.kernels.ops.nn.c_conv_windows import cut_runs
from tritium.kernels.ops.nn.conv_geometry import ConvolutionGeometry

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def in_numpy(monkeypatch):
    """The oracle, convolution_cpu, computes with NumPy; c_conv is called directly."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "numpy")


class Run(layer_helpers.Run):
    """Scratch memory without a value that could be right by chance."""

    def workspace(self, shape, dtype):
        return np.full(shape, np.nan, dtype)


def geometry(n, channels, filters, groups, axes, last):
    """axes: (size, kernel, stride, dilate, pad) of each; the size grows to what the window needs."""
    axes = [(max(s, d * (k - 1) + 1 - 2 * p), k, t, d, p) for s, k, t, d, p in axes]
    out = tuple((s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, d, p in axes)
    spatial, kernel, stride, dilate, pad = map(tuple, zip(*axes))
    return ConvolutionGeometry(n, channels * groups, filters * groups, groups, spatial, out, kernel, stride, dilate, pad, last)


def arrays(g, rng):
    """Data, weight, bias and dy in float32."""
    def of(n, c, spatial):
        return rng.standard_normal((n, *spatial, c) if g.channels_last else (n, c, *spatial)).astype("f")

    return of(g.n, g.c, g.spatial), of(g.f, g.c // g.groups, g.kernel), rng.standard_normal(g.f).astype("f"), of(g.n, g.f, g.out)


def compare(g, rng, add=False, run=None):
    x, w, b, dy = arrays(g, rng)
    depth = g.depth * max(1, g.n * int(np.prod(g.out)) // 64)  # rounding errors of a sum grow with its length
    y = rng.standard_normal(dy.shape).astype("f")
    want = y.astype("d")
    c_conv.forward(run or Run(), g, x, w, b, y, add=add)
    convolution_cpu.forward(Run(), g, x.astype("d"), w.astype("d"), b.astype("d"), want, add=add)
    close(y, want.astype("f"), scale=max(1, g.depth // 64))
    grads = [rng.standard_normal(a.shape).astype("f") for a in (x, w, b)]
    wanted = [a.astype("d") for a in grads]
    reqs = [Req.ADD if add else Req.WRITE] * 3
    c_conv.backward(run or Run(), g, dy, x, w, grads, reqs)
    convolution_cpu.backward(Run(), g, dy.astype("d"), x.astype("d"), w.astype("d"), wanted, reqs)
    for a, e in zip(grads, wanted):
        close(a, e.astype("f"), scale=max(1, depth // 64))
    return [y, *grads]


AXIS = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 5), channels=st.integers(1, 20), filters=st.integers(1, 40), groups=st.sampled_from([1, 1, 2, 3]),
       axes=st.lists(AXIS, min_size=1, max_size=2), last=st.booleans(), add=st.booleans(), seed=st.integers(0, 99))
def test_any_sizes(n, channels, filters, groups, axes, last, add, seed):
    compare(geometry(n, channels, filters, groups, axes, last), np.random.default_rng(seed), add)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 5), channels=st.integers(2, 70), axes=st.lists(AXIS, min_size=1, max_size=2), last=st.booleans(),
       add=st.booleans(), seed=st.integers(0, 99))
def test_a_filter_for_each_channel(n, channels, axes, last, add, seed):
    g = geometry(n, 1, 1, channels, axes, last)
    assert c_conv.forward_windows(c_conv.plane(g)).each
    compare(g, np.random.default_rng(seed), add)


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_that_are_computed_together_have_the_bits_of_single_ones(stride, pad, rng):
    g = geometry(1, 1, 1, 37, [(11, 3, stride, 1, pad), (23, 3, stride, 1, 1)], True)
    x, w, b, _ = arrays(g, rng)
    whole = np.empty((1, *g.out, g.f), "f")
    c_conv.forward(Run(), g, x, w, b, whole, add=False)
    padded = np.pad(x, ((0, 0), (pad, pad), (0, 0), (0, 0)))
    for row in range(g.out[0]):
        one = geometry(1, 1, 1, 37, [(3, 3, stride, 1, 0), (23, 3, stride, 1, 1)], True)
        y = np.empty((1, *one.out, g.f), "f")
        c_conv.forward(Run(), one, np.ascontiguousarray(padded[:, row * stride:row * stride + 3]), w, b, y, add=False)
        assert y.tobytes() == whole[:, row].tobytes(), row


def test_what_follows_a_filter_for_each_channel_sees_each_row_once(monkeypatch, rng):
    """The rectifier and the sum work on a row of the result while it is in cache, in place or beside it."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    data = mx.sym.Variable("data")
    made = mx.sym.Convolution(data, num_filter=35, kernel=(3, 3), pad=(1, 1), num_group=35, name="each")
    weight = rng.standard_normal((35, 1, 3, 3)).astype("f")
    bias, x = rng.standard_normal(35).astype("f"), rng.standard_normal((2, 35, 9, 11)).astype("f")
    plain = mx.nd.Convolution(*map(mx.nd.array, (x, weight, bias)), num_filter=35, kernel=(3, 3), pad=(1, 1), num_group=35)
    y = plain.asnumpy()
    for net, wanted in ((mx.sym.relu(made) * 2, 2 * np.maximum(y, 0)), (mx.sym.relu(made) + made, np.maximum(y, 0) + y)):
        bound = net.bind(mx.cpu(0), {"data": mx.nd.array(x), "each_weight": mx.nd.array(weight), "each_bias": mx.nd.array(bias)})
        assert "_convolution_last+epilogue" in [s.op.name for s in bound._compile(False).program.steps]
        np.testing.assert_array_equal(bound.forward()[0].asnumpy(), wanted)


SHAPES = [  # with several blocks of rows, several of images, several chunks of depth, several pieces of filters
    geometry(1, 3, 70, 1, [(90, 5, 2, 1, 2), (90, 5, 2, 1, 2)], False),
    geometry(40, 8, 16, 1, [(6, 3, 1, 1, 1), (7, 3, 1, 1, 1)], True),
    geometry(2, 150, 40, 1, [(5, 3, 1, 1, 1), (5, 3, 1, 1, 1)], True),
    geometry(1, 64, 300, 1, [(7, 3, 1, 1, 1), (7, 3, 1, 1, 1)], False),
    geometry(2, 96, 33, 1, [(9, 1, 1, 1, 0), (9, 1, 1, 1, 0)], True),
    geometry(2, 40, 65, 1, [(9, 1, 2, 1, 0), (8, 1, 2, 1, 0)], True),
    geometry(3, 1, 1, 33, [(9, 3, 1, 1, 1), (8, 3, 1, 1, 1)], True),
]


@pytest.mark.parametrize("g", SHAPES)
def test_large_sizes_and_pieces_in_any_order(g):
    one, other = (compare(g, np.random.default_rng(1), run=Run(backwards=b)) for b in (False, True))
    assert all((a == b).all() for a, b in zip(one, other))


SPREAD = [  # few channels: with and without padding, strides, dilation, several blocks of rows, one axis
    geometry(3, 20, 50, 1, [(12, 5, 1, 1, 0), (12, 5, 1, 1, 0)], False),
    geometry(3, 20, 50, 1, [(12, 5, 1, 1, 0), (12, 5, 1, 1, 0)], True),
    geometry(2, 3, 17, 1, [(13, 5, 2, 1, 2), (10, 4, 3, 1, 1)], False),
    geometry(2, 3, 17, 1, [(13, 5, 2, 1, 2), (10, 4, 3, 1, 1)], True),
    geometry(2, 5, 40, 1, [(9, 3, 1, 2, 0), (11, 3, 1, 2, 2)], False),
    geometry(2, 3, 8, 1, [(260, 3, 1, 1, 1), (270, 3, 1, 1, 1)], True),
    geometry(4, 2, 9, 1, [(30, 4, 1, 1, 2)], False),
]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("g", SPREAD)
def test_products_that_are_spread(g, add):
    flat = c_conv.plane(g)
    assert c_conv.spreading.spreads(flat, c_conv.forward_windows(flat))
    one, other = (compare(g, np.random.default_rng(1), add, Run(backwards=b)) for b in (False, True))
    assert all((a == b).all() for a, b in zip(one, other))


LINES = [  # one channel: padding, strides, dilation, several blocks of rows and panels of the weight, one axis
    geometry(17, 1, 20, 1, [(28, 5, 1, 1, 0), (28, 5, 1, 1, 0)], False),
    geometry(3, 1, 20, 1, [(28, 5, 1, 1, 0), (28, 5, 1, 1, 0)], True),
    geometry(2, 1, 37, 1, [(13, 7, 2, 1, 2), (40, 7, 3, 1, 3)], False),
    geometry(2, 1, 37, 1, [(13, 7, 2, 1, 2), (40, 7, 3, 1, 3)], True),
    geometry(2, 1, 12, 1, [(9, 3, 1, 2, 0), (11, 3, 1, 2, 2)], False),
    geometry(2, 1, 8, 1, [(260, 3, 1, 1, 1), (70, 3, 1, 1, 1)], False),
    geometry(4, 1, 9, 1, [(30, 4, 1, 1, 2)], False),
    geometry(2, 1, 1, 1, [(3, 5, 1, 1, 4), (2, 5, 3, 1, 7)], False),
]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("g", LINES)
def test_positions_as_columns(g, add):
    flat = c_conv.plane(g)
    assert c_conv.lines.forward_in_lines(flat, add) != (add and g.channels_last)
    one, other = (compare(g, np.random.default_rng(1), add, Run(backwards=b)) for b in (False, True))
    assert all((a == b).all() for a, b in zip(one, other))


@pytest.mark.parametrize("g", LINES[2:4])
def test_positions_as_columns_are_rectified(g, rng):
    x, w, b, dy = arrays(g, rng)
    y, plain = np.empty_like(dy), np.empty_like(dy)
    for out, rectified in ((y, True), (plain, False)):
        c_conv.Forward(g, True, rectified=rectified).bind((x, w, b), out)(Run())
    np.testing.assert_array_equal(y, np.maximum(plain, 0))


TURNED = [  # channels first, in tiles: sizes that no square of lanes divides, one image, and padding
    geometry(3, 48, 32, 1, [(9, 3, 1, 1, 1), (11, 3, 1, 1, 1)], False),
    geometry(1, 32, 80, 1, [(20, 3, 1, 1, 0), (17, 3, 1, 1, 2)], False),
]


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("g", TURNED)
def test_channels_first_are_turned_for_tiles(g, add, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    assert c_conv.Forward(g, True, add=add)._turned is not None and c_conv._turned(g, True, add) is not None
    one, other = (compare(g, np.random.default_rng(1), add, Run(backwards=b)) for b in (False, True))
    assert all((a == b).all() for a, b in zip(one, other))


def test_channels_first_of_every_call_are_its_own(monkeypatch, rng):
    """A kernel that the first call prepared serves the arrays of later calls, in imperative code and its backward."""
    monkeypatch.setenv("TRITIUM_CPU_CODE", "c")
    w = mx.nd.array(rng.standard_normal((32, 32, 3, 3)))
    for _ in range(3):
        x = mx.nd.array(rng.standard_normal((2, 32, 8, 9)))
        x.attach_grad()
        results = []
        for layout, data, weight in (("NCHW", x, w), ("NHWC", x.transpose((0, 2, 3, 1)), w.transpose((0, 2, 3, 1)))):
            data.attach_grad()
            with mx.autograd.record():
                y = mx.nd.Convolution(data, weight, kernel=(3, 3), pad=(1, 1), num_filter=32, no_bias=True, layout=layout)
            y.backward(y)
            results += [a.asnumpy() if layout == "NCHW" else a.asnumpy().transpose(0, 3, 1, 2) for a in (y, data.grad)]
        np.testing.assert_array_equal(results[0], results[2])
        np.testing.assert_array_equal(results[1], results[3])


@pytest.mark.parametrize("kernel", [1, 3])
def test_positions_have_the_same_bits_in_tiles_of_any_height(kernel, rng):
    """Positions of 1 x 1 windows are evenly apart; those of padded ones are not from one row to the next."""
    whole = geometry(1, 9, 33, 1, [(6, kernel, 1, 1, kernel // 2), (50, kernel, 1, 1, 0)], True)
    x, w, b, _ = arrays(whole, rng)
    wanted = np.empty((1, *whole.out, whole.f), "f")
    c_conv.forward(Run(), whole, x, w, b, wanted, add=False)
    for width in range(1, 48):
        g = geometry(1, 9, 33, 1, [(6, kernel, 1, 1, kernel // 2), (width + kernel - 1, kernel, 1, 1, 0)], True)
        y = np.empty((1, *g.out, g.f), "f")
        c_conv.forward(Run(), g, np.ascontiguousarray(x[:, :, :width + kernel - 1]), w, b, y, add=False)
        assert y.tobytes() == np.ascontiguousarray(wanted[:, :, :g.out[1]]).tobytes(), width


def test_shapes_have_the_pieces_they_are_there_for():
    windows = [c_conv.forward_windows(c_conv.plane(g)) for g in SHAPES]
    images, rows, filters = zip(*(w.pieces() for w in windows))
    assert rows[0] < SHAPES[0].out[0] and images[1] > 1 and filters[3] < SHAPES[3].f
    assert len(cut_runs(windows[2].runs())[1]) > 2
    assert not windows[4].copied and not windows[5].copied and windows[1].copied
    assert c_conv.spreading.rows_at_once(SPREAD[5], 27) < SPREAD[5].out[0]
    assert c_conv.lines.rows_at_once(c_conv.forward_windows(LINES[5])) < LINES[5].out[0]
    assert [c_conv.forward_windows(c_conv.plane(g)).copied for g in SPREAD[:3]] == [True, False, True]


@pytest.mark.parametrize("kernel, sizes, reason", [
    ((3, 3), {"n": 64}, ""), ((3, 3), {"n": 0}, "nothing to compute"), ((3, 3), {"n": 1, "c": 1}, "too small"),
    ((1, 1), {"n": 64}, ""), ((1, 1), {"n": 640, "c": 8}, "a plain product"), ((3, 3, 3), {"n": 64}, "three axes")])
def test_c_computes_what_is_worth_compiling(kernel, sizes, reason, monkeypatch):
    monkeypatch.setenv("TRITIUM_CPU_CODE", "auto")
    axes = [(8, k, 1, 1, 0) for k in kernel]
    g = geometry(sizes["n"], sizes.get("c", 16), 16, 1, axes, False)
    assert c_conv.in_c(g, np.dtype("f")) == (not reason)
    assert not c_conv.in_c(g, np.dtype("d"))


def test_special_values_spread_as_in_a_sum():
    g = geometry(2, 8, 24, 1, [(6, 3, 1, 1, 1), (6, 3, 1, 1, 1)], True)
    x, w, b, dy = arrays(g, np.random.default_rng(3))
    x[0, 2, 3, 1], x[1, 0, 0, 0] = np.inf, np.nan
    y, want = np.empty_like(dy), np.empty(dy.shape)
    c_conv.forward(Run(), g, x, w, b, y, add=False)
    convolution_cpu.forward(Run(), g, x.astype("d"), w.astype("d"), b.astype("d"), want, add=False)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(y), np.isposinf(want))


@pytest.mark.parametrize("size, channels", [(112, 32), (7, 1024), (56, 700), (1, 4096)])
def test_a_filter_for_each_channel_has_pieces_of_any_size(size, channels):
    """All channels of a piece are computed together, however many there are."""
    g = geometry(1, 1, 1, channels, [(size, 3, 1, 1, 1), (size, 3, 1, 1, 1)], True)
    images, rows, filters = c_conv.forward_windows(c_conv.plane(g)).pieces()
    assert images == 1 and 1 <= rows <= g.out[0] and filters >= channels
