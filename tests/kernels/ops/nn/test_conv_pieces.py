"""Pieces of convolutions: they divide the work evenly, stay in cache, and do not read a large weight again and again."""

import math

import pytest
from tritium.kernels.ops.nn import c_conv, c_conv_windows, c_winograd
from tritium.kernels.ops.nn.conv_geometry import ConvolutionGeometry
from tritium.kernels.ops.nn.conv_pieces import READ, cheapest, parts, product_time

LAYERS = [(64, 64, 56, 3, 1), (256, 128, 56, 1, 1), (128, 128, 56, 3, 2), (1024, 256, 14, 1, 1), (512, 512, 14, 3, 2),
          (1024, 2048, 14, 1, 2), (2048, 512, 7, 1, 1), (512, 512, 7, 3, 1), (17, 33, 31, 5, 1)]


def geometry(n, channels, filters, size, kernel, stride):
    pad, out = kernel // 2, (size + 2 * (kernel // 2) - kernel) // stride + 1
    return ConvolutionGeometry(n, channels, filters, 1, (size, size), (out, out), (kernel, kernel), (stride, stride), (1, 1),
                               (pad, pad), True, True)


def count(whole, block):
    return math.prod(math.ceil(w / b) for w, b in zip(whole, block))


@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("layer", LAYERS)
def test_two_and_four_threads_have_equal_shares(n, layer):
    g = geometry(n, *layer)
    pieces = [(count((n, g.out[0], g.f), c_conv.forward_windows(g).pieces()))]
    tiles = c_winograd.winograd(g)
    if tiles is not None:
        pieces.append(count((n, math.ceil(g.out[0] / 2), g.f), tiles.blocks()))
    assert all(p % 4 == 0 or p > 16 for p in pieces)


@pytest.mark.parametrize("n", [1, 8, 64])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_piece_stays_in_cache(n, layer):
    windows = c_conv.forward_windows(geometry(n, *layer))
    images, rows, filters = windows.pieces()
    assert images * (windows.elements(rows) + rows * windows.out[1] * min(filters, windows.filters)) <= c_conv_windows.CACHED


@pytest.mark.parametrize("channels, size", [(1024, 7), (64, 112), (4096, 56), (7, 3000)])
def test_a_row_that_does_not_fit_is_a_piece(channels, size):
    for groups in (1, channels):
        g = ConvolutionGeometry(1, channels, channels, groups, (size, size), (size, size), (3, 3), (1, 1), (1, 1), (1, 1), True)
        assert c_conv.forward_windows(g).pieces()[1] >= 1


def test_a_large_weight_is_not_read_for_each_row():
    for layer in ((512, 512, 14, 3, 2), (1024, 2048, 14, 1, 2)):
        assert c_conv.forward_windows(geometry(1, *layer)).pieces()[1] == 7


def test_the_estimate():
    assert parts(7) == [7, 4, 3, 2, 1] and parts(1) == [1]
    assert product_time(49, 10, 32) == 49 * 320 and product_time(2, 10, 32) == READ * 320
    assert product_time(25, 1, 1) == 28  # a tile of one row takes as long as four
    assert cheapest((1, 8, 64), [(1, 8, 64), (1, 4, 32)], lambda b: 10**9 * b[1] * b[2]) == (1, 4, 32)
