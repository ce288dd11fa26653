"""Triton: the sorted position of each element of a line, and the index of the first largest or smallest."""

from __future__ import annotations

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run
from .triton_pick import columns_of, own_columns


@triton.jit
def _before(a, ia, b, ib, DOWN: tl.constexpr):
    # True if a at index ia sorts before b at index ib; NaN counts as the largest, equal elements keep their order
    a_nan, b_nan = a != a, b != b
    less = (a < b) | (b_nan & (a_nan == 0))
    more = (a > b) | (a_nan & (b_nan == 0))
    first = more if DOWN else less
    same = (less == 0) & (more == 0)
    return first | (same & (ia < ib))


@triton.jit
def _rank(x, out, total, n, k, inner, DOWN: tl.constexpr, MASK: tl.constexpr, WIDE: tl.constexpr,
          BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    # a lane's rank is the number of elements of its line that sort before it: exact for any n, and quadratic in n
    # narrow: comparing every element with every other of its line takes longer than reading them
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    mine = i // inner % n
    line = i // inner // n * n * inner + i % inner
    v = tl.load(x + i, mask=live, other=0).to(WIDE)
    rank = tl.zeros((BLOCK,), tl.int64)
    for start in range(0, n, OTHERS):
        j = start + tl.arange(0, OTHERS).to(tl.int64)
        there = live[:, None] & (j[None, :] < n)
        other = tl.load(x + line[:, None] + j[None, :] * inner, mask=there, other=0).to(WIDE)
        earlier = there & _before(other, j[None, :], v[:, None], mine[:, None], DOWN)
        rank += tl.sum(earlier.to(tl.int64), axis=1)
    if MASK:
        tl.store(out + i, (rank < k).to(out.dtype.element_ty), mask=live)
    else:
        at = (i // inner // n * k + rank) * inner + i % inner
        tl.store(out + at, mine.to(out.dtype.element_ty), mask=live & (rank < k))


@triton.jit
def _extreme(x, y, outer: tl.int64, n, inner: tl.int64, FLAT: tl.constexpr, UNIT: tl.constexpr, LOW: tl.constexpr,
             ADD: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    # a column is read in blocks of ROWS elements; NaN wins, then the first of equals
    c, columns, n, step, base = own_columns(outer, n, inner, FLAT, UNIT, COLUMNS)
    live = c < columns
    best = tl.load(x + base, mask=live, other=0).to(WIDE)
    at = tl.zeros((COLUMNS,), tl.int64)
    for start in range(0, n, ROWS):
        r = start + tl.arange(0, ROWS).to(tl.int64)
        there = live[None, :] & (r[:, None] < n)
        v = tl.load(x + base[None, :] + r[:, None] * step, mask=there, other=0).to(WIDE)
        beats = (v < best[None, :]) if LOW else (v > best[None, :])
        beats = there & (beats | (v != v)) & (best[None, :] == best[None, :])
        # the best of the block, by a reduction with the same rule
        spare = tl.where(beats, v, best[None, :])
        top = tl.min(tl.where(spare != spare, float("inf"), spare), axis=0) if LOW else tl.max(
            tl.where(spare != spare, float("-inf"), spare), axis=0)
        nan = tl.max((beats & (v != v)).to(tl.int32), axis=0) > 0
        hit = beats & tl.where(nan[None, :], v != v, v == top[None, :])
        first = tl.min(tl.where(hit, r[:, None], n), axis=0)
        found = first < n
        at = tl.where(found, first, at)
        best = tl.where(found, tl.where(nan, float("nan"), top), best)
    v = at.to(tl.float64)
    if ADD:
        v += tl.load(y + c, mask=live).to(tl.float64)
    tl.store(y + c, v.to(y.dtype.element_ty), mask=live)


def rank(run: Run, lines: tuple[int, int, int], k: int, x: DeviceArray, out: DeviceArray, *, down: bool, mask: bool = False
         ) -> None:
    """Compute out [outer, k, inner] = the indices in x [outer, n, inner] of the first k in sorted order.

    mask: instead, out [outer, n, inner] = 1 for those k, else 0.
    """
    _, n, inner = lines
    total, others = x.numel(), max(2, min(next_power_of_2(n), 64 if interpreting() else 16))
    block = min(block_for(total, 128), 1024) if interpreting() else block_for(total, 128)
    launch(_rank, (cdiv(total, block),), x, out, total, n, k, inner, stream=run.stream, DOWN=down, MASK=mask, WIDE=accumulator(x),
           BLOCK=block, OTHERS=others)


def extreme(run: Run, lines: tuple[int, int, int], x: DeviceArray, y: DeviceArray, *, low: bool, add: bool) -> None:
    """Compute y [outer, inner] = (or +=) the index of the first largest (or smallest) of x [outer, n, inner]."""
    programs, sizes, fixed = columns_of(lines)
    launch(_extreme, (programs,), x, y, *sizes, stream=run.stream, LOW=low, ADD=add,
           WIDE=tl.float64 if not x.dtype.is_floating_point else accumulator(x), **fixed)
