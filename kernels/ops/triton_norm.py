"""Triton: BatchNorm, forward and backward. One program sums a few channels over everything, always in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..op import Req
from ..triton_kernel import tl, triton
from ..triton_launch import block_for, cdiv, launch
from .triton_gemm import tile, wide


@triton.jit
def _statistics(x, moving_mean, moving_var, mean, inverse, M, N, inner: tl.int64, eps, momentum,
                BATCH: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    c = tl.program_id(0) * BN + tl.arange(0, BN)
    live = c < N
    old_mean = tl.load(moving_mean + c, mask=live, other=0).to(WIDE)
    old_var = tl.load(moving_var + c, mask=live, other=0).to(WIDE)
    if BATCH:
        total = tl.zeros((BM, BN), WIDE)
        for start in range(0, M, BM):
            m = start + tl.arange(0, BM).to(tl.int64)
            at = (m // inner * N * inner + m % inner)[:, None] + c[None, :] * inner
            total += tl.load(x + at, mask=(m[:, None] < M) & live[None, :], other=0).to(WIDE)
        mu = tl.sum(total, axis=0) / M
        total = tl.zeros((BM, BN), WIDE)
        for start in range(0, M, BM):
            m = start + tl.arange(0, BM).to(tl.int64)
            at = (m // inner * N * inner + m % inner)[:, None] + c[None, :] * inner
            inside = (m[:, None] < M) & live[None, :]
            d = tl.where(inside, tl.load(x + at, mask=inside, other=0).to(WIDE) - mu[None, :], 0)
            total += d * d
        var = tl.sum(total, axis=0) / M
        new_mean = old_mean * momentum + mu * (1 - momentum)
        new_var = old_var * momentum + var * (1 - momentum)
        tl.store(moving_mean + c, new_mean.to(moving_mean.dtype.element_ty), mask=live)
        tl.store(moving_var + c, new_var.to(moving_var.dtype.element_ty), mask=live)
    else:
        mu = old_mean
        var = old_var
    tl.store(mean + c, mu.to(mean.dtype.element_ty), mask=live)
    tl.store(inverse + c, (1 / tl.sqrt(var + eps)).to(inverse.dtype.element_ty), mask=live)


@triton.jit
def _apply(x, gamma, beta, mean, inverse, y, n: tl.int64, N, inner: tl.int64, FIX: tl.constexpr, ADD: tl.constexpr,
           WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    c = (i // inner) % N
    scale = tl.load(inverse + c, mask=live, other=0).to(WIDE)
    if not FIX:
        scale = scale * tl.load(gamma + c, mask=live, other=0).to(WIDE)
    v = tl.load(x + i, mask=live, other=0).to(WIDE) - tl.load(mean + c, mask=live, other=0).to(WIDE)
    v = v * scale + tl.load(beta + c, mask=live, other=0).to(WIDE)
    if ADD:
        v += tl.load(y + i, mask=live, other=0).to(WIDE)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _sums(dy, x, mean, inverse, total_out, along_out, M, N, inner: tl.int64, WIDE: tl.constexpr, BM: tl.constexpr,
          BN: tl.constexpr):
    c = tl.program_id(0) * BN + tl.arange(0, BN)
    live = c < N
    mu = tl.load(mean + c, mask=live, other=0).to(WIDE)
    r = tl.load(inverse + c, mask=live, other=0).to(WIDE)
    total = tl.zeros((BM, BN), WIDE)
    along = tl.zeros((BM, BN), WIDE)
    for start in range(0, M, BM):
        m = start + tl.arange(0, BM).to(tl.int64)
        at = (m // inner * N * inner + m % inner)[:, None] + c[None, :] * inner
        inside = (m[:, None] < M) & live[None, :]
        g = tl.load(dy + at, mask=inside, other=0).to(WIDE)
        total += g
        along += (tl.load(x + at, mask=inside, other=0).to(WIDE) - mu[None, :]) * r[None, :] * g
    tl.store(total_out + c, tl.sum(total, axis=0), mask=live)
    tl.store(along_out + c, tl.sum(along, axis=0), mask=live)


@triton.jit
def _data_gradient(dy, x, gamma, mean, inverse, total, along, dx, n: tl.int64, N, inner: tl.int64, count,
                   BATCH: tl.constexpr, FIX: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr,
                   BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    c = (i // inner) % N
    r = tl.load(inverse + c, mask=live, other=0).to(WIDE)
    v = tl.load(dy + i, mask=live, other=0).to(WIDE)
    if BATCH:
        u = (tl.load(x + i, mask=live, other=0).to(WIDE) - tl.load(mean + c, mask=live, other=0).to(WIDE)) * r
        v = v - (tl.load(total + c, mask=live, other=0) + u * tl.load(along + c, mask=live, other=0)) / count
    if not FIX:
        r = r * tl.load(gamma + c, mask=live, other=0).to(WIDE)
    v = v * r
    if ADD:
        v += tl.load(dx + i, mask=live, other=0).to(WIDE)
    tl.store(dx + i, v.to(dx.dtype.element_ty), mask=live)


@triton.jit
def _channel_store(value, out, N, ZERO: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(value + c, mask=c < N, other=0)
    if ZERO:
        v = v * 0
    if ADD:
        v += tl.load(out + c, mask=c < N, other=0)
    tl.store(out + c, v.to(out.dtype.element_ty), mask=c < N)


def _numpy_wide(x: Any) -> Any:
    return np.float64 if str(x.dtype) == "torch.float64" else np.float32


def _store(run: Any, value: Any, out: Any, n: int, req: Req, zero: bool = False) -> None:
    if req != Req.NULL:
        launch(_channel_store, (cdiv(n, 1024),), value, out, n, stream=run.stream, ZERO=zero, ADD=req == Req.ADD,
               BLOCK=1024)


def forward(run: Any, rows: tuple[int, int, int], p: Any, batch: bool, inputs: Sequence[Any], outputs: Sequence[Any],
            reqs: Sequence[Req]) -> None:
    """Fill output, mean and 1 / √(var + eps); with batch, from the batch, and take it into the moving ones."""
    (outer, n, inner), (x, gamma, beta, moving_mean, moving_var) = rows, inputs
    m, scratch = outer * inner, _numpy_wide(x)
    mean, inverse = run.space((n,), scratch), run.space((n,), scratch)
    bn = tile(n, 16)
    launch(_statistics, (cdiv(n, bn),), x, moving_mean, moving_var, mean, inverse, m, n, inner, float(p.eps),
           float(p.momentum), stream=run.stream, BATCH=batch and m > 0, WIDE=wide(x), BM=tile(m, 128, 1024), BN=bn)
    _store(run, mean, outputs[1], n, reqs[1])
    _store(run, inverse, outputs[2], n, reqs[2])
    if reqs[0] != Req.NULL:
        size = m * n
        block = block_for(size)
        launch(_apply, (cdiv(size, block),), x, gamma, beta, mean, inverse, outputs[0], size, n, inner,
               stream=run.stream, FIX=p.fix_gamma, ADD=reqs[0] == Req.ADD, WIDE=wide(x), BLOCK=block)


def backward(run: Any, rows: tuple[int, int, int], p: Any, batch: bool, inputs: Sequence[Any], outputs: Sequence[Any],
             reqs: Sequence[Req]) -> None:
    """Derivatives of data, gamma and beta. inputs: dy, x, gamma, mean, 1 / √(var + eps)."""
    (outer, n, inner), (dy, x, gamma, mean, inverse) = rows, inputs
    m, scratch = outer * inner, _numpy_wide(x)
    total, along = run.space((n,), scratch), run.space((n,), scratch)
    bn = tile(n, 16)
    launch(_sums, (cdiv(n, bn),), dy, x, mean, inverse, total, along, m, n, inner, stream=run.stream, WIDE=wide(x),
           BM=tile(m, 128, 1024), BN=bn)
    _store(run, along, outputs[1], n, reqs[1], zero=p.fix_gamma)
    _store(run, total, outputs[2], n, reqs[2])
    if reqs[0] != Req.NULL:
        size = m * n
        block = block_for(size)
        launch(_data_gradient, (cdiv(size, block),), dy, x, gamma, mean, inverse, total, along, outputs[0], size, n,
               inner, float(max(1, m)), stream=run.stream, BATCH=batch, FIX=p.fix_gamma, ADD=reqs[0] == Req.ADD,
               WIDE=wide(x), BLOCK=block)
