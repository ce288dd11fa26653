"""Row-sparse arrays: some rows of an array that is 0 elsewhere, such as the gradient of an embedding. `mx.nd.sparse`.

Stores and optimizers use them to read and write only those rows. Operators take dense arrays: see `tostype`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...context import Context, current_context
from ...errors import ParameterError, ShapeError
from ..functions.creation import array, zeros
from .ndarray import NDArray

_NAME = "row_sparse_array"


class RowSparseNDArray:
    """Rows `rows` of an array of `shape`, one after another in `data`.

    rows:   [n] int64, ascending, each once; on the host.
    data:   [n, *shape[1:]].
    """

    stype = "row_sparse"

    def __init__(self, rows: np.ndarray, data: NDArray, shape: tuple[int, ...]):
        self.rows, self.data, self.shape = rows, data, shape
        self.context = self.ctx = data.context

    @property
    def indices(self) -> NDArray:
        """The indices of the rows, as an int64 array."""
        return array(self.rows, ctx=self.context, dtype="int64")

    @property
    def dtype(self) -> type[np.generic]:
        """The element type as NumPy's class."""
        return self.data.dtype

    @property
    def size(self) -> int:
        """The number of elements of the dense array."""
        return int(np.prod(self.shape))

    @overload
    def tostype(self, stype: Literal["default"]) -> NDArray: ...
    @overload
    def tostype(self, stype: str) -> NDArray | RowSparseNDArray: ...
    def tostype(self, stype: str) -> NDArray | RowSparseNDArray:
        """Return a dense array ("default"), or self ("row_sparse")."""
        if stype == "row_sparse":
            return self
        if stype != "default":
            raise ParameterError(f"tostype: {stype!r} is not 'default' or 'row_sparse'.")
        dense = zeros(self.shape, ctx=self.context, dtype=self.dtype)
        if len(self.rows):
            dense[self.rows] = self.data
        return dense

    def asnumpy(self) -> np.ndarray:
        """Return the dense array as a NumPy array."""
        return self.tostype("default").asnumpy()

    def as_in_context(self, context: Context) -> RowSparseNDArray:
        """Return self if it is on context, else a copy there."""
        return self if context == self.context else RowSparseNDArray(self.rows, self.data.as_in_context(context), self.shape)

    def copy(self) -> RowSparseNDArray:
        """Return a copy."""
        return RowSparseNDArray(self.rows.copy(), self.data.copy(), self.shape)

    def retain(self, indices: NDArray | ArrayLike) -> RowSparseNDArray:
        """Return an array of those rows whose indices are among `indices`, which must ascend."""
        wanted = _rows(indices, self.shape)
        kept = np.flatnonzero(np.isin(self.rows, wanted))
        return RowSparseNDArray(self.rows[kept], self.data[kept], self.shape)

    def wait_to_read(self) -> None:
        """Block until all writes pushed so far are done."""
        self.data.wait_to_read()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<RowSparseNDArray {'x'.join(map(str, self.shape))} with {len(self.rows)} rows @{self.context}>"


def row_sparse_array(arg1: Any,
                     shape: Sequence[int] | None = None, ctx: Context | None = None,
                     dtype: DTypeLike | None = None) -> RowSparseNDArray:
    """Return a row-sparse array, as MXNet's function of this name.

    arg1:   (data, indices), rows [n, ...] and their ascending indices; or a dense array, whose nonzero rows are taken; or a
            shape, for an array without rows; or a row-sparse array.
    shape:  of the dense array; by default with as many rows as the last index needs.
    Raises: ParameterError for indices that do not ascend; ShapeError for data, indices and shape that do not fit.
    """
    if isinstance(arg1, RowSparseNDArray):
        data = arg1.data.as_in_context(ctx or arg1.context)
        return RowSparseNDArray(arg1.rows, data if dtype is None else data.astype(dtype), arg1.shape)
    if isinstance(arg1, tuple) and all(isinstance(n, (int, np.integer)) for n in arg1):
        return RowSparseNDArray(np.zeros(0, np.int64), zeros((0, *arg1[1:]), ctx=ctx, dtype=dtype), tuple(map(int, arg1)))
    if isinstance(arg1, tuple) and len(arg1) == 2:
        data = arg1[0] if isinstance(arg1[0], NDArray) and dtype is None else array(arg1[0], ctx=ctx, dtype=dtype)
        rows = _rows(arg1[1], shape)
        full = (int(rows[-1]) + 1 if len(rows) else 0, *data.shape[1:]) if shape is None else tuple(map(int, shape))
        if data.shape != (len(rows), *full[1:]):
            raise ShapeError(f"{_NAME}: data {data.shape} is not {len(rows)} rows of an array of shape {full}.")
        return RowSparseNDArray(rows, data.as_in_context(ctx or data.context), full)
    dense = array(arg1, ctx=ctx or (arg1.context if isinstance(arg1, NDArray) else current_context()), dtype=dtype)
    rows = np.flatnonzero(dense.asnumpy().reshape(dense.shape[0], -1).any(axis=1)).astype(np.int64)
    return RowSparseNDArray(rows, dense[rows], tuple(dense.shape))


def sparse_zeros(stype: str, shape: Sequence[int], ctx: Context | None = None, dtype: DTypeLike | None = None
                 ) -> NDArray | RowSparseNDArray:
    """Return an array of zeros: dense for "default", without rows for "row_sparse"."""
    if stype == "row_sparse":
        return row_sparse_array(tuple(shape), ctx=ctx, dtype=dtype)
    if stype == "default":
        return zeros(shape, ctx=ctx, dtype=dtype)
    raise ParameterError(f"sparse.zeros: stype={stype!r} is not 'row_sparse' or 'default'.")


def _rows(indices: NDArray | ArrayLike, shape: Sequence[int] | None) -> np.ndarray:
    rows = np.asarray(indices.asnumpy() if isinstance(indices, NDArray) else indices, np.int64).reshape(-1)
    if (rows[1:] <= rows[:-1]).any():
        raise ParameterError(f"{_NAME}: the indices of rows must ascend, each once. Sort them, and add up equal ones.")
    if len(rows) and (rows[0] < 0 or (shape is not None and rows[-1] >= shape[0])):
        raise ShapeError(f"{_NAME}: row indices from {rows[0]} to {rows[-1]} do not fit the shape {shape}.")
    return rows


FUNCTIONS = {"RowSparseNDArray": RowSparseNDArray, "row_sparse_array": row_sparse_array, "zeros": sparse_zeros}
