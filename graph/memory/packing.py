"""Packing: find offsets for pieces of memory, each alive for some steps, in as few bytes as possible.

A piece is (size, first, last, id): bytes, and the first and last step that use it.
"""

from __future__ import annotations

import bisect
import heapq
import random
from collections.abc import Sequence
from itertools import accumulate

from ...integers import cdiv

ALIGNMENT = 256  # bytes
Piece = tuple[int, int, int, int]

_TRY_ALL = 300_000  # pairs of pieces alive together up to which several packing orders are tried
_TRY_ONE = 3_000_000  # up to which one is
_RANDOM_ORDERS = 60  # at most


def aligned(n: int) -> int:
    """Return n, rounded up to a multiple of ALIGNMENT."""
    return cdiv(n, ALIGNMENT) * ALIGNMENT


def peak(items: Sequence[Piece], steps: int) -> tuple[int, int]:
    """Return (the largest sum of sizes alive at one step, the first such step)."""
    change = [0] * (steps + 2)
    for size, first, last, _ in items:
        change[first] += size
        change[last + 1] -= size
    best = now = at = 0
    for i, c in enumerate(change):
        now += c
        if now > best:
            best, at = now, i
    return best, at


def one_after_the_other(items: Sequence[Piece]) -> tuple[dict[int, int], int]:
    """Return ({id: offset}, length) without sharing."""
    *offsets, total = accumulate((size for size, *_ in items), initial=0)
    return dict(zip((g for *_, g in items), offsets)), total


def pack_best(items: Sequence[Piece], bound: int) -> tuple[dict[int, int], int]:
    """Pack in several orders and return the smallest result as ({id: offset}, length).

    Orders that compare all pairs are tried if there are few pairs.
    bound: bytes; a result within 0.1 % of it is good enough. Otherwise orders by randomly changed sizes are tried, too.
    """
    bound += bound // 1000
    best = _sweep(items)
    if best[1] > bound and (found := _sweep([(size, -last, -first, g) for size, first, last, g in items]))[1] < best[1]:
        best = found  # backwards in time
    pairs = _overlaps(items)
    orders = [lambda t: (-t[0], t[1], t[3])]
    if pairs <= _TRY_ALL:
        orders += [lambda t: (-(t[2] - t[1] + 1) * t[0], t[1], t[3]), lambda t: (-(t[2] - t[1]), -t[0], t[3])]
    for key in orders if pairs <= _TRY_ONE else ():
        if best[1] > bound and (found := _pack(sorted(items, key=key)))[1] < best[1]:
            best = found
    noise = random.Random(0)
    for _ in range(min(_RANDOM_ORDERS, _TRY_ALL // (pairs + 1))):
        if best[1] <= bound:
            break
        order = sorted(((t[0] * noise.uniform(0.4, 1.0), n) for n, t in enumerate(items)), reverse=True)
        found = _pack([items[n] for _, n in order])
        if found[1] < best[1]:
            best = found
    return best


def _overlaps(items: Sequence[Piece]) -> int:
    """Return the number of pairs of items that are alive together."""
    starts, ends = sorted(t[1] for t in items), sorted(t[2] for t in items)
    ended, pairs = 0, 0
    for started, first in enumerate(starts):
        while ends[ended] < first:
            ended += 1
        pairs += started - ended
    return pairs


def _sweep(items: Sequence[Piece]) -> tuple[dict[int, int], int]:
    """Go through the steps: allocate each item at its first step, in the tightest free block; free it after its last."""
    at: dict[int, int] = {}
    free: list[tuple[int, int]] = []  # (size, offset), sorted
    size_of_start: dict[int, int] = {}
    start_of_end: dict[int, int] = {}
    running: list[tuple[int, int, int]] = []  # (last step, offset, size)
    total = 0

    def put(offset: int, size: int) -> None:
        bisect.insort(free, (size, offset))
        size_of_start[offset], start_of_end[offset + size] = size, offset

    def take(offset: int) -> int:
        size = size_of_start.pop(offset)
        del start_of_end[offset + size]
        free.pop(bisect.bisect_left(free, (size, offset)))
        return size

    for size, first, last, g in sorted(items, key=lambda t: (t[1], -t[0], t[3])):
        while running and running[0][0] < first:
            _, offset, length = heapq.heappop(running)
            if offset + length in size_of_start:
                length += take(offset + length)
            if offset in start_of_end:
                before = start_of_end[offset]
                length += take(before)
                offset = before
            put(offset, length)
        if size == 0:
            at[g] = 0
            continue
        found = bisect.bisect_left(free, (size, 0))
        if found < len(free):
            offset = free[found][1]
            rest = take(offset) - size
            if rest:
                put(offset + size, rest)
        else:
            offset = total
            if total in start_of_end:  # grow the free block at the end
                offset = start_of_end[total]
                take(offset)
            total = offset + size
        at[g] = offset
        heapq.heappush(running, (last, offset, size))
    return at, total


class _Spans:
    """Placed intervals of steps, found by overlap: kept by length class, then by start."""

    def __init__(self):
        self.classes: dict[int, dict[int, list[tuple[int, int, int, int]]]] = {}

    def add(self, first: int, last: int, low: int, high: int) -> None:
        k = (last - first + 1).bit_length()
        self.classes.setdefault(k, {}).setdefault(first >> k, []).append((first, last, low, high))

    def overlapping(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the byte ranges of the intervals that share a step with first..last."""
        found: list[tuple[int, int]] = []
        for k, cells in self.classes.items():
            low, high = (first - (1 << k)) >> k, last >> k
            keys = range(low, high + 1) if high - low < len(cells) else [c for c in cells if low <= c <= high]
            for c in keys:
                found += [(a, b) for f, l, a, b in cells.get(c, ()) if f <= last and l >= first]
        return found


def _pack(items: Sequence[Piece]) -> tuple[dict[int, int], int]:
    """Place each item, in the given order, in the tightest gap that is free for its whole lifetime."""
    spans, at, total = _Spans(), {}, 0
    for size, first, last, g in items:
        if size == 0:
            at[g] = 0
            continue
        place, tightest, end = -1, -1, 0
        for low, high in sorted(spans.overlapping(first, last)):
            gap = low - end
            if gap >= size and (tightest < 0 or gap < tightest):
                place, tightest = end, gap
            if high > end:  # max() would take as long as the rest of the loop
                end = high
        if place < 0:
            place = end
        at[g] = place
        spans.add(first, last, place, place + size)
        total = max(total, place + size)
    return at, total
