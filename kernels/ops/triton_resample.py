"""Triton: a sparse matrix applied along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..triton_kernel import tl, triton
from ..triton_launch import FakeArray, block_for, cdiv, launch
from .triton_gemm import wide


@triton.jit
def _apply(x, place, weight, y, total: tl.int64, n: tl.int64, m: tl.int64, inner: tl.int64, terms, ADD: tl.constexpr,
           WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    row = i // inner % m
    base = i // inner // m * n * inner + i % inner
    v = tl.zeros((BLOCK,), WIDE)
    for t in range(terms):
        at = tl.load(place + row * terms + t, mask=live, other=-1)
        use = live & (at >= 0)
        v += tl.load(weight + row * terms + t, mask=use, other=0).to(WIDE) * tl.load(x + base + at * inner, mask=use, other=0).to(
            WIDE)
    if ADD:
        v += tl.load(y + i, mask=live).to(WIDE)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


def table(like: Any, place: np.ndarray, weight: np.ndarray) -> tuple[Any, Any]:
    """place (int64) and weight (float64) on the device of `like`."""
    if isinstance(like, FakeArray):
        return FakeArray(place.shape, place.dtype), FakeArray(weight.shape, weight.dtype)
    empty = like.new_empty(0)
    return empty.long().new_tensor(place.ravel().tolist()), empty.double().new_tensor(weight.ravel().tolist())


def apply(run: Any, x: Any, tables: tuple[Any, Any], y: Any, lines: tuple[int, int, int, int], terms: int, *, add: bool) -> None:
    """y [outer, m, inner] = (or +=) the weighted sums of x [outer, n, inner] along n; place -1 is no term."""
    outer, n, m, inner = lines
    total = outer * m * inner
    block = block_for(total)
    launch(_apply, (cdiv(total, block),), x, *tables, y, total, n, m, inner, terms, stream=run.stream, ADD=add, WIDE=wide(y),
           BLOCK=block)
