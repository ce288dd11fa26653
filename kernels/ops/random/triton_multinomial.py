"""Triton: class indices drawn by probability, and rows in random order."""

from __future__ import annotations

import numpy as np

from ....integers import cdiv
from ...declare.random_fill import fill
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs
from ..tensor.triton_order import rank
from ..tensor.triton_pick import take


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


def multinomial(run: Run, sizes: tuple[int, int, int], p: DeviceArray, u: DeviceArray, out: DeviceArray, logs: DeviceArray | None,
                reqs: Reqs) -> None:
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


def shuffle(run: Run, sizes: tuple[int, int], seed: int, offset: int, x: DeviceArray, y: DeviceArray, *, add: bool) -> None:
    """y = (or +=) the rows of x [n, inner], in the order of n random words."""
    n, inner = sizes
    if not n * inner:
        return
    word, order = run.workspace((n,), np.int64), run.workspace((n,), np.int32)
    fill(run, "gpu", word, (seed, offset), "integers", 0, 1 << 32)
    rank(run, (1, n, 1), n, word, order, down=False)
    take(run, (1, n, inner), n, x, order, y, wrap=False, add=add)
