"""by_images: which layers run a few images at a time. Oracle: the layers on a memory of numbers, whole and cut."""

from itertools import pairwise

import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import threaded_engine
from tritium.graph.executor import by_images
from tritium.graph.executor.by_images import Layer, Span
from tritium.kernels.cpu import c_compile

IMAGES, MEMORY = 6, 120


@st.composite
def spans(draw, written):
    by_image = written or draw(st.booleans())
    size = IMAGES * draw(st.integers(1, 5)) if by_image else draw(st.integers(1, 30))
    return Span(draw(st.integers(0, MEMORY - size)), size, by_image, written)


@st.composite
def layers(draw):
    read = draw(st.lists(spans(False), max_size=2))
    return Layer(IMAGES, IMAGES * draw(st.integers(1, 4)), (*read, draw(spans(True))))


def compute(memory, number, layer, image):
    """Write to the image's part of what is written a number that depends on all that is read for it."""
    def part(s):
        each = s.size // IMAGES
        return range(s.start + image * each, s.start + (image + 1) * each) if s.by_image else range(s.start, s.start + s.size)

    seen = hash((number, image, *(memory[k] for s in layer.spans if not s.written for k in part(s))))
    for s in layer.spans:
        for k in part(s) if s.written else ():
            memory[k] = hash((seen, k))


def whole(given):
    return [(number, image) for number in range(len(given)) for image in range(IMAGES)]


def in_parts(given, cuts):
    """Return the order of (layer, image), where cut runs go some images at a time."""
    order, at = [], 0
    for first, end, chunk in cuts:
        order += [(number, image) for number in range(at, first) for image in range(IMAGES)]
        order += [(number, image) for i in range(0, IMAGES, chunk) for number in range(first, end)
                  for image in range(i, min(i + chunk, IMAGES))]
        at = end
    return order + [(number, image) for number in range(at, len(given)) for image in range(IMAGES)]


@given(st.lists(layers(), min_size=2, max_size=6), st.integers(1, 3))
def test_cut_layers_leave_in_memory_what_whole_ones_do(given, threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_images, "LARGE", 1)
        cuts = by_images.cut(given, threads)
    orders = whole(given), in_parts(given, cuts)
    assert sorted(orders[0]) == sorted(orders[1])
    memories = [list(range(MEMORY)) for _ in orders]
    for memory, order in zip(memories, orders):
        for number, image in order:
            compute(memory, number, given[number], image)
    assert memories[0] == memories[1]
    for first, end, chunk in cuts:
        assert end - first > 1 and 2 * chunk <= IMAGES
        assert all(chunk * layer.pieces >= by_images.EACH * threads * IMAGES for layer in given[first:end])


def chain(sizes, pieces=4):
    """Return layers that each read what the one before wrote, in memory of their own."""
    made, at = [], 0
    for n, m in pairwise(sizes):
        made.append(Layer(IMAGES, pieces * IMAGES, (Span(at, n, True, False), Span(at + n, m, True, True))))
        at += n
    return made


@pytest.mark.parametrize(("large", "threads", "cuts"), [
    (1, 2, [(0, 3, 1)]), (1, 4, [(0, 3, 2)]), (1, 6, [(0, 3, 3)]), (1, 7, []), (100, 2, [(0, 2, 1)]), (1000, 2, [])])
def test_large_layers_in_a_row_are_cut_so_that_each_thread_has_two_pieces(monkeypatch, large, threads, cuts):
    monkeypatch.setattr(by_images, "LARGE", large)
    assert by_images.cut(chain([60, 120, 30, 6]), threads) == cuts


def test_layers_that_share_the_memory_of_what_is_still_to_be_read_are_not_cut(monkeypatch):
    monkeypatch.setattr(by_images, "LARGE", 1)
    first, second = chain([60, 60, 60])
    over = Layer(IMAGES, second.pieces, (second.spans[0], Span(3, 60, True, True)))  # image 0 is written where image 1 is read
    assert by_images.cut([first, second], 2) == [(0, 2, 1)]
    assert by_images.cut([first, over], 2) == []


@pytest.mark.skipif(not c_compile.available(), reason="there is no C compiler")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_network_has_the_same_bits_cut_and_whole(monkeypatch, workers):
    def layer(x, name, filters, kernel, **more):
        pad = (kernel // 2, kernel // 2)
        x = mx.sym.Convolution(x, kernel=(kernel, kernel), num_filter=filters, pad=pad, no_bias=True, name=name, **more)
        return mx.sym.relu(mx.sym.BatchNorm(x, fix_gamma=False))

    x = layer(mx.sym.var("data"), "first", 32, 3)
    x = mx.sym.Pooling(layer(x, "each", 32, 3, num_group=32), kernel=(2, 2), stride=(2, 2), pool_type="max")
    y = layer(layer(x, "second", 32, 3), "third", 32, 1)
    net = mx.sym.FullyConnected(mx.sym.flatten(x + y), num_hidden=3)
    draw, found, results = np.random.RandomState(0), [], []
    cut = by_images.cut
    monkeypatch.setattr(by_images, "cut", lambda *given: found.append(cut(*given)) or found[-1])
    values = {}
    with threaded_engine(workers):
        for large in (1 << 60, 1):
            monkeypatch.setattr(by_images, "LARGE", large)
            found.clear()
            executor = net.simple_bind(mx.cpu(), "null", data=(6, 8, 24, 24))
            for name, array in (*executor.arg_dict.items(), *executor.aux_dict.items()):
                array[:] = values.setdefault(name, np.abs(draw.normal(size=array.shape)))
            results.append([executor.forward()[0].asnumpy() for _ in range(2)])
    assert any(cuts for cuts in found)
    for result in (results[0][1], *results[1]):
        np.testing.assert_array_equal(result, results[0][0])
