"""CSRNDArray: a matrix in compressed sparse rows, such as batches of text or of LibSVM files. `mx.nd.sparse.csr_matrix`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...context import Context, current_context
from ...errors import MissingLibraryError, NotAvailableError, ParameterError, ShapeError
from ..functions.creation import array, zeros
from .ndarray import NDArray
from .sparse import BaseSparseNDArray
from .sparse_core import STORAGE_TYPES, StorageType


class CSRNDArray(BaseSparseNDArray):
    """A matrix of which row i has the elements data[places.indptr[i]:places.indptr[i + 1]], in the columns of `indices` there.

    data:                 [n].
    columns, row_ends:    [n] and [rows + 1] int64, on the host. Columns ascend in each row. `indices` and `indptr` are arrays.
    """

    stype = "csr"

    def __init__(self, data: NDArray, columns: np.ndarray, row_ends: np.ndarray, shape: Sequence[int]):
        super().__init__(data, shape)
        self.columns, self.row_ends = columns, row_ends

    @property
    def indices(self) -> NDArray:
        """The columns of the stored elements, int64[n]."""
        return array(self.columns, ctx=self.context, dtype="int64")

    @property
    def indptr(self) -> NDArray:
        """The position in data of the first element of each row, and the number of elements, int64[rows + 1]."""
        return array(self.row_ends, ctx=self.context, dtype="int64")

    @property
    def rows(self) -> np.ndarray:
        """The row of each stored element, int64[n]."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.row_ends))

    def with_data(self, data: NDArray) -> CSRNDArray:
        return CSRNDArray(data, self.columns, self.row_ends, self.shape)

    def assign(self, other: CSRNDArray) -> None:
        self.data, self.columns, self.row_ends = other.data, other.columns, other.row_ends

    def _dense(self) -> NDArray:
        dense = zeros(self.shape, ctx=self.context, dtype=self.dtype)
        if len(self.columns):
            flat = dense.reshape((-1,))
            flat[array(self.rows * self.shape[1] + self.columns, self.context, "int64")] = self.data
        return dense

    def asscipy(self) -> Any:
        """Return a scipy.sparse.csr_matrix with the same elements."""
        try:
            scipy = importlib.import_module("scipy.sparse")
        except ImportError:
            raise MissingLibraryError("asscipy: SciPy is not installed. Install it with pip install scipy.") from None
        return scipy.csr_matrix((self.data.asnumpy(), self.columns, self.row_ends), shape=self.shape, dtype=self.dtype)

    def part(self, begin: int, end: int) -> CSRNDArray:
        """Return rows begin to end."""
        first, last = self.row_ends[begin], self.row_ends[end]
        return CSRNDArray(self.data[first:last], self.columns[first:last], self.row_ends[begin : end + 1] - first,
                          (end - begin, self.shape[1]))

    def __getitem__(self, key: int | slice) -> CSRNDArray:
        """Return a row, as a matrix of one row, or consecutive rows."""
        rows = self.shape[0]
        if isinstance(key, (int, np.integer)):
            if not -rows <= key < rows:
                raise IndexError(f"csr: row {key} of {rows} rows.")
            return self.part(int(key) % rows, int(key) % rows + 1)
        if not isinstance(key, slice):
            raise NotAvailableError(f"csr: a[{key!r}]: only rows can be selected, a[2] or a[2:5]. Use tostype('default')[...] "
                                    f"for anything else.")
        begin, end, step = key.indices(rows)
        if step != 1:
            raise NotAvailableError(f"csr: a[{begin}:{end}:{step}]: only consecutive rows can be selected. Use "
                                    f"tostype('default')[...] for anything else.")
        return self.part(begin, max(begin, end))

    def __reduce__(self) -> Any:
        return CSRNDArray, (self.data, self.columns, self.row_ends, self.shape)


def _host(values: Any) -> np.ndarray:
    return values.asnumpy() if isinstance(values, NDArray) else np.asarray(values)


