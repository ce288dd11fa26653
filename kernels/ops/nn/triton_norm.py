"""Triton: BatchNorm, forward and backward, in two stages: sums over parts of the batch, then over the parts, in order.

Data is seen as a matrix: [outer * inner, channels] if channels are last, else [outer * channels, inner]. One read computes both
sums, relative to a value of the channel itself, so that a large mean does not cost the variance its digits. The sum with
another array, a rectifier after it and their derivatives need no extra pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import interpreting, multiprocessors, tile_size
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs
from .softmax import Rows

if TYPE_CHECKING:
    from .batch_norm import BatchNorm


@triton.jit
def _add_terms(one, two, x, dy, y, at, inside, shift, r, BACK: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr):
    # two sums over the elements at `at`: of (v - shift) and its square, or, BACK, of dy and dy times the normalized v
    d = tl.load(x + at, mask=inside, other=0).to(WIDE) - shift
    if BACK:
        g = tl.load(dy + at, mask=inside, other=0).to(WIDE)
        if RELU:
            out = tl.load(y + at, mask=inside, other=0).to(WIDE)
            g = tl.where(out > 0, g, out * 0)  # there out is 0 or NaN
        return one + tl.where(inside, g, 0), two + tl.where(inside, d * r * g, 0)
    else:
        d = tl.where(inside, d, 0)
        return one + d, two + d * d


@triton.jit
def norm_sums_last(x, dy, y, mean, inverse, first, second, M: tl.int64, N, per_split, UNIT: tl.constexpr,
                   BACK: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    # x [M, N]; first, second [split, N]
    N = N * UNIT
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    live = c < N
    if BACK:
        shift = tl.load(mean + c, mask=live, other=0).to(WIDE)[None, :]
    else:  # the channel's first value
        shift = tl.load(x + c, mask=live, other=0).to(WIDE)[None, :]
    r = shift
    if BACK:
        r = tl.load(inverse + c, mask=live, other=0).to(WIDE)[None, :]
    one = tl.zeros((BM, BN), WIDE)
    two = tl.zeros((BM, BN), WIDE)
    begin = tl.program_id(0).to(tl.int64) * per_split
    for start in tl.range(0, per_split, BM, num_stages=4):  # loads run ahead
        m = begin + start + tl.arange(0, BM)
        inside = ((m < M) & (start + tl.arange(0, BM) < per_split))[:, None] & live[None, :]
        at = m[:, None] * N + c[None, :]
        one, two = _add_terms(one, two, x, dy, y, at, inside, shift, r, BACK, RELU, WIDE)
    to = tl.program_id(0) * N + c
    tl.store(first + to, tl.sum(one, axis=0), mask=live)
    tl.store(second + to, tl.sum(two, axis=0), mask=live)


@triton.jit
def norm_sums_first(x, dy, y, mean, inverse, first, second, outer: tl.int64, N, inner, per_split, UNIT: tl.constexpr,
                    BACK: tl.constexpr, RELU: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    # x [outer, N, inner], one channel per program; first, second [split, N]
    inner = inner * UNIT
    c = tl.program_id(0) % N
    split = tl.program_id(0) // N
    if BACK:
        shift = tl.load(mean + c).to(WIDE)
    else:
        shift = tl.load(x + c.to(tl.int64) * inner).to(WIDE)
    r = shift
    if BACK:
        r = tl.load(inverse + c).to(WIDE)
    one = tl.zeros((BM, BN), WIDE)
    two = tl.zeros((BM, BN), WIDE)
    begin = split.to(tl.int64) * per_split
    for start in range(0, per_split, BM):
        o = begin + start + tl.arange(0, BM)
        rows = (o < outer) & (start + tl.arange(0, BM) < per_split)
        for left in range(0, inner, BN):
            i = left + tl.arange(0, BN)
            inside = rows[:, None] & (i < inner)[None, :]
            at = ((o * N + c) * inner)[:, None] + i[None, :]
            one, two = _add_terms(one, two, x, dy, y, at, inside, shift, r, BACK, RELU, WIDE)
    to = split * N + c
    tl.store(first + to, tl.sum(tl.sum(one, axis=1), axis=0))
    tl.store(second + to, tl.sum(tl.sum(two, axis=1), axis=0))


@triton.jit
def _sum_parts(first, second, c, live, N, splits, WIDE: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    # first and second, [splits, N], summed over splits for the channels c: many parts are read at once
    one = tl.zeros((PARTS, BLOCK), WIDE)
    two = tl.zeros((PARTS, BLOCK), WIDE)
    for start in range(0, splits, PARTS):
        s = start + tl.arange(0, PARTS)
        at = s[:, None] * N + c[None, :]
        inside = (s < splits)[:, None] & live[None, :]
        one += tl.load(first + at, mask=inside, other=0)
        two += tl.load(second + at, mask=inside, other=0)
    return tl.sum(one, axis=0), tl.sum(two, axis=0)


@triton.jit
def norm_statistics(moving_mean, moving_var, mean, inverse, x, first, second, N, step: tl.int64, splits, count, eps, momentum,
                    BATCH: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = c < N
    mu = tl.load(moving_mean + c, mask=live, other=0).to(WIDE)
    var = tl.load(moving_var + c, mask=live, other=0).to(WIDE)
    if BATCH:
        one, two = _sum_parts(first, second, c, live, N, splits, WIDE, PARTS, BLOCK)
        one = one / count
        batch_var = tl.maximum(two / count - one * one, 0)
        batch_mean = one + tl.load(x + c * step, mask=live, other=0).to(WIDE)
        tl.store(moving_mean + c, (mu * momentum + batch_mean * (1 - momentum)).to(moving_mean.dtype.element_ty), mask=live)
        tl.store(moving_var + c, (var * momentum + batch_var * (1 - momentum)).to(moving_var.dtype.element_ty), mask=live)
        mu = batch_mean
        var = batch_var
    tl.store(mean + c, mu.to(mean.dtype.element_ty), mask=live)
    tl.store(inverse + c, (1 / tl.sqrt(var + eps)).to(inverse.dtype.element_ty), mask=live)


@triton.jit
def _tile(rows, columns, N, LAST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    # a program's offsets with their mask, and their channels with a mask
    blocks = tl.cdiv(columns, BN)
    m = (tl.program_id(0) // blocks).to(tl.int64) * BM + tl.arange(0, BM)
    i = (tl.program_id(0) % blocks) * BN + tl.arange(0, BN)
    if LAST:
        c = i[None, :]
        live = (i < columns)[None, :]
    else:
        c = (m % N)[:, None]
        live = (m < rows)[:, None]
    return m[:, None] * columns + i[None, :], (m < rows)[:, None] & (i < columns)[None, :], c, live


@triton.jit
def norm_apply(x, gamma, beta, mean, inverse, other, y, rows: tl.int64, columns, N, UNIT: tl.constexpr,
               LAST: tl.constexpr, FIX: tl.constexpr, OTHER: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr,
               WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    at, inside, c, live = _tile(rows, columns * UNIT, N, LAST, BM, BN)
    scale = tl.load(inverse + c, mask=live, other=0).to(WIDE)
    if not FIX:
        scale = scale * tl.load(gamma + c, mask=live, other=0).to(WIDE)
    mu = tl.load(mean + c, mask=live, other=0).to(WIDE)
    b = tl.load(beta + c, mask=live, other=0).to(WIDE)
    v = (tl.load(x + at, mask=inside, other=0).to(WIDE) - mu) * scale + b
    if OTHER:  # round the sum as if it had been stored
        v = v.to(y.dtype.element_ty).to(WIDE) + tl.load(other + at, mask=inside, other=0).to(WIDE)
    if RELU:
        v = tl.where(v < 0, 0, v)
    if ADD:
        v += tl.load(y + at, mask=inside, other=0).to(WIDE)
    tl.store(y + at, v.to(y.dtype.element_ty), mask=inside)


@triton.jit
def norm_channels(first, second, total_out, along_out, beta_out, gamma_out, N, splits, BETA: tl.constexpr,
                  GAMMA: tl.constexpr, FIX: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    # the sums over parts, and the derivatives of beta and gamma; BETA, GAMMA: 0 nothing, 1 write, 2 add
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = c < N
    one, two = _sum_parts(first, second, c, live, N, splits, WIDE, PARTS, BLOCK)
    tl.store(total_out + c, one, mask=live)
    tl.store(along_out + c, two, mask=live)
    if BETA > 0:
        if BETA == 2:
            one += tl.load(beta_out + c, mask=live, other=0).to(WIDE)
        tl.store(beta_out + c, one.to(beta_out.dtype.element_ty), mask=live)
    if GAMMA > 0:
        if FIX:
            two = tl.zeros((BLOCK,), WIDE)
        if GAMMA == 2:
            two += tl.load(gamma_out + c, mask=live, other=0).to(WIDE)
        tl.store(gamma_out + c, two.to(gamma_out.dtype.element_ty), mask=live)


@triton.jit
def norm_gradient(dy, x, y, gamma, mean, inverse, total, along, dx, other, rows: tl.int64, columns, N, count,
                  UNIT: tl.constexpr, LAST: tl.constexpr, BATCH: tl.constexpr, FIX: tl.constexpr, RELU: tl.constexpr,
                  OTHER: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    at, inside, c, live = _tile(rows, columns * UNIT, N, LAST, BM, BN)
    r = tl.load(inverse + c, mask=live, other=0).to(WIDE)
    v = tl.load(dy + at, mask=inside, other=0).to(WIDE)
    if RELU:
        out = tl.load(y + at, mask=inside, other=0).to(WIDE)
        v = tl.where(out > 0, v, out * 0)
    if OTHER > 0:  # 1 write, 2 add
        u = v
        if OTHER == 2:
            u = tl.load(other + at, mask=inside, other=0).to(WIDE) + v
        tl.store(other + at, u.to(other.dtype.element_ty), mask=inside)
    if BATCH:
        mu = tl.load(mean + c, mask=live, other=0).to(WIDE)
        u = (tl.load(x + at, mask=inside, other=0).to(WIDE) - mu) * r
        v = v - (tl.load(total + c, mask=live, other=0) + u * tl.load(along + c, mask=live, other=0)) / count
    if not FIX:
        r = r * tl.load(gamma + c, mask=live, other=0).to(WIDE)
    v = v * r
    if ADD:
        v += tl.load(dx + at, mask=inside, other=0).to(WIDE)
    tl.store(dx + at, v.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def norm_add(value, out, N, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(out + c, mask=c < N) + tl.load(value + c, mask=c < N).to(out.dtype.element_ty)
    tl.store(out + c, v, mask=c < N)


def _scratch(x: DeviceArray) -> np.dtype:
    return np.dtype("float64" if str(x.dtype) == "torch.float64" else "float32")


def _matrix(rows: Rows) -> tuple[bool, int, int]:
    """Return True if channels are last, and the rows and columns of the data."""
    outer, n, inner = rows
    return (True, outer, n) if inner == 1 else (False, outer * n, inner)


def _unit(n: int) -> int:
    return 1 if n % 8 else 8


def _sums(run: Run, rows: Rows, x: DeviceArray, dy: DeviceArray, y: DeviceArray, mean: DeviceArray, inverse: DeviceArray, *,
          back: bool, relu: bool) -> tuple[Any, Any, int]:
    """Compute two sums per channel as [parts, channels]; returns them and the number of parts, chosen by sizes and GPU."""
    outer, n, inner = rows
    last = inner == 1
    sms = 1 if interpreting() else multiprocessors(getattr(run.stream, "device_index", 0))
    arrays = (x, x if dy is None else dy, x if y is None else y, mean, inverse)
    if last:
        bn = tile_size(n, 128)
        bm = tile_size(outer, 2048 // bn, 1024)
        splits = min(cdiv(4 * sms, cdiv(n, bn)), cdiv(outer, 4 * bm), 1024)
    else:
        bn = tile_size(inner, 1024, 1024)
        bm = max(1, min(next_power_of_2(outer), (1 << 14 if interpreting() else 2048) // bn))
        splits = min(cdiv(4 * sms, n), cdiv(outer, bm))
    per = cdiv(cdiv(outer, max(1, splits)), bm) * bm
    splits = max(1, cdiv(outer, max(1, per)))
    first, second = (run.workspace((splits, n), _scratch(x)) for _ in range(2))
    unit = _unit(n if last else inner)
    kernel, grid, sizes = (norm_sums_last, (splits, cdiv(n, bn)), (n // unit,)) if last else \
        (norm_sums_first, (n * splits,), (n, inner // unit))
    launch(kernel, grid, *arrays, first, second, outer, *sizes, per, stream=run.stream, UNIT=unit, BACK=back, RELU=relu,
           WIDE=wide_float(x), BM=bm, BN=bn)
    return first, second, splits


def _parts(splits: int) -> tuple[int, int]:
    """Return the channels of a program that adds parts, and how many parts it reads at once."""
    return 128 if interpreting() else 8, min(256, next_power_of_2(max(1, splits)))


def _tiles(rows: int, columns: int) -> tuple[int, int]:
    bn = min(tile_size(columns, 256, 1024), 1024)
    return max(1, min(next_power_of_2(rows), (1 << 16 if interpreting() else 2048) // bn)), bn


def forward(run: Run, rows: Rows, p: BatchNorm, batch: bool, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
            reqs: Reqs, *, other: DeviceArray | None = None, relu: bool = False) -> None:
    """Compute output, mean and 1 / √(var + eps); batch: use the batch statistics and update the moving ones.

    other: an array added after normalizing; relu: then set negative values to 0.
    """
    (outer, n, inner), (x, gamma, beta, moving_mean, moving_var) = rows, inputs
    count = outer * inner
    batch = batch and count > 0
    mean = outputs[1] if reqs[1] in (Req.WRITE, Req.INPLACE) else run.workspace((n,), _scratch(x))
    inverse = outputs[2] if reqs[2] in (Req.WRITE, Req.INPLACE) else run.workspace((n,), _scratch(x))
    first, second, splits = mean, mean, 0
    if batch:
        first, second, splits = _sums(run, rows, x, None, None, mean, inverse, back=False, relu=False)
    block, parts = _parts(splits)
    launch(norm_statistics, (cdiv(n, block),), moving_mean, moving_var, mean, inverse, x, first, second, n, inner, splits,
           float(max(1, count)), float(p.eps), float(p.momentum), stream=run.stream, BATCH=batch, WIDE=wide_float(x),
           PARTS=parts, BLOCK=block)
    for value, out, req in ((mean, outputs[1], reqs[1]), (inverse, outputs[2], reqs[2])):
        if req == Req.ADD:
            launch(norm_add, (cdiv(n, 128),), value, out, n, stream=run.stream, BLOCK=128)
    if reqs[0] == Req.NULL:
        return
    last, height, width = _matrix(rows)
    bm, bn = _tiles(height, width)
    launch(norm_apply, (cdiv(height, bm) * cdiv(width, bn),), x, gamma, beta, mean, inverse, x if other is None else other,
           outputs[0], height, width // _unit(width), n, UNIT=_unit(width), LAST=last, FIX=p.fix_gamma,
           OTHER=other is not None, RELU=relu, ADD=reqs[0] == Req.ADD, WIDE=wide_float(x), BM=bm, BN=bn, stream=run.stream)


def backward(run: Run, rows: Rows, p: BatchNorm, batch: bool, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray],
             reqs: Reqs, *, y: DeviceArray | None = None, d_other: DeviceArray | None = None, add_other: bool = False) -> None:
    """Compute the derivatives by data, gamma and beta. inputs: dy, x, gamma, mean, 1 / √(var + eps).

    y: the output, if a rectifier followed. d_other: receives the derivative by the added array, if that of data is requested;
    add_other: add it to the old contents.
    """
    (outer, n, inner), (dy, x, gamma, mean, inverse) = rows, inputs
    relu = y is not None
    total, along = run.workspace((n,), _scratch(x)), run.workspace((n,), _scratch(x))
    first, second, splits = _sums(run, rows, x, dy, y, mean, inverse, back=True, relu=relu)
    how = {Req.NULL: 0, Req.ADD: 2}
    block, parts = _parts(splits)
    d_gamma, d_beta = (total if out is None else out for out in outputs[1:3])
    launch(norm_channels, (cdiv(n, block),), first, second, total, along, d_beta, d_gamma, n, splits,
           BETA=how.get(reqs[2], 1), GAMMA=how.get(reqs[1], 1), FIX=p.fix_gamma, WIDE=wide_float(x), PARTS=parts, BLOCK=block,
           stream=run.stream)
    if reqs[0] == Req.NULL:
        return
    last, height, width = _matrix(rows)
    bm, bn = _tiles(height, width)
    launch(norm_gradient, (cdiv(height, bm) * cdiv(width, bn),), dy, x, y if relu else dy, gamma, mean, inverse, total, along,
           outputs[0], outputs[0] if d_other is None else d_other, height, width // _unit(width), n,
           float(max(1, outer * inner)), UNIT=_unit(width), LAST=last, BATCH=batch, FIX=p.fix_gamma, RELU=relu,
           OTHER=0 if d_other is None else 2 if add_other else 1, ADD=reqs[0] == Req.ADD, WIDE=wide_float(x), BM=bm, BN=bn,
           stream=run.stream)
