"""Triton: kernels of the regression losses and MakeLoss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....integers import cdiv
from ...gpu.launch import launch
from ...gpu.sizes import wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for


@triton.jit
def _sigmoid(x, y, n: tl.int64, UNIT: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    n = n * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0).to(WIDE)
    e = tl.exp(-tl.abs(v))
    out = tl.where(v >= 0, 1, e) / (1 + e)
    if ADD:
        out += tl.load(y + i, mask=i < n, other=0).to(WIDE)
    tl.store(y + i, out.to(y.dtype.element_ty), mask=i < n)


@triton.jit
def _difference(y, label, dx, n: tl.int64, scale, UNIT: tl.constexpr, SIGN: tl.constexpr, ADD: tl.constexpr,
                WIDE: tl.constexpr, BLOCK: tl.constexpr):
    n = n * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(y + i, mask=i < n, other=0).to(WIDE) - tl.load(label + i, mask=i < n, other=0).to(WIDE)
    if SIGN:
        d = tl.where(d > 0, 1, tl.where(d < 0, -1, 0)).to(WIDE)
    d = d * scale
    if ADD:
        d += tl.load(dx + i, mask=i < n, other=0).to(WIDE)
    tl.store(dx + i, d.to(dx.dtype.element_ty), mask=i < n)


@triton.jit
def _count_above(x, count, n, threshold, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    n = n * UNIT
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += ((i < n) & (tl.load(x + i, mask=i < n, other=0).to(tl.float32) > threshold)).to(tl.int32)
    tl.store(count, tl.maximum(tl.sum(total), 1))


@triton.jit
def _constant(dx, count, n: tl.int64, scale, UNIT: tl.constexpr, VALID: tl.constexpr, ADD: tl.constexpr,
              WIDE: tl.constexpr, BLOCK: tl.constexpr):
    n = n * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    out = tl.zeros((BLOCK,), WIDE) + scale
    if VALID:
        out = out / tl.load(count).to(WIDE)
    if ADD:
        out += tl.load(dx + i, mask=i < n, other=0).to(WIDE)
    tl.store(dx + i, out.to(dx.dtype.element_ty), mask=i < n)


def sigmoid(run: Any, x: Any, y: Any, *, add: bool) -> None:
    """y = (or +=) 1 / (1 + exp(-x))."""
    n = x.numel()
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_sigmoid, (cdiv(n, block),), x, y, n // unit, stream=run.stream, UNIT=unit, ADD=add, WIDE=wide_float(y), BLOCK=block)


def difference(run: Any, y: Any, label: Any, dx: Any, *, scale: float, sign: bool, add: bool) -> None:
    """dx = (or +=) scale · (y - label), or of its sign."""
    n = y.numel()
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_difference, (cdiv(n, block),), y, label, dx, n // unit, float(scale), stream=run.stream, UNIT=unit, SIGN=sign,
           ADD=add, WIDE=wide_float(dx), BLOCK=block)


def constant(run: Any, x: Any, dx: Any, *, scale: float, threshold: float, add: bool) -> None:
    """dx = (or +=) scale; with x, divided by the number of its elements above threshold (at least 1)."""
    n, count = dx.numel(), dx
    if x is not None:
        count = run.workspace((1,), np.int32)
        unit = math.gcd(n, 16)
        launch(_count_above, (1,), x, count, n // unit, float(threshold), stream=run.stream, UNIT=unit, BLOCK=block_for(n, 1024))
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_constant, (cdiv(n, block),), dx, count, n // unit, float(scale), stream=run.stream, UNIT=unit,
           VALID=x is not None, ADD=add, WIDE=wide_float(dx), BLOCK=block)


@triton.jit
def _numbers(y, n, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    n = n * UNIT
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, i, mask=i < n)


def numbers(run: Any, n: int) -> Any:
    """Return 0, 1, … n - 1 as int32, in the workspace."""
    y = run.workspace((n,), np.int32)
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_numbers, (cdiv(n, block),), y, n // unit, stream=run.stream, UNIT=unit, BLOCK=block)
    return y
