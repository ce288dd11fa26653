"""Convolution in C: tiles of outputs in registers, for any strides, dilation, groups and padding, channels first or last.

A piece of work is a block of output rows. The data under it is copied with its padding, channels last, into memory of its own
that stays in cache; where data has its channels last and no padding it is read in place. What an output sums over is a list of
runs: parts of the block that lie one after the other, one run for each row of a window or, with dilation, for each tap. The
weights are packed in the order of the runs.

The derivative by data is a convolution of dy for each phase of the stride: the inputs whose distance to the first one has the
same remainder are reached by the same taps. The derivative by the weight is summed over slots of images, then over the slots in
their order. Sizes alone decide blocks and slots, so results have the same bits for any number of threads.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_team import Follower, Phases, Scratch, Step, int64s
from ...cpu.c_template import Call, Template, pays
from ...cpu.c_tile import MOST_COLUMNS, tile_text
from ...cpu.c_turn import turn_text
from ...kernel import BoundKernel, InTurn, Prepared, Run
from ...op import Req, Reqs
from . import c_conv_lines as lines
from . import c_conv_spread as spreading
from . import c_depthwise_pair
from . import c_winograd as winograd
from .c_conv_text import BIAS, FIELDS, SHARED, TEXT
from .c_conv_turned import Turned, channels_last_of, turned
from .c_conv_windows import WORK, Windows, image_steps
from .c_depthwise_text import each_text
from .conv_geometry import ConvolutionGeometry

LEAST = 1 << 16  # multiplications from which on C computes
NARROW = 16  # channels below which a 1 x 1 convolution is a product of matrices as they lie, which copies nothing
SLOTS, PARTIAL = 16, 1 << 23  # sums of a weight's derivative at most, and their elements


def _shared() -> str:
    shared = SHARED % {"fields": ", ".join(FIELDS)}
    return f"{tile_text()}\n{turn_text('conv', 'float', 4, 8)}\n#define MOST_COLUMNS {MOST_COLUMNS}\n{shared}"


def _text() -> str:
    own = TEXT % (), BIAS % {"name": "conv_bias"}, winograd.TEXT, spreading.TEXT % (), lines.TEXT % ()
    return _shared() + "".join(own)


def _each_text() -> str:
    return _shared() + each_text() + c_depthwise_pair.TEXT + BIAS % {"name": "conv_each_bias"}


_PARTS = "rows", "outer", "pack", "unpack", "bias"
TEMPLATE = Template(_text, [*(f"conv_{part}" for part in _PARTS), "winograd_rows", "winograd_pack", "conv_spread",
                            "conv_spread_pack", *lines.NAMES])
EACH = Template(_each_text, [*(f"conv_each_{part}" for part in _PARTS), "conv_pair"])  # with a filter for each channel


def in_c(g: ConvolutionGeometry, dtype: np.dtype) -> bool:
    """Return whether C computes a convolution: that depends on its sizes and the machine alone."""
    return _possible(g, dtype) and _template(_is_each(g)).serves(_work(g), LEAST)


def c_files(g: ConvolutionGeometry, dtype: np.dtype) -> list[Template]:
    """Return the C files of a convolution; none where it is not computed in C."""
    return [_template(_is_each(g))] if _possible(g, dtype) and pays(_work(g), LEAST) else []


def _possible(g: ConvolutionGeometry, dtype: np.dtype) -> bool:
    plain = len(g.kernel) > 2 or (g.pointwise and g.depth < NARROW)
    return dtype == np.float32 and not plain


def _work(g: ConvolutionGeometry) -> int:
    """Return the number of multiplications."""
    return g.n * math.prod(g.out) * g.depth * g.f


@dataclass(frozen=True, slots=True)
class _Weights:
    """A weight as a function packs it: filters, channels, their steps and that of a group; taps in order."""

    groups: int
    filters: int
    channels: int
    filter_step: int
    channel_step: int
    group_step: int
    taps: tuple[int, ...]
    each: bool = False

    @property
    def packed(self) -> int:
        """Return the elements of the packed weight, on any machine."""
        if self.each:
            return self.channels * len(self.taps)
        return self.groups * cdiv(self.filters, MOST_COLUMNS) * MOST_COLUMNS * self.channels * len(self.taps)

    def sizes(self, slots: int = 1, add: bool = False) -> tuple[ctypes.Array, int]:
        """Return the numbers that conv_pack and conv_unpack take, and how many pieces there are."""
        units = cdiv(self.filters, MOST_COLUMNS)
        steps = self.filter_step, self.channel_step, self.group_step
        numbers = int64s(self.filters, self.channels, len(self.taps), units, *steps, slots, self.groups, add, *self.taps)
        return numbers, self.groups * units


def _template(each: bool) -> Template:
    return EACH if each else TEMPLATE


def _call(part: str, each: bool, pieces: int, *numbers: ctypes.Array) -> Call:
    return Call(_template(each), f"conv_each_{part}" if each else f"conv_{part}", pieces, *numbers)


def _ranges(n: int, out: Sequence[int], filters: int, images: int, rows: int) -> list[tuple[int, int]]:
    """Return the first element and the end of each block of images and rows of an output with channels last."""
    row = out[1] * filters
    return [((i * out[0] + r) * row, min(min(i + images, n) * out[0], (i + images - 1) * out[0] + r + rows) * row)
            for i in range(0, n, images) for r in range(0, out[0], rows)]


class _Product:
    """Windows and the weight that they are multiplied with: packs the weight, then computes.

    ranges:  the first element and the end of what each piece computes; None if they do not lie one after the other.
    """

    def __init__(self, windows: Windows, weights: _Weights, add: bool, rectified: bool = False):
        images, rows, filters = windows.pieces()
        if windows.each:
            filters = cdiv(windows.filters, MOST_COLUMNS) * MOST_COLUMNS
        sizes, pieces = windows.sizes(images, rows, filters, add, rectified)
        if windows.each:
            sizes = [sizes[0], windows.taps_by_row()]
            if windows.x[1] == 1:  # read in place
                sizes[0][FIELDS.index("copied")] = 0
        self.each, self.images = windows.each, windows.images if images == 1 else 0
        self.rows = _call("rows", windows.each, pieces, *(int64s(*part) for part in sizes))
        self.packed = weights.packed
        whole = windows.groups == 1 and filters >= windows.filters and windows.y[1] == 1
        self.ranges = _ranges(windows.images, windows.out, windows.filters, images, rows) if whole else None
        numbers, pieces = weights.sizes()
        self.pack = _call("pack", windows.each, 1 if windows.each else pieces, numbers)

    def prepare(self, x: np.ndarray | None, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray | None
                ) -> tuple[Step, Step, Scratch]:
        """Return the steps that pack and that compute, and memory for the packed weight."""
        follow = (None, None) if self.each else ()
        pack, rows = self.pack.prepare(weight, None), self.rows.prepare(x, None, bias, y, *follow)
        rows.images = self.images
        return pack, rows, Scratch(self.packed, ((pack.addresses, 1), (rows.addresses, 1)))


class _InTiles:
    """A convolution of 3 × 3 windows in tiles of outputs, in place of a _Product. See c_winograd.py.

    weight:  the steps of the weight's filters, channels and taps, and its first element.
    """

    def __init__(self, made: winograd.Winograd, weight: tuple[int, int, int, int], rectified: bool = False):
        numbers, pieces = made.sizes(rectified)
        g, sizes, (images, rows, filters) = made.g, int64s(*numbers), made.blocks()
        self.packed, self.images = made.packed, g.n if images == 1 else 0
        self.rows = Call(TEMPLATE, "winograd_rows", pieces, sizes)
        self.pack = Call(TEMPLATE, "winograd_pack", cdiv(g.f, MOST_COLUMNS), sizes, int64s(*weight))
        self.ranges = _ranges(g.n, g.out, g.f, images, 2 * rows) if filters >= g.f else None

    each, prepare = False, _Product.prepare


class _Spread:
    """The derivative by data where products are spread, in place of `_Product`s. See c_conv_spread.py."""

    def __init__(self, g: ConvolutionGeometry, windows: Windows, add: bool):
        numbers, _ = windows.sizes(1, spreading.rows_at_once(g, windows.depth), windows.filters, add)
        filter_step, channel_step, taps = _weight_steps(g)
        sizes, panels, self.packed = spreading.packing(windows.depth, g, filter_step, channel_step, taps)
        self.rows = Call(TEMPLATE, "conv_spread", g.n, *(int64s(*part) for part in numbers))
        self.pack = Call(TEMPLATE, "conv_spread_pack", panels, sizes)

    each, images, prepare = False, 0, _Product.prepare


class _Lines:
    """The forward convolution of one channel, in place of a `_Product`. See c_conv_lines.py."""

    def __init__(self, g: ConvolutionGeometry, windows: Windows, add: bool, rectified: bool):
        rows = lines.rows_at_once(windows)
        (sizes, _), pieces = windows.sizes(1, rows, windows.filters, add, rectified)
        self.ranges = _ranges(g.n, g.out, g.f, 1, rows) if windows.y[1] == 1 else None
        self.rows = Call(TEMPLATE, "conv_lines_rows", pieces, int64s(*sizes), int64s(*lines.places(windows)))
        self.packed, self.images = windows.filters * windows.depth, g.n
        self.pack = Call(TEMPLATE, "conv_lines_pack", 1, int64s(g.f, windows.depth))

    each, prepare = False, _Product.prepare


# ---- the three convolutions of a geometry -----------------------------------------------------------------------------
@functools.lru_cache(maxsize=512)
def plane(g: ConvolutionGeometry) -> ConvolutionGeometry:
    """Return a convolution of one axis as one of two."""
    if len(g.kernel) == 2:
        return g
    one = {what: (1, *getattr(g, what)) for what in ("spatial", "out", "kernel", "stride", "dilate")}
    return replace(g, **one, pad=(0, *g.pad))


def _weight_steps(g: ConvolutionGeometry) -> tuple[int, int, list[int]]:
    """Return the steps of filters and channels of the weight, and where each tap is, row by row."""
    c, taps = g.c // g.groups, math.prod(g.kernel)
    channel, tap = (1, c) if g.channels_last and not g.weight_first else (taps, 1)
    return c * taps, channel, [t * tap for t in range(taps)]


def forward_windows(g: ConvolutionGeometry) -> Windows:
    (kh, kw), (dy, dx), (py, px) = g.kernel, g.dilate, g.pad
    at = _weight_steps(g)[2]
    taps = tuple((i * dy - py, j * dx - px, at[i * kw + j]) for i, j in product(range(kh), range(kw)))
    groups, channels, filters, each = _groups(g)
    return Windows(groups, g.n, channels, filters, g.spatial, g.out, g.stride, taps,  # type: ignore[arg-type]
                   image_steps(g.c, g.spatial, g.channels_last and not g.data_first),
                   image_steps(g.f, g.out, g.channels_last), each=each)


def _is_each(g: ConvolutionGeometry) -> bool:
    return 1 < g.groups == g.c == g.f


def _groups(g: ConvolutionGeometry) -> tuple[int, int, int, bool]:
    """Return the groups, channels and filters of a group, and whether each channel is by itself, which counts as one group."""
    each = _is_each(g)
    return (1, g.c, g.f, True) if each else (g.groups, g.c // g.groups, g.f // g.groups, False)


@functools.lru_cache(maxsize=512)
def _in_tiles(g: ConvolutionGeometry, backward: bool, rectified: bool) -> _InTiles | None:
    """Return the convolution, or its derivative by data, in tiles of outputs; None where it is not computed so."""
    made = (winograd.winograd_of_gradient if backward else winograd.winograd)(g)
    if made is None:
        return None
    filter_step, channel_step, taps = _weight_steps(g)
    if backward:  # the same with the taps in reverse, and filters and channels exchanged
        return _InTiles(made, (channel_step, filter_step, -taps[1], taps[-1]))
    return _InTiles(made, (filter_step, channel_step, taps[1], 0), rectified)


@functools.lru_cache(maxsize=512)
def _forward(g: ConvolutionGeometry, add: bool, rectified: bool) -> _Product | _InTiles | _Lines:
    tiles = None if add else _in_tiles(g, False, rectified)
    if tiles is not None:
        return tiles
    filter_step, channel_step, taps = _weight_steps(g)
    windows = forward_windows(g)
    if lines.forward_in_lines(g, add):
        return _Lines(g, windows, add, rectified)
    groups, channels, filters, each = _groups(g)
    weights = _Weights(groups, filters, channels, filter_step, channel_step, filters * filter_step, tuple(taps), each)
    return _Product(windows, weights, add, rectified)


@functools.lru_cache(maxsize=512)
def _data_gradient(g: ConvolutionGeometry, add: bool) -> list[_Product] | list[_InTiles] | list[_Spread]:
    """Return one product for each phase of the stride, or one for all where products are spread."""
    tiles = None if add else _in_tiles(g, True, False)
    if tiles is not None:
        return [tiles]
    filter_step, channel_step, at = _weight_steps(g)
    windows = forward_windows(g)
    if spreading.spreads(g, windows):
        return [_Spread(g, windows, add)]
    (groups, c, f, each), made = _groups(g), []
    image, channel, row, column = image_steps(g.c, g.spatial, g.channels_last)
    for phase in product(*map(range, g.stride)):
        out = tuple(cdiv(max(0, size - p), s) for size, p, s in zip(g.spatial, phase, g.stride))
        if not math.prod(out):
            continue
        reached = [sorted(((p + pad - k * d) // s, k) for k in range(n) if (p + pad - k * d) % s == 0)
                   for p, pad, n, d, s in zip(phase, g.pad, g.kernel, g.dilate, g.stride)]
        taps = tuple((i, j, at[k * g.kernel[1] + m]) for (i, k), (j, m) in product(*reached))
        windows = Windows(groups, g.n, f, c, g.out, out, (1, 1), taps, image_steps(g.f, g.out, g.channels_last),  # type: ignore
                           (image, channel, row * g.stride[0], column * g.stride[1]), phase[0] * row + phase[1] * column, each)
        step = filter_step if each else channel_step
        made.append(_Product(windows, _Weights(groups, c, f, step, filter_step, f * filter_step, tuple(t for *_, t in taps),
                                               each), add))
    return made


def _turned(g: ConvolutionGeometry, backward: bool, add: bool, rectified: bool = False) -> tuple[_InTiles, Turned] | None:
    """Return the convolution, or its derivative by data, in tiles of data with channels first, and what turns it.

    None where it is computed as it lies.
    """
    last = channels_last_of(g)
    tiles = None if last is None or (add and rectified) else _in_tiles(last, backward, rectified)
    if tiles is None:
        return None
    data, result = (g.c, g.spatial), (g.f, g.out)
    around = turned(g.n, *((result, data) if backward else (data, result)), add)
    return None if around is None else (tiles, around)


class _WeightGradient:
    """The derivative by the weight: sums over slots of images, then over the slots."""

    def __init__(self, g: ConvolutionGeometry, add: bool):
        windows = forward_windows(g)
        if lines.weight_gradient_in_lines(g):
            self._in_lines(g, windows, add)
            return
        filter_step, channel_step, taps = _weight_steps(g)
        weights = _Weights(windows.groups, windows.filters, windows.channels, filter_step, channel_step,
                           windows.filters * filter_step, tuple(taps), windows.each)
        self.slots = max(1, min(SLOTS, g.n, PARTIAL // weights.packed))
        filters = cdiv(windows.filters, MOST_COLUMNS) * MOST_COLUMNS
        while not windows.each and filters > MOST_COLUMNS and self.slots * g.groups * cdiv(windows.filters, filters) < 8 and (
                _work(g) * filters // (self.slots * g.groups * windows.filters) > 2 * WORK):
            filters = cdiv(filters // MOST_COLUMNS, 2) * MOST_COLUMNS
        sizes, _ = windows.sizes(*windows.blocks(256), filters, False)
        bounds = int64s(*(i * g.n // self.slots for i in range(self.slots + 1)))
        pieces = self.slots * windows.groups * cdiv(windows.filters, filters)
        self.outer = _call("outer", windows.each, pieces, *(int64s(*part) for part in sizes), bounds)
        self.partial = self.slots * weights.packed
        numbers, pieces = weights.sizes(self.slots, add)
        self.unpack = _call("unpack", windows.each, 1 if windows.each else pieces, numbers)

    def _in_lines(self, g: ConvolutionGeometry, windows: Windows, add: bool) -> None:
        self.slots = max(1, min(SLOTS, g.n, PARTIAL // lines.partial_sums(windows)))
        self.partial = self.slots * lines.partial_sums(windows)
        bounds = int64s(*(i * g.n // self.slots for i in range(self.slots + 1)))
        (sizes, _), _ = windows.sizes(1, lines.rows_at_once(windows), windows.filters, False)
        self.outer = Call(TEMPLATE, "conv_lines_outer", self.slots, int64s(*sizes), int64s(*lines.places(windows)), bounds)
        self.unpack = Call(TEMPLATE, "conv_lines_unpack", 1, int64s(g.f, windows.depth, self.slots, add))


_weight_gradient = functools.lru_cache(maxsize=512)(_WeightGradient)


class Forward:
    """The forward convolution of a geometry."""

    keeps = (1,)  # the inputs that are packed

    def __init__(self, g: ConvolutionGeometry, bias: bool, *, add: bool = False, rectified: bool = False):
        """rectified: what is negative becomes 0."""
        self.geometry, self.work, self._size = plane(g), _work(g), g.n * math.prod(g.out) * g.f
        self._bias, self._add, self._rectified = bias, add, rectified

    @functools.cached_property
    def product(self) -> _Product | _InTiles | _Lines:
        """Computes data as it lies."""
        return _forward(self.geometry, self._add, self._rectified)

    @functools.cached_property
    def _turned(self) -> tuple[_InTiles, Turned] | None:
        """Computes it turned, where that is faster."""
        return _turned(self.geometry, False, self._add, self._rectified)

    def scaled(self, rectified: bool) -> Forward:
        """Return the same convolution for `keep_scaled`."""
        return Forward(self.geometry, self._bias, rectified=rectified)

    def bind(self, inputs: Sequence[Any], y: Any, after: Follower | None = None) -> BoundKernel:
        """Return a function (run) that computes y = (or +=) convolution of x with the weight, plus bias.

        after:  called for each part of y, while that is in cache. Then y may be None, if only `after` reads it.
        """
        pack, phases, scratch = self._phases(inputs, y, after)
        return Phases([[pack], *phases], scratch=scratch)

    def keep(self, inputs: Sequence[Any], y: Any, after: Follower | None = None) -> Prepared:
        """Return the same for a weight that seldom changes: it is packed by `prepare`."""
        pack, phases, (packed, *scratch) = self._phases(inputs, y, after)
        pack.held = pack.held, packed.take(None)
        return Prepared(Phases([[pack]]), Phases(phases, scratch=scratch))

    def keep_scaled(self, inputs: Sequence[Any], scale: Any, shift: Any, y: Any) -> Prepared:
        """Return what computes y = scale · (convolution of x with the weight, plus bias) + shift, rectified if so made.

        The weight and the bias are scaled when they are packed. scale, shift: of each filter, or None.
        """
        prepare, rows = self.scaled_steps(inputs, scale, shift, y)
        return Prepared(prepare, Phases([[rows]]))

    def scaled_steps(self, inputs: Sequence[Any], scale: Any, shift: Any, y: Any) -> tuple[BoundKernel, Step]:
        """Return what scales and packs, and the step that computes."""
        weight, bias, total = inputs[1], inputs[2] if self._bias else None, np.zeros(self.geometry.f, np.float32)
        pack, rows, packed = self.product.prepare(inputs[0], weight, total, y)
        rows.held = rows.held, packed.take(None)
        packing = Phases([[pack]])

        def prepare(run: Run) -> None:
            by = np.ones(1, np.float32) if scale is None else scale.reshape(-1)
            scaled = np.ascontiguousarray(weight * by.reshape(-1, *(1,) * (weight.ndim - 1)))
            np.add(0 if bias is None else bias * by, 0 if shift is None else shift.reshape(-1), out=total)
            pack.addresses[0] = scaled.ctypes.data
            packing(run)

        return prepare, rows

    def pairs_with(self, then: Any) -> bool:
        """Return whether this convolution and another `Forward`, of its result, are computed in one pass: by `keep_pair`."""
        return isinstance(then, Forward) and c_depthwise_pair.pairs(self, then)

    def keep_pair(self, inputs: Sequence[Any], scale: Any, shift: Any, then: Forward, others: Sequence[Any], then_scale: Any,
                  then_shift: Any, y: Any) -> Prepared:
        """Return what computes y, the convolution `then` of this one's result, both as in `keep_scaled`. others: its inputs."""
        prepare, first = self.scaled_steps(inputs, scale, shift, None)
        prepare_then, second = then.scaled_steps(others, then_scale, then_shift, y)
        step = c_depthwise_pair.step(self, then, first, second)
        return Prepared(InTurn([prepare, prepare_then]), Phases([[step]]))

    def _phases(self, inputs: Sequence[Any], y: Any, after: Follower | None) -> tuple[Step, list[list[Step]], list[Scratch]]:
        bias = inputs[2] if self._bias else None
        if after is None and self._turned is not None:
            tiles, around = self._turned
            pack, rows, packed = tiles.prepare(None, inputs[1], bias, None)
            phases, between = around.around(rows, inputs[0], y)
            return pack, phases, [packed, *between]
        made = self.product
        pack, rows, packed = made.prepare(inputs[0], inputs[1], bias, y)
        if after is None:
            return pack, [[rows]], [packed]
        scratch = [packed, *after.read(rows, 3, y, self._size)]
        if made.each and made.ranges is not None:
            rows.addresses[4:6] = after.entry()
            rows.held = rows.held, after
            return pack, [[rows]], scratch
        if made.ranges is not None:
            rows.then = after.step_after(made.ranges)
            return pack, [[rows]], scratch
        return pack, [[rows], [after.step(self._size)]], scratch


