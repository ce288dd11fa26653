"""Copies between strided views, with conversion and adding, and fills: the kernels by which arrays on a GPU are moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtype import cast_copy, is_float, is_half
from ...integers import cdiv
from ..ir.strided import Strided, layout, merge
from ..kernel import DeviceArray, Run
from . import copy_tiles as tiles
from .launch import dtype_of, launch, placed
from .source import tl
from .target import block_for, interpreting
from .triton_copy import copy_strided, fill_block, write_place

_AXES = 6  # of one launch

#: copy(run, source, target): one planned copy.
PlannedCopy = Callable[[Run, DeviceArray, DeviceArray], None]


_INTEGERS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


def fill(run: Run, array: DeviceArray, value: float | np.generic, part: Strided | None = None) -> None:
    """Write value, converted to the dtype of a contiguous array, to all of it, or to a part."""
    dtype = dtype_of(array)
    bits = int(cast_copy(np.asarray(value), dtype).view(f"int{8 * dtype.itemsize}"))
    part = part or layout(tuple(array.shape))
    axes = merge(part.shape, part.strides)
    if len(axes) > 1 or (axes and axes[0][1] != 1):
        one = run.workspace((1,), dtype)
        fill(run, one, value)
        plan(Strided(0, part.shape, (0,) * len(part.shape)), part, False)(run, one, array)
        return
    n, unit = math.prod(part.shape), math.gcd(part.offset, 16)
    block = block_for(n, 2048)
    launch(fill_block, (cdiv(n, block),), array, part.offset // unit, n, bits, stream=run.stream, UNIT=unit,
           INTEGER=_INTEGERS[dtype.itemsize], BLOCK=block)


def save_place(run: Run, array: DeviceArray, random: tuple[Any, int]) -> None:
    """Write the place of random numbers to an int64 array [2]. random: as a kernel that draws takes it (`LaunchPlan.run`)."""
    held, seed, offset = placed(random, array)
    launch(write_place, (1,), array, held, seed, offset, stream=run.stream, HELD=held is random[0])


def plan(src: Strided, dst: Strided, add: bool = False, *, by_tiles: bool | None = None) -> PlannedCopy:
    """Return a function (run, source array, target array) that copies view src to view dst, or adds it.

    by_tiles: use tiles where they fit; None: only on a real GPU, since the interpreter pays for every program.
    """
    assert src.shape == dst.shape, (src, dst)
    axes = merge(src.shape, src.strides, dst.strides)
    if len(axes) <= _AXES:
        return _one_launch(axes, src.offset, dst.offset, add, by_tiles)
    outer = sorted(range(len(axes) - 1), key=lambda i: axes[i][0])[:len(axes) - _AXES]  # the shortest but the last
    inner = [axis for i, axis in enumerate(axes) if i not in outer]
    parts = []
    for at in itertools.product(*(range(axes[i][0]) for i in outer)):
        a, b = (v.offset + sum(n * axes[i][k] for n, i in zip(at, outer)) for k, v in ((1, src), (2, dst)))
        parts.append(_one_launch(inner, a, b, add, by_tiles))

    def copy(run: Run, source: DeviceArray, target: DeviceArray) -> None:
        for part in parts:
            part(run, source, target)

    return copy


def _one_launch(axes: list[tuple[int, ...]], src_base: int, dst_base: int, add: bool, by_tiles: bool | None) -> PlannedCopy:
    """Plan the copy along (size, step in the source, step in the target) of each axis."""
    n = math.prod(axis[0] for axis in axes)
    planned = tiles.plan(axes, src_base, dst_base) if n else None
    axes = [(1, 0, 0)] * (_AXES - len(axes)) + axes
    sizes, s, t = zip(*axes)
    block = block_for(n, 512)

    def copy(run: Run, source: DeviceArray, target: DeviceArray) -> None:
        have, want = dtype_of(source), dtype_of(target)
        wide = (add or have != want) and (is_half(have) or (is_half(want) and have == np.float32))
        cut = is_float(have) and not is_float(want)
        if planned and (by_tiles if by_tiles is not None else not interpreting()):
            tiles.copy(run, planned, source, target, add=add, cut=cut, wide=wide)
            return
        launch(copy_strided, (cdiv(n, block),), source, target, src_base, dst_base, n, *sizes[1:], *s, *t,
               stream=run.stream, ADD=add, CUT=cut, WIDE=wide, BLOCK=block)

    return copy
