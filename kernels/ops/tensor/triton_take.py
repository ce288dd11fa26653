"""Triton: the derivative of slices selected by index. It gathers without atomics, so the order of sums is fixed."""

from __future__ import annotations

import math

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.copy import fill
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run
from .triton_order import rank
from .triton_pick import take, within


@triton.jit
def put_by_search(dy, index, dx, outers: tl.int64, n: tl.int64, k, inner: tl.int64, UNIT: tl.constexpr, WRAP: tl.constexpr,
                  ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: where UNIT is 1; on a GPU indices are sorted first and slices summed in segments
    inner = inner * UNIT
    total = outers * n * inner
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    mine = (i // inner) % n
    outer = i // inner // n
    v = tl.zeros((BLOCK,), WIDE)
    for j in range(k):
        hit = live & (within(tl.load(index + j), n, WRAP) == mine)
        v += tl.load(dy + (outer * k + j) * inner + i % inner, mask=hit, other=0).to(WIDE)
    if ADD:
        v += tl.load(dx + i, mask=live, other=0).to(WIDE)
    tl.store(dx + i, v.to(dx.dtype.element_ty), mask=live)


@triton.jit
def take_numbers(index, numbers, k, n: tl.int64, WRAP: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: masked, as indices are few beside the rows that they select
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(numbers + j, within(tl.load(index + j, mask=j < k, other=0), n, WRAP), mask=j < k)


@triton.jit
def take_segments(dy, order, numbers, dx, k, n: tl.int64, inner: tl.int64, UNIT: tl.constexpr, ADD: tl.constexpr,
                  WIDE: tl.constexpr, BLOCK: tl.constexpr):
    inner = inner * UNIT
    # the first of equal indices sums the slices of all of them in order
    at = tl.program_id(0) % k
    outer = (tl.program_id(0) // k).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(numbers + at)
    first = at == 0
    if at > 0:
        first = tl.load(numbers + at - 1) != mine
    if first:
        total = tl.zeros((BLOCK,), WIDE)
        turn = at
        more = True
        while more:
            j = tl.load(order + turn)
            total += tl.load(dy + (outer * k + j) * inner + i, mask=i < inner, other=0).to(WIDE)
            turn += 1
            more = tl.load(numbers + turn, mask=turn < k, other=-1) == mine
        to = dx + (outer * n + mine) * inner + i
        if ADD:
            total += tl.load(to, mask=i < inner, other=0).to(WIDE)
        tl.store(to, total.to(dx.dtype.element_ty), mask=i < inner)


def put(run: Run, rows: tuple[int, int, int], k: int, dy: DeviceArray, index: DeviceArray, dx: DeviceArray, *, wrap: bool,
        add: bool, by_order: bool | None = None) -> None:
    """dx [outer, n, inner] = (or +=) for each row the sum of the slices of dy with its index, in a fixed order.

    by_order: sort the indices first, so that only rows with an index are visited; None: choose by size.
    """
    outer, n, inner = rows
    unit = math.gcd(inner, 16)
    if by_order if by_order is not None else not interpreting():
        if not add:
            fill(run, dx, 0)
        if k and outer * inner:
            order, given, numbers = (run.workspace((k,), np.dtype(d)) for d in ("int32", "int64", "int64"))
            block = block_for(k)
            launch(take_numbers, (cdiv(k, block),), index, given, k, n, stream=run.stream, WRAP=wrap, BLOCK=block)
            rank(run, (1, k, 1), k, given, order, down=False)
            take(run, (1, k, 1), k, given, order, numbers, wrap=False, add=False)
            block = min(1024, max(16, next_power_of_2(inner)))
            launch(take_segments, (outer * k, cdiv(inner, block)), dy, order, numbers, dx, k, n, inner // unit, stream=run.stream,
                   UNIT=unit, ADD=add, WIDE=wide_float(dx), BLOCK=block)
        return
    total = outer * n * inner
    block = block_for(total)
    launch(put_by_search, (cdiv(total, block),), dy, index, dx, outer, n, k, inner // unit, stream=run.stream, UNIT=unit,
           WRAP=wrap, ADD=add, WIDE=wide_float(dx), BLOCK=block)
