"""Triton: one element per line along an axis, picked by number; and put back there."""

from __future__ import annotations

import math
from typing import Any

from ..triton_kernel import tl, triton
from ..triton_launch import block_for, cdiv, launch
from .triton_gemm import wide

Lines = tuple[int, int, int, int, int]  # outer, n, m, groups, rest


@triton.jit
def _place(index, o, j, g, n, m, groups, live, HOW: tl.constexpr):
    if HOW == "reverse":
        count = tl.minimum(tl.load(index + o * groups + g, mask=live, other=0).to(tl.int64), n)
        return tl.where(j < count, count - 1 - j, j)
    at = tl.load(index + (o * m + j) * groups + g, mask=live, other=0).to(tl.int64)
    if HOW == "last":
        at -= 1
    if HOW == "wrap":
        at = at % n
        return tl.where(at < 0, at + n, at)
    return tl.minimum(tl.maximum(at, 0), n - 1)


@triton.jit
def _along(x, index, y, total: tl.int64, n: tl.int64, m: tl.int64, groups: tl.int64, rest: tl.int64, UNIT: tl.constexpr,
           HOW: tl.constexpr, PUT: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # one lane per element of the picked array [outer, m, groups, rest]; PUT: x is that array, and y the larger one
    rest = rest * UNIT
    total = total * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    r = i % rest
    g = i // rest % groups
    j = i // (rest * groups) % m
    o = i // (rest * groups * m)
    far = ((o * n + _place(index, o, j, g, n, m, groups, live, HOW)) * groups + g) * rest + r
    v = tl.load(x + (i if PUT else far), mask=live)
    at = y + (far if PUT else i)
    if ADD:
        v = (v.to(WIDE) + tl.load(at, mask=live).to(WIDE)).to(v.dtype)
    tl.store(at, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _mask_steps(x, lengths, y, total: tl.int64, steps: tl.int64, groups: tl.int64, rest: tl.int64, value,
                UNIT: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # x, y: [outer, steps, groups, rest]; lengths: [outer, groups]
    rest = rest * UNIT
    total = total * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    g = i // rest % groups
    step = i // (rest * groups) % steps
    o = i // (rest * groups * steps)
    size = tl.load(lengths + o * groups + g, mask=live, other=0).to(tl.int64)
    v = tl.where((step < size) | (size < 0), tl.load(x + i, mask=live).to(WIDE), value)
    if ADD:
        v += tl.load(y + i, mask=live).to(WIDE)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


def exact(tensor: Any) -> Any:
    """The dtype elements are added in: float64 and whole numbers in their own width."""
    return wide(tensor) if tensor.dtype.is_floating_point else tl.int64


def pick(run: Any, lines: Lines, x: Any, index: Any, y: Any, how: str, *, add: bool) -> None:
    """y [outer, m, groups, rest] = (or +=) x [outer, n, groups, rest] at the numbers [outer, m, groups] along n."""
    outer, n, m, groups, rest = lines
    total = outer * m * groups * rest
    block, unit = block_for(total), math.gcd(rest, 16)
    launch(_along, (cdiv(total, block),), x, index, y, total // unit, n, m, groups, rest // unit, stream=run.stream,
           UNIT=unit, HOW=how, PUT=False, ADD=add, WIDE=exact(y), BLOCK=block)


def put(run: Any, lines: Lines, x: Any, index: Any, y: Any, how: str, *, add: bool) -> None:
    """y [outer, n, groups, rest] at the numbers = (or +=) x [outer, m, groups, rest]. No number occurs twice in a line."""
    outer, n, m, groups, rest = lines
    total = outer * m * groups * rest
    block, unit = block_for(total), math.gcd(rest, 16)
    launch(_along, (cdiv(total, block),), x, index, y, total // unit, n, m, groups, rest // unit, stream=run.stream,
           UNIT=unit, HOW=how, PUT=True, ADD=add, WIDE=exact(y), BLOCK=block)


def mask_steps(run: Any, lines: tuple[int, int, int, int], x: Any, lengths: Any, y: Any, value: float, *, add: bool) -> None:
    """y [outer, steps, groups, rest] = (or +=) x where the step is below the length [outer, groups], else value."""
    outer, steps, groups, rest = lines
    total = outer * steps * groups * rest
    block, unit = block_for(total), math.gcd(rest, 16)
    launch(_mask_steps, (cdiv(total, block),), x, lengths, y, total // unit, steps, groups, rest // unit, float(value),
           stream=run.stream, UNIT=unit, ADD=add, WIDE=wide(y), BLOCK=block)
