"""Triton: factors of matrices and triangular systems. One program a matrix, which walks along its columns or rows; sums over
those before are made in blocks. Reading what other lanes have stored needs a barrier before."""

from __future__ import annotations

import numpy as np

from ....integers import cdiv
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, tile_size
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs


@triton.jit
def _cholesky(a, low, failed, n: tl.int64, rows: tl.int64, columns: tl.int64, WIDE: tl.constexpr, ROWS: tl.constexpr,
              DEEP: tl.constexpr):
    # narrow: a column at a time. low: the factor of a [.., n, n], whose element (i, j) is at i rows + j columns
    b = tl.program_id(0).to(tl.int64)
    a += b * n * n
    low += b * n * n
    wrong = 0
    for j in range(n):
        part = tl.zeros((DEEP,), WIDE)
        for start in range(0, j, DEEP):
            k = start + tl.arange(0, DEEP)
            v = tl.load(low + j * n + k, mask=k < j, other=0)
            part += v * v
        rest = tl.load(a + j * rows + j * columns).to(WIDE) - tl.sum(part)
        wrong = tl.where(rest <= 0, 1, wrong)
        root = tl.sqrt(rest)
        for first in range(j, n, ROWS):
            i = first + tl.arange(0, ROWS)
            sums = tl.zeros((ROWS,), WIDE)
            for start in range(0, j, DEEP):
                k = start + tl.arange(0, DEEP)
                u = tl.load(low + i[:, None] * n + k[None, :], mask=(i < n)[:, None] & (k < j)[None, :], other=0)
                v = tl.load(low + j * n + k, mask=k < j, other=0)
                sums += tl.sum(u * v[None, :], axis=1)
            v = (tl.load(a + i * rows + j * columns, mask=i < n, other=0).to(WIDE) - sums) / root
            tl.store(low + i * n + j, tl.where(i == j, root, v), mask=i < n)
        tl.debug_barrier()
    tl.store(failed + b, wrong)


