"""Row-sparse contributions: their sum, and the slices of whole rows in which they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...context import Context
from ...ndarray import NDArray, RowSparseNDArray, empty
from ...ndarray.dispatch.copy import host, store_host
from ..array_ops import check_row_indices, queue


class Rows(NamedTuple):
    """Some rows of an array. indices [n] int64, ascending; values [n, ...]."""

    indices: np.ndarray
    values: np.ndarray

    def into(self, dense: np.ndarray) -> np.ndarray:
        """Write these rows to dense, which has the shape of the whole array, and 0 to its other rows."""
        dense.fill(0)
        dense[self.indices] = self.values
        return dense


def add(contributions: Sequence[Rows]) -> Rows:
    """Return the sum. Each row is added up from the first contribution to the last."""
    if len(contributions) == 1:
        return contributions[0]
    indices = np.unique(np.concatenate([c.indices for c in contributions]))
    total = np.zeros((len(indices), *contributions[0].values.shape[1:]), contributions[0].values.dtype)
    with np.errstate(all="ignore"):
        for c in contributions:
            total[np.searchsorted(indices, c.indices)] += c.values
    return Rows(indices, total)


def add_up_rows(arrays: Sequence[RowSparseNDArray], ctx: Context, priority: int = 0) -> RowSparseNDArray:
    """Return the sum of row-sparse arrays on ctx, computed by an engine function. A single array on ctx is returned itself."""
    first = arrays[0]
    if len(arrays) == 1 and first.context == ctx:
        return first
    indices = np.unique(np.concatenate([a.rows for a in arrays]))
    total = empty((len(indices), *first.shape[1:]), ctx=ctx, dtype=first.dtype)

    def run(_: Any) -> None:
        store_host(total, add([Rows(indices[:0], host(total)[:0]), *(Rows(a.rows, host(a.data)) for a in arrays)]).values)

    queue("kvstore.add_up_rows", run, [a.data for a in arrays], [total], priority)
    return RowSparseNDArray(indices, total, first.shape)


def row_indices(ids: NDArray, shape: Sequence[int]) -> np.ndarray:
    """Return the distinct indices in ids, ascending. Raises ShapeError for a row that an array of shape does not have."""
    indices = np.unique(ids.asnumpy().astype(np.int64))
    check_row_indices(indices, shape[0])
    return indices


def splits_between_rows(slices: Sequence[Sequence[int]], shape: Sequence[int]) -> bool:
    """Return whether every row of an array of `shape` lies in one of its slices (server, start, stop)."""
    width = row_size(shape)
    return bool(shape) and width > 0 and all(start % width == 0 and stop % width == 0 for _, start, stop in slices)


def slice_shape(shape: Sequence[int], slices: Sequence[Sequence[int]], index: int) -> tuple[int, ...]:
    """Return the shape of one slice of an array: its rows if the array is split between rows, otherwise flat."""
    _, start, stop = slices[index]
    if len(slices) == 1:
        return tuple(shape)
    if splits_between_rows(slices, shape):
        return (stop - start) // row_size(shape), *shape[1:]
    return (stop - start,)


def row_size(shape: Sequence[int]) -> int:
    return int(np.prod(shape[1:], dtype=np.int64))
