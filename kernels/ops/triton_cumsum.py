"""Triton: running sums along an axis, forwards or backwards."""

from __future__ import annotations

from typing import Any

from ..triton_kernel import tl, triton
from ..triton_launch import block_for, cdiv, launch, next_power_of_2
from .triton_along import exact


@triton.jit
def _cumsum(x, y, columns: tl.int64, n, inner: tl.int64, BACK: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr,
            COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    # columns of [outer, n, inner]; ROWS elements of each at a time, and what came before is carried on
    c = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    base = c // inner * n * inner + c % inner
    carry = tl.zeros((COLUMNS,), WIDE)
    for start in range(0, n, ROWS):
        step = start + tl.arange(0, ROWS).to(tl.int64)
        r = n - 1 - step if BACK else step
        live = (c[None, :] < columns) & (step[:, None] < n)
        at = base[None, :] + r[:, None] * inner
        v = tl.load(x + at, mask=live, other=0).to(WIDE)
        total = tl.cumsum(v, axis=0) + carry[None, :]
        carry += tl.sum(v, axis=0)
        if ADD:
            total += tl.load(y + at, mask=live, other=0).to(WIDE)
        tl.store(y + at, total.to(y.dtype.element_ty), mask=live)


def cumsum(run: Any, lines: tuple[int, int, int], x: Any, y: Any, *, back: bool, add: bool) -> None:
    """y [outer, n, inner] = (or +=) the sums of x from the start of n up to each place; from the end with back."""
    outer, n, inner = lines
    columns = outer * inner
    block, rows = min(block_for(columns, 32), 1024), max(2, min(next_power_of_2(n), 64))
    launch(_cumsum, (cdiv(columns, block),), x, y, columns, n, inner, stream=run.stream, BACK=back, ADD=add, WIDE=exact(y),
           COLUMNS=block, ROWS=rows)