def _places(columns: Any, row_ends: Any, count: int, shape: Sequence[int] | None
            ) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Return checked columns, ends of rows and shape of a matrix with count elements."""
    columns, row_ends = _host(columns).astype(np.int64).reshape(-1), _host(row_ends).astype(np.int64).reshape(-1)
    if shape is None:
        shape = (len(row_ends) - 1, int(columns.max()) + 1 if len(columns) else 0)
    rows, width = map(int, shape)
    if len(row_ends) != rows + 1 or row_ends[0] != 0 or row_ends[-1] != len(columns) or (np.diff(row_ends) < 0).any():
        raise ParameterError(f"csr_matrix: indptr must be {rows + 1} numbers that do not fall, from 0 to {len(columns)}, the "
                             f"number of indices.")
    if count != len(columns):
        raise ParameterError(f"csr_matrix: {count} elements for {len(columns)} indices.")
    if len(columns) and not (columns.min() >= 0 and columns.max() < width):
        raise ShapeError(f"csr_matrix: indices from {columns.min()} to {columns.max()} in a matrix of {width} columns.")
    return columns, row_ends, (rows, width)


def _ascend(columns: np.ndarray, row_ends: np.ndarray) -> bool:
    """Return whether the columns of each row ascend, each once."""
    rises = np.diff(columns) > 0
    ends = row_ends[1:-1]
    rises[ends[(ends > 0) & (ends < len(columns))] - 1] = True
    return bool(rises.all())


def csr_matrix(arg1: Any, shape: Sequence[int] | None = None, ctx: Context | None = None, dtype: DTypeLike | None = None
               ) -> CSRNDArray:
    """Return a matrix in compressed sparse rows.

    arg1:   (data, indices, indptr) or (data, (row, column)), elements in any order, of which equal places add up; or a shape,
            for zeros; or a dense matrix (NDArray, NumPy or lists), a CSRNDArray, or a matrix of scipy.sparse.
    shape:  (rows, columns); by default the smallest.
    dtype:  by default that of the elements given as an array; float32 for lists.
    Raises: ParameterError for places that do not describe a matrix, ShapeError for columns beyond the shape.
    """
    if isinstance(arg1, CSRNDArray):
        found = arg1.as_in_context(ctx or arg1.context)
        return found if dtype is None else found.astype(dtype)
    if hasattr(arg1, "tocsr") and hasattr(arg1, "nnz"):  # a matrix of SciPy
        matrix = arg1.tocsr()
        matrix.sum_duplicates()
        return csr_matrix((matrix.data, matrix.indices, matrix.indptr), matrix.shape, ctx, dtype)
    if isinstance(arg1, tuple) and len(arg1) == 2 and all(isinstance(n, (int, np.integer)) for n in arg1):
        rows, width = map(int, arg1)
        return CSRNDArray(zeros((0,), ctx, dtype), np.zeros(0, np.int64), np.zeros(rows + 1, np.int64), (rows, width))
    if isinstance(arg1, tuple) and len(arg1) == 2 and isinstance(arg1[1], tuple):
        row, column = arg1[1]
        return _from_coordinates(arg1[0], row, column, shape, ctx, dtype)
    if isinstance(arg1, tuple) and len(arg1) == 3:
        data = _elements(arg1[0], ctx, dtype)
        columns, row_ends, shape = _places(arg1[1], arg1[2], data.size, shape)
        if _ascend(columns, row_ends):
            return CSRNDArray(data, columns, row_ends, shape)
        return _from_coordinates(data, np.repeat(np.arange(shape[0]), np.diff(row_ends)), columns, shape, ctx, dtype)
    return dense_to_csr(arg1 if isinstance(arg1, NDArray) else _elements(arg1, ctx, dtype), shape, ctx, dtype)


def _elements(values: Any, ctx: Context | None, dtype: DTypeLike | None) -> NDArray:
    if isinstance(values, NDArray):
        values = values if dtype is None else values.astype(dtype)
        return values.as_in_context(ctx or values.context)
    return array(values, ctx or current_context(), dtype or (values.dtype if isinstance(values, np.ndarray) else None))


def _from_coordinates(data: Any, row: ArrayLike, column: ArrayLike, shape: Sequence[int] | None, ctx: Context | None,
                      dtype: DTypeLike | None) -> CSRNDArray:
    values, row, column = _host(data), _host(row).astype(np.int64), _host(column).astype(np.int64)
    if not len(values) == len(row) == len(column):
        raise ParameterError(f"csr_matrix: {len(values)} elements, {len(row)} rows and {len(column)} columns: these differ.")
    rows, width = shape or (int(row.max()) + 1, int(column.max()) + 1)
    if len(row) and not (row.min() >= 0 and row.max() < rows and column.min() >= 0 and column.max() < width):
        raise ShapeError(f"csr_matrix: rows up to {row.max()} and columns up to {column.max()} in a matrix of {rows} x {width}.")
    places, which = np.unique(row * width + column, return_inverse=True)
    sums = np.zeros(len(places), values.dtype)
    np.add.at(sums, which, values)
    row_ends = np.searchsorted(places, np.arange(rows + 1) * width)
    return CSRNDArray(array(sums, ctx, dtype or values.dtype), places % max(width, 1), row_ends, (rows, width))


def dense_to_csr(dense: NDArray, shape: Sequence[int] | None = None, ctx: Context | None = None, dtype: DTypeLike | None = None
                 ) -> CSRNDArray:
    """Return the nonzero elements of a dense matrix. Waits for it. Raises ShapeError for another number of axes."""
    if dense.ndim != 2:
        raise ShapeError(f"csr: an array of shape {dense.shape} is not a matrix: only two axes can be stored as csr.")
    if shape is not None and tuple(shape) != dense.shape:
        raise ShapeError(f"csr_matrix: shape={tuple(shape)}, but the dense matrix is {dense.shape}.")
    dense = dense if dtype is None else dense.astype(dtype)
    places = np.flatnonzero(dense.asnumpy())
    rows, width = dense.shape
    data = dense.reshape((-1,))[places] if len(places) else zeros((0,), dense.context, dense.dtype)
    return CSRNDArray(data.as_in_context(ctx or dense.context), places % max(width, 1),
                      np.searchsorted(places, np.arange(rows + 1) * width), dense.shape)


STORAGE_TYPES["csr"] = StorageType(
    lambda source, ctx=None, dtype=None: csr_matrix(source, None, ctx, dtype),
    lambda shape, ctx=None, dtype=None: csr_matrix(tuple(shape), None, ctx, dtype))
