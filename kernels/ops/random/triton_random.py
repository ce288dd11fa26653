"""Triton: the random numbers of philox.py, and Dropout's mask."""

from __future__ import annotations

from typing import Any

from ....integers import cdiv
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run


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


def _signed(seed: int) -> int:
    seed &= 2**64 - 1
    return seed - 2**64 if seed >= 2**63 else seed


def _where(out: DeviceArray, seed: int | DeviceArray) -> tuple[Any, int, bool]:
    """Return the kernel arguments held, seed and HELD. seed: an integer, or a device array of seed and offset (int64)."""
    return (seed, 0, True) if hasattr(seed, "data_ptr") else (out, _signed(seed), False)


def mask(run: Run, out: DeviceArray, seed: int | DeviceArray, offset: int, threshold: int) -> None:
    """Fill out (uint8) with 1 where a word is at least threshold, else 0; with 2 when threshold is negative.

    seed: as for draw.
    """
    held, seed, is_held = _where(out, seed)
    n = out.numel()
    block = block_for(n, 512)
    launch(_mask, (cdiv(n, block),), out, held, seed, offset, n, threshold, stream=run.stream,
           PASSED=threshold < 0, HELD=is_held, BLOCK=block)
