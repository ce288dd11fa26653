"""Triton: softmax along any axis, its derivative, and the derivative of SoftmaxOutput."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run
from .softmax import Rows

if TYPE_CHECKING:
    from ..loss.softmax_output import SoftmaxOutput


@triton.jit
def _rounded(v, HALVES: tl.constexpr):
    if HALVES:
        return v.to(tl.float16).to(tl.float32)
    else:
        return v


@triton.jit
def _forward(x, y, length, outer: tl.int64, N, inner: tl.int64, scale, UNIT: tl.constexpr, LOG: tl.constexpr,
             LENGTH: tl.constexpr, HALVES: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr,
             BC: tl.constexpr):
    inner = inner * UNIT
    rows = outer * inner
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    base = ((r // inner) * N * inner + r % inner)[:, None]
    live = (r < rows)[:, None]
    end = tl.zeros((BR, 1), tl.int64) + N
    if LENGTH:
        end = tl.minimum(end, tl.load(length + r, mask=r < rows, other=0).to(tl.int64)[:, None])
    top = tl.full((BR, 1), float("-inf"), WIDE)
    for start in range(0, N, BC):
        c = (start + tl.arange(0, BC))[None, :]
        v = tl.load(x + base + c * inner, mask=live & (c < end), other=0).to(WIDE) * scale
        top = tl.maximum(top, tl.max(tl.where(c < end, v, float("-inf")), axis=1, keep_dims=True))
    total = tl.zeros((BR, 1), WIDE)
    for start in range(0, N, BC):
        c = (start + tl.arange(0, BC))[None, :]
        v = tl.load(x + base + c * inner, mask=live & (c < end), other=0).to(WIDE) * scale
        e = tl.exp(_rounded(v - top, HALVES))
        total += tl.sum(tl.where(c < end, e, 0), axis=1, keep_dims=True)
    total = _rounded(total, HALVES)
    for start in range(0, N, BC):
        c = (start + tl.arange(0, BC))[None, :]
        v = tl.load(x + base + c * inner, mask=live & (c < end), other=0).to(WIDE) * scale
        if LOG:
            out = tl.where(c < end, _rounded(v - top, HALVES) - tl.log(total), float("-inf"))
        else:
            out = tl.where(c < end, _rounded(tl.exp(_rounded(v - top, HALVES)), HALVES) / total, 0)
        out = _rounded(out, HALVES)
        if ADD:
            out += tl.load(y + base + c * inner, mask=live & (c < N), other=0).to(WIDE)
        tl.store(y + base + c * inner, out.to(y.dtype.element_ty), mask=live & (c < N))


@triton.jit
def _backward(dy, y, dx, outer: tl.int64, N, inner: tl.int64, scale, UNIT: tl.constexpr, LOG: tl.constexpr,
              ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    inner = inner * UNIT
    rows = outer * inner
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    base = ((r // inner) * N * inner + r % inner)[:, None]
    live = (r < rows)[:, None]
    total = tl.zeros((BR, 1), WIDE)
    for start in range(0, N, BC):
        c = (start + tl.arange(0, BC))[None, :]
        g = tl.load(dy + base + c * inner, mask=live & (c < N), other=0).to(WIDE)
        if not LOG:
            g = g * tl.load(y + base + c * inner, mask=live & (c < N), other=0).to(WIDE)
        total += tl.sum(g, axis=1, keep_dims=True)
    for start in range(0, N, BC):
        c = (start + tl.arange(0, BC))[None, :]
        g = tl.load(dy + base + c * inner, mask=live & (c < N), other=0).to(WIDE)
        v = tl.load(y + base + c * inner, mask=live & (c < N), other=0).to(WIDE)
        if LOG:
            out = (g - tl.exp(v) * total) * scale
        else:
            out = v * (g - total) * scale
        if ADD:
            out += tl.load(dx + base + c * inner, mask=live & (c < N), other=0).to(WIDE)
        tl.store(dx + base + c * inner, out.to(dx.dtype.element_ty), mask=live & (c < N))


@triton.jit
def softmax_rows(x, y, rows: tl.int64, N, scale, UNIT: tl.constexpr, LOG: tl.constexpr, ADD: tl.constexpr,
                 WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # whole rows at once: read once and written once
    N = N * UNIT
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    live = (r < rows)[:, None] & (c < N)[None, :]
    at = r[:, None] * N + c[None, :]
    v = tl.load(x + at, mask=live, other=0).to(WIDE) * scale
    v = tl.where((c < N)[None, :], v, float("-inf"))
    v = v - tl.max(v, axis=1, keep_dims=True)
    e = tl.exp(v)
    total = tl.sum(e, axis=1, keep_dims=True)
    if LOG:
        out = v - tl.log(total)
    else:
        out = e / total
    if ADD:
        out += tl.load(y + at, mask=live, other=0).to(WIDE)
    tl.store(y + at, out.to(y.dtype.element_ty), mask=live)


@triton.jit
def softmax_rows_gradient(dy, y, dx, rows: tl.int64, N, scale, UNIT: tl.constexpr, LOG: tl.constexpr,
                          ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    N = N * UNIT
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    live = (r < rows)[:, None] & (c < N)[None, :]
    at = r[:, None] * N + c[None, :]
    g = tl.load(dy + at, mask=live, other=0).to(WIDE)
    v = tl.load(y + at, mask=live, other=0).to(WIDE)
    if LOG:
        out = (g - tl.exp(v) * tl.sum(g, axis=1, keep_dims=True)) * scale
    else:
        out = v * (g - tl.sum(g * v, axis=1, keep_dims=True)) * scale
    if ADD:
        out += tl.load(dx + at, mask=live, other=0).to(WIDE)
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=live)


@triton.jit
def _count_labels(label, count, n, ignored, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    n = n * UNIT
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        k = tl.load(label + i, mask=i < n, other=0).to(tl.int32)
        total += ((i < n) & (k != ignored)).to(tl.int32)
    tl.store(count, tl.maximum(tl.sum(total), 1))


@triton.jit
def _loss(y, label, count, dx, rows: tl.int64, N, inner: tl.int64, scale, ignored, hit, miss,
          UNIT: tl.constexpr, FLAT: tl.constexpr, SOFT: tl.constexpr, IGNORE: tl.constexpr, VALID: tl.constexpr,
          TIMES: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    # FLAT: inner is 1, so a row is contiguous
    N = N * UNIT
    r = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    c = (tl.program_id(1) * BC + tl.arange(0, BC))[None, :]
    if FLAT:
        at = r[:, None] * N + c
    else:
        at = ((r // inner) * N * inner + r % inner)[:, None] + c * inner
    live = (r < rows)[:, None] & (c < N)
    out = tl.load(y + at, mask=live, other=0).to(WIDE)
    if SOFT:
        out = (out - tl.load(label + at, mask=live, other=0).to(WIDE)) * scale
    else:
        k = tl.load(label + r, mask=r < rows, other=0).to(tl.int32)[:, None]
        out = (out - tl.where(c == k, hit, miss)) * scale
        if VALID:
            out = out / tl.load(count).to(WIDE)
        if IGNORE:
            out = tl.where(k == ignored, 0, out)
    if TIMES:
        out = out * tl.load(y + at, mask=live, other=0).to(WIDE)
    if ADD:
        out += tl.load(dx + at, mask=live, other=0).to(WIDE)
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=live)


def _blocks(rows: int, n: int) -> tuple[int, int]:
    """Return the rows and columns of one program."""
    columns = max(16, min(next_power_of_2(n), 1 << 14 if interpreting() else 1 << 12))
    budget = (1 << 17 if interpreting() else 1 << 12) // columns
    return max(1, min(next_power_of_2(rows), budget)), columns


def _columns(outer: int, n: int, inner: int) -> tuple[int, int, int]:
    """Return the lines of [outer, n, inner] per program, the elements of each per step, and a divisor of inner.

    Adjacent lines are read together.
    """
    if inner == 1 or interpreting():
        return *_blocks(outer * inner, n), math.gcd(inner, 16)
    lines = max(1, min(next_power_of_2(outer * inner), 128))
    return lines, max(2, min(next_power_of_2(n), 2048 // lines)), math.gcd(inner, 16)


_LONGEST = 1 << 14  # longest row that one program holds


def _whole_rows(rows: int, n: int) -> dict[str, int]:
    """Return the rows and columns of a program that holds whole rows, its warps, and a divisor of the row length."""
    columns = max(16, next_power_of_2(n))
    height = max(1, min(next_power_of_2(rows), (1 << 17 if interpreting() else 1 << 11) // columns))
    return {"BR": height, "BC": columns, "num_warps": 4 if columns <= 2048 else 8 if columns <= 8192 else 16,
            "UNIT": 1 if n % 8 else 8}


def forward(run: Run, shape: Rows, x: DeviceArray, y: DeviceArray, *, scale: float = 1.0, log: bool = False,
            length: DeviceArray | None = None, halves: bool = False, add: bool = False) -> None:
    """y = (or +=) softmax of scale · x seen as [outer, n, inner], along n; its logarithm with log.

    halves: every step is rounded to float16.
    """
    outer, n, inner = shape
    if inner == 1 and 0 < n <= _LONGEST and length is None and not halves:
        o = _whole_rows(outer, n)
        launch(softmax_rows, (cdiv(outer, o["BR"]),), x, y, outer, n // o["UNIT"], float(scale), stream=run.stream, LOG=log,
               ADD=add, WIDE=wide_float(x), **o)
        return
    br, bc, unit = _columns(outer, n, inner)
    launch(_forward, (cdiv(outer * inner, br),), x, y, x if length is None else length, outer, n, inner // unit,
           float(scale), stream=run.stream, UNIT=unit, LOG=log, LENGTH=length is not None, HALVES=halves, ADD=add,
           WIDE=wide_float(x), BR=br, BC=bc)


def backward(run: Run, shape: Rows, dy: DeviceArray, y: DeviceArray, dx: DeviceArray, *, scale: float, log: bool,
             add: bool) -> None:
    """dx = (or +=) the derivative by x of forward."""
    outer, n, inner = shape
    if inner == 1 and 0 < n <= _LONGEST:
        o = _whole_rows(outer, n)
        launch(softmax_rows_gradient, (cdiv(outer, o["BR"]),), dy, y, dx, outer, n // o["UNIT"], float(scale),
               stream=run.stream, LOG=log, ADD=add, WIDE=wide_float(dx), **o)
        return
    br, bc, unit = _columns(outer, n, inner)
    launch(_backward, (cdiv(outer * inner, br),), dy, y, dx, outer, n, inner // unit, float(scale),
           stream=run.stream, UNIT=unit, LOG=log, ADD=add, WIDE=wide_float(dx), BR=br, BC=bc)


def loss_gradient(run: Run, shape: Rows, p: SoftmaxOutput, scale: float, soft: bool, inputs: Sequence[DeviceArray],
                  dx: DeviceArray, *, add: bool) -> None:
    """dx = (or +=) scale · (y - onehot(label)). p: the SoftmaxOutput; inputs: y, label."""
    outer, n, inner = shape
    rows, valid, ignored = outer * inner, p.normalization == "valid" and not soft, int(p.ignore_label)
    y, label = inputs
    count = dx
    if valid:
        count = run.workspace((1,), np.int32)
        labels = math.prod(label.shape)
        unit = math.gcd(labels, 16)
        launch(_count_labels, (1,), label, count, labels // unit, ignored, stream=run.stream, UNIT=unit,
               BLOCK=block_for(labels, 1024))
    br, bc = _blocks(rows, n)
    miss = p.smoothing / max(1, n - 1)
    unit = math.gcd(n, 16)
    launch(_loss, (cdiv(rows, br), cdiv(n, bc)), y, label, count, dx, rows, n // unit, inner, float(scale), ignored,
           float(1 - p.smoothing), float(miss), stream=run.stream, UNIT=unit, FLAT=inner == 1, SOFT=soft,
           IGNORE=p.use_ignore, VALID=valid, TIMES=p.out_grad, ADD=add, WIDE=wide_float(dx), BR=br, BC=bc)
