"""Triton: the sorted position of each element of a line, and the index of the first largest or smallest.

Lines are sorted in chunks, where each element is compared with every other, and the chunks are merged in pairs: an element's
place in a pair is its place in its own half, and the number of elements of the other half that come before it, which a binary
search finds. All is stable, and the same on every device.
"""

from __future__ import annotations

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.copy import fill
from ...gpu.launch import accumulator, dtype_of, launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run
from .triton_pick import columns_of, own_columns, parts_of


@triton.jit
def _precedes(a, b, DOWN: tl.constexpr):
    # True if a sorts before b, and they are not equal; NaN counts as the largest
    if DOWN:
        return (a > b) | ((a != a) & (b == b))
    else:
        return (a < b) | ((b != b) & (a == a))


@triton.jit
def _rank(x, keys, out, total: tl.int64, n, k, inner: tl.int64, chunk, DOWN: tl.constexpr, MASK: tl.constexpr,
          RUNS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # a lane's rank is the number of elements of its chunk that sort before it
    # RUNS: keys and out get the first k elements of each chunk and their indices, line by line; else the line is one chunk
    # narrow: comparing every element with every other of its chunk takes longer than reading them
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    mine = (i // inner % n).to(tl.int32)
    line = i // inner // n * n * inner + i % inner
    v = tl.load(x + i, mask=live, other=0).to(WIDE)
    first = mine // chunk * chunk
    rank = tl.zeros((BLOCK,), tl.int32)
    for step in range(chunk):
        j = first + step
        there = live & (j < n)
        other = tl.load(x + line + j * inner, mask=there, other=0).to(WIDE)
        earlier = _precedes(other, v, DOWN) | ((_precedes(v, other, DOWN) == 0) & (j < mine))
        rank += (there & earlier).to(tl.int32)
    chosen = live & (rank < k)
    if RUNS:
        at = ((i // inner // n * inner + i % inner) * tl.cdiv(n, chunk) + mine // chunk) * k + rank
        tl.store(keys + at, v.to(keys.dtype.element_ty), mask=chosen)
        tl.store(out + at, mine, mask=chosen)
    elif MASK:
        tl.store(out + i, chosen.to(out.dtype.element_ty), mask=live)
    else:
        at = (i // inner // n * k + rank) * inner + i % inner
        tl.store(out + at, mine.to(out.dtype.element_ty), mask=chosen)


@triton.jit
def _merge(keys, order, merged, out, total: tl.int64, runs, length, tail, steps, n, k, inner: tl.int64, DOWN: tl.constexpr,
           LAST: tl.constexpr, MASK: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # runs of `length` elements, the last of a line with `tail`, become half as many, with their first k elements
    # LAST: out [outer, k, inner] gets the indices, or where MASK [outer, n, inner] 1 at them
    # narrow: each lane searches the other run
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    p = (i % length).to(tl.int32)
    r = (i // length % runs).to(tl.int32)
    line = i // length // runs
    live = (i < total) & (p < tl.where(r == runs - 1, tail, length))
    v = tl.load(keys + i, mask=live, other=0).to(WIDE)
    second = r % 2 == 1
    other = tl.where(second, r - 1, r + 1)
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.where(other == runs - 1, tail, tl.where(other < runs, length, 0))
    start = (line * runs + other) * length
    for _ in range(steps):
        middle = (low + high) // 2
        ahead = live & (low < high)
        w = tl.load(keys + start + middle, mask=ahead, other=0).to(WIDE)
        # of equal elements those of the first run come first
        earlier = tl.where(second, _precedes(v, w, DOWN) == 0, _precedes(w, v, DOWN))
        low = tl.where(ahead & earlier, middle + 1, low)
        high = tl.where(ahead & (earlier == 0), middle, high)
    place = p + low
    chosen = live & (place < k)
    index = tl.load(order + i, mask=chosen, other=0)
    if LAST:
        if MASK:
            at = (line // inner * n + index) * inner + line % inner
            tl.store(out + at, chosen.to(out.dtype.element_ty), mask=chosen)
        else:
            at = (line // inner * k + place) * inner + line % inner
            tl.store(out + at, index.to(out.dtype.element_ty), mask=chosen)
    else:
        at = (line * ((runs + 1) // 2) + r // 2) * k + place
        tl.store(merged + at, v.to(merged.dtype.element_ty), mask=chosen)
        tl.store(out + at, index, mask=chosen)


@triton.jit
def _extreme(x, places, y, at_y, outer: tl.int64, n, inner: tl.int64, blocks, parts, FLAT: tl.constexpr, UNIT: tl.constexpr,
             LOW: tl.constexpr, ADD: tl.constexpr, SOME: tl.constexpr, ALL: tl.constexpr, WIDE: tl.constexpr,
             COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    # a column is read in blocks of ROWS elements; NaN wins, then the first of equals
    # SOME: of each part of the column, y [outer, parts, inner] gets the best element and at_y its index
    # ALL: places holds the indices of the elements of x, which are those best ones
    c, columns, n, step, base = own_columns(outer, n, inner, FLAT, UNIT, COLUMNS)
    live = c < columns
    span = blocks * ROWS
    low = tl.program_id(1).to(tl.int64) * span
    best = tl.load(x + base + low * step, mask=live, other=0).to(WIDE)
    at = tl.zeros((COLUMNS,), tl.int64) + low
    for start in range(0, tl.minimum(n - low, span).to(tl.int32), ROWS):
        r = low + start + tl.arange(0, ROWS)
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
    if SOME:
        rest = 1 if FLAT else inner * UNIT
        to = (c // rest * parts + tl.program_id(1)) * rest + c % rest
        tl.store(y + to, best, mask=live)
        tl.store(at_y + to, at, mask=live)
    else:
        if ALL:
            at = tl.load(places + base + at * step, mask=live, other=0)
        v = at.to(tl.float64)
        if ADD:
            v += tl.load(y + c, mask=live).to(tl.float64)
        tl.store(y + c, v.to(y.dtype.element_ty), mask=live)


#: Elements of a line that are compared with one another: on a GPU, and by the interpreter, whose tests shall merge short lines.
_CHUNK, _INTERPRETED_CHUNK = 256, 16


def rank(run: Run, lines: tuple[int, int, int], k: int, x: DeviceArray, out: DeviceArray, *, down: bool, mask: bool = False
         ) -> None:
    """Compute out [outer, k, inner] = the indices in x [outer, n, inner] of the first k in sorted order.

    mask: instead, out [outer, n, inner] = 1 for those k, else 0.
    """
    outer, n, inner = lines
    chunk = min(next_power_of_2(n), _INTERPRETED_CHUNK if interpreting() else _CHUNK)
    runs, length, wide, how = cdiv(n, chunk), min(chunk, k), accumulator(x), {"DOWN": down, "MASK": mask}
    total, several = x.numel(), runs > 1
    block = block_for(total, 128)
    keys, order = (x, out) if not several else (run.workspace((outer * inner * runs * length,), d)
                                                for d in (dtype_of(x), np.dtype("int32")))
    launch(_rank, (cdiv(total, block),), x, keys, order, total, n, length, inner, chunk, stream=run.stream, RUNS=several,
           WIDE=wide, BLOCK=block, **how)
    if several and mask:
        fill(run, out, 0)
    tail = min(n - (runs - 1) * chunk, length)
    while runs > 1:
        most, last = min(2 * length, k), runs == 2
        merged, to = (keys, out) if last else (run.workspace((outer * inner * cdiv(runs, 2) * most,), d)
                                               for d in (dtype_of(x), np.dtype("int32")))
        total = outer * inner * runs * length
        block = block_for(total, 256)
        launch(_merge, (cdiv(total, block),), keys, order, merged, to, total, runs, length, tail, length.bit_length(), n, most,
               inner, stream=run.stream, LAST=last, WIDE=wide, BLOCK=block, **how)
        tail = tail if runs % 2 else min(length + tail, most)
        keys, order, runs, length = merged, to, cdiv(runs, 2), most


def extreme(run: Run, lines: tuple[int, int, int], x: DeviceArray, y: DeviceArray, *, low: bool, add: bool) -> None:
    """Compute y [outer, inner] = (or +=) the index of the first largest (or smallest) of x [outer, n, inner]."""
    outer, n, inner = lines
    wide = tl.float64 if not x.dtype.is_floating_point else accumulator(x)
    programs, sizes, fixed = columns_of(lines)
    parts, blocks = parts_of(programs, n, fixed["ROWS"])
    places, how = x, {"LOW": low, "ADD": add, "WIDE": wide}
    if parts > 1:
        best, places = (run.workspace((outer, parts, inner), np.dtype(d)) for d in (wide.name, "int64"))
        launch(_extreme, (programs, parts), x, x, best, places, *sizes, blocks, parts, stream=run.stream, SOME=True, ALL=False,
               **how, **fixed)
        x = best
        programs, sizes, fixed = columns_of((outer, parts, inner))
        blocks = cdiv(parts, fixed["ROWS"])
    launch(_extreme, (programs, 1), x, places, y, y, *sizes, blocks, 1, stream=run.stream, SOME=False, ALL=parts > 1, **how,
           **fixed)
