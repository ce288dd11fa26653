"""Triton: pooling. Forward and backward gather, without atomics: in backward each element reads the windows that contain it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtype import as_dtype
from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run
from .conv_geometry import three
from .pooling import Pooling, PoolingGeometry, finite_lowest
from .triton_conv import strides


@triton.jit
def _window_size(o, s, k: tl.constexpr, p, size, PADDED: tl.constexpr):
    begin = o * s - p
    end = tl.minimum(begin + k, size + p)
    if not PADDED:
        begin = tl.maximum(begin, 0)
        end = tl.minimum(end, size)
    return tl.maximum(end - begin, 1)


@triton.jit
def _channel(c, step, LAST: tl.constexpr):
    # the offset of a channel
    if LAST:
        return c
    else:
        return c * step


@triton.jit
def _element(total, C, D, H, W, LAST: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    # a tile's (offset, mask, image, channel, d, h, w): of positions and channels if channels are last, else of elements in memory
    # order; there are `total` of either, in units of EVEN
    total = total * EVEN
    if LAST:
        tiles = tl.cdiv(C, BC)
        p = (tl.program_id(0) // tiles).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
        c = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)[None, :]
        i = p * C + c
        keep = (p < total) & (c < C)
        n = p // W // H // D
    else:
        i = tl.program_id(0).to(tl.int64) * BC + tl.arange(0, BC)[None, :]
        keep = i < total
        p = i
        n = i // W // H // D // C
        c = i // W // H // D % C
    return i, keep, n, c, ((p // W // H) % D).to(tl.int32), ((p // W) % H).to(tl.int32), (p % W).to(tl.int32)


@triton.jit
def _take(total, first, v, k, inside, KIND: tl.constexpr, P: tl.constexpr):
    # the state of a window after v, its element k; first: the index of the maximum so far
    if KIND == "max":
        better = inside & ((v > total) | (first < 0) | (v != v))
        return tl.where(better, v, total), tl.where(better, k, first)
    elif KIND == "lp":
        a = tl.abs(v)
        if P == 2:
            a = a * a
        if P == 3:
            a = a * a * a
        return total + a, first
    else:
        return total + v, first


@triton.jit
def _finish(total, count, KIND: tl.constexpr, P: tl.constexpr):
    if KIND == "avg":
        total = total / count
    if KIND == "lp":
        if P == 2:
            total = tl.sqrt(total)
        if P == 3:
            total = tl.where(total > 0, tl.exp(tl.log(tl.where(total > 0, total, 1)) / 3), 0)
    return total


@triton.jit
def _forward(x, y, index, n_out: tl.int64, C, D, H, W, OD, OH, OW,
             x_n: tl.int64, x_c: tl.int64, x_d: tl.int64, x_h: tl.int64, x_w: tl.int64,
             sd, sh, sw, pd, ph, pw, low,
             KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, KIND: tl.constexpr, P: tl.constexpr,
             PADDED: tl.constexpr, ADD: tl.constexpr, INDEX: tl.constexpr, LAST: tl.constexpr, UNIT: tl.constexpr,
             EVEN: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    # LAST: channels are last, and UNIT divides them and every stride but theirs
    # narrow: unless LAST, windows start at any element and overlap; graphs put channels last
    C = C * UNIT
    i, keep, n, c, od, oh, ow = _element(n_out, C, OD, OH, OW, LAST, EVEN, BM, BC)
    base = n * (x_n * UNIT) + _channel(c, x_c, LAST)
    total = tl.zeros((BM, BC), WIDE)
    if KIND == "max":
        total += low
    first = tl.zeros((BM, BC), tl.int32) - 1
    for k in range(KD * KH * KW):
        d = od * sd - pd + k // KW // KH
        h = oh * sh - ph + (k // KW) % KH
        w = ow * sw - pw + k % KW
        inside = keep & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        v = tl.load(x + base + d * (x_d * UNIT) + h * (x_h * UNIT) + w * (x_w * UNIT), mask=inside, other=0).to(WIDE)
        total, first = _take(total, first, v, k, inside, KIND, P)
    if INDEX:
        tl.store(index + i, first, mask=keep)  # same layout as y
    else:
        count = (_window_size(od, sd, KD, pd, D, PADDED) * _window_size(oh, sh, KH, ph, H, PADDED)
                 * _window_size(ow, sw, KW, pw, W, PADDED)).to(WIDE)
        total = _finish(total, count, KIND, P)
        at = y + i
        if ADD:
            total += tl.load(at, mask=keep, other=0).to(WIDE)
        tl.store(at, total.to(y.dtype.element_ty), mask=keep)


@triton.jit
def _forward_whole(x, y, index, planes: tl.int64, size, KIND: tl.constexpr, P: tl.constexpr, ADD: tl.constexpr,
                   INDEX: tl.constexpr, UNIT: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # a window is a whole plane of contiguous elements: a program reduces BR of them, BC elements at a time
    # narrow: where UNIT is 1: such planes are not aligned
    size = size * UNIT
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    live = r < planes
    total = tl.zeros((BR, BC), WIDE)
    first = tl.zeros((BR, BC), tl.int32) - 1
    for start in range(0, size, BC):
        k = start + tl.arange(0, BC)[None, :]
        inside = live[:, None] & (k < size)
        v = tl.load(x + r[:, None] * size + k, mask=inside, other=0).to(WIDE)
        total, first = _take(total, first, v, k, inside, KIND, P)
    if KIND == "max":
        total = tl.where(first < 0, float("-inf"), total)
        nan = tl.max((total != total).to(tl.int32), axis=1) > 0
        top = tl.max(tl.where(total != total, float("-inf"), total), axis=1)
        hit = (first >= 0) & tl.where(nan[:, None], total != total, total == top[:, None])
        result = tl.where(nan, float("nan"), top)
        places = tl.min(tl.where(hit, first, size), axis=1)
    else:
        result = _finish(tl.sum(total, axis=1), size, KIND, P)
        places = tl.max(first, axis=1)
    if INDEX:
        tl.store(index + r, places, mask=live)
    else:
        if ADD:
            result += tl.load(y + r, mask=live, other=0).to(WIDE)
        tl.store(y + r, result.to(y.dtype.element_ty), mask=live)


@triton.jit
def _backward(dy, x, y, index, dx, n_in: tl.int64, C, D, H, W, OD, OH, OW,
              y_n: tl.int64, y_c: tl.int64, y_d: tl.int64, y_h: tl.int64, y_w: tl.int64,
              sd, sh, sw, pd, ph, pw,
              KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, ND: tl.constexpr, NH: tl.constexpr, NW: tl.constexpr,
              KIND: tl.constexpr, P: tl.constexpr, PADDED: tl.constexpr, ADD: tl.constexpr, LAST: tl.constexpr,
              UNIT: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    # an element is in ND, NH and NW windows along each axis at most
    # narrow: unless LAST, as in forward
    C = C * UNIT
    here, keep, n, c, id, ih, iw = _element(n_in, C, D, H, W, LAST, EVEN, BM, BC)
    base = n * (y_n * UNIT) + _channel(c, y_c, LAST)
    last_d = tl.minimum((id + pd) // sd, OD - 1)
    last_h = tl.minimum((ih + ph) // sh, OH - 1)
    last_w = tl.minimum((iw + pw) // sw, OW - 1)
    total = tl.zeros((BM, BC), WIDE)
    for j in range(ND * NH * NW):
        # a window, the last one first, and the index of this element in it
        d = last_d - j // NW // NH
        h = last_h - (j // NW) % NH
        w = last_w - j % NW
        kd = id + pd - d * sd
        kh = ih + ph - h * sh
        kw = iw + pw - w * sw
        hit = keep & (d >= 0) & (h >= 0) & (w >= 0) & (kd < KD) & (kh < KH) & (kw < KW)
        at = base + d * (y_d * UNIT) + h * (y_h * UNIT) + w * (y_w * UNIT)
        g = tl.load(dy + at, mask=hit, other=0).to(WIDE)
        if KIND == "max":
            chosen = tl.load(index + at, mask=hit, other=-1)
            g = tl.where(chosen == (kd * KH + kh) * KW + kw, g, 0)
        elif KIND == "avg":
            count = (_window_size(d, sd, KD, pd, D, PADDED) * _window_size(h, sh, KH, ph, H, PADDED)
                     * _window_size(w, sw, KW, pw, W, PADDED))
            g = g / count.to(WIDE)
        elif KIND == "lp":
            v = tl.load(x + here, mask=keep, other=0).to(WIDE)
            r = tl.load(y + at, mask=hit, other=0).to(WIDE)
            ratio = tl.where(r > 0, tl.abs(v) / tl.where(r > 0, r, 1), 0)
            sign = tl.where(v > 0, 1, tl.where(v < 0, -1, 0))
            if P == 1:
                g = g * sign
            elif P == 2:
                g = g * sign * ratio
            else:
                g = g * sign * ratio * ratio
        total += g
    if ADD:
        total += tl.load(dx + here, mask=keep, other=0).to(WIDE)
    tl.store(dx + here, total.to(dx.dtype.element_ty), mask=keep)


def _sizes(g: PoolingGeometry, p: Pooling) -> tuple[Any, ...]:
    """Return (positions, sizes, strides) of data and of the result; then channels, window and constexprs.

    Channels and strides are in units of UNIT.
    """
    unit = math.gcd(g.c, 16) if g.channels_last else 1
    window = (*three(g.stride, 1), *three(g.pad, 0))
    padded = p.count_include_pad is None or p.count_include_pad
    k = three(g.kernel, 1)
    fixed = {"KD": k[0], "KH": k[1], "KW": k[2], "KIND": p.pool_type, "P": p.p_value or 0, "PADDED": padded,
             "LAST": g.channels_last, "UNIT": unit}

    def array(spatial: Sequence[int]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        sizes = three(spatial, 1)
        steps = strides(g.c, sizes, g.channels_last)
        return g.n * math.prod(sizes), sizes, tuple(s if axis == 1 else s // unit for axis, s in enumerate(steps))

    return array(g.spatial), array(g.out), g.c // unit, window, fixed


def _tiles(g: PoolingGeometry, positions: int) -> tuple[tuple[int], int, dict[str, int]]:
    """Return the grid over positions and channels, their number in units of EVEN, and a program's tile with EVEN."""
    elements = positions * g.c
    most = block_for(elements, 1024 if g.channels_last else 512)
    if not g.channels_last:
        even = math.gcd(elements, 16)
        return (cdiv(elements, most),), elements // even, {"EVEN": even, "BM": 1, "BC": most}
    bc = min(next_power_of_2(g.c), most if interpreting() else 128)
    bm = min(next_power_of_2(positions), max(1, most // bc))
    return (cdiv(positions, bm) * cdiv(g.c, bc),), positions, {"EVEN": 1, "BM": bm, "BC": bc}


def forward(run: Run, g: PoolingGeometry, p: Pooling, x: DeviceArray, y: DeviceArray, *, add: bool,
            index: DeviceArray | None = None) -> None:
    """y = (or +=) pooled x; with index, only the index of the maximum of each window."""
    lowest = finite_lowest(as_dtype(str(y.dtype)[6:]))
    options = {"ADD": add, "INDEX": index is not None, "WIDE": wide_float(x), "stream": run.stream}
    arrays = (x, y, y if index is None else index)
    size = math.prod(g.spatial)
    if size and g.kernel == g.spatial and math.prod(g.out) == 1 and not (g.channels_last or any(g.pad)):
        planes, unit, most = g.n * g.c, math.gcd(size, 16), block_for(g.n * g.c * size, 1024)
        bc = min(next_power_of_2(size), most)
        br = min(next_power_of_2(planes), max(1, most // bc))
        launch(_forward_whole, (cdiv(planes, br),), *arrays, planes, size // unit, KIND=p.pool_type, P=p.p_value or 0,
               UNIT=unit, BR=br, BC=bc, **options)
        return
    (_, xs, steps), (n, ys, _), channels, window, fixed = _sizes(g, p)
    grid, total, blocks = _tiles(g, n)
    launch(_forward, grid, *arrays, total, channels, *xs, *ys, *steps, *window, lowest, **fixed, **options, **blocks)


def backward(run: Run, g: PoolingGeometry, p: Pooling, inputs: Sequence[DeviceArray], dx: DeviceArray, *, add: bool) -> None:
    """dx = (or +=) the derivative. inputs: dy, and for max and lp also x and y."""
    (n, xs, _), (count, ys, steps), channels, window, fixed = _sizes(g, p)
    dy, x, y = (*inputs, dx, dx)[:3]
    index = dy
    if p.pool_type == "max":
        index = run.workspace((count * g.c,), np.int32)
        forward(run, g, p, x, y, add=False, index=index)
    grid, total, blocks = _tiles(g, n)
    nd, nh, nw = (min(cdiv(k, s), o) for k, s, o in zip(three(g.kernel, 1), three(g.stride, 1), ys))
    launch(_backward, grid, dy, x, y, index, dx, total, channels, *xs, *ys, *steps, *window, stream=run.stream, **fixed,
           ND=nd, NH=nh, NW=nw, ADD=add, WIDE=wide_float(dx), **blocks)
