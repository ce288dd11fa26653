"""Triton: a sparse matrix applied along one axis."""

from __future__ import annotations

import math

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run


@triton.jit
def _apply(x, place, weight, y, rows: tl.int64, n: tl.int64, m: tl.int64, inner: tl.int64, terms, UNIT: tl.constexpr,
           ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # rows [outer, m] of contiguous elements [inner]
    # narrow: where inner is 1, each lane reads addresses from the table
    inner = inner * UNIT
    tiles = tl.cdiv(inner, BC)
    r = (tl.program_id(0) // tiles).to(tl.int64) * BR + tl.arange(0, BR)[:, None]
    c = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)[None, :]
    there = r < rows
    live = there & (c < inner)
    row = r % m
    base = r // m * n
    v = tl.zeros((BR, BC), WIDE)
    for t in range(terms):
        at = tl.load(place + row * terms + t, mask=there, other=-1)
        factor = tl.load(weight + row * terms + t, mask=there & (at >= 0), other=0).to(WIDE)
        v += factor * tl.load(x + (base + at) * inner + c, mask=live & (at >= 0), other=0).to(WIDE)
    y += r * inner + c
    if ADD:
        v += tl.load(y, mask=live).to(WIDE)
    tl.store(y, v.to(y.dtype.element_ty), mask=live)


def apply(run: Run, x: DeviceArray, tables: tuple[DeviceArray, DeviceArray], y: DeviceArray, lines: tuple[int, int, int, int],
          terms: int, *, add: bool) -> None:
    """y [outer, m, inner] = (or +=) the weighted sums of x [outer, n, inner] along n; place -1 marks an unused term."""
    outer, n, m, inner = lines
    unit, block = math.gcd(inner, 16), block_for(outer * m * inner)
    bc = min(next_power_of_2(inner), block)
    br = min(next_power_of_2(outer * m), max(1, block // bc))
    launch(_apply, (cdiv(outer * m, br) * cdiv(inner, bc),), x, *tables, y, outer * m, n, m, inner // unit, terms,
           stream=run.stream, UNIT=unit, ADD=add, WIDE=wide_float(y), BR=br, BC=bc)
