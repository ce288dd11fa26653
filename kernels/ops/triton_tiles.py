"""Triton: copy between strided views by tiles, so that accesses are wide on both sides wherever memory allows it.

A tile spans the axis whose neighbours stand together in the target, and the axis of the source's neighbours, which may be
the same one; every other axis is a number per program. What sizes, steps and starts divide by is said in the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..triton_kernel import tl, triton
from ..triton_launch import cdiv, launch, next_power_of_2

OTHERS = 4  # axes beside the two of a tile
_TILE = 1024


@triton.jit
def copy_tiles(src, dst, src_base: tl.int64, dst_base: tl.int64, rows: tl.int64, columns: tl.int64,
               d1: tl.int64, d2: tl.int64, d3: tl.int64,
               s0: tl.int64, s1: tl.int64, s2: tl.int64, s3: tl.int64, t0: tl.int64, t1: tl.int64, t2: tl.int64, t3: tl.int64,
               s_row: tl.int64, s_column: tl.int64, t_row: tl.int64,
               HOW: tl.constexpr, UNIT_R: tl.constexpr, UNIT_C: tl.constexpr, UNIT_S: tl.constexpr, UNIT_T: tl.constexpr,
               ADD: tl.constexpr, CUT: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # HOW: "along" the source's neighbours are the target's, "turned" they are its rows, "apart" it has none
    rows = rows * UNIT_R
    columns = columns * UNIT_C
    tiles_r = tl.cdiv(rows, BR)
    tiles_c = tl.cdiv(columns, BC)
    place = tl.program_id(0).to(tl.int64)
    r = (place // tiles_c % tiles_r) * BR + tl.arange(0, BR)[:, None]
    c = (place % tiles_c) * BC + tl.arange(0, BC)[None, :]
    place = place // tiles_c // tiles_r
    i3 = place % d3
    place = place // d3
    i2 = place % d2
    place = place // d2
    i1 = place % d1
    i0 = place // d1
    a = src + (src_base + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3) * UNIT_S
    b = dst + (dst_base + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3) * UNIT_T
    if HOW == "along":
        a += r * (s_row * UNIT_S) + c
    elif HOW == "turned":
        a += r + c * (s_column * UNIT_S)
    else:
        a += r * (s_row * UNIT_S) + c * (s_column * UNIT_S)
    b += r * (t_row * UNIT_T) + c
    inside = (r < rows) & (c < columns)
    x = tl.load(a, mask=inside)
    if WIDE:
        x = x.to(tl.float32)
    if CUT:
        x = x.to(tl.int64)
    if ADD:
        old = tl.load(b, mask=inside)
        if WIDE:
            old = old.to(tl.float32)
        x = x.to(old.dtype) + old
    tl.store(b, x.to(dst.dtype.element_ty), mask=inside)


def plan(axes: Sequence[tuple[int, int, int]], src_base: int, dst_base: int) -> tuple[int, list[int], dict[str, Any]] | None:
    """(programs, numbers, constexprs) of the copy, or None where tiles do not suit it.

    axes: (size, step in the source, step in the target), merged, none of size 1.
    """
    axes = list(axes) or [(1, 1, 1)]
    column = next((i for i, (_, _, t) in enumerate(axes) if t == 1), None)
    if column is None:
        return None
    n, s_column, _ = axes.pop(column)
    how, row = "along", None
    if s_column != 1:
        row = next((i for i, (_, s, _) in enumerate(axes) if s == 1), None)
        how = "apart" if row is None else "turned"
    if row is None and axes:  # the next one out, unless another fills the tile better
        row = max(range(len(axes)), key=lambda i: (min(axes[i][0], max(1, _TILE // n)), i))
    rows, s_row, t_row = axes.pop(row) if row is not None else (1, 0, 0)
    if len(axes) > OTHERS:
        return None
    axes = [(1, 0, 0)] * (OTHERS - len(axes)) + axes
    if how != "turned":
        bc = min(next_power_of_2(n), _TILE)
        br = min(next_power_of_2(rows), max(1, _TILE // bc))
    else:
        bc, br = min(next_power_of_2(n), 64), min(next_power_of_2(rows), 64)
    programs = cdiv(rows, br) * cdiv(n, bc) * math.prod(d for d, _, _ in axes)
    if programs > 1 and br * bc < 128:
        return None  # programs with next to nothing to do
    sizes, s, t = zip(*axes)
    unit_s = math.gcd(16, src_base, *s, *(v for v in (s_row, s_column) if v != 1))
    unit_t = math.gcd(16, dst_base, *t, t_row)
    unit_r, unit_c = math.gcd(16, rows), math.gcd(16, n)
    numbers = [src_base // unit_s, dst_base // unit_t, rows // unit_r, n // unit_c, *sizes[1:], *(v // unit_s for v in s),
               *(v // unit_t for v in t), s_row // unit_s, s_column // unit_s, t_row // unit_t]
    return programs, numbers, {"HOW": how, "UNIT_R": unit_r, "UNIT_C": unit_c, "UNIT_S": unit_s, "UNIT_T": unit_t, "BR": br,
                               "BC": bc}


def copy(run: Any, planned: tuple[int, list[int], dict[str, Any]], source: Any, target: Any, *, add: bool, cut: bool,
         wide: bool) -> None:
    """Run what plan gave."""
    programs, numbers, fixed = planned
    launch(copy_tiles, (programs,), source, target, *numbers, stream=run.stream, ADD=add, CUT=cut, WIDE=wide, **fixed)
