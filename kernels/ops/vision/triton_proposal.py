"""Triton: the proposals of a region proposal network."""

from __future__ import annotations

import numpy as np

from ....integers import cdiv
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run
from .triton_boxes import clipped, suppress, wide_dtype


@triton.jit
def _moved(low, high, apart, size_code, last, IOU_LOSS: tl.constexpr):
    # the two ends of an anchor along one axis, displaced by its code and clipped to 0 … last
    if IOU_LOSS:
        return clipped(low + apart, 0.0, last), clipped(high + size_code, 0.0, last)
    else:
        size = high - low + 1
        middle = apart * size + low + 0.5 * (size - 1)
        half = 0.5 * (tl.exp(size_code) * size - 1)
        return clipped(middle - half, 0.0, last), clipped(middle + half, 0.0, last)


@triton.jit
def _regions(scores, codes, info, boxes, key, total: tl.int64, h: tl.int64, w: tl.int64, anchors: tl.int64, anchor: tl.int64,
             stride, least, left, top, right, bottom, IOU_LOSS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # one anchor at every element of every image: its displaced box, and minus its score
    # narrow: the boxes of an element's anchors are neighbours
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < total
    plane = h * w
    b = e // plane
    at = e % plane
    y = at // w
    x = at % w
    score = tl.load(scores + (b * 2 * anchors + anchors + anchor) * plane + at, mask=live, other=0).to(WIDE)
    code = codes + (b * 4 * anchors + anchor * 4) * plane + at
    height = tl.load(info + b * 3, mask=live, other=0).to(WIDE)
    width = tl.load(info + b * 3 + 1, mask=live, other=0).to(WIDE)
    scale = tl.load(info + b * 3 + 2, mask=live, other=0).to(WIDE)
    dx = (x * stride).to(tl.float32)
    dy = (y * stride).to(tl.float32)
    c0 = tl.load(code, mask=live, other=0).to(WIDE)
    c1 = tl.load(code + plane, mask=live, other=0).to(WIDE)
    c2 = tl.load(code + 2 * plane, mask=live, other=0).to(WIDE)
    c3 = tl.load(code + 3 * plane, mask=live, other=0).to(WIDE)
    last_x = (width.to(tl.float32) - 1).to(WIDE)
    last_y = (height.to(tl.float32) - 1).to(WIDE)
    x0, x1 = _moved((left + dx).to(WIDE), (right + dx).to(WIDE), c0, c2, last_x, IOU_LOSS)
    y0, y1 = _moved((top + dy).to(WIDE), (bottom + dy).to(WIDE), c1, c3, last_y, IOU_LOSS)
    side = least * scale
    small = (x1 - x0 + 1 < side) | (y1 - y0 + 1 < side)
    more = tl.where(small, side / 2, 0.0)
    outside = (y >= (height / stride).to(tl.int64)) | (x >= (width / stride).to(tl.int64))
    i = e * anchors + anchor
    tl.store(key + i, tl.where(small | outside, 1.0, -score), mask=live)
    tl.store(boxes + i * 4, x0 - more, mask=live)
    tl.store(boxes + i * 4 + 1, y0 - more, mask=live)
    tl.store(boxes + i * 4 + 2, x1 + more, mask=live)
    tl.store(boxes + i * 4 + 3, y1 + more, mask=live)


@triton.jit
def _best(boxes, key, rows, count, y, score, total: tl.int64, n: tl.int64, k: tl.int64, out: tl.int64, ADD: tl.constexpr,
          ADD_SCORE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # row p of an image: the kept box p, counted around
    # narrow: rows are gathered
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < total
    b = e // out
    at = tl.load(rows + b * k + e % out % tl.load(count + b, mask=live, other=1), mask=live, other=0)
    at = b * n + at
    for c in range(5):
        v = tl.load(boxes + at * 4 + c - 1, mask=live & (c > 0), other=0)
        v = tl.where(c == 0, b.to(WIDE), v)
        if ADD:
            v += tl.load(y + e * 5 + c, mask=live, other=0).to(WIDE)
        tl.store(y + e * 5 + c, v.to(y.dtype.element_ty), mask=live)
    v = -tl.load(key + at, mask=live, other=0)
    if ADD_SCORE:
        v += tl.load(score + e, mask=live, other=0).to(WIDE)
    tl.store(score + e, v.to(score.dtype.element_ty), mask=live)


def proposals(run: Run, inputs: tuple[DeviceArray, ...], anchors: np.ndarray, outputs: list[DeviceArray], add: list[bool], *,
              stride: int, least: float, before: int, after: int, threshold: float, iou_loss: bool) -> None:
    """Compute regions [b · after, 5] and scores [b · after, 1] from scores, codes and im_info, around anchors [a, 4].

    before: boxes to compare of each image; after: to return. least: the smallest side, for an image of scale 1.
    """
    scores, codes, info = inputs
    (b, _, h, w), a = scores.shape, len(anchors)
    n, wide, how = h * w * a, wide_dtype(scores), wide_float(scores)
    boxes, key = run.workspace((b, n, 4), wide), run.workspace((b, n), wide)
    block = block_for(b * h * w, 128)
    for i, sides in enumerate(anchors.tolist()):
        launch(_regions, (cdiv(b * h * w, block),), scores, codes, info, boxes, key, b * h * w, h, w, a, i, stride, least, *sides,
               stream=run.stream, IOU_LOSS=iou_loss, WIDE=how, BLOCK=block)
    kept = suppress(run, boxes, None, key, min(before, n), threshold, pixel=1, enough=after)
    block = block_for(b * after, 64)
    launch(_best, (cdiv(b * after, block),), boxes, key, kept.rows, kept.count, *outputs, b * after, n, min(before, n), after,
           stream=run.stream, ADD=add[0], ADD_SCORE=add[1], WIDE=how, BLOCK=block)
