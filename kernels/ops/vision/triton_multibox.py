"""Triton: training targets and detections of a single-shot detector."""

from __future__ import annotations

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run
from ..tensor.triton_order import rank
from .triton_boxes import box_area, clipped, corners_at, match, overlap, quotient, suppress, wide_dtype


# ---- targets ---------------------------------------------------------------------------------------------------------
@triton.jit
def _anchor_overlaps(anchors, labels, iou, which, best, n: tl.int64, m: tl.int64, width: tl.int64,
                     WIDE: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr):
    # of each anchor with each label: -1 for labels behind the first unused one
    # narrow: labels are read one by one
    blocks = tl.cdiv(n, BLOCK)
    b = tl.program_id(0).to(tl.int64) // blocks
    i = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    lane = tl.arange(0, M)
    kinds = tl.load(labels + (b * m + lane) * width, mask=lane < m, other=0).to(WIDE)
    used = tl.min(tl.where((lane < m) & (kinds == -1), lane, m))
    a0, a1, a2, a3 = corners_at(anchors, i, live, WIDE)
    area = box_area(a0, a1, a2, a3, 0)
    most = tl.zeros((BLOCK,), WIDE) - 1
    first = tl.zeros((BLOCK,), tl.int64) - 1
    for j in range(m):
        v = tl.zeros((BLOCK,), WIDE) - 1
        if j < used:
            p = labels + (b * m + j) * width
            b0 = tl.load(p + 1).to(WIDE)
            b1 = tl.load(p + 2).to(WIDE)
            b2 = tl.load(p + 3).to(WIDE)
            b3 = tl.load(p + 4).to(WIDE)
            v = overlap(a0, a1, a2, a3, area, b0, b1, b2, b3, box_area(b0, b1, b2, b3, 0), 0)
        first = tl.where(v > most, j, first)
        most = tl.maximum(most, v)
        tl.store(iou + (b * n + i) * m + j, v, mask=live)
    tl.store(which + b * n + i, first.to(tl.int32), mask=live)
    tl.store(best + b * n + i, most, mask=live)


