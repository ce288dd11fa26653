"""Triton: flat indices from one index per axis, and back."""

from __future__ import annotations

import math

from ....integers import cdiv
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run

AXES = 8


@triton.jit
def _flatten(index, out, count: tl.int64, axes, d0: tl.int64, d1: tl.int64, d2: tl.int64, d3: tl.int64, d4: tl.int64,
             d5: tl.int64, d6: tl.int64, d7: tl.int64, UNIT: tl.constexpr, CLIP: tl.constexpr, ADD: tl.constexpr,
             BLOCK: tl.constexpr):
    count = count * UNIT
    # CLIP: negative indices count from the end, and those still out of range are clipped
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    at = tl.zeros((BLOCK,), tl.int64)
    for a in range(axes):
        d = tl.where(a == 0, d0, tl.where(a == 1, d1, tl.where(a == 2, d2, tl.where(a == 3, d3, tl.where(
            a == 4, d4, tl.where(a == 5, d5, tl.where(a == 6, d6, d7)))))))
        v = tl.load(index + a * count + i, mask=live, other=0).to(tl.int64)
        if CLIP:
            v = tl.where(v < 0, v + d, v)
            v = tl.minimum(tl.maximum(v, 0), d - 1)
        at = at * d + v
    if ADD:
        at += tl.load(out + i, mask=live).to(tl.int64)
    tl.store(out + i, at.to(out.dtype.element_ty), mask=live)


@triton.jit
def _unravel(flat, out, count: tl.int64, axes, d0: tl.int64, d1: tl.int64, d2: tl.int64, d3: tl.int64, d4: tl.int64,
             d5: tl.int64, d6: tl.int64, d7: tl.int64, UNIT: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    count = count * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    v = tl.load(flat + i, mask=live, other=0).to(tl.int64)
    for back in range(axes):
        a = axes - 1 - back
        d = tl.where(a == 0, d0, tl.where(a == 1, d1, tl.where(a == 2, d2, tl.where(a == 3, d3, tl.where(
            a == 4, d4, tl.where(a == 5, d5, tl.where(a == 6, d6, d7)))))))
        size = tl.abs(v)
        whole = tl.where(v < 0, -(size // d), size // d)  # truncated
        part = tl.where(a == 0, v, v - whole * d)
        at = out + a * count + i
        if ADD:
            part += tl.load(at, mask=live).to(tl.int64)
        tl.store(at, part.to(out.dtype.element_ty), mask=live)
        v = whole


def _padded(dims: tuple[int, ...]) -> tuple[int, ...]:
    return dims + (1,) * (AXES - len(dims))


def flatten(run: Run, index: DeviceArray, out: DeviceArray, count: int, dims: tuple[int, ...], *, clip: bool, add: bool = False
           ) -> None:
    """Compute out [count] = (or +=) the flat index in an array of sizes dims of index [axes, count]."""
    block, unit = block_for(count), math.gcd(count, 16)
    launch(_flatten, (cdiv(count, block),), index, out, count // unit, len(dims), *_padded(dims), stream=run.stream, UNIT=unit,
           CLIP=clip, ADD=add, BLOCK=block)


def unravel(run: Run, flat: DeviceArray, out: DeviceArray, count: int, dims: tuple[int, ...], *, add: bool) -> None:
    """Compute out [axes, count] = (or +=) the index per axis of flat indices in an array of sizes dims."""
    block, unit = block_for(count), math.gcd(count, 16)
    launch(_unravel, (cdiv(count, block),), flat, out, count // unit, len(dims), *_padded(dims), stream=run.stream, UNIT=unit,
           ADD=add, BLOCK=block)
