"""Triton: copy between strided views, with conversion, and fill."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from ....integers import cdiv
from ...gpu.launch import launch
from ...gpu.source import tl, triton
from ...gpu.target import CodegenTarget, block_for, codegen_target, interpreting
from ...kernel import DeviceArray, Run
from . import triton_tiles as tiles
from .data_movement import AXES, Strided
from .triton_tiles import converted, put_tile


@triton.jit
def _copy(src, dst, src_base: tl.int64, dst_base: tl.int64, n: tl.int64,
          d1: tl.int64, d2: tl.int64, d3: tl.int64, d4: tl.int64, d5: tl.int64,
          s0: tl.int64, s1: tl.int64, s2: tl.int64, s3: tl.int64, s4: tl.int64, s5: tl.int64,
          t0: tl.int64, t1: tl.int64, t2: tl.int64, t3: tl.int64, t4: tl.int64, t5: tl.int64,
          ADD: tl.constexpr, CUT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: used for views that no tile fits, contiguous in one array and strided in the other
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n
    i5 = i % d5
    r = i // d5
    i4 = r % d4
    r = r // d4
    i3 = r % d3
    r = r // d3
    i2 = r % d2
    r = r // d2
    i1 = r % d1
    i0 = r // d1
    x = tl.load(src + src_base + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4 + i5 * s5, mask=keep)
    at = dst + dst_base + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3 + i4 * t4 + i5 * t5
    put_tile(converted(x, CUT, WIDE), at, keep, ADD, WIDE)


@triton.jit
def _fill(dst, value, n: tl.int64, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * BLOCK
    i = base + tl.arange(0, BLOCK)
    v = (tl.zeros((BLOCK,), tl.float32) + value).to(dst.dtype.element_ty)
    if base + BLOCK <= n:
        tl.store(dst + i, v)
    else:
        tl.store(dst + i, v, mask=i < n)


def fill(run: Run, array: DeviceArray, value: float) -> None:
    """Fill a contiguous array with value."""
    n = array.numel()
    block = block_for(n, 2048)
    launch(_fill, (cdiv(n, block),), array, float(value), n, stream=run.stream, BLOCK=block)


def merge(shape: tuple[int, ...], *strides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Merge axes: return the fewest (size, stride, stride ...) that traverse all strided views, outermost first."""
    axes: list[tuple[int, ...]] = []
    for row in zip(shape, *strides):
        if row[0] == 1:
            continue
        if axes and all(outer == row[0] * inner for outer, inner in zip(axes[-1][1:], row[1:])):
            axes[-1] = (axes[-1][0] * row[0], *row[1:])
        else:
            axes.append(row)
    return axes


def plan(src: Strided, dst: Strided, add: bool, *, by_tiles: bool | None = None) -> Callable[[Any, Any, Any], None]:
    """Return a function (run, source tensor, target tensor) that copies view src to view dst.

    by_tiles: use tiles where they fit; None: only on a real GPU, since the interpreter pays for every program.
    """
    assert src.shape == dst.shape, (src, dst)
    axes = merge(src.shape, src.strides, dst.strides)
    assert len(axes) <= AXES, axes
    n = math.prod(src.shape)
    planned = tiles.plan(axes, src.offset, dst.offset) if n else None
    axes = [(1, 0, 0)] * (AXES - len(axes)) + axes
    sizes, s, t = zip(*axes)
    block = block_for(n, 512)

    def copy(run: Run, source: DeviceArray, target: DeviceArray) -> None:
        names = [str(array.dtype)[6:] for array in (source, target)]
        moved = names[0] == names[1] and not add  # without conversion
        wide = not moved and any(n in ("float16", "bfloat16") for n in names) and names[0] in ("float16", "bfloat16", "float32")
        cut = source.dtype.is_floating_point and not target.dtype.is_floating_point
        if planned and (by_tiles if by_tiles is not None else not interpreting()):
            tiles.copy(run, planned, source, target, add=add, cut=cut, wide=wide)
            return
        launch(_copy, (cdiv(n, block),), source, target, src.offset, dst.offset, n, *sizes[1:], *s, *t,
               stream=run.stream, ADD=add, CUT=cut, WIDE=wide, BLOCK=block)

    return copy


def turn(run: Run, src: DeviceArray, dst: DeviceArray, batch: int, rows: int, columns: int, *, add: bool = False) -> None:
    """Compute dst [batch, columns, rows] = (or +=) src [batch, rows, columns] transposed."""
    _turning(batch, rows, columns, add, codegen_target())(run, src, dst)


@functools.lru_cache(1024)
def _turning(batch: int, rows: int, columns: int, add: bool, codegen: CodegenTarget) -> Callable[[Any, Any, Any], None]:
    """Return the planned copy of `turn` for a code generation target."""
    shape, n = (batch, columns, rows), rows * columns
    return plan(Strided(0, shape, (n, 1, columns)), Strided(0, shape, (n, rows, 1)), add)
