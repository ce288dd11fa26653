"""LibSVMIter: batches out of files of sparse rows, `label index:value index:value ...`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError, ParameterError
from ...ndarray import NDArray, array
from ..iterator import DataDesc
from ..plan import BatchPlan
from ..text_arguments import accepts_text
from .row_iter import RowIter
from .text_numbers import numbers
from .text_rows import TextRows

_LONGEST_PAIR = 512  # bytes that one `index:value` of a file may take

_BETWEEN, _COLON, _LINE_END = 1, 2, 3  # kinds of bytes that are not in a number; 0: in no text
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b" \t\r,")], _KINDS[ord(":")], _KINDS[ord("\n")] = _BETWEEN, _COLON, _LINE_END


class SparseRows(NamedTuple):
    """Rows of which only some columns are kept: row i has data[indptr[i]:indptr[i+1]] in columns indices[the same].

    data float32[n], indices int64[n], indptr int64[rows + 1]: the layout of scipy.sparse.csr_matrix, which takes them.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    def asnumpy(self) -> np.ndarray:
        """All columns, float32[rows, columns]."""
        dense = np.zeros(self.shape, self.data.dtype)
        dense[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices] = self.data
        return dense

    def tostype(self, stype: str) -> NDArray:
        """The rows as a dense NDArray (stype "default", the only one)."""
        if stype != "default":
            raise ParameterError(f"SparseRows.tostype: stype {stype!r} is not 'default': arrays are dense here.")
        return array(self.asnumpy(), dtype=self.data.dtype)


@dataclass(frozen=True)
class _Parsed:
    labels: np.ndarray  # float32[rows, label width]
    rows: SparseRows

    def __getitem__(self, part: slice) -> _Parsed:
        """Rows [a:b] of both."""
        start, stop, _ = part.indices(self.rows.shape[0])
        a, b = self.rows.indptr[start], self.rows.indptr[stop]
        return _Parsed(self.labels[start:stop],
                       SparseRows(self.rows.data[a:b], self.rows.indices[a:b], self.rows.indptr[start : stop + 1] - a,
                                  (stop - start, self.rows.shape[1])))


class LibSVMIter(RowIter):
    """Batches out of LibSVM files: each line a label and the columns that are not zero, counted from 0, ascending.

    data_libsvm:   a file, a folder (all its files, by name), or a URL.
    data_shape:    (columns,).
    label_libsvm:  a file of the same form whose columns are the label, with label_shape (columns,); the labels in
        data_libsvm are not used then.
    stype:         "default" gives dense NDArrays; "csr" gives data as SparseRows.
    MXNet's other parameters as in CSVIter. Errors name file and line. See RowIter for the last batch.
    """

    @accepts_text
    def __init__(self, data_libsvm: str | os.PathLike, data_shape: Sequence[int] | int, batch_size: int,
                 label_libsvm: str | os.PathLike | None = None, label_shape: Sequence[int] = (1,), round_batch: bool = True,
                 num_parts: int = 1, part_index: int = 0, dtype: Any = None, data_name: str = "data",
                 label_name: str = "softmax_label", stype: str = "default", prefetch_buffer: int = 4, ctx: Any = None):
        if stype not in ("default", "csr"):
            raise ParameterError(f"LibSVMIter: stype={stype!r} is not 'default' or 'csr'.")
        self._dtype, self._stype = as_dtype(dtype or "float32"), stype
        shape = (data_shape,) if isinstance(data_shape, int) else tuple(data_shape)
        separate = label_libsvm not in (None, "NULL")
        if len(shape) != 1 or len(tuple(label_shape)) != 1:
            raise ParameterError(f"LibSVMIter: data_shape {shape} and label_shape {tuple(label_shape)} must each be one "
                                 f"number, the columns of a row.")
        self._data = self._table(data_libsvm, shape[0], 1 if separate else int(label_shape[0]))
        self._labels = self._table(label_libsvm, int(label_shape[0]), 1) if separate and label_libsvm else None
        if self._labels is not None and self._labels.rows != self._data.rows:
            raise FileError(f"LibSVMIter: {os.fspath(data_libsvm)} has {self._data.rows:,} rows, {label_libsvm} has "
                            f"{self._labels.rows:,}. Every row needs its label.")
        label = tuple(label_shape) if separate or tuple(label_shape) != (1,) else ()
        source = os.fspath(data_libsvm)
        super().__init__(source, BatchPlan(self._data.rows, batch_size, num_parts=num_parts, part_index=part_index,
                                      round_batch=round_batch, name="LibSVMIter", source=source),
                         DataDesc(data_name, (batch_size, *shape), self._dtype.type),
                         DataDesc(label_name, (batch_size, *label), self._dtype.type))
        self._label_shape = label

    def _table(self, path: str | os.PathLike, columns: int, labels: int) -> TextRows:
        return TextRows(path, lambda text, rows: _parse(text, rows, columns, labels, self._dtype),
                        (columns + labels) * _LONGEST_PAIR)

    def read(self, numbers: np.ndarray) -> tuple[Any, np.ndarray]:
        parsed = self._data.take(numbers)
        rows = _stack([p.rows for p in parsed])
        data = rows if self._stype == "csr" else rows.asnumpy()
        if self._labels is None:
            labels = np.concatenate([p.labels for p in parsed])
        else:
            labels = _stack([p.rows for p in self._labels.take(numbers)]).asnumpy()
        return data, labels.reshape(-1, *self._label_shape)

    def getdata(self) -> list[Any]:
        return [self._values[0]] if self._stype == "csr" else super().getdata()