@triton.jit
def _settle(scores, rows, iou, which, best, key, total: tl.int64, n: tl.int64, m: tl.int64, classes: tl.int64,
            threshold: tl.float64, mining: tl.float64, MINE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # which: the label of a matched anchor, -1 of an unmatched one, -2 where there are no labels
    # key: the probability of background, for those that mining may choose; else NaN
    # narrow: classes are n apart
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < total
    own = tl.load(which + e, mask=live, other=-1)
    matched = tl.load(rows + e, mask=live, other=-1).to(tl.int32)
    v = tl.load(best + e, mask=live, other=0)
    v = tl.where(matched >= 0, tl.load(iou + e * m + matched, mask=live & (matched >= 0), other=0), v)
    least = threshold.to(WIDE)
    taken = (matched >= 0) | ((own >= 0) & (least > 0) & (v > least))
    label = tl.where(matched >= 0, matched, own)
    tl.store(which + e, tl.where(own < 0, -2, tl.where(taken, label, -1)), mask=live)
    if MINE:
        may = live & (own >= 0) & (taken == 0) & (v < mining.to(WIDE))
        p = scores + e // n * classes * n + e % n
        most = tl.zeros((BLOCK,), WIDE) + float("-inf")
        for c in range(classes):
            x = tl.load(p + c * n, mask=may, other=0).to(WIDE)
            most = tl.where((x > most) | (x != x), x, most)
        total_exp = tl.zeros((BLOCK,), WIDE)
        for c in range(classes):
            total_exp += tl.exp(tl.load(p + c * n, mask=may, other=0).to(WIDE) - most)
        sure = quotient(tl.exp(tl.load(p, mask=may, other=0).to(WIDE) - most), total_exp)
        sure = tl.where(sure == sure, sure, 2.0)  # behind every probability
        tl.store(key + e, tl.where(may, sure, float("nan")), mask=live)


@triton.jit
def _encode(low, high, anchor_low, anchor_high):
    # centre and size of a box along one axis, relative to an anchor
    size = anchor_high - anchor_low
    apart = quotient((low + high) / 2 - (anchor_low + anchor_high) / 2, size)
    return apart, tl.log(quotient(high - low, size))


@triton.jit
def _put4(to, a, b, c, d, live, ADD: tl.constexpr, WIDE: tl.constexpr):
    if ADD:
        a += tl.load(to, mask=live, other=0).to(WIDE)
        b += tl.load(to + 1, mask=live, other=0).to(WIDE)
        c += tl.load(to + 2, mask=live, other=0).to(WIDE)
        d += tl.load(to + 3, mask=live, other=0).to(WIDE)
    tl.store(to, a.to(to.dtype.element_ty), mask=live)
    tl.store(to + 1, b.to(to.dtype.element_ty), mask=live)
    tl.store(to + 2, c.to(to.dtype.element_ty), mask=live)
    tl.store(to + 3, d.to(to.dtype.element_ty), mask=live)


@triton.jit
def _targets(anchors, labels, which, key, order, target, mask, kinds, n: tl.int64, m: tl.int64, width: tl.int64,
             ratio: tl.float64, ignored: tl.float64, v0: tl.float64, v1: tl.float64, v2: tl.float64, v3: tl.float64,
             MINE: tl.constexpr, ADD0: tl.constexpr, ADD1: tl.constexpr, ADD2: tl.constexpr, WIDE: tl.constexpr,
             BLOCK: tl.constexpr):
    # with MINE a lane's anchor is one place further in the order of mining
    # narrow: four numbers an anchor, in that order
    blocks = tl.cdiv(n, BLOCK)
    b = tl.program_id(0).to(tl.int64) // blocks
    r = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = r < n
    i = r
    if MINE:
        i = tl.load(order + b * n + r, mask=live, other=0)
    at = b * n + i
    label = tl.load(which + at, mask=live, other=-2)
    taken = label >= 0
    background = label == -1
    if MINE:
        found = tl.zeros((BLOCK,), tl.int64)
        for start in range(0, n, BLOCK):
            e = start + tl.arange(0, BLOCK)
            found += (tl.load(which + b * n + e, mask=e < n, other=-2) >= 0).to(tl.int64)
        most = (tl.sum(found).to(tl.float64) * ratio).to(tl.int64)
        sure = tl.load(key + at, mask=live, other=0)
        background = (sure == sure) & (r < most)
    row = labels + (b * m + tl.where(taken, label, 0)) * width
    own = live & taken
    kind = tl.load(row, mask=own, other=0).to(WIDE) + 1
    kind = tl.where(taken, kind, tl.where(background, 0.0, ignored.to(WIDE)))
    if ADD2:
        kind += tl.load(kinds + at, mask=live, other=0).to(WIDE)
    tl.store(kinds + at, kind.to(kinds.dtype.element_ty), mask=live)
    a0, a1, a2, a3 = corners_at(anchors, i, live, WIDE)
    b0 = tl.load(row + 1, mask=own, other=0).to(WIDE)
    b1 = tl.load(row + 2, mask=own, other=0).to(WIDE)
    b2 = tl.load(row + 3, mask=own, other=0).to(WIDE)
    b3 = tl.load(row + 4, mask=own, other=0).to(WIDE)
    x, w = _encode(b0, b2, a0, a2)
    y, h = _encode(b1, b3, a1, a3)
    x = tl.where(taken, quotient(x, v0.to(tl.float32).to(WIDE)).to(tl.float32).to(WIDE), 0.0)
    y = tl.where(taken, quotient(y, v1.to(tl.float32).to(WIDE)).to(tl.float32).to(WIDE), 0.0)
    w = tl.where(taken, quotient(w, v2.to(tl.float32).to(WIDE)).to(tl.float32).to(WIDE), 0.0)
    h = tl.where(taken, quotient(h, v3.to(tl.float32).to(WIDE)).to(tl.float32).to(WIDE), 0.0)
    _put4(target + at * 4, x, y, w, h, live, ADD0, WIDE)
    one = taken.to(WIDE)
    _put4(mask + at * 4, one, one, one, one, live, ADD1, WIDE)


def targets(run: Run, sizes: tuple[int, int, int, int, int], inputs: tuple[DeviceArray, ...], outputs: list[DeviceArray],
            add: list[bool], *, threshold: float, ignored: float, ratio: float, mining: float, variances: tuple[float, ...]
            ) -> None:
    """Compute MultiBoxTarget's outputs. sizes: images, anchors, labels an image, numbers a label, classes with background."""
    anchors, labels, scores = inputs
    b, n, m, width, classes = sizes
    wide, how = wide_dtype(anchors), wide_float(anchors)
    iou, best, key = (run.workspace(s, wide) for s in ((b, n, max(m, 1)), (b, n), (b, n)))
    which = run.workspace((b, n), np.dtype("int32"))
    block = block_for(n, 128)
    launch(_anchor_overlaps, (b * cdiv(n, block),), anchors, labels, iou, which, best, n, m, width, stream=run.stream,
           WIDE=how, M=max(2, next_power_of_2(m)), BLOCK=block)
    rows, _ = match(run, (b, n, m), iou, float(np.float32(1e-6)), rounds=m, inclusive=True)
    lanes = block_for(b * n, 128)
    launch(_settle, (cdiv(b * n, lanes),), scores, rows, iou, which, best, key, b * n, n, m, classes, threshold, mining,
           stream=run.stream, MINE=ratio > 0, WIDE=how, BLOCK=lanes)
    order = which
    if ratio > 0:
        order = run.workspace((b, n), np.dtype("int64"))
        rank(run, (b, n, 1), n, key, order, down=False)
    launch(_targets, (b * cdiv(n, block),), anchors, labels, which, key, order, *outputs, n, m, width, ratio, ignored, *variances,
           stream=run.stream, MINE=ratio > 0, ADD0=add[0], ADD1=add[1], ADD2=add[2], WIDE=how, BLOCK=block)


# ---- detections ------------------------------------------------------------------------------------------------------
@triton.jit
def _decode(low, high, apart, size_code):
    # the two ends of a box along one axis, from its code relative to an anchor
    size = high - low
    middle = apart * size + (low + high) / 2
    half = tl.exp(size_code) * size / 2
    return middle - half, middle + half


@triton.jit
def _candidates(prob, loc, anchors, boxes, kinds, scores, key, valid, total: tl.int64, n: tl.int64, classes: tl.int64,
                least: tl.float64, v0: tl.float64, v1: tl.float64, v2: tl.float64, v3: tl.float64, CLIP: tl.constexpr,
                WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # each anchor's best class but the background (the first of equals; NaN wins), and its box
    # narrow: classes are n apart
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < total
    p = prob + e // n * classes * n + e % n
    best = tl.load(p + n, mask=live, other=0).to(WIDE)
    kind = tl.zeros((BLOCK,), tl.int64)
    for c in range(2, classes):
        v = tl.load(p + c * n, mask=live, other=0).to(WIDE)
        better = ((v > best) | (v != v)) & (best == best)
        kind = tl.where(better, c - 1, kind)
        best = tl.where(better, v, best)
    there = best >= least.to(WIDE)
    tl.store(kinds + e, kind, mask=live)
    tl.store(scores + e, best, mask=live)
    tl.store(key + e, tl.where(there, -best, float("nan")), mask=live)
    tl.store(valid + e, tl.where(there, 0.0, float("nan")).to(WIDE), mask=live)
    a0, a1, a2, a3 = corners_at(anchors, e % n, live, WIDE)
    c0, c1, c2, c3 = corners_at(loc, e, live, WIDE)
    left, right = _decode(a0, a2, c0 * v0.to(WIDE), c2 * v2.to(WIDE))
    top, bottom = _decode(a1, a3, c1 * v1.to(WIDE), c3 * v3.to(WIDE))
    to = boxes + e * 4
    tl.store(to, clipped(left, 0.0, 1.0) if CLIP else left, mask=live)
    tl.store(to + 1, clipped(top, 0.0, 1.0) if CLIP else top, mask=live)
    tl.store(to + 2, clipped(right, 0.0, 1.0) if CLIP else right, mask=live)
    tl.store(to + 3, clipped(bottom, 0.0, 1.0) if CLIP else bottom, mask=live)


@triton.jit
def _detections(boxes, kinds, scores, valid, order, alive, others, y, total: tl.int64, n: tl.int64, k: tl.int64,
                ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # places below k: the sorted ones, of which those that are not alive have the class -1; behind them: valid ones in place,
    # of class -1 where k is above 0
    # narrow: rows are gathered
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < total
    c = e % 6
    p = e // 6 % n
    b = e // 6 // n
    best = live & (p < k)
    at = tl.load(order + b * k + p, mask=best, other=0)
    at = b * n + tl.where(best, at, tl.load(others + b * n + p, mask=live & (p >= k), other=0))
    there = tl.load(valid + at, mask=live, other=0)
    there = live & (there == there)
    stays = tl.load(alive + b * k + p, mask=best & there, other=0) > 0
    kind = tl.load(kinds + at, mask=there & (c == 0) & (stays | (k == 0)), other=-1).to(WIDE)
    score = tl.load(scores + at, mask=there & (c == 1), other=0)
    box = tl.load(boxes + at * 4 + c - 2, mask=there & (c >= 2), other=0)
    v = tl.where(there, tl.where(c == 0, kind, tl.where(c == 1, score, box)), -1)
    if ADD:
        v += tl.load(y + e, mask=live, other=0).to(WIDE)
    tl.store(y + e, v.to(y.dtype.element_ty), mask=live)


def detections(run: Run, sizes: tuple[int, int, int], prob: DeviceArray, loc: DeviceArray, anchors: DeviceArray, y: DeviceArray,
               *, least: float, threshold: float, top: int, apart: bool, clip: bool, variances: tuple[float, ...], add: bool
               ) -> None:
    """Compute y [b, n, 6] = (or +=) MultiBoxDetection. sizes: b, n, classes with background.

    top: sort so many, and suppress by threshold among them; 0: neither. apart: only boxes of a class are compared.
    """
    b, n, classes = sizes
    wide, how = wide_dtype(prob), wide_float(prob)
    boxes, scores, key, valid = (run.workspace(s, wide) for s in ((b, n, 4), (b, n), (b, n), (b, n)))
    kinds = run.workspace((b, n), np.dtype("int64"))
    block = block_for(b * n, 128)
    launch(_candidates, (cdiv(b * n, block),), prob, loc, anchors, boxes, kinds, scores, key, valid, b * n, n, classes, least,
           *variances, stream=run.stream, CLIP=clip, WIDE=how, BLOCK=block)
    order = alive = others = kinds
    if top:
        kept = suppress(run, boxes, kinds if apart else None, key, top, threshold, inclusive=True)
        order, alive = kept.order, kept.alive
    if top < n:
        others = run.workspace((b, n), np.dtype("int64"))
        rank(run, (b, n, 1), n, valid, others, down=False)
    block = block_for(b * n * 6, 256)
    launch(_detections, (cdiv(b * n * 6, block),), boxes, kinds, scores, valid, order, alive, others, y, b * n * 6, n, top,
           stream=run.stream, ADD=add, WIDE=how, BLOCK=block)
