"""Triton: arrays computed from indices: ramps, diagonals, one-hot rows."""

from __future__ import annotations

import math
from typing import Any

from ....integers import cdiv
from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for


@triton.jit
def _ramp(y, total: tl.int64, start: tl.float64, step: tl.float64, repeat: tl.int64, UNIT: tl.constexpr,
          ADD: tl.constexpr, BLOCK: tl.constexpr):
    total = total * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    v = start + step * (i // repeat).to(tl.float64)
    if ADD:
        v += tl.load(y + i, mask=live).to(tl.float64)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _diagonal(y, total: tl.int64, columns: tl.int64, k: tl.int64, UNIT: tl.constexpr, ADD: tl.constexpr,
              WIDE: tl.constexpr, BLOCK: tl.constexpr):
    total = total * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    v = (i // columns + k == i % columns).to(WIDE)
    if ADD:
        v += tl.load(y + i, mask=live).to(WIDE)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _one_hot(index, y, total: tl.int64, depth: tl.int64, on: tl.float64, off: tl.float64, UNIT: tl.constexpr,
             ADD: tl.constexpr, BLOCK: tl.constexpr):
    total = total * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    at = tl.load(index + i // depth, mask=live, other=0).to(tl.int64)
    v = tl.where(at == i % depth, on, off)
    if ADD:
        v += tl.load(y + i, mask=live).to(tl.float64)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


def ramp(run: Any, y: Any, start: float, step: float, repeat: int, *, add: bool) -> None:
    """y[i] = (or +=) start + step (i // repeat), computed in float64."""
    n = y.numel()
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_ramp, (cdiv(n, block),), y, n // unit, float(start), float(step), repeat, stream=run.stream, UNIT=unit, ADD=add,
           BLOCK=block)


def values(run: Any, y: Any, numbers: tuple[int, ...], *, add: bool) -> None:
    """Compute y = (or +=) a few integers below 2**53."""
    for i, v in enumerate(numbers):
        launch(_ramp, (1,), y[i:i + 1], 1, float(v), 0.0, 1, stream=run.stream, UNIT=1, ADD=add, BLOCK=16)


def diagonal(run: Any, y: Any, columns: int, k: int, *, add: bool) -> None:
    """y [rows, columns] = (or +=) 1 on diagonal k, 0 elsewhere."""
    n = y.numel()
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_diagonal, (cdiv(n, block),), y, n // unit, columns, k, stream=run.stream, UNIT=unit, ADD=add, WIDE=accumulator(y),
           BLOCK=block)


def one_hot(run: Any, index: Any, y: Any, depth: int, on: float, off: float, *, add: bool) -> None:
    """y [..., depth] = (or +=) on at index, off elsewhere."""
    n = y.numel()
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_one_hot, (cdiv(n, block),), index, y, n // unit, depth, float(on), float(off), stream=run.stream, UNIT=unit,
           ADD=add, BLOCK=block)
