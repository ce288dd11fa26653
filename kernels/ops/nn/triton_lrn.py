"""Triton: LRN. Each element gathers its neighbouring channels, without atomics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....integers import cdiv
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run
from .softmax import Rows

if TYPE_CHECKING:
    from .lrn import LRN


@triton.jit
def _scale(x, at, c, live, C, inner: tl.int64, knorm, alpha, HALF: tl.constexpr, WIDE: tl.constexpr):
    # knorm + alpha Σ x² over the channels around c; at: the offset of channel c
    total = at.to(WIDE) * 0
    for d in range(-HALF, HALF + 1):
        inside = live & (c + d >= 0) & (c + d < C)
        v = tl.load(x + at + d * inner, mask=inside, other=0).to(WIDE)
        total += v * v
    return knorm + alpha * total


@triton.jit
def _forward(x, y, outer: tl.int64, C, inner: tl.int64, knorm, alpha, beta, UNIT: tl.constexpr, HALF: tl.constexpr,
             ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    inner = inner * UNIT
    n = outer * C * inner
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    s = _scale(x, i, (i // inner) % C, live, C, inner, knorm, alpha, HALF, WIDE)
    v = tl.load(x + i, mask=live, other=0).to(WIDE) * tl.exp(-beta * tl.log(s))
    if ADD:
        v += tl.load(y + i, mask=live, other=0).to(WIDE)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _backward(dy, x, dx, outer: tl.int64, C, inner: tl.int64, knorm, alpha, beta, UNIT: tl.constexpr, HALF: tl.constexpr,
              ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    inner = inner * UNIT
    n = outer * C * inner
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    c = (i // inner) % C
    around = i.to(WIDE) * 0
    for d in range(-HALF, HALF + 1):
        inside = live & (c + d >= 0) & (c + d < C)
        at = i + d * inner
        s = _scale(x, at, c + d, inside, C, inner, knorm, alpha, HALF, WIDE)
        g = tl.load(dy + at, mask=inside, other=0).to(WIDE) * tl.load(x + at, mask=inside, other=0).to(WIDE)
        around += tl.where(inside, g * tl.exp((-beta - 1) * tl.log(s)), 0)
    s = _scale(x, i, c, live, C, inner, knorm, alpha, HALF, WIDE)
    v = tl.load(dy + i, mask=live, other=0).to(WIDE) * tl.exp(-beta * tl.log(s))
    v -= 2 * alpha * beta * tl.load(x + i, mask=live, other=0).to(WIDE) * around
    if ADD:
        v += tl.load(dx + i, mask=live, other=0).to(WIDE)
    tl.store(dx + i, v.to(dx.dtype.element_ty), mask=live)


def forward(run: Run, rows: Rows, p: LRN, x: DeviceArray, y: DeviceArray, *, add: bool) -> None:
    """y = (or +=) x normalised; x seen as [outer, channels, inner], p: the LRN."""
    n, (outer, channels, inner) = x.numel(), rows
    block, unit = block_for(n), math.gcd(inner, 16)
    launch(_forward, (cdiv(n, block),), x, y, outer, channels, inner // unit, float(p.knorm), p.alpha / p.nsize,
           float(p.beta), stream=run.stream, UNIT=unit, HALF=p.nsize // 2, ADD=add, WIDE=wide_float(x), BLOCK=block)


def backward(run: Run, rows: Rows, p: LRN, dy: DeviceArray, x: DeviceArray, dx: DeviceArray, *, add: bool) -> None:
    """dx = (or +=) the derivative of forward."""
    n, (outer, channels, inner) = x.numel(), rows
    block = block_for(n) // (4 if x.dtype.itemsize == 8 else 1)  # powers in float64 need many registers
    unit = math.gcd(inner, 16)
    launch(_backward, (cdiv(n, block),), dy, x, dx, outer, channels, inner // unit, float(p.knorm), p.alpha / p.nsize,
           float(p.beta), stream=run.stream, UNIT=unit, HALF=p.nsize // 2, ADD=add, WIDE=wide_float(x), BLOCK=block)
