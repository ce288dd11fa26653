"""Triton: non-maximum suppression by masks of overlaps, and greedy matching."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.copy import fill
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run
from ...op import Req, Spec
from ..tensor.triton_order import rank

WORD = 64  # boxes per word of a mask of overlaps


@triton.jit
def quotient(a, b):
    # rounded once, as NumPy divides
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def clipped(x, low, high):
    # NaN stays NaN
    return tl.where(x == x, tl.minimum(tl.maximum(x, low), high), x)


@triton.jit
def corners_at(boxes, i, live, WIDE: tl.constexpr):
    # box i in corner form: left, top, right, bottom
    p = boxes + i * 4
    left = tl.load(p, mask=live, other=0).to(WIDE)
    top = tl.load(p + 1, mask=live, other=0).to(WIDE)
    right = tl.load(p + 2, mask=live, other=0).to(WIDE)
    return left, top, right, tl.load(p + 3, mask=live, other=0).to(WIDE)


@triton.jit
def box_area(left, top, right, bottom, PIXEL: tl.constexpr):
    # the select keeps the product apart from later sums, which would else be rounded together with it
    w = right - left + PIXEL
    h = bottom - top + PIXEL
    return tl.where(((w < 0) | (h < 0)) & (w == w) & (h == h), 0.0, w * h)


@triton.jit
def overlap(a0, a1, a2, a3, area_a, b0, b1, b2, b3, area_b, PIXEL: tl.constexpr):
    # intersection over union, 0 for an empty union; the area of a box with NaN is NaN
    w = tl.minimum(a2, b2) - tl.maximum(a0, b0) + PIXEL
    h = tl.minimum(a3, b3) - tl.maximum(a1, b1) + PIXEL
    common = tl.where((w > 0) & (h > 0), w * h, 0.0)
    union = area_a + area_b - common
    return tl.where(union > 0, quotient(common, tl.where(union > 0, union, 1.0)), 0.0)


# ---- non-maximum suppression -----------------------------------------------------------------------------------------
@triton.jit
def _masks(boxes, kinds, order, masks, n: tl.int64, k: tl.int64, words: tl.int64, threshold: tl.float64, KINDS: tl.constexpr,
           INCLUSIVE: tl.constexpr, PIXEL: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, WORD: tl.constexpr):
    # bit c of word w of box i, in sorted order: it overlaps box 64 w + c too much. Words before the box's own are never read
    # narrow: boxes are read in sorted order
    tile = tl.program_id(0).to(tl.int64)
    word = tile % words
    blocks = tl.cdiv(k, ROWS)
    block = tile // words % blocks
    b = tile // words // blocks
    if (word + 1) * WORD > block * ROWS:
        i = block * ROWS + tl.arange(0, ROWS)
        lane = tl.arange(0, WORD).to(tl.int64)
        j = word * WORD + lane
        mine = b * n + tl.load(order + b * k + i, mask=i < k, other=0)
        other = b * n + tl.load(order + b * k + j, mask=j < k, other=0)
        a0, a1, a2, a3 = corners_at(boxes, mine, i < k, WIDE)
        b0, b1, b2, b3 = corners_at(boxes, other, j < k, WIDE)
        area_a = box_area(a0, a1, a2, a3, PIXEL)[:, None]
        area_b = box_area(b0, b1, b2, b3, PIXEL)[None, :]
        iou = overlap(a0[:, None], a1[:, None], a2[:, None], a3[:, None], area_a,
                      b0[None, :], b1[None, :], b2[None, :], b3[None, :], area_b, PIXEL)
        most = threshold.to(WIDE)
        hit = (iou >= most) if INCLUSIVE else (iou > most)
        if KINDS:
            a = tl.load(kinds + mine, mask=i < k, other=0)
            hit = hit & (a[:, None] == tl.load(kinds + other, mask=j < k, other=0)[None, :])
        bits = tl.sum(hit.to(tl.int64) << lane[None, :], axis=1)
        tl.store(masks + (b * k + i) * words + word, bits, mask=i < k)


@triton.jit
def _scan(masks, key, order, kept, alive, count, n: tl.int64, k: tl.int64, words: tl.int64, most: tl.int64, ALL: tl.constexpr,
          W: tl.constexpr, WORD: tl.constexpr):
    # one program an image: which boxes are left depends on the boxes before
    # narrow: a mask is read at a time
    b = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, W)
    gone = tl.zeros((W,), tl.int64)
    many = most * 0
    word = words * 0
    more = words > 0
    while more:
        here = tl.sum(tl.where(lane == word, gone, 0))
        for i in range(word * WORD, tl.minimum((word + 1) * WORD, k)):
            at = tl.load(order + b * k + i)
            if not ALL:
                score = tl.load(key + b * n + at)
                more = more & (score == score)
            row = masks + (b * k + i) * words
            stays = more & (((here >> (i - word * WORD)) & 1) == 0)
            gone |= tl.where(stays, tl.load(row + lane, mask=lane < words, other=0), 0)
            here |= tl.where(stays, tl.load(row + word), 0)
            tl.store(alive + b * k + i, stays.to(tl.int32))
            tl.store(kept + b * k + many, at, mask=stays)
            many += stays.to(tl.int64)
            more = more & (many < most)
        word += 1
        more = more & (word < words)
    tl.store(count + b, many)


class Kept(NamedTuple):
    """Boxes left by a suppression.

    order: [b, k] indices, best first; rows: [b, k] those that stay, count [b] of them; alive: [b, k] 1 where order's box stays.
    """

    order: DeviceArray
    rows: DeviceArray
    alive: DeviceArray
    count: DeviceArray


def suppress(run: Run, boxes: DeviceArray, kinds: DeviceArray | None, key: DeviceArray, k: int, threshold: float, *,
             inclusive: bool = False, pixel: int = 0, enough: int | None = None) -> Kept:
    """Sort boxes [b, n, 4], in corner form, by key [b, n], the least first, and drop those that overlap an earlier, kept one.

    Only the first k are compared. kinds: [b, n] int64; boxes of different kinds are not compared. Boxes with the key NaN are no
    boxes, unless enough is given: the number of boxes to keep.
    """
    b, n = key.shape
    words, wide = cdiv(k, WORD), wide_float(boxes)
    order, rows = run.workspace((b, k), np.dtype("int64")), run.workspace((b, k), np.dtype("int64"))
    alive, count = run.workspace((b, k), np.dtype("int32")), run.workspace((b,), np.dtype("int64"))
    masks = run.workspace((b, k, words), np.dtype("int64"))
    rank(run, (b, n, 1), k, key, order, down=False)
    block = min(next_power_of_2(k), 1024 if interpreting() else 8 if wide == tl.float64 else 16)
    launch(_masks, (b * cdiv(k, block) * words,), boxes, order if kinds is None else kinds, order, masks, n, k, words, threshold,
           stream=run.stream, KINDS=kinds is not None, INCLUSIVE=inclusive, PIXEL=pixel, WIDE=wide, ROWS=block, WORD=WORD)
    launch(_scan, (b,), masks, key, order, rows, alive, count, n, k, words, k if enough is None else enough, stream=run.stream,
           ALL=enough is not None, W=next_power_of_2(words), WORD=WORD, num_warps=4 if words <= 512 else 16)
    return Kept(order, rows, alive, count)


# ---- box_nms ---------------------------------------------------------------------------------------------------------
@triton.jit
def _nms_boxes(x, boxes, kinds, key, total: tl.int64, width: tl.int64, score_at, box_at, kind_at, background, least: tl.float64,
               KINDS: tl.constexpr, CENTER: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: a row has a score, a box and a class somewhere
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    row = x + i * width
    score = tl.load(row + score_at, mask=live, other=0).to(WIDE)
    valid = score > least.to(WIDE)
    if KINDS:
        kind = tl.load(row + kind_at, mask=live, other=0).to(WIDE).to(tl.int64)
        valid = valid & (kind != background)
        tl.store(kinds + i, kind, mask=live)
    tl.store(key + i, tl.where(valid, -score, float("nan")), mask=live)
    p = row + box_at
    a = tl.load(p, mask=live, other=0).to(WIDE)
    b = tl.load(p + 1, mask=live, other=0).to(WIDE)
    c = tl.load(p + 2, mask=live, other=0).to(WIDE)
    d = tl.load(p + 3, mask=live, other=0).to(WIDE)
    to = boxes + i * 4
    tl.store(to, a - c / 2 if CENTER else a, mask=live)
    tl.store(to + 1, b - d / 2 if CENTER else b, mask=live)
    tl.store(to + 2, a + c / 2 if CENTER else c, mask=live)
    tl.store(to + 3, b + d / 2 if CENTER else d, mask=live)


@triton.jit
def _nms_rows(x, boxes, rows, count, y, index, total: tl.int64, n: tl.int64, k: tl.int64, width: tl.int64, box_at,
              FORM: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: rows are gathered
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < total
    c = e % width
    p = e // width % n
    b = e // width // n
    there = live & (p < tl.load(count + b, mask=live, other=0))
    row = tl.load(rows + b * k + p, mask=there, other=-1)
    at = b * n + row
    v = tl.where(there, tl.load(x + at * width + c, mask=there, other=0).to(WIDE), -1)
    if FORM != "":
        part = c - box_at
        inside = there & (part >= 0) & (part < 4)
        same = tl.load(boxes + at * 4 + part, mask=inside, other=0)
        if FORM == "corner":
            v = tl.where(inside, same, v)
        else:
            low = tl.load(boxes + at * 4 + part % 2, mask=inside, other=0)
            high = tl.load(boxes + at * 4 + part % 2 + 2, mask=inside, other=0)
            v = tl.where(inside, tl.where(part < 2, (low + high) / 2, high - low), v)
    if ADD:
        v += tl.load(y + e, mask=live, other=0).to(WIDE)
    tl.store(y + e, v.to(y.dtype.element_ty), mask=live)
    tl.store(index + b * n + p, row.to(tl.int32), mask=live & (c == 0))


@triton.jit
def _nms_put(dy, index, dx, total: tl.int64, n: tl.int64, width: tl.int64, ADD: tl.constexpr, WIDE: tl.constexpr,
             BLOCK: tl.constexpr):
    # narrow: rows are scattered; their indices are distinct
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    p = e // width
    row = tl.load(index + p, mask=e < total, other=-1).to(tl.int64)
    live = row >= 0
    to = dx + (p // n * n + row) * width + e % width
    v = tl.load(dy + e, mask=live, other=0).to(WIDE)
    if ADD:
        v += tl.load(to, mask=live, other=0).to(WIDE)
    tl.store(to, v.to(dx.dtype.element_ty), mask=live)


def wide_dtype(array: DeviceArray) -> np.dtype:
    """Return the dtype that boxes and scores of an array are computed in."""
    return np.dtype("float64" if wide_float(array) == tl.float64 else "float32")


def written(run: Run, array: DeviceArray | None, req: Req, spec: Spec) -> DeviceArray:
    """Return an output, or scratch memory in its place if nothing of it is requested."""
    return run.workspace(spec.shape, spec.dtype) if array is None or req == Req.NULL else array


def nms(run: Run, rows: tuple[int, int, int], x: DeviceArray, y: DeviceArray, index: DeviceArray, *, score: int, box: int,
        kind: int, background: int, least: float, most: int, threshold: float, apart: bool, center: bool, form: str, add: bool
        ) -> None:
    """Compute y [b, n, width] = (or +=) the kept rows of x, best first, else -1, and index [b, n], their numbers or -1.

    score, box, kind: columns; kind -1: none, apart: only boxes of a kind are compared. least: drop rows with this score or less.
    most: compare only so many. center: x's boxes are centre and size; form: to convert them to, "" to leave them.
    """
    b, n, width = rows
    wide = wide_dtype(x)
    boxes, key = run.workspace((b, n, 4), wide), run.workspace((b, n), wide)
    kinds = run.workspace((b, n), np.dtype("int64")) if kind >= 0 else None
    block = block_for(b * n, 128)
    launch(_nms_boxes, (cdiv(b * n, block),), x, boxes, boxes if kinds is None else kinds, key, b * n, width, score, box, kind,
           background, least, stream=run.stream, KINDS=kind >= 0, CENTER=center, WIDE=wide_float(x), BLOCK=block)
    kept = suppress(run, boxes, kinds if apart else None, key, min(n, most), threshold)
    block = block_for(b * n * width, 256)
    launch(_nms_rows, (cdiv(b * n * width, block),), x, boxes, kept.rows, kept.count, y, index, b * n * width, n, min(n, most),
           width, box, stream=run.stream, FORM=form, ADD=add, WIDE=wide_float(x), BLOCK=block)


def nms_backward(run: Run, rows: tuple[int, int, int], dy: DeviceArray, index: DeviceArray, dx: DeviceArray, *, add: bool
                 ) -> None:
    """Compute dx [b, n, width] = (or +=) dy at index [b, n]; an index -1 is nowhere."""
    b, n, width = rows
    if not add:
        fill(run, dx, 0)
    block = block_for(b * n * width, 256)
    launch(_nms_put, (cdiv(b * n * width, block),), dy, index, dx, b * n * width, n, width, stream=run.stream, ADD=add,
           WIDE=wide_float(dx), BLOCK=block)


# ---- matching --------------------------------------------------------------------------------------------------------
@triton.jit
def _match(scores, rows, columns, n: tl.int64, m: tl.int64, rounds: tl.int64, threshold: tl.float64, UP: tl.constexpr,
           INCLUSIVE: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # one program a matrix: which pairs are free depends on the pairs before. NaN is the worst score
    # narrow: a column may have any number of elements
    b = tl.program_id(0).to(tl.int64)
    scores += b * n * m
    rows += b * n
    columns += b * m
    total = n * m
    lane = tl.arange(0, BR)
    for start in range(0, n, BR):
        tl.store(rows + start + lane, tl.zeros((BR,), WIDE) - 1, mask=start + lane < n)
    lane = tl.arange(0, BC)
    for start in range(0, m, BC):
        tl.store(columns + start + lane, tl.zeros((BC,), WIDE) - 1, mask=start + lane < m)
    tl.debug_barrier()
    least = (-threshold if UP else threshold).to(WIDE)
    turn = rounds * 0
    more = rounds > 0
    while more:
        best = tl.zeros((BR, BC), WIDE) + float("nan")
        at = tl.zeros((BR, BC), tl.int64) + total
        failed = tl.zeros((BR, BC), tl.int32)
        for top in range(0, n, BR):
            i = top + tl.arange(0, BR).to(tl.int64)[:, None]
            free_row = tl.load(rows + i, mask=i < n, other=0) < 0
            for left in range(0, m, BC):
                j = left + tl.arange(0, BC).to(tl.int64)[None, :]
                live = (i < n) & (j < m)
                v = tl.load(scores + i * m + j, mask=live, other=0).to(WIDE)
                v = -v if UP else v
                failed |= (live & ((v <= least) if INCLUSIVE else (v < least))).to(tl.int32)
                free = live & free_row & (tl.load(columns + j, mask=j < m, other=0) < 0)
                better = free & ((at == total) | (v > best) | ((best != best) & (v == v)))
                best = tl.where(better, v, best)
                at = tl.where(better, i * m + j, at)
        number = (at < total) & (best == best)
        good = tl.max(number.to(tl.int32)) > 0
        top_score = tl.max(tl.where(number, best, float("-inf")))
        first = tl.min(tl.where(number & (best == top_score), at, total))
        passes = (top_score > least) if INCLUSIVE else (top_score >= least)
        nothing = tl.min(at)  # the first free NaN, where there is no number
        more = tl.where(good, passes, (nothing < total) & (tl.max(failed) == 0)) != 0
        first = tl.where(good, first, nothing)
        tl.store(rows + first // m, (first % m).to(WIDE), mask=more)
        tl.store(columns + first % m, (first // m).to(WIDE), mask=more)
        tl.debug_barrier()
        turn += 1
        more = more & (turn < rounds)


def match(run: Run, sizes: tuple[int, int, int], scores: DeviceArray, threshold: float, *, rounds: int, up: bool = False,
          inclusive: bool = False) -> tuple[DeviceArray, DeviceArray]:
    """Match rows and columns of scores [b, n, m], float32 or float64, or halves, best pair first.

    Returns: the column of each row [b, n], and the row of each column [b, m], -1 if unmatched, as wide floats.
    rounds: at most so many pairs. Pairs worse than threshold (inclusive: or equal) do not match; up: smaller scores are better.
    """
    b, n, m = sizes
    wide = wide_dtype(scores)
    rows, columns = run.workspace((b, n), wide), run.workspace((b, m), wide)
    tile = 1 << 14 if interpreting() else 512 if wide.itemsize == 8 else 1024
    bc = max(2, min(next_power_of_2(m), 256))
    br = max(2, min(next_power_of_2(n), tile // bc))
    launch(_match, (b,), scores, rows, columns, n, m, min(rounds, n, m), threshold, stream=run.stream, UP=up, INCLUSIVE=inclusive,
           WIDE=wide_float(scores), BR=br, BC=bc, num_warps=8)
    return rows, columns