def forward(run: Run, g: ConvolutionGeometry, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray, *,
            add: bool) -> None:
    """Compute y = (or +=) convolution of x with weight, plus bias."""
    Forward(g, bias is not None, add=add).bind((x, weight, bias), y)(run)


def bind_backward(g: ConvolutionGeometry, dy: np.ndarray, x: np.ndarray, weight: np.ndarray, grads: Sequence[np.ndarray],
                  reqs: Reqs) -> BoundKernel:
    """Return a function (run) that computes the derivatives by data, weight and, if grads has a third array, bias."""
    g = plane(g)
    bias = len(reqs) > 2 and reqs[2] != Req.NULL
    first: list[Step] = []
    then: list[Step] = []
    last: list[Step] = []
    scratch: list[Scratch] = []
    if reqs[1] != Req.NULL or bias:
        made = _weight_gradient(g, reqs[1] == Req.ADD)
        sums = np.empty((made.slots, g.f)) if bias else None
        outer, unpack = made.outer.prepare(x, dy, None, sums), made.unpack.prepare(grads[1], None)
        scratch.append(Scratch(made.partial, ((outer.addresses, 2), (unpack.addresses, 1))))
        first.append(outer)
        if bias:
            add = int64s(made.slots, g.f, reqs[2] == Req.ADD)
            then.append(_call("bias", _is_each(g), 1, add).prepare(sums, grads[2]))
        if reqs[1] != Req.NULL:
            then.append(unpack)
    in_turn = _turned(g, True, reqs[0] == Req.ADD) if reqs[0] != Req.NULL else None
    if in_turn is not None:
        pack, rows, packed = in_turn[0].prepare(None, weight, None, None)
        phases, between = in_turn[1].around(rows, dy, grads[0])
        for steps, more in zip((first, then, last), phases):
            steps += more
        first.append(pack)
        scratch += [packed, *between]
    for part in _data_gradient(g, reqs[0] == Req.ADD) if reqs[0] != Req.NULL and in_turn is None else ():
        pack, rows, packed = part.prepare(dy, weight, None, grads[0])
        first.append(pack)
        then.append(rows)
        scratch.append(packed)
    return Phases([first, then, last] if last else [first, then], scratch=scratch)


def backward(run: Run, g: ConvolutionGeometry, dy: np.ndarray, x: np.ndarray, weight: np.ndarray, grads: Sequence[np.ndarray],
             reqs: Reqs) -> None:
    """Compute the derivatives by data, weight and, if grads has a third array, bias."""
    bind_backward(g, dy, x, weight, grads, reqs)(run)
