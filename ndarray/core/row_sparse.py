"""Row-sparse arrays: some rows of an array that is 0 elsewhere, such as the gradient of an embedding. `mx.nd.sparse`.

Stores and optimizers use them to read and write only those rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...context import Context, current_context
from ...errors import NotAvailableError, ParameterError, ShapeError
from ..functions.creation import array, zeros
from .ndarray import NDArray
from .sparse import BaseSparseNDArray
from .sparse_core import STORAGE_TYPES, StorageType

_NAME = "row_sparse_array"


class RowSparseNDArray(BaseSparseNDArray):
    """Rows `rows` of an array of `shape`, one after another in `data`.

    rows:   [n] int64, ascending, each once; on the host.
    data:   [n, *shape[1:]].
    """

    stype = "row_sparse"

    def __init__(self, rows: np.ndarray, data: NDArray, shape: Sequence[int]):
        super().__init__(data, shape)
        self.rows = rows

    @property
    def indices(self) -> NDArray:
        """The indices of the rows, as an int64 array."""
        return array(self.rows, ctx=self.context, dtype="int64")

    def with_data(self, data: NDArray) -> RowSparseNDArray:
        return RowSparseNDArray(self.rows, data, self.shape)

    def assign(self, other: RowSparseNDArray) -> None:
        self.rows, self.data = other.rows, other.data

    def _dense(self) -> NDArray:
        dense = zeros(self.shape, ctx=self.context, dtype=self.dtype)
        if len(self.rows):
            dense[self.rows] = self.data
        return dense

    def retain(self, indices: NDArray | ArrayLike) -> RowSparseNDArray:
        """Return an array of those rows whose indices are among `indices`, which must ascend."""
        kept = np.flatnonzero(np.isin(self.rows, _rows(indices, self.shape)))
        return RowSparseNDArray(self.rows[kept], self.data[kept], self.shape)

    def __getitem__(self, key: Any) -> RowSparseNDArray:
        """Return self for a[:]; other parts are not available, as in MXNet."""
        if isinstance(key, slice) and key == slice(None):
            return self
        raise NotAvailableError(f"row_sparse: a[{key!r}]: only a[:] is available. Use retain(indices) for rows, or "
                                f"tostype('default')[...].")

    def __reduce__(self) -> Any:
        return RowSparseNDArray, (self.rows, self.data, self.shape)


def row_sparse_array(arg1: Any,
                     shape: Sequence[int] | None = None, ctx: Context | None = None,
                     dtype: DTypeLike | None = None) -> RowSparseNDArray:
    """Return a row-sparse array, as MXNet's function of this name.

    arg1:   (data, indices), rows [n, ...] and their indices, each once; or a dense array, whose nonzero rows are taken; or a
            shape, for an array without rows; or a row-sparse array.
    shape:  of the dense array; by default with as many rows as the last index needs.
    Raises: ParameterError for equal indices; ShapeError for data, indices and shape that do not fit.
    """
    if isinstance(arg1, RowSparseNDArray):
        data = arg1.data.as_in_context(ctx or arg1.context)
        return RowSparseNDArray(arg1.rows, data if dtype is None else data.astype(dtype), arg1.shape)
    if isinstance(arg1, tuple) and all(isinstance(n, (int, np.integer)) for n in arg1):
        return RowSparseNDArray(np.zeros(0, np.int64), zeros((0, *arg1[1:]), ctx=ctx, dtype=dtype), tuple(map(int, arg1)))
    if isinstance(arg1, tuple) and len(arg1) == 2:
        data = arg1[0] if isinstance(arg1[0], NDArray) and dtype is None else array(arg1[0], ctx=ctx, dtype=dtype)
        given = _host(arg1[1])
        order = np.argsort(given, kind="stable")
        rows = _rows(given[order], shape)
        full = (int(rows[-1]) + 1 if len(rows) else 0, *data.shape[1:]) if shape is None else tuple(map(int, shape))
        if data.shape != (len(rows), *full[1:]):
            raise ShapeError(f"{_NAME}: data {data.shape} is not {len(rows)} rows of an array of shape {full}.")
        if (rows != given).any():
            data = data[order]
        return RowSparseNDArray(rows, data.as_in_context(ctx or data.context), full)
    dense = array(arg1, ctx=ctx or (arg1.context if isinstance(arg1, NDArray) else current_context()), dtype=dtype)
    rows = np.flatnonzero(dense.asnumpy().reshape(dense.shape[0], -1).any(axis=1)).astype(np.int64)
    data = dense[rows] if len(rows) else zeros((0, *dense.shape[1:]), dense.context, dense.dtype)
    return RowSparseNDArray(rows, data, dense.shape)


def _host(indices: NDArray | ArrayLike) -> np.ndarray:
    return np.asarray(indices.asnumpy() if isinstance(indices, NDArray) else indices, np.int64).reshape(-1)


def _rows(indices: NDArray | ArrayLike, shape: Sequence[int] | None) -> np.ndarray:
    rows = _host(indices)
    if (rows[1:] <= rows[:-1]).any():
        raise ParameterError(f"{_NAME}: the indices of rows must ascend, each once. Sort them, and add up equal ones.")
    if len(rows) and (rows[0] < 0 or (shape is not None and rows[-1] >= shape[0])):
        raise ShapeError(f"{_NAME}: row indices from {rows[0]} to {rows[-1]} do not fit the shape {shape}.")
    return rows


STORAGE_TYPES["row_sparse"] = StorageType(
    lambda source, ctx=None, dtype=None: row_sparse_array(source, None, ctx, dtype),
    lambda shape, ctx=None, dtype=None: row_sparse_array(tuple(shape), None, ctx, dtype))
