"""Row-sparse contributions: rows of a value, by number. Adding them up, and cutting them by where the rows live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...context import Context
from ...errors import ShapeError
from ...ndarray import NDArray, RowSparseNDArray, empty
from ...ndarray.dispatch.copy import host, store_host
from ..array_ops import queue


class Rows(NamedTuple):
    """Some rows of an array. numbers [n] int64, ascending; values [n, ...]."""

    numbers: np.ndarray
    values: np.ndarray

    def into(self, dense: np.ndarray) -> np.ndarray:
        """dense, of the whole's shape, with these rows, and 0 elsewhere."""
        dense.fill(0)
        dense[self.numbers] = self.values
        return dense


def add(contributions: Sequence[Rows]) -> Rows:
    """The sum: each row is added up from the first contribution to the last."""
    if len(contributions) == 1:
        return contributions[0]
    numbers = np.unique(np.concatenate([c.numbers for c in contributions]))
    total = np.zeros((len(numbers), *contributions[0].values.shape[1:]), contributions[0].values.dtype)
    with np.errstate(all="ignore"):
        for c in contributions:
            total[np.searchsorted(numbers, c.numbers)] += c.values
    return Rows(numbers, total)


def add_up_rows(arrays: Sequence[RowSparseNDArray], ctx: Context, priority: int = 0) -> RowSparseNDArray:
    """The sum of row-sparse arrays on ctx, by an engine function. A lone array that is there already is itself."""
    first = arrays[0]
    if len(arrays) == 1 and first.context == ctx:
        return first
    numbers = np.unique(np.concatenate([a.rows for a in arrays]))
    total = empty((len(numbers), *first.shape[1:]), ctx=ctx, dtype=first.dtype)

    def run(_: Any) -> None:
        store_host(total, add([Rows(numbers[:0], host(total)[:0]), *(Rows(a.rows, host(a.data)) for a in arrays)]).values)

    queue("kvstore.add_up_rows", run, [a.data for a in arrays], [total], priority)
    return RowSparseNDArray(numbers, total, first.shape)


def row_numbers(ids: NDArray, shape: Sequence[int]) -> np.ndarray:
    """The numbers in ids, ascending, each once. Raises ShapeError unless an array of shape has all of these rows."""
    numbers = np.unique(ids.asnumpy().astype(np.int64))
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < shape[0]:
        raise ShapeError(f"KVStore.row_sparse_pull: row numbers from {numbers[0]} to {numbers[-1]}; the value has {shape[0]} "
                         f"rows.")
    return numbers


def aligned(parts: Sequence[Sequence[int]], shape: Sequence[int]) -> bool:
    """Whether no row of an array of `shape` lies on two of its parts (shard, start, stop)."""
    width = row_size(shape)
    return bool(shape) and width > 0 and all(start % width == 0 and stop % width == 0 for _, start, stop in parts)


def part_shape(shape: Sequence[int], parts: Sequence[Sequence[int]], part: int) -> tuple[int, ...]:
    """The shape of one part of an array: its rows, where no row lies on two parts, else flat."""
    _, start, stop = parts[part]
    if len(parts) == 1:
        return tuple(shape)
    return ((stop - start) // row_size(shape), *shape[1:]) if aligned(parts, shape) else (stop - start,)


def row_size(shape: Sequence[int]) -> int:
    """Elements of a row."""
    return int(np.prod(shape[1:], dtype=np.int64))
