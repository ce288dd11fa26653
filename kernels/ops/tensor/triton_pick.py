"""Triton: one element per line along an axis, gathered by index, and scattered back."""

from __future__ import annotations

import math

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting, multiprocessors
from ...kernel import DeviceArray, Run

Lines = tuple[int, int, int, int, int]  # outer, n, m, groups, rest


@triton.jit
def within(at, n, WRAP: tl.constexpr):
    # an index below n: wrapped around or clipped
    at = at.to(tl.int64)
    if WRAP:
        at = at % n
        return tl.where(at < 0, at + n, at)
    else:
        return tl.minimum(tl.maximum(at, 0), n - 1)


@triton.jit
def _place(index, o, j, g, n, m, groups, live, HOW: tl.constexpr, SHARED: tl.constexpr):
    if HOW == "reverse":
        count = tl.minimum(tl.load(index + o * groups + g, mask=live, other=0).to(tl.int64), n)
        return tl.where(j < count, count - 1 - j, j)
    else:
        at = tl.load(index + (j if SHARED else (o * m + j) * groups + g), mask=live, other=0).to(tl.int64)
        return within(at - 1 if HOW == "last" else at, n, HOW == "wrap")


@triton.jit
def _along(x, index, y, rows: tl.int64, n: tl.int64, m: tl.int64, groups: tl.int64, rest: tl.int64, UNIT: tl.constexpr,
           HOW: tl.constexpr, SHARED: tl.constexpr, PUT: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr,
           BR: tl.constexpr, BC: tl.constexpr):
    # rows [outer, m, groups] of the gathered array, with contiguous elements [rest]; PUT: x is that array, y the larger one
    # narrow: where rest is 1, each lane's address is its index
    rest = rest * UNIT
    tiles = tl.cdiv(rest, BC)
    i = (tl.program_id(0) // tiles).to(tl.int64) * BR + tl.arange(0, BR)
    c = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)[None, :]
    there = i < rows
    live = there[:, None] & (c < rest)
    g = i % groups
    j = i // groups % m
    o = i // (groups * m)
    at = _place(index, o, j, g, n, m, groups, there, HOW, SHARED)
    far = (((o * n + at) * groups + g) * rest)[:, None] + c
    near = (i * rest)[:, None] + c
    v = tl.load(x + (near if PUT else far), mask=live)
    to = y + (far if PUT else near)
    if ADD:
        v = (v.to(WIDE) + tl.load(to, mask=live).to(WIDE)).to(v.dtype)
    tl.store(to, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def own_columns(outer, n, inner, FLAT: tl.constexpr, UNIT: tl.constexpr, COLUMNS: tl.constexpr):
    # this program's columns of [outer, n, inner], their number, n, the row stride, and the offset of each column
    c = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    if FLAT:
        return c, outer, n * UNIT, 1, c * (n * UNIT)
    else:
        return c, outer * (inner * UNIT), n, inner * UNIT, c // (inner * UNIT) * n * (inner * UNIT) + c % (inner * UNIT)


def columns_of(lines: tuple[int, int, int]) -> tuple[int, tuple[int, int, int], dict[str, int]]:
    """Return (programs, sizes, constexprs) of a kernel that reads the columns of [outer, n, inner] in blocks of rows.

    Tiles are wide along contiguous elements: columns, or rows if FLAT. Sizes are in units of UNIT, which divides inner or n.
    """
    outer, n, inner = lines
    flat = inner == 1
    unit, columns, rows = (math.gcd(n, 16), 4, 256) if flat else (math.gcd(inner, 16), 64, 16)
    columns = min(block_for(outer * inner, columns), 256)
    fixed = {"FLAT": flat, "UNIT": unit, "COLUMNS": columns, "ROWS": max(2, min(next_power_of_2(n), rows))}
    return cdiv(outer * inner, columns), (outer, n // unit, 1) if flat else (outer, n, inner // unit), fixed


def parts_of(programs: int, n: int, rows: int) -> tuple[int, int]:
    """Return (parts, blocks of a part), by which several programs share lines of n elements that are few and long.

    programs: those that have lines of their own. rows: elements of a block.
    """
    most = 1 if interpreting() else min(cdiv(4 * multiprocessors(), max(1, programs)), n // (8 * rows))
    blocks = cdiv(cdiv(n, max(1, most)), rows)
    return max(1, cdiv(n, blocks * rows)), blocks


def pick(run: Run, lines: Lines, x: DeviceArray, index: DeviceArray, y: DeviceArray, how: str, *, add: bool, put: bool = False,
         shared: bool = False) -> None:
    """y [outer, m, groups, rest] = (or +=) x [outer, n, groups, rest] at index [outer, m, groups] along n.

    put: y [outer, n, groups, rest] at index = (or +=) x [outer, m, groups, rest]; indices within a line are distinct.
    shared: index [m] holds for all lines.
    """
    outer, n, m, groups, rest = lines
    rows, unit, block = outer * m * groups, math.gcd(rest, 16), block_for(outer * m * groups * rest)
    bc = min(next_power_of_2(rest), block)
    br = min(next_power_of_2(rows), max(1, block // bc))
    launch(_along, (cdiv(rows, br) * cdiv(rest, bc),), x, index, y, rows, n, m, groups, rest // unit, stream=run.stream,
           UNIT=unit, HOW=how, SHARED=shared, PUT=put, ADD=add, WIDE=accumulator(y), BR=br, BC=bc)


def take(run: Run, rows: tuple[int, int, int], k: int, x: DeviceArray, index: DeviceArray, y: DeviceArray, *, wrap: bool,
         add: bool) -> None:
    """y [outer, k, inner] = (or +=) x [outer, n, inner] at the k indices."""
    outer, n, inner = rows
    pick(run, (outer, n, k, 1, inner), x, index, y, "wrap" if wrap else "clip", add=add, shared=True)
