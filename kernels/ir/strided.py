"""Strided views of contiguous arrays, as offset, shape and strides in elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..op import Shape

#: A function from a contiguous NumPy array to a view of it, never to a copy: slicing, transposing, reshaping, broadcasting.
View = Callable[[np.ndarray], np.ndarray]


def whole(a: np.ndarray) -> np.ndarray:
    """Return a itself: the view of all elements."""
    return a


def shaped(shape: Shape) -> View:
    """Return the view of a contiguous array as another shape of the same size."""
    return lambda a: a.reshape(shape)


@dataclass(frozen=True, slots=True)
class Strided:
    """A view without its array: offset and strides, in elements."""

    offset: int
    shape: Shape
    strides: tuple[int, ...]


def layout(shape: Shape, view: View = whole) -> Strided:
    """Return offset and strides of view in a contiguous array of this shape, without touching elements."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(d, 1)
    base = np.empty(1, np.int8)
    seen = view(np.lib.stride_tricks.as_strided(base, shape, strides[::-1]))
    offset = seen.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return Strided(offset if seen.size else 0, seen.shape, seen.strides)


def merge(shape: Shape, *strides: tuple[int, ...]) -> list[tuple[int, ...]]:
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
