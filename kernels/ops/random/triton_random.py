"""Triton: the random numbers of philox.py, and Dropout's mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....integers import cdiv
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...op import Req, Shape
from ...philox import uniform_bits


@triton.jit
def _word(seed_low, seed_high, number):
    # word number % 4 of philox(counter = number // 4, key = seed)
    counter = number // 4
    c0 = (counter & 0xFFFFFFFF).to(tl.uint32)
    c1 = (counter >> 32).to(tl.uint32)
    zero = c0 * 0
    k0 = zero + (seed_low & 0xFFFFFFFF).to(tl.uint32)
    k1 = zero + (seed_high & 0xFFFFFFFF).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox_impl(c0, c1, zero, zero, k0, k1)
    lane = number % 4
    return tl.where(lane == 0, w0, tl.where(lane == 1, w1, tl.where(lane == 2, w2, w3)))


@triton.jit
def _draw(out, held, seed: tl.int64, offset: tl.int64, n: tl.int64, a, b, low: tl.int64, span: tl.int64,
          KIND: tl.constexpr, BITS: tl.constexpr, UNIT: tl.constexpr, ADD: tl.constexpr, HELD: tl.constexpr,
          WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: the arithmetic of Philox takes longer than the one store
    if HELD:  # a captured launch: its arguments are fixed, but device memory may change
        seed = tl.load(held)
        offset += tl.load(held + 1)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    lo = tl.full((BLOCK,), 0, tl.int64) + seed
    hi = lo >> 32
    if KIND == "uniform":
        u = (_word(lo, hi, i + offset) >> (32 - BITS)).to(WIDE) * UNIT
        v = u.to(out.dtype.element_ty).to(WIDE) * b + a
    elif KIND == "normal":
        pair = offset + i // 2 * 2
        radius = tl.sqrt(-2 * tl.log(((_word(lo, hi, pair) >> 8).to(WIDE) + 1) * 5.9604644775390625e-08))
        angle = (_word(lo, hi, pair + 1) >> 8).to(WIDE) * 3.7450702829239286e-07
        v = radius * tl.where(i % 2 == 0, tl.cos(angle), tl.sin(angle)) * b + a
    else:
        v = ((_word(lo, hi, i + offset).to(tl.uint64) * span.to(tl.uint64)) >> 32).to(tl.int64) + low
    if ADD:
        v += tl.load(out + i, mask=live, other=0).to(v.dtype)
    tl.store(out + i, v.to(out.dtype.element_ty), mask=live)


@triton.jit
def _mask(out, held, seed: tl.int64, offset: tl.int64, n: tl.int64, threshold: tl.int64, PASSED: tl.constexpr,
          HELD: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: the arithmetic of Philox takes longer than the one store
    if HELD:
        seed = tl.load(held)
        offset += tl.load(held + 1)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if PASSED:
        v = tl.full((BLOCK,), 2, tl.uint8)
    else:
        lo = tl.full((BLOCK,), 0, tl.int64) + seed
        v = (_word(lo, lo >> 32, i + offset).to(tl.int64) >= threshold).to(tl.uint8)
    tl.store(out + i, v, mask=i < n)


@triton.jit
def _dropped(v, m, factor):
    return tl.where(m == 2, v, tl.where(m == 1, v * factor, 0))


@triton.jit
def _apply_mask(x, mask, y, n: tl.int64, d1: tl.int64, d2: tl.int64, d3: tl.int64, d4: tl.int64, d5: tl.int64,
                s0: tl.int64, s1: tl.int64, s2: tl.int64, s3: tl.int64, s4: tl.int64, s5: tl.int64, factor, UNIT: tl.constexpr,
                ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # the mask is broadcast
    n = n * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    r = i // d5
    at = (i % d5) * s5 + (r % d4) * s4
    r = r // d4
    at += (r % d3) * s3
    r = r // d3
    at += (r % d2) * s2
    r = r // d2
    at += (r % d1) * s1 + (r // d1) * s0
    m = tl.load(mask + at, mask=live, other=0)
    v = _dropped(tl.load(x + i, mask=live, other=0).to(WIDE), m, factor)
    if ADD:
        v += tl.load(y + i, mask=live, other=0).to(WIDE)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _apply_dense(x, mask, y, n: tl.int64, factor, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # an element of the mask for each of x
    base = tl.program_id(0).to(tl.int64) * BLOCK
    i = base + tl.arange(0, BLOCK)
    if base + BLOCK <= n:
        v = _dropped(tl.load(x + i).to(WIDE), tl.load(mask + i), factor)
        if ADD:
            v += tl.load(y + i).to(WIDE)
        tl.store(y + i, v.to(y.dtype.element_ty))
    else:
        live = i < n
        v = _dropped(tl.load(x + i, mask=live, other=0).to(WIDE), tl.load(mask + i, mask=live, other=0), factor)
        if ADD:
            v += tl.load(y + i, mask=live, other=0).to(WIDE)
        tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


def _signed(seed: int) -> int:
    seed &= 2**64 - 1
    return seed - 2**64 if seed >= 2**63 else seed


def _where(out: Any, seed: Any) -> tuple[Any, int, bool]:
    """Return the kernel arguments held, seed and HELD. seed: an integer, or a device array of seed and offset (int64)."""
    return (seed, 0, True) if hasattr(seed, "data_ptr") else (out, _signed(seed), False)


def draw(run: Any, out: Any, seed: Any, offset: int, kind: str, a: float, b: float, dtype: np.dtype, *, add: bool) -> None:
    """Fill out with a + b · uniform or normal numbers, or with a + integers below b, as philox.py does.

    seed: an integer, or a device array int64 [2]: the seed, and the number that is added to offset.
    """
    held, seed, is_held = _where(out, seed)
    n, whole = out.numel(), kind == "integers"
    block = block_for(n, 512)
    bits = 32 if whole else uniform_bits(dtype)
    launch(_draw, (cdiv(n, block),), out, held, seed, offset, n, 0.0 if whole else float(a),
           0.0 if whole else float(b), int(a) if whole else 0, int(b) if whole else 1, stream=run.stream, KIND=kind,
           BITS=bits, UNIT=2.0**-bits, ADD=add, HELD=is_held, WIDE=wide_float(out), BLOCK=block)


def mask(run: Any, out: Any, seed: Any, offset: int, threshold: int) -> None:
    """Fill out (uint8) with 1 where a word is at least threshold, else 0; with 2 when threshold is negative.

    seed: as for draw.
    """
    held, seed, is_held = _where(out, seed)
    n = out.numel()
    block = block_for(n, 512)
    launch(_mask, (cdiv(n, block),), out, held, seed, offset, n, threshold, stream=run.stream,
           PASSED=threshold < 0, HELD=is_held, BLOCK=block)


def apply_mask(run: Any, shapes: tuple[Shape, Shape], x: Any, mask: Any, y: Any, factor: float, req: Req) -> None:
    """y = (or +=) x · factor where mask is 1, x where it is 2, 0 where it is 0. shapes: of x, and of mask."""
    if req == Req.NULL:
        return
    n, how = x.numel(), {"ADD": req == Req.ADD, "WIDE": wide_float(y), "stream": run.stream}
    if math.prod(shapes[1]) == n:
        block = block_for(n, 2048)
        launch(_apply_dense, (cdiv(n, block),), x, mask, y, n, float(factor), **how, BLOCK=block)
        return
    steps, step = [], 1
    for d, m in zip(shapes[0][::-1], shapes[1][::-1]):
        steps.append(0 if m == 1 and d != 1 else step)
        step *= m
    axes: list[tuple[int, int]] = []
    for d, s in zip(shapes[0], steps[::-1]):
        if axes and axes[-1][1] == d * s:
            axes[-1] = (axes[-1][0] * d, s)
        else:
            axes.append((d, s))
    assert len(axes) <= 6, shapes
    axes = [(1, 0)] * (6 - len(axes)) + axes
    sizes, strides = zip(*axes)
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_apply_mask, (cdiv(n, block),), x, mask, y, n // unit, *sizes[1:], *strides, float(factor), **how, UNIT=unit,
           BLOCK=block)
