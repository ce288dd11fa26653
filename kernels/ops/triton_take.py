"""Triton: slices picked by number, and the derivative, which gathers too: nothing is atomic, the order is fixed."""

from __future__ import annotations

from typing import Any

from ..triton_kernel import tl, triton
from ..triton_launch import block_for, cdiv, launch
from .triton_gemm import wide


@triton.jit
def _place(at, n, WRAP: tl.constexpr):
    at = at.to(tl.int64)
    if WRAP:
        at = at % n
        return tl.where(at < 0, at + n, at)
    else:
        return tl.minimum(tl.maximum(at, 0), n - 1)


@triton.jit
def _take(x, index, y, total: tl.int64, n: tl.int64, k: tl.int64, inner: tl.int64, WRAP: tl.constexpr,
          ADD: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    at = _place(tl.load(index + (i // inner) % k, mask=live, other=0), n, WRAP)
    v = tl.load(x + (i // inner // k * n + at) * inner + i % inner, mask=live)
    if ADD:
        v = v.to(tl.float32) + tl.load(y + i, mask=live).to(tl.float32)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


@triton.jit
def _put(dy, index, dx, total: tl.int64, n: tl.int64, k, inner: tl.int64, WRAP: tl.constexpr, ADD: tl.constexpr,
         WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    mine = (i // inner) % n
    outer = i // inner // n
    v = tl.zeros((BLOCK,), WIDE)
    for j in range(k):
        hit = live & (_place(tl.load(index + j), n, WRAP) == mine)
        v += tl.load(dy + (outer * k + j) * inner + i % inner, mask=hit, other=0).to(WIDE)
    if ADD:
        v += tl.load(dx + i, mask=live, other=0).to(WIDE)
    tl.store(dx + i, v.to(dx.dtype.element_ty), mask=live)


def take(run: Any, rows: tuple[int, int, int], k: int, x: Any, index: Any, y: Any, *, wrap: bool, add: bool) -> None:
    """y [outer, k, inner] = (or +=) x [outer, n, inner] at the k numbers of index."""
    outer, n, inner = rows
    total = outer * k * inner
    block = block_for(total)
    launch(_take, (cdiv(total, block),), x, index, y, total, n, k, inner, stream=run.stream, WRAP=wrap, ADD=add,
           BLOCK=block)


def put(run: Any, rows: tuple[int, int, int], k: int, dy: Any, index: Any, dx: Any, *, wrap: bool, add: bool) -> None:
    """dx [outer, n, inner] = (or +=) the sum of the slices of dy whose number it is."""
    outer, n, inner = rows
    total = outer * n * inner
    block = block_for(total)
    launch(_put, (cdiv(total, block),), dy, index, dx, total, n, k, inner, stream=run.stream, WRAP=wrap, ADD=add,
           WIDE=wide(dx), BLOCK=block)