def _stack(parts: list[SparseRows]) -> SparseRows:
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(p.data) for p in parts)])
    return SparseRows(np.concatenate([p.data for p in parts]), np.concatenate([p.indices for p in parts]),
                      np.concatenate([[0], *(p.indptr[1:] + b for p, b in zip(parts, before))]),
                      (sum(p.shape[0] for p in parts), parts[0].shape[1]))


def _parse(text: bytes, rows: int, columns: int, labels: int, dtype: np.dtype) -> _Parsed:
    """The rows of a text. Raises ValueError that says what is wrong, of one row in the row's words."""
    characters = np.frombuffer(text + b"\n", np.uint8)
    at = np.flatnonzero((characters <= ord(" ")) | (characters == ord(":")) | (characters == ord(",")))
    kind, behind_word = _KINDS[characters[at]], np.diff(at, prepend=-1) > 1  # of what is not in a word
    words = np.cumsum(behind_word)
    width = np.diff(words[kind == _LINE_END], prepend=0)  # words of each line
    width = width[width > 0]
    begins = np.cumsum(width) - width
    place = np.arange(words[-1]) - np.repeat(begins, width) - labels  # of each word in its line; labels are below 0
    colons = kind == _COLON
    is_index = (place >= 0) & (place & 1 == 0)
    if (len(width) != rows or np.any((width < labels) | (width - labels & 1 > 0))
            or not np.array_equal(colons[behind_word], is_index) or np.count_nonzero(colons) != np.count_nonzero(is_index)
            or not behind_word[1:][colons[:-1]].all() or not kind.all()):
        raise ValueError(f"it is not {labels} label{'s' * (labels != 1)} and pairs index:value.")
    values = numbers(text, np.append(0, at[:-1] + 1)[behind_word], at[behind_word])
    index, indptr = values[is_index], np.concatenate([[0], np.cumsum((width - labels) // 2)])
    fits = (index >= 0) & (index < columns) & (index == np.floor(index))
    if not fits.all():
        raise ValueError(f"index {index[~fits][0]:g} is not one of {columns} columns, which are counted from 0.")
    rises = np.diff(index) > 0
    rises[indptr[(indptr > 0) & (indptr < len(index))] - 1] = True  # where a row begins, an index may be smaller
    if not rises.all():
        raise ValueError("its indices do not ascend.")
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32
        values = values.astype(dtype)
    return _Parsed(values[place < 0].reshape(rows, labels),
                   SparseRows(values[(place > 0) & ~is_index], index.astype(np.int64), indptr, (rows, columns)))
