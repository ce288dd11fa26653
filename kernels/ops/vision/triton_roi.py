"""Triton: region pooling, and its derivative. In backward one lane owns a channel, so the order of each sum is fixed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.copy import fill
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run


@triton.jit
def _rounded(rois, at, scale, live):
    # rounds halves away from zero; NaN and values out of range end up outside every plane
    v = tl.load(rois + at, mask=live, other=0).to(tl.float32) * scale
    v = tl.minimum(tl.maximum(tl.where(v == v, v, -1.0), -1073741824.0), 1073741824.0)
    return tl.where(v < 0, -tl.floor(0.5 - v), tl.floor(v + 0.5)).to(tl.int64)


@triton.jit
def _bin(first, last, i, bins, size):
    step = tl.maximum(last - first + 1, 1).to(tl.float32) / bins
    begin = tl.floor(i.to(tl.float32) * step).to(tl.int64) + first
    end = tl.ceil((i + 1).to(tl.float32) * step).to(tl.int64) + first
    return tl.minimum(tl.maximum(begin, 0), size), tl.minimum(tl.maximum(end, 0), size)


@triton.jit
def _pool(data, rois, out, place, total: tl.int64, N, C, H, W, PH, PW, scale, ADD: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: each lane reads the bin of its own region
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    column = i % PW
    row = i // PW % PH
    c = i // PW // PH % C
    r = (i // PW // PH // C) * 5
    image = tl.load(rois + r, mask=live, other=-1).to(tl.int64)
    live = live & (image >= 0) & (image < N)
    top, bottom = _bin(_rounded(rois, r + 2, scale, live), _rounded(rois, r + 4, scale, live), row, PH, H)
    left, right = _bin(_rounded(rois, r + 1, scale, live), _rounded(rois, r + 3, scale, live), column, PW, W)
    base = data + (image * C + c) * H * W
    best = tl.zeros((BLOCK,), data.dtype.element_ty)
    where = tl.zeros((BLOCK,), tl.int32) - 1
    rows = tl.max(tl.where(live, bottom - top, 0))
    columns = tl.max(tl.where(live, right - left, 0))
    dy = rows * 0
    while dy < rows:
        dx = columns * 0
        while dx < columns:
            inside = live & (top + dy < bottom) & (left + dx < right)
            at = (top + dy) * W + left + dx
            v = tl.load(base + at, mask=inside, other=0)
            better = inside & ((where < 0) | (v > best) | ((v != v) & (best == best)))
            best = tl.where(better, v, best)
            where = tl.where(better, at.to(tl.int32), where)
            dx += 1
        dy += 1
    keep = i < total
    if ADD:
        best += tl.load(out + i, mask=keep)
    tl.store(out + i, best, mask=keep)
    tl.store(place + i, where, mask=keep)


@triton.jit
def _unpool(dy, rois, place, dx, R, C, PLANE: tl.int64, BINS, BLOCK: tl.constexpr):
    # narrow: each lane owns a plane, and adds at the index of the maximum
    n = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    to = dx + (n.to(tl.int64) * C + c) * PLANE
    for r in range(R):
        if tl.load(rois + r * 5).to(tl.int32) == n:
            for b in range(BINS):
                at = (r * C + c.to(tl.int64)) * BINS + b
                e = tl.load(place + at, mask=c < C, other=-1)
                hit = e >= 0
                v = tl.load(dy + at, mask=hit, other=0).to(dx.dtype.element_ty)
                v += tl.load(to + e, mask=hit, other=0)
                tl.store(to + e, v, mask=hit)
                tl.debug_barrier()


def pool(run: Run, data: DeviceArray, rois: DeviceArray, out: DeviceArray | None, place: DeviceArray | None, scale: float,
         add: list[bool]) -> None:
    """out [R, C, PH, PW] = (or +=) the maximum of each bin; place: its index in the plane, -1 for an empty bin."""
    spec = tuple(out.shape if out is not None else place.shape)
    total = int(np.prod(spec))
    missing = out is None
    out = run.workspace(spec, np.dtype(str(data.dtype).removeprefix("torch."))) if missing else out
    place = run.workspace(spec, np.dtype("int32")) if place is None else place
    block = block_for(total, 256)
    launch(_pool, (cdiv(total, block),), data, rois, out, place, total, *data.shape, spec[2], spec[3], scale, stream=run.stream,
           ADD=add[0] and not missing, BLOCK=block)


def unpool(run: Run, dy: DeviceArray, rois: DeviceArray, place: DeviceArray, dx: DeviceArray,
           finish: Callable[[Run, DeviceArray, DeviceArray], None] | None, *, add: bool) -> None:
    """dx [N, C, H, W] = (or +=) dy at the indices in place. finish: copies or adds float32 sums to half-precision dx, or None."""
    n, c, h, w = dx.shape
    sums = dx if finish is None else run.workspace(tuple(dx.shape), np.dtype("float32"))
    if finish is not None or not add:
        fill(run, sums, 0)
    block = min(128, next_power_of_2(c))
    launch(_unpool, (n, cdiv(c, block)), dy, rois, place, sums, rois.shape[0], c, h * w, dy.shape[2] * dy.shape[3],
           stream=run.stream, BLOCK=block)
    if finish is not None:
        finish(run, sums, dx)