@triton.jit
def _triangle(low, y, total: tl.int64, n: tl.int64, UPPER: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: half of each row is zeros
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i, j = e // n % n, e % n
    at = e - i * n - j
    if UPPER:
        v = tl.load(low + at + j * n + i, mask=(e < total) & (i <= j), other=0)
    else:
        v = tl.load(low + at + i * n + j, mask=(e < total) & (j <= i), other=0)
    if ADD:
        v += tl.load(y + e, mask=e < total, other=0).to(v.dtype)
    tl.store(y + e, v.to(y.dtype.element_ty), mask=e < total)


@triton.jit
def _solve(t, b, order, x, y, n: tl.int64, m: tl.int64, tr: tl.int64, tc: tl.int64, br: tl.int64, bc: tl.int64, alpha: tl.float64,
           LOWER: tl.constexpr, UNIT: tl.constexpr, ORDERED: tl.constexpr, APART: tl.constexpr, ADD: tl.constexpr,
           WIDE: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr):
    # narrow: a row of x at a time. t x = alpha b for COLUMNS columns; element (i, c) of b, x and y is at i br + c bc.
    # ORDERED: b is the identity with its rows in an order. APART: y is another array, the result in its dtype
    z = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = c < m
    t += z * n * n
    own = z * n * m + c * bc
    for step in range(n):
        i = step if LOWER else n - 1 - step
        if ORDERED:
            v = tl.where(tl.load(order + z * n + i) == c, 1.0, 0.0).to(WIDE)
        else:
            v = tl.load(b + own + i * br, mask=live, other=0).to(WIDE) * alpha.to(WIDE)
        for start in range(0, step, DEEP):
            k = (start if LOWER else n - step + start) + tl.arange(0, DEEP)
            end = i if LOWER else n
            u = tl.load(t + i * tr + k * tc, mask=k < end, other=0).to(WIDE)
            w = tl.load(x + own[None, :] + k[:, None] * br, mask=live[None, :] & (k < end)[:, None], other=0)
            v -= tl.sum(u[:, None] * w, axis=0)
        if not UNIT:
            v = v / tl.load(t + i * tr + i * tc).to(WIDE)
        tl.store(x + own + i * br, v, mask=live)
        if APART:
            if ADD:
                v += tl.load(y + own + i * br, mask=live, other=0).to(WIDE)
            tl.store(y + own + i * br, v.to(y.dtype.element_ty), mask=live)
        tl.debug_barrier()


@triton.jit
def _lu(a, lu, order, failed, sign, log, n: tl.int64, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    # narrow: a column at a time. lu: both factors of a with its rows in `order`, by partial pivoting: below the diagonal the
    # lower one, whose diagonal is 1. sign, log: of the determinant
    b = tl.program_id(0).to(tl.int64)
    a += b * n * n
    lu += b * n * n
    order += b * n
    for first in range(0, n, ROWS):
        i = first + tl.arange(0, ROWS)
        tl.store(order + i, i.to(tl.int32), mask=i < n)
        for start in range(0, n, COLUMNS):
            c = start + tl.arange(0, COLUMNS)
            at = i[:, None] * n + c[None, :]
            live = (i < n)[:, None] & (c < n)[None, :]
            tl.store(lu + at, tl.load(a + at, mask=live, other=0).to(WIDE), mask=live)
    tl.debug_barrier()
    turns = tl.full((), 1.0, tl.float64)
    size = tl.full((), 0.0, tl.float64)
    wrong = 0
    for k in range(n):
        best = tl.full((), -1.0, WIDE)
        to = k
        for first in range(k, n, ROWS):
            i = first + tl.arange(0, ROWS)
            v = tl.abs(tl.load(lu + i * n + k, mask=i < n, other=0))
            v = tl.where(i < n, tl.where(v == v, v, float("inf")), -1.0)
            top = tl.max(v)
            to = tl.where(top > best, tl.min(tl.where(v == top, i, n)), to)
            best = tl.maximum(top, best)
        p, q = tl.load(order + k), tl.load(order + to)
        tl.debug_barrier()
        tl.store(order + k, q)
        tl.store(order + to, p)
        for start in range(0, n, COLUMNS):
            c = start + tl.arange(0, COLUMNS)
            u = tl.load(lu + k * n + c, mask=c < n)
            v = tl.load(lu + to * n + c, mask=c < n)
            tl.debug_barrier()
            tl.store(lu + k * n + c, v, mask=c < n)
            tl.store(lu + to * n + c, u, mask=c < n)
        tl.debug_barrier()
        pivot = tl.load(lu + k * n + k)
        wide = pivot.to(tl.float64)
        wrong = tl.where(pivot == 0, 1, wrong)
        turns *= tl.where(to == k, 1.0, -1.0) * tl.where(wide > 0, 1.0, tl.where(wide < 0, -1.0, wide))
        size += tl.log(tl.abs(wide))
        for first in range(k + 1, n, ROWS):
            i = first + tl.arange(0, ROWS)
            f = tl.load(lu + i * n + k, mask=i < n, other=0)
            f = tl.where(pivot == 0, 0, f / pivot)
            for start in range(k + 1, n, COLUMNS):
                c = start + tl.arange(0, COLUMNS)
                at = lu + i[:, None] * n + c[None, :]
                live = (i < n)[:, None] & (c < n)[None, :]
                u = tl.load(lu + k * n + c, mask=c < n, other=0)
                tl.store(at, tl.load(at, mask=live, other=0) - f[:, None] * u[None, :], mask=live)
        tl.debug_barrier()
        for first in range(k + 1, n, ROWS):
            i = first + tl.arange(0, ROWS)
            f = tl.load(lu + i * n + k, mask=i < n, other=0)
            tl.store(lu + i * n + k, tl.where(pivot == 0, 0, f / pivot), mask=i < n)
        tl.debug_barrier()
    tl.store(failed + b, wrong)
    tl.store(sign + b, turns)
    tl.store(log + b, size)


@triton.jit
def _of_determinants(sign, log, y, count: tl.int64, WHAT: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr,
                     BLOCK: tl.constexpr):
    # narrow: numbers of matrices, few
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = e < count
    v = tl.load(sign + e, mask=live, other=0)
    if WHAT != "sign":
        size = tl.load(log + e, mask=live, other=0)
        v = size if WHAT == "log" else tl.where(v == 0, 0, v * tl.exp(size))
    v = v.to(WIDE)
    if ADD:
        v += tl.load(y + e, mask=live, other=0).to(WIDE)
    tl.store(y + e, v.to(y.dtype.element_ty), mask=live)


__all__ = ["cholesky", "determinants", "inverse", "solve"]
Matrices = tuple[int, int]  # how many, and their rows and columns


def _tile(n: int, most: int) -> int:
    return tile_size(n, most, most)


def cholesky(run: Run, sizes: Matrices, a: DeviceArray, y: DeviceArray, *, upper: bool, add: bool) -> DeviceArray:
    """y = (or +=) the lower triangular factor of each a [n, n]; upper: the transposed one, from the upper triangle of a.

    Returns: an int32 for each matrix, not zero where it is not positive definite.
    """
    batch, n = sizes
    wide = wide_float(a)
    low, failed = run.workspace((batch, n, n), np.dtype(wide.name)), run.workspace((batch,), np.int32)
    rows, deep = _tile(n, 32), _tile(n, 32)
    launch(_cholesky, (batch,), a, low, failed, n, *((1, n) if upper else (n, 1)), stream=run.stream, num_stages=1, WIDE=wide,
           ROWS=rows, DEEP=deep)
    total = batch * n * n
    block = block_for(total)
    launch(_triangle, (cdiv(total, block),), low, y, total, n, stream=run.stream, UPPER=upper, ADD=add, BLOCK=block)
    return failed


def solve(run: Run, sizes: tuple[int, int, int], t: DeviceArray, b: DeviceArray, y: DeviceArray, alpha: float, *, lower: bool,
          transpose: bool, rightside: bool, add: bool) -> None:
    """y = (or +=) the solution of T y = alpha b, or y T = alpha b with rightside, for T a triangle of t [n, n] or its transpose.

    b, y: [n, m], with rightside [m, n].
    """
    batch, n, m = sizes
    turned = transpose != rightside  # y T = b is Tᵀ yᵀ = bᵀ
    _solve_by(run, (batch, n, m), t, b, t, y, (1, n) if turned else (n, 1), (1, n) if rightside else (m, 1), alpha,
              lower=lower != turned, unit=False, ordered=False, add=add)


def _solve_by(run: Run, sizes: tuple[int, int, int], t: DeviceArray, b: DeviceArray, order: DeviceArray, y: DeviceArray,
              t_strides: tuple[int, int], b_strides: tuple[int, int], alpha: float, *, lower: bool, unit: bool, ordered: bool,
              add: bool) -> None:
    batch, n, m = sizes
    wide = wide_float(y)
    apart = add or y.dtype.itemsize == 2
    x = run.workspace((batch, n, m), np.dtype(wide.name)) if apart else y
    columns, deep = _tile(m, 32), _tile(n, 32)
    launch(_solve, (batch, cdiv(m, columns)), t, b, order, x, y, n, m, *t_strides, *b_strides, float(alpha), stream=run.stream,
           num_stages=1, LOWER=lower, UNIT=unit, ORDERED=ordered, APART=apart, ADD=add, WIDE=wide, COLUMNS=columns, DEEP=deep)


def _factors(run: Run, sizes: Matrices, a: DeviceArray) -> list[DeviceArray]:
    """Return the factors of each a, the order of its rows, where it is singular, and the determinant's sign and logarithm."""
    batch, n = sizes
    wide = wide_float(a)
    made = [run.workspace(shape, np.dtype(dtype)) for shape, dtype in (
        ((batch, n, n), wide.name), ((batch, n), "int32"), ((batch,), "int32"), ((batch,), "float64"), ((batch,), "float64"))]
    launch(_lu, (batch,), a, *made, n, stream=run.stream, num_stages=1, WIDE=wide, ROWS=_tile(n, 16),
           COLUMNS=_tile(n, 32 if wide.name == "float64" else 64))
    return made


def inverse(run: Run, sizes: Matrices, a: DeviceArray, y: DeviceArray, *, add: bool) -> DeviceArray:
    """y = (or +=) the inverse of each a [n, n]. Returns: an int32 for each matrix, not zero where it is singular."""
    batch, n = sizes
    lu, order, failed, _, _ = _factors(run, sizes, a)
    half = run.workspace((batch, n, n), np.dtype(wide_float(a).name))
    _solve_by(run, (batch, n, n), lu, lu, order, half, (n, 1), (n, 1), 1.0, lower=True, unit=True, ordered=True, add=False)
    _solve_by(run, (batch, n, n), lu, half, order, y, (n, 1), (n, 1), 1.0, lower=False, unit=False, ordered=False, add=add)
    return failed


def determinants(run: Run, sizes: Matrices, a: DeviceArray, outputs: list[DeviceArray], what: tuple[str, ...], reqs: Reqs
                 ) -> None:
    """outputs [batch] = (or +=) "det", "sign" or "log" (of the absolute value) of the determinant of each a [n, n]."""
    _, _, _, sign, log = _factors(run, sizes, a)
    block = block_for(sizes[0], 128)
    for y, one, req in zip(outputs, what, reqs):
        if req != Req.NULL:
            launch(_of_determinants, (cdiv(sizes[0], block),), sign, log, y, sizes[0], stream=run.stream, WHAT=one,
                   ADD=req == Req.ADD, WIDE=wide_float(y), BLOCK=block)
