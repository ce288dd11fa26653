"""Triton: class indices drawn by probability, and rows in random order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...op import Req, Reqs
from .triton_random import draw


@triton.jit
def _multinomial(p, u, out, n: tl.int64, S: tl.int64, K, ADD: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: each lane reads the probabilities of its own row
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    row = p + i // S * K
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        total += tl.load(row + k, mask=live, other=0).to(tl.float32)
    edge = tl.load(u + i, mask=live, other=0) * total
    total = tl.zeros((BLOCK,), tl.float32)
    found = tl.zeros((BLOCK,), tl.int32)
    for k in range(K):
        total += tl.load(row + k, mask=live, other=0).to(tl.float32)
        found += (total <= edge).to(tl.int32)
    found = tl.minimum(found, K - 1)
    if ADD:
        found += tl.load(out + i, mask=live, other=0).to(tl.int32)
    tl.store(out + i, found.to(out.dtype.element_ty), mask=live)


@triton.jit
def _log_of(p, index, out, n: tl.int64, S: tl.int64, K, ADD: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: each lane's address is the index it drew
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    at = tl.load(index + i, mask=live, other=0).to(tl.int64)
    v = tl.log(tl.load(p + i // S * K + at, mask=live, other=1).to(tl.float32))
    if ADD:
        v += tl.load(out + i, mask=live, other=0).to(tl.float32)
    tl.store(out + i, v.to(out.dtype.element_ty), mask=live)


@triton.jit
def _ranks(word, rank, n, BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    # count the words that are smaller, or equal and earlier
    # narrow: comparing every word with every other takes longer than reading them
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(word + i, mask=i < n, other=0)[:, None]
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, OTHERS):
        j = start + tl.arange(0, OTHERS)
        other = tl.load(word + j, mask=j < n, other=0)[None, :]
        before = (j[None, :] < n) & ((other < mine) | ((other == mine) & (j[None, :] < i[:, None])))
        count += tl.sum(before.to(tl.int32), axis=1)
    tl.store(rank + i, count, mask=i < n)


@triton.jit
def _place(x, rank, y, total: tl.int64, inner: tl.int64, ADD: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: a lane's address is its row's rank
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    at = tl.load(rank + i // inner, mask=live, other=0).to(tl.int64) * inner + i % inner
    v = tl.load(x + i, mask=live)
    if ADD:
        v = (v.to(tl.float32) + tl.load(y + at, mask=live).to(tl.float32)).to(y.dtype.element_ty)
    tl.store(y + at, v, mask=live)


def multinomial(run: Any, sizes: tuple[int, int, int], p: Any, u: Any, out: Any, logs: Any, reqs: Reqs) -> None:
    """out [m, s] = class indices drawn from p [m, k] by u [m, s] in [0, 1); logs = the logarithm of their probability."""
    m, s, k = sizes
    n = m * s
    block = block_for(n, 512)
    grid, index = (cdiv(n, block),), out
    if logs is not None:
        index = run.workspace((n,), np.int32)
        launch(_multinomial, grid, p, u, index, n, s, k, stream=run.stream, ADD=False, BLOCK=block)
        if reqs[1] != Req.NULL:
            launch(_log_of, grid, p, index, logs, n, s, k, stream=run.stream, ADD=reqs[1] == Req.ADD, BLOCK=block)
    if reqs[0] != Req.NULL:
        launch(_multinomial, grid, p, u, out, n, s, k, stream=run.stream, ADD=reqs[0] == Req.ADD, BLOCK=block)


def shuffle(run: Any, sizes: tuple[int, int], seed: int, offset: int, x: Any, y: Any, *, add: bool) -> None:
    """y = (or +=) the rows of x [n, inner], in the order of n random words. Makes n² comparisons."""
    n, inner = sizes
    if not n * inner:
        return
    word, rank = run.workspace((n,), np.int64), run.workspace((n,), np.int32)
    draw(run, word, seed, offset, "integers", 0, 1 << 32, np.dtype(np.int64), add=False)
    block, others = min(64, next_power_of_2(n)), min(256, next_power_of_2(n))
    launch(_ranks, (cdiv(n, block),), word, rank, n, stream=run.stream, BLOCK=block, OTHERS=others)
    total = n * inner
    block = block_for(total)
    launch(_place, (cdiv(total, block),), x, rank, y, total, inner, stream=run.stream, ADD=add, BLOCK=block)
