"""Triton: pooling. Forward and backward gather, each element from the windows it belongs to; nothing is atomic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ..triton_kernel import tl, triton
from ..triton_launch import block_for, cdiv, launch
from .pooling import finite_lowest
from .triton_conv import strides, three
from .triton_gemm import wide


@triton.jit
def _window_size(o, s, k: tl.constexpr, p, size, PADDED: tl.constexpr):
    begin = o * s - p
    end = tl.minimum(begin + k, size + p)
    if not PADDED:
        begin = tl.maximum(begin, 0)
        end = tl.minimum(end, size)
    return tl.maximum(end - begin, 1)


@triton.jit
def _forward(x, y, index, n_out: tl.int64, C, D, H, W, OD, OH, OW,
             x_n: tl.int64, x_c: tl.int64, x_d: tl.int64, x_h: tl.int64, x_w: tl.int64,
             y_n: tl.int64, y_c: tl.int64, y_d: tl.int64, y_h: tl.int64, y_w: tl.int64,
             sd, sh, sw, pd, ph, pw, low,
             KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, KIND: tl.constexpr, P: tl.constexpr,
             PADDED: tl.constexpr, ADD: tl.constexpr, INDEX: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n_out
    ow = i % OW
    oh = (i // OW) % OH
    od = (i // OW // OH) % OD
    c = (i // OW // OH // OD) % C
    n = i // OW // OH // OD // C
    base = n * x_n + c * x_c
    total = tl.zeros((BLOCK,), WIDE)
    if KIND == "max":
        total += low
    first = tl.zeros((BLOCK,), tl.int32) - 1
    for k in range(KD * KH * KW):
        d = od * sd - pd + k // KW // KH
        h = oh * sh - ph + (k // KW) % KH
        w = ow * sw - pw + k % KW
        inside = keep & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        v = tl.load(x + base + d * x_d + h * x_h + w * x_w, mask=inside, other=0).to(WIDE)
        if KIND == "max":
            better = inside & ((v > total) | (first < 0) | (v != v))
            first = tl.where(better, k, first)
            total = tl.where(better, v, total)
        elif KIND == "lp":
            a = tl.abs(v)
            if P == 2:
                a = a * a
            if P == 3:
                a = a * a * a
            total += a
        else:
            total += v
    if INDEX:
        tl.store(index + i, first, mask=keep)
    else:
        if KIND == "avg":
            count = (_window_size(od, sd, KD, pd, D, PADDED) * _window_size(oh, sh, KH, ph, H, PADDED)
                     * _window_size(ow, sw, KW, pw, W, PADDED))
            total = total / count.to(WIDE)
        if KIND == "lp":
            if P == 2:
                total = tl.sqrt(total)
            if P == 3:
                total = tl.where(total > 0, tl.exp(tl.log(tl.where(total > 0, total, 1)) / 3), 0)
        at = y + n * y_n + c * y_c + od * y_d + oh * y_h + ow * y_w
        if ADD:
            total += tl.load(at, mask=keep, other=0).to(WIDE)
        tl.store(at, total.to(y.dtype.element_ty), mask=keep)


@triton.jit
def _backward(dy, x, y, index, dx, n_in: tl.int64, C, D, H, W, OD, OH, OW,
              x_n: tl.int64, x_c: tl.int64, x_d: tl.int64, x_h: tl.int64, x_w: tl.int64,
              y_n: tl.int64, y_c: tl.int64, y_d: tl.int64, y_h: tl.int64, y_w: tl.int64,
              sd, sh, sw, pd, ph, pw,
              KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, KIND: tl.constexpr, P: tl.constexpr,
              PADDED: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n_in
    iw = i % W
    ih = (i // W) % H
    id = (i // W // H) % D
    c = (i // W // H // D) % C
    n = i // W // H // D // C
    here = n * x_n + c * x_c + id * x_d + ih * x_h + iw * x_w
    total = tl.zeros((BLOCK,), WIDE)
    for k in range(KD * KH * KW):
        # the window in which this element stands at place k, if there is one
        d = id + pd - k // KW // KH
        h = ih + ph - (k // KW) % KH
        w = iw + pw - k % KW
        hit = keep & (d >= 0) & (h >= 0) & (w >= 0) & (d % sd == 0) & (h % sh == 0) & (w % sw == 0)
        d = d // sd
        h = h // sh
        w = w // sw
        hit = hit & (d < OD) & (h < OH) & (w < OW)
        at = n * y_n + c * y_c + d * y_d + h * y_h + w * y_w
        g = tl.load(dy + at, mask=hit, other=0).to(WIDE)
        if KIND == "max":
            chosen = tl.load(index + (((n * C + c) * OD + d) * OH + h) * OW + w, mask=hit, other=-1)
            g = tl.where(chosen == k, g, 0)
        elif KIND == "avg":
            count = (_window_size(d, sd, KD, pd, D, PADDED) * _window_size(h, sh, KH, ph, H, PADDED)
                     * _window_size(w, sw, KW, pw, W, PADDED))
            g = g / count.to(WIDE)
        elif KIND == "lp":
            v = tl.load(x + here, mask=keep, other=0).to(WIDE)
            r = tl.load(y + at, mask=hit, other=0).to(WIDE)
            ratio = tl.where(r > 0, tl.abs(v) / tl.where(r > 0, r, 1), 0)
            sign = tl.where(v > 0, 1, tl.where(v < 0, -1, 0))
            if P == 1:
                g = g * sign
            elif P == 2:
                g = g * sign * ratio
            else:
                g = g * sign * ratio * ratio
        total += g
    if ADD:
        total += tl.load(dx + here, mask=keep, other=0).to(WIDE)
    tl.store(dx + here, total.to(dx.dtype.element_ty), mask=keep)


def _sizes(g: Any, p: Any) -> tuple[Any, ...]:
    x, y, k = three(g.spatial, 1), three(g.out, 1), three(g.kernel, 1)
    steps = (*strides(g.n, g.c, x, g.channels_last), *strides(g.n, g.c, y, g.channels_last),
             *three(g.stride, 1), *three(g.pad, 0))
    padded = p.count_include_pad is None or p.count_include_pad
    fixed = {"KD": k[0], "KH": k[1], "KW": k[2], "KIND": p.pool_type, "P": p.p_value or 0, "PADDED": padded}
    return x, y, steps, fixed


def forward(run: Any, g: Any, p: Any, x: Any, y: Any, *, add: bool, index: Any = None) -> None:
    """y = (or +=) pooled x; with index, only which place of each window is the greatest. g: pooling.Geometry."""
    xs, ys, steps, fixed = _sizes(g, p)
    n = g.n * g.c * math.prod(ys)
    block = block_for(n, 256)
    launch(_forward, (cdiv(n, block),), x, y, y if index is None else index, n, g.c, *xs, *ys, *steps,
           finite_lowest(as_dtype(str(y.dtype)[6:])),
           stream=run.stream, **fixed, ADD=add, INDEX=index is not None, WIDE=wide(x), BLOCK=block)


def backward(run: Any, g: Any, p: Any, inputs: Sequence[Any], dx: Any, *, add: bool) -> None:
    """dx = (or +=) the derivative. inputs: dy, and for max and lp also x and y."""
    xs, ys, steps, fixed = _sizes(g, p)
    dy, x, y = (*inputs, dx, dx)[:3]
    index = dy
    if p.pool_type == "max":
        index = run.space((g.n * g.c * math.prod(ys),), np.int32)
        forward(run, g, p, x, y, add=False, index=index)
    n = g.n * g.c * math.prod(xs)
    block = block_for(n, 256)
    launch(_backward, (cdiv(n, block),), dy, x, y, index, dx, n, g.c, *xs, *ys, *steps, stream=run.stream, **fixed,
           ADD=add, WIDE=wide(dx), BLOCK=block)
