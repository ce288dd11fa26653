"""Triton: planes summed over blocks of neighbours: the derivative of repeating each element."""

from __future__ import annotations

import math

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run


@triton.jit
def _sum_blocks(x, y, rows: tl.int64, inner: tl.int64, columns: tl.int64, step: tl.int64, begin: tl.int64, KH: tl.constexpr,
                KW: tl.constexpr, UNIT: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # y [rows / inner, inner, columns]; rows of x are KW times as long, and KH times as many, from begin in every step
    # narrow: where UNIT is 1: rows are not aligned, or KW is not a power of two, as tile sizes must be
    columns = columns * UNIT
    tiles = tl.cdiv(columns, BC)
    r = (tl.program_id(0) // tiles).to(tl.int64) * BR + tl.arange(0, BR)[:, None]
    left = (tl.program_id(0) % tiles) * BC
    c = left + tl.arange(0, BC)[None, :]
    live = (r < rows) & (c < columns)
    first = r // inner * step + begin + r % inner * KH
    total = tl.zeros((BR, BC), WIDE)
    for i in range(KH):
        at = x + (first + i) * (columns * KW)
        if UNIT > 1:
            wide = left * KW + tl.arange(0, BC * KW)[None, :]
            v = tl.load(at + wide, mask=(r < rows) & (wide < columns * KW), other=0).to(WIDE)
            total += tl.sum(tl.reshape(v, (BR, BC, KW)), axis=2)
        else:
            for j in range(KW):
                total += tl.load(at + c * KW + j, mask=live, other=0).to(WIDE)
    to = y + r * columns + c
    if ADD:
        total += tl.load(to, mask=live, other=0).to(WIDE)
    tl.store(to, total.to(y.dtype.element_ty), mask=live)


def total(run: Run, sizes: tuple[int, int, int], factors: tuple[int, int], x: DeviceArray, y: DeviceArray, *, step: int,
          begin: int, add: bool) -> None:
    """Compute y [outer, inner, columns] = (or +=) the sums of blocks of x; factors: rows and columns of a block.

    step, begin: distance and start of the planes, in rows of x, which have columns · factors[1] elements.
    """
    (outer, inner, columns), (kh, kw) = sizes, factors
    rows, unit = outer * inner, 1 if kw > 16 or kw & (kw - 1) else math.gcd(columns, 16)
    most = block_for(rows * columns, max(128, 4096 // next_power_of_2(kw)))
    bc = min(next_power_of_2(columns), most)
    br = min(next_power_of_2(rows), max(1, most // bc))
    launch(_sum_blocks, (cdiv(rows, br) * cdiv(columns, bc),), x, y, rows, inner, columns // unit, step, begin, KH=kh, KW=kw,
           UNIT=unit, ADD=add, WIDE=accumulator(y), BR=br, BC=bc, stream=run.stream)
