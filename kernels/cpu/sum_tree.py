"""Sums on the CPU: in a tree whose shape depends on sizes alone, so that they are accurate and their bits are always the same.

NumPy adds neighbours along the last axis in pairs of pairs, but along any other axis one after the other: over a million rows
three of float32's seven digits are lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...integers import cdiv

T = TypeVar("T")
_FEW, _LONG = 64, 132  # numbers that are added one after the other: short rows, and long ones, whose slabs leave the first cache


def total(values: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The sum of values over axes (ascending, from 0), which stay with size 1; in the dtype of values."""
    for axis in reversed(axes):
        values = _along(values, axis)
    return values


def _along(values: np.ndarray, axis: int) -> np.ndarray:
    dtype, before, after = values.dtype, values.shape[:axis], values.shape[axis + 1:]
    if values.shape[axis] == 1:
        return values
    if math.prod(after) == 1 or dtype.kind != "f":  # neighbours, or integers: exact, and wrapping, in any order
        return np.add.reduce(values, axis=axis, dtype=dtype, keepdims=True)
    all_before = (slice(None),) * axis
    most = _FEW if math.prod(after) < 256 else _LONG
    while (n := values.shape[axis]) > most:
        part = cdiv(n, most)  # slabs of so many rows are added up: long loops, however short a row is
        slabs = n // part
        added = np.add.reduce(values[(*all_before, slice(0, slabs * part))].reshape(*before, slabs, part, *after), axis=axis)
        if n > slabs * part:
            first = added[(*all_before, slice(0, n - slabs * part))]
            np.add(first, values[(*all_before, slice(slabs * part, n))], out=first)
        values = added
    return np.add.reduce(values, axis=axis, keepdims=True)


def combined(function: Callable[[T, T], T], parts: Sequence[T]) -> T:
    """Return all parts combined by function as a balanced tree: neighbours first, then the results of neighbours."""
    parts = list(parts)
    while len(parts) > 1:
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [function(a, b) for a, b in zip(parts[::2], parts[1::2])] + odd
    return parts[0]
