"""Triton: running sums along an axis, forwards or backwards."""

from __future__ import annotations

from ...gpu.launch import accumulator, launch
from ...gpu.source import tl, triton
from ...kernel import DeviceArray, Run
from .triton_pick import columns_of, own_columns


@triton.jit
def _cumsum(x, y, outer: tl.int64, n, inner: tl.int64, FLAT: tl.constexpr, UNIT: tl.constexpr, BACK: tl.constexpr,
            ADD: tl.constexpr, WIDE: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    # columns of [outer, n, inner]; ROWS elements of each at a time, with the sum so far carried on
    c, columns, n, step, base = own_columns(outer, n, inner, FLAT, UNIT, COLUMNS)
    carry = tl.zeros((COLUMNS,), WIDE)
    for start in range(0, n, ROWS):
        first = (n - 1) // ROWS * ROWS - start if BACK else start
        r = first + tl.arange(0, ROWS).to(tl.int64)
        live = (c[None, :] < columns) & (r[:, None] < n)
        at = base[None, :] + r[:, None] * step
        v = tl.load(x + at, mask=live, other=0).to(WIDE)
        total = tl.cumsum(v, axis=0, reverse=BACK) + carry[None, :]
        carry += tl.sum(v, axis=0)
        if ADD:
            total += tl.load(y + at, mask=live, other=0).to(WIDE)
        tl.store(y + at, total.to(y.dtype.element_ty), mask=live)


def cumsum(run: Run, lines: tuple[int, int, int], x: DeviceArray, y: DeviceArray, *, back: bool, add: bool) -> None:
    """Compute y [outer, n, inner] = (or +=) cumulative sums of x along n; with back, from the end."""
    programs, sizes, fixed = columns_of(lines)
    launch(_cumsum, (programs,), x, y, *sizes, stream=run.stream, BACK=back, ADD=add, WIDE=accumulator(y), **fixed)
