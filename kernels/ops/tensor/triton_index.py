"""Triton: indices of an assignment or a selection: flat indices, the positions of a mask by a scan, the last of equal indices."""

from __future__ import annotations

import math

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.copy import fill
from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run
from .triton_cumsum import cumsum
from .triton_pick import Lines

INT64 = np.dtype(np.int64)


@triton.jit
def add_index(index, flat, reach, n: tl.int64, size: tl.int64, stride: tl.int64, BLOCK: tl.constexpr):
    # flat += index, from the end where it is negative, times stride; reach: the least and the largest index
    # narrow: masked, as indices are few beside the rows that they select
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    at = tl.load(index + i, mask=live, other=0)
    tl.atomic_min(reach, tl.min(at, axis=0))
    tl.atomic_max(reach + 1, tl.max(at, axis=0))
    at = tl.where(at < 0, at + size, at)
    tl.store(flat + i, tl.load(flat + i, mask=live) + at * stride, mask=live)


@triton.jit
def count_marks(mask, counts, n: tl.int64, blocks: tl.int64, BLOCK: tl.constexpr):
    # of each block: how many elements are not 0, and how many are neither 0 nor 1
    # narrow: bytes and halves are counted in int64
    block = tl.program_id(0)
    i = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(mask + i, mask=i < n, other=0).to(tl.float32)
    tl.store(counts + block, tl.sum((v != 0).to(tl.int64), axis=0))
    tl.store(counts + blocks + block, tl.sum(((v != 0) & (v != 1)).to(tl.int64), axis=0))


@triton.jit
def put_marks(mask, ends, places, n: tl.int64, BLOCK: tl.constexpr):
    # the index of each element that is not 0, behind those of the blocks before
    # narrow: each lane's address is its rank
    block = tl.program_id(0)
    i = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    marked = (tl.load(mask + i, mask=i < n, other=0).to(tl.float32) != 0).to(tl.int64)
    rank = tl.load(ends + block) - tl.sum(marked, axis=0) + tl.cumsum(marked, axis=0) - 1
    tl.store(places + rank, i, mask=marked != 0)


@triton.jit
def claim(index, owner, k: tl.int64, BLOCK: tl.constexpr):
    # owner: the last slice with each index; the maximum does not depend on the order of programs
    # narrow: each lane's address is its index
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = j < k
    tl.atomic_max(owner + tl.load(index + j, mask=live, other=0), j, mask=live)


@triton.jit
def put_owned(x, index, owner, y, rows: tl.int64, n: tl.int64, k: tl.int64, inner: tl.int64, UNIT: tl.constexpr,
              ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # y [outer, n, inner] at index = (or +=) x [outer, k, inner], for the slices that own their index
    # narrow: where inner is 1, each lane's address is its index
    inner = inner * UNIT
    tiles = tl.cdiv(inner, BC)
    i = (tl.program_id(0) // tiles).to(tl.int64) * BR + tl.arange(0, BR)
    c = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)[None, :]
    j = i % k
    at = tl.load(index + j, mask=i < rows, other=0)
    mine = (i < rows) & (tl.load(owner + at, mask=i < rows, other=-1) == j)
    live = mine[:, None] & (c < inner)
    v = tl.load(x + (i * inner)[:, None] + c, mask=live)
    to = y + ((i // k * n + at) * inner)[:, None] + c
    if ADD:
        v = (v.to(WIDE) + tl.load(to, mask=live).to(WIDE)).to(v.dtype)
    tl.store(to, v.to(y.dtype.element_ty), mask=live)


def add(run: Run, index: DeviceArray, flat: DeviceArray, reach: DeviceArray, n: int, size: int, stride: int) -> None:
    """Add index [n] · stride to flat [n]; a negative index counts from the end of size.

    reach [2], int64: becomes the least of its first element and the indices, and the largest of its second and them.
    """
    block = block_for(n)
    launch(add_index, (cdiv(n, block),), index, flat, reach, n, size, stride, stream=run.stream, BLOCK=block)


def blocks_of(n: int) -> tuple[int, int]:
    """Return (blocks, elements of a block) of a mask of n elements."""
    block = block_for(n, 1024)
    return cdiv(n, block), block


def count(run: Run, mask: DeviceArray, n: int, ends: DeviceArray) -> None:
    """Compute ends [2, blocks], int64: how many elements up to the end of each block are not 0, and how many neither 0 nor 1."""
    blocks, block = blocks_of(n)
    counts = run.workspace((2, blocks), INT64)
    launch(count_marks, (blocks,), mask, counts, n, blocks, stream=run.stream, BLOCK=block)
    cumsum(run, (2, blocks, 1), counts, ends, back=False, add=False)


def positions(run: Run, mask: DeviceArray, n: int, ends: DeviceArray, places: DeviceArray) -> None:
    """Compute places, int64: the indices of the elements of mask [n] that are not 0, in order. ends: from `count`."""
    blocks, block = blocks_of(n)
    launch(put_marks, (blocks,), mask, ends, places, n, stream=run.stream, BLOCK=block)


def put_last(run: Run, lines: Lines, x: DeviceArray, index: DeviceArray, y: DeviceArray, *, add: bool = False) -> None:
    """y [outer, n, 1, rest] at index [m] = (or +=) x [outer, m, 1, rest]; of equal indices the last counts."""
    outer, n, k, _, inner = lines
    owner = run.workspace((n,), INT64)
    fill(run, owner, -1)
    block = block_for(k)
    launch(claim, (cdiv(k, block),), index, owner, k, stream=run.stream, BLOCK=block)
    rows, unit, block = outer * k, math.gcd(inner, 16), block_for(outer * k * inner)
    bc = min(next_power_of_2(inner), block)
    br = min(next_power_of_2(rows), max(1, block // bc))
    launch(put_owned, (cdiv(rows, br) * cdiv(inner, bc),), x, index, owner, y, rows, n, k, inner // unit, stream=run.stream,
           UNIT=unit, ADD=add, WIDE=accumulator(y), BR=br, BC=bc)
