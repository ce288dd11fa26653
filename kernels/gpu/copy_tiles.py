"""Copies between strided views by tiles, so that accesses are wide on both sides where possible.

A tile covers the axis that is contiguous in the target and the axis that is contiguous in the source, which may be the same.
Each program has one index along every other axis, except axes of a few repetitions: their elements are read once and written
several times. The kernel text states divisors of sizes, strides and offsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...integers import cdiv, next_power_of_2
from ..kernel import DeviceArray, Run
from .launch import launch
from .triton_copy import copy_tiles

OTHERS = 4  # axes besides the two of a tile
_TILE = 1024
_WRITTEN = 4096  # elements of a tile with repeated elements
_OFTEN = 16  # largest number of repetitions
_SHORT = 16  # shorter rows are narrower than one access


def _repeated(axes: Sequence[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], int]:
    """Split off an innermost axis that repeats each element of the source 2, 4, 8 or 16 times; return the rest and the count."""
    inner = next((a for a in axes if a[1:] == (0, 1)), None)
    if inner is None or inner[0] > _OFTEN or inner[0] & (inner[0] - 1) or not any(a[1:] == (1, inner[0]) for a in axes):
        return list(axes), 1
    return [(n, s, 1) if (s, t) == (1, inner[0]) else (n, s, t) for n, s, t in axes if (n, s, t) != inner], inner[0]


def plan(axes: Sequence[tuple[int, ...]], src_base: int, dst_base: int) -> tuple[int, list[int], dict[str, Any]] | None:
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
