"""Triton: arrays computed from indices: ramps, diagonals, one-hot rows."""

from __future__ import annotations

import math

from ....integers import cdiv
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import block_for
from ...kernel import DeviceArray, Run


@triton.jit
def _made(index, y, total: tl.int64, a: tl.float64, b: tl.float64, size: tl.int64, k: tl.int64, HOW: tl.constexpr,
          UNIT: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    # a ramp from a in steps of b, each value size times; or a in one column of each row of this size, and b in the others
    total = total * UNIT
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    row = i // size
    if HOW == "ramp":
        v = a + b * row.to(tl.float64)
    elif HOW == "diagonal":
        v = tl.where(row + k == i % size, a, b)
    else:
        v = tl.where(tl.load(index + row, mask=live, other=0).to(tl.int64) == i % size, a, b)
    if ADD:
        v += tl.load(y + i, mask=live).to(tl.float64)
    tl.store(y + i, v.to(y.dtype.element_ty), mask=live)


def _launch(run: Run, how: str, index: DeviceArray, y: DeviceArray, a: float, b: float, size: int, k: int, add: bool) -> None:
    n = y.numel()
    block, unit = block_for(n), math.gcd(n, 16)
    launch(_made, (cdiv(n, block),), index, y, n // unit, float(a), float(b), size, k, stream=run.stream, HOW=how, UNIT=unit,
           ADD=add, BLOCK=block)


def ramp(run: Run, y: DeviceArray, start: float, step: float, repeat: int, *, add: bool) -> None:
    """y[i] = (or +=) start + step (i // repeat), computed in float64."""
    _launch(run, "ramp", y, y, start, step, repeat, 0, add)


def values(run: Run, y: DeviceArray, numbers: tuple[int, ...], *, add: bool) -> None:
    """Compute y = (or +=) a few integers below 2**53."""
    for i, v in enumerate(numbers):
        ramp(run, y[i:i + 1], v, 0, 1, add=add)


def diagonal(run: Run, y: DeviceArray, columns: int, k: int, *, add: bool) -> None:
    """y [rows, columns] = (or +=) 1 on diagonal k, 0 elsewhere."""
    _launch(run, "diagonal", y, y, 1, 0, columns, k, add)


def one_hot(run: Run, index: DeviceArray, y: DeviceArray, depth: int, on: float, off: float, *, add: bool) -> None:
    """y [..., depth] = (or +=) on at index, off elsewhere."""
    _launch(run, "one hot", index, y, on, off, depth, 0, add)
