"""Triton: running sums along an axis, forwards or backwards. A long line is cut into parts, so that many programs share it."""

from __future__ import annotations

import numpy as np

from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...kernel import DeviceArray, Run
from .triton_pick import columns_of, own_columns, parts_of


@triton.jit
def _part_sums(x, sums, outer: tl.int64, n, inner: tl.int64, blocks, FLAT: tl.constexpr, UNIT: tl.constexpr, WIDE: tl.constexpr,
               COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    # sums [parts, columns] of that many blocks of ROWS rows each
    c, columns, n, step, base = own_columns(outer, n, inner, FLAT, UNIT, COLUMNS)
    part = tl.program_id(1).to(tl.int64)
    span = blocks * ROWS
    first = part * span
    total = tl.zeros((ROWS, COLUMNS), WIDE)
    for start in range(0, tl.minimum(n - first, span).to(tl.int32), ROWS):
        r = first + start + tl.arange(0, ROWS)
        live = (c[None, :] < columns) & (r[:, None] < n)
        total += tl.load(x + base[None, :] + r[:, None] * step, mask=live, other=0).to(WIDE)
    tl.store(sums + part * columns + c, tl.sum(total, axis=0), mask=c < columns)


@triton.jit
def _cumsum(x, y, sums, outer: tl.int64, n, inner: tl.int64, blocks, parts, FLAT: tl.constexpr, UNIT: tl.constexpr,
            SEVERAL: tl.constexpr, BACK: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr,
            ROWS: tl.constexpr):
    # columns of [outer, n, inner]; ROWS elements of each at a time, with the sum so far carried on, at first of the parts before
    c, columns, n, step, base = own_columns(outer, n, inner, FLAT, UNIT, COLUMNS)
    carry = tl.zeros((COLUMNS,), WIDE)
    part = tl.program_id(1)
    if SEVERAL:
        for start in range(0, parts, ROWS):
            q = start + tl.arange(0, ROWS)
            before = (q < parts) & ((q > part) if BACK else (q < part))
            live = before[:, None] & (c[None, :] < columns)
            carry += tl.sum(tl.load(sums + q[:, None].to(tl.int64) * columns + c[None, :], mask=live, other=0), axis=0)
    span = blocks * ROWS
    low = part.to(tl.int64) * span
    size = tl.minimum(n - low, span).to(tl.int32)
    for start in range(0, size, ROWS):
        first = (size - 1) // ROWS * ROWS - start if BACK else start
        r = low + first + tl.arange(0, ROWS)
        live = (c[None, :] < columns) & (r[:, None] < n)
        at = base[None, :] + r[:, None] * step
        v = tl.load(x + at, mask=live, other=0).to(WIDE)
        total = tl.cumsum(v, axis=0, reverse=BACK) + carry[None, :]
        carry += tl.sum(v, axis=0)
        if ADD:
            total += tl.load(y + at, mask=live, other=0).to(WIDE)
        tl.store(y + at, total.to(y.dtype.element_ty), mask=live)


def cumsum(run: Run, lines: tuple[int, int, int], x: DeviceArray, y: DeviceArray, *, back: bool, add: bool) -> None:
    """Compute y [outer, n, inner] = (or +=) cumulative sums of x along n; with back, from the end."""
    programs, sizes, fixed = columns_of(lines)
    parts, blocks = parts_of(programs, lines[1], fixed["ROWS"])
    wide, sums = accumulator(y), y
    if parts > 1:
        sums = run.workspace((parts, lines[0] * lines[2]), np.dtype(wide.name))
        launch(_part_sums, (programs, parts), x, sums, *sizes, blocks, stream=run.stream, WIDE=wide, **fixed)
    launch(_cumsum, (programs, parts), x, y, sums, *sizes, blocks, parts, stream=run.stream, SEVERAL=parts > 1, BACK=back,
           ADD=add, WIDE=wide, **fixed)
