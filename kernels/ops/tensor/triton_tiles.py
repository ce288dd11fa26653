"""Triton: copies between strided views by tiles, so that accesses are wide on both sides where possible.

A tile covers the axis that is contiguous in the target and the axis that is contiguous in the source, which may be the same.
Each program has one index along every other axis, except axes of a few repetitions: their elements are read once and written
several times. The kernel text states divisors of sizes, strides and offsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...kernel import DeviceArray, Run

OTHERS = 4  # axes besides the two of a tile
_TILE = 1024
_WRITTEN = 4096  # elements of a tile with repeated elements
_OFTEN = 16  # largest number of repetitions
_SHORT = 16  # shorter rows are narrower than one access


@triton.jit
def converted(x, CUT: tl.constexpr, WIDE: tl.constexpr):
    # converts x for adding and storing: WIDE to float32, CUT to integers
    if WIDE:
        x = x.to(tl.float32)
    if CUT:
        x = x.to(tl.int64)
    return x


@triton.jit
def put_tile(x, at, keep, ADD: tl.constexpr, WIDE: tl.constexpr):
    if ADD:
        old = tl.load(at, mask=keep)
        if WIDE:
            old = old.to(tl.float32)
        x = x.to(old.dtype) + old
    tl.store(at, x.to(at.dtype.element_ty), mask=keep)


@triton.jit
def copy_tiles(src, dst, src_base: tl.int64, dst_base: tl.int64, rows: tl.int64, columns: tl.int64,
               d1: tl.int64, d2: tl.int64, d3: tl.int64,
               s0: tl.int64, s1: tl.int64, s2: tl.int64, s3: tl.int64, t0: tl.int64, t1: tl.int64, t2: tl.int64, t3: tl.int64,
               s_row: tl.int64, s_column: tl.int64, t_row: tl.int64, t_again: tl.int64,
               HOW: tl.constexpr, FLAT: tl.constexpr, UNIT_R: tl.constexpr, UNIT_C: tl.constexpr, UNIT_S: tl.constexpr,
               UNIT_T: tl.constexpr, REPEAT: tl.constexpr, AGAIN: tl.constexpr, ADD: tl.constexpr, CUT: tl.constexpr,
               WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # HOW: the contiguous axis of the source is "along" that of the target, "turned" (its rows), or "apart" (the source has none)
    # FLAT: a turned tile is contiguous in the "source", which has just BR rows, or in the "target"; with three colours and other
    # counts that are not powers of two, as tile sizes must be, one side is narrow
    # every element is written REPEAT times in a row, and the tile AGAIN times at distance t_again
    rows = rows * UNIT_R
    columns = columns * UNIT_C
    tiles_r = tl.cdiv(rows, BR)
    tiles_c = tl.cdiv(columns, BC)
    place = tl.program_id(0).to(tl.int64)
    top = (place // tiles_c % tiles_r) * BR
    r = top + tl.arange(0, BR)[:, None]
    left = (place % tiles_c) * BC
    c = left + tl.arange(0, BC)[None, :]
    place = place // tiles_c // tiles_r
    i3 = place % d3
    place = place // d3
    i2 = place % d2
    place = place // d2
    i1 = place % d1
    i0 = place // d1
    a = src + (src_base + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3) * UNIT_S
    b = dst + (dst_base + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3) * UNIT_T
    inside = (r < rows) & (c < columns)
    if FLAT == "source":
        at = left * BR + tl.arange(0, BR * BC)
        x = tl.trans(tl.reshape(tl.load(a + at, mask=at < columns * BR), (BC, BR)))
    elif HOW == "along":
        x = tl.load(a + r * (s_row * UNIT_S) + c, mask=inside)
    elif HOW == "turned":
        x = tl.load(a + r + c * (s_column * UNIT_S), mask=inside)
    else:
        x = tl.load(a + r * (s_row * UNIT_S) + c * (s_column * UNIT_S), mask=inside)
    x = converted(x, CUT, WIDE)
    if FLAT == "target":
        x = tl.reshape(x, (BR * BC,))
        c = top * BC + tl.arange(0, BR * BC)
        inside = c < rows * BC
        b += c
    else:
        if REPEAT > 1:
            x = tl.reshape(tl.broadcast_to(x[:, :, None], (BR, BC, REPEAT)), (BR, BC * REPEAT))
            c = left * REPEAT + tl.arange(0, BC * REPEAT)[None, :]
            inside = (r < rows) & (c < columns * REPEAT)
        b += r * (t_row * UNIT_T) + c
    for _ in tl.static_range(AGAIN):
        put_tile(x, b, inside, ADD, WIDE)
        b += t_again * UNIT_T


def _repeated(axes: Sequence[tuple[int, int, int]]) -> tuple[list[tuple[int, int, int]], int]:
    """Split off an innermost axis that repeats each element of the source 2, 4, 8 or 16 times; return the rest and the count."""
    inner = next((a for a in axes if a[1:] == (0, 1)), None)
    if inner is None or inner[0] > _OFTEN or inner[0] & (inner[0] - 1) or not any(a[1:] == (1, inner[0]) for a in axes):
        return list(axes), 1
    return [(n, s, 1) if (s, t) == (1, inner[0]) else (n, s, t) for n, s, t in axes if (n, s, t) != inner], inner[0]


def plan(axes: Sequence[tuple[int, int, int]], src_base: int, dst_base: int) -> tuple[int, list[int], dict[str, Any]] | None:
    """Return (programs, numbers, constexprs and options) of the copy, or None if tiles do not fit it.

    axes: (size, step in the source, step in the target), merged, none of size 1.
    """
    axes = list(axes) or [(1, 1, 1)]
    axes, repeat = _repeated(axes)
    column = next((i for i, (_, _, t) in enumerate(axes) if t == 1), None)
    if column is None:
        return None
    n, s_column, _ = axes.pop(column)
    again = next((i for i, (d, s, _) in enumerate(axes) if s == 0 and d <= _OFTEN), None) if len(axes) > 1 else None
    times, _, t_again = axes.pop(again) if again is not None else (1, 0, 0)
    how, row, flat = "along", None, ""
    if s_column != 1:
        row = next((i for i, (_, s, _) in enumerate(axes) if s == 1), None)
        how = "apart" if row is None else "turned"
    if row is None and axes:  # the next outer axis, unless another fills the tile better
        row = max(range(len(axes)), key=lambda i: (min(axes[i][0], max(1, _TILE // n)), i))
    rows, s_row, t_row = axes.pop(row) if row is not None else (1, 0, 0)
    if len(axes) > OTHERS:
        return None
    axes = [(1, 0, 0)] * (OTHERS - len(axes)) + axes
    if how != "turned":
        most = min(_TILE, _WRITTEN // repeat)
        bc = min(next_power_of_2(n), most)
        br = min(next_power_of_2(rows), max(1, most // bc))
    else:
        bc, br = min(next_power_of_2(n), 64), min(next_power_of_2(rows), 64)
        bc, br = max(bc, min(next_power_of_2(n), _TILE // br)), max(br, min(next_power_of_2(rows), _TILE // bc))
        if n == bc == t_row < _SHORT:
            flat, t_row = "target", 0
        elif rows == br == s_column < _SHORT:
            flat, s_column = "source", 0
    programs = cdiv(rows, br) * cdiv(n, bc) * math.prod(d for d, _, _ in axes)
    if programs > 1 and br * bc < 128:
        return None  # programs would have too little work
    sizes, s, t = zip(*axes)
    unit_s = math.gcd(16, src_base, *s, *(v for v in (s_row, s_column) if v != 1))
    unit_t = math.gcd(16, dst_base, *t, t_row, t_again)
    unit_r, unit_c = math.gcd(16, rows), math.gcd(16, n)
    numbers = [src_base // unit_s, dst_base // unit_t, rows // unit_r, n // unit_c, *sizes[1:], *(v // unit_s for v in s),
               *(v // unit_t for v in t), s_row // unit_s, s_column // unit_s, t_row // unit_t, t_again // unit_t]
    return programs, numbers, {"HOW": how, "FLAT": flat, "UNIT_R": unit_r, "UNIT_C": unit_c, "UNIT_S": unit_s, "UNIT_T": unit_t,
                               "REPEAT": repeat, "AGAIN": times, "BR": br, "BC": bc,
                               "num_warps": max(1, min(4, br * bc * repeat // 256))}


def copy(run: Run, planned: tuple[int, list[int], dict[str, Any]], source: DeviceArray, target: DeviceArray, *, add: bool,
         cut: bool, wide: bool) -> None:
    """Run a copy planned by `plan`."""
    programs, numbers, fixed = planned
    launch(copy_tiles, (programs,), source, target, *numbers, stream=run.stream, ADD=add, CUT=cut, WIDE=wide, **fixed)
