"""LibSVMIter: batches from files of sparse rows, `label index:value index:value ...`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...dtype import as_dtype
from ...errors import ParameterError
from ...ndarray import CSRNDArray, array
from ..text_arguments import accepts_text
from .text_rows import TextIter, TextRows, numbers

_MAX_PAIR_BYTES = 512  # of one `index:value`

_SPACE, _COLON, _LINE_END = 1, 2, 3  # kinds of bytes that are not part of a number; 0: not allowed in the text
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b" \t\r,")], _KINDS[ord(":")], _KINDS[ord("\n")] = _SPACE, _COLON, _LINE_END


class _Rows(NamedTuple):
    """A sparse matrix on the host: row i has data[indptr[i]:indptr[i+1]] in the columns
    indices[indptr[i]:indptr[i+1]].

    data float32[n], indices int64[n], indptr int64[rows + 1].
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    def asnumpy(self) -> np.ndarray:
        """Return the dense matrix, float32[rows, columns]."""
        dense = np.zeros(self.shape, self.data.dtype)
        dense[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices] = self.data
        return dense


@dataclass(frozen=True)
class _Parsed:
    labels: np.ndarray  # float32[rows, label width]
    rows: _Rows

    def __getitem__(self, part: slice) -> _Parsed:
        """Slice labels and rows."""
        start, stop, _ = part.indices(self.rows.shape[0])
        a, b = self.rows.indptr[start], self.rows.indptr[stop]
        return _Parsed(self.labels[start:stop],
                       _Rows(self.rows.data[a:b], self.rows.indices[a:b], self.rows.indptr[start : stop + 1] - a,
                                  (stop - start, self.rows.shape[1])))


class LibSVMIter(TextIter):
    """Batches from LibSVM files. A line holds a label and the columns that are not zero, ascending and counted from 0.

    data_libsvm:   a file, a folder (all its files, by name), or a URL.
    data_shape:    (columns,).
    label_libsvm:  a file of the same form whose columns are the label, of label_shape (columns,). It replaces the labels in
        data_libsvm.
    stype:         "csr" gives data as CSRNDArrays; "default" gives dense NDArrays.
    Other parameters: CSVIter's. Errors name file and line.
    """

    @accepts_text
    def __init__(self, data_libsvm: str | os.PathLike, data_shape: Sequence[int] | int, batch_size: int,
                 label_libsvm: str | os.PathLike | None = None, label_shape: Sequence[int] = (1,), round_batch: bool = True,
                 num_parts: int = 1, part_index: int = 0, dtype: Any = None, data_name: str = "data",
                 label_name: str = "softmax_label", stype: str = "csr", prefetch_buffer: int = 4, ctx: Any = None):
        if stype not in ("default", "csr"):
            raise ParameterError(f"LibSVMIter: stype={stype!r} is not 'default' or 'csr'.")
        self._dtype, self._stype = as_dtype(dtype or "float32"), stype
        shape = (data_shape,) if isinstance(data_shape, int) else tuple(data_shape)
        separate = label_libsvm not in (None, "NULL")
        if len(shape) != 1 or len(tuple(label_shape)) != 1:
            raise ParameterError(f"LibSVMIter: data_shape {shape} and label_shape {tuple(label_shape)} must each be one "
                                 f"number, the columns of a row.")
        rows = self._table(data_libsvm, shape[0], 1 if separate else int(label_shape[0]))
        label_rows = self._table(label_libsvm, int(label_shape[0]), 1) if separate and label_libsvm else None
        self._label_shape = tuple(label_shape) if separate or tuple(label_shape) != (1,) else ()
        super().__init__(rows, label_rows, batch_size, round_batch, num_parts, part_index, (data_name, shape),
                         (label_name, self._label_shape), self._dtype)

    def _table(self, path: str | os.PathLike, columns: int, labels: int) -> TextRows:
        return TextRows(path, lambda text, rows: _parse(text, rows, columns, labels, self._dtype),
                        (columns + labels) * _MAX_PAIR_BYTES)

    def read(self, numbers: np.ndarray) -> tuple[Any, np.ndarray]:
        parsed = self._data.take(numbers)
        rows = _stack([p.rows for p in parsed])
        data = rows if self._stype == "csr" else rows.asnumpy()
        if self._labels is None:
            labels = np.concatenate([p.labels for p in parsed])
        else:
            labels = _stack([p.rows for p in self._labels.take(numbers)]).asnumpy()
        return data, labels.reshape(-1, *self._label_shape)

    def getdata(self) -> Any:
        if self._stype != "csr":
            return super().getdata()
        rows: Any = self._values[0]
        return CSRNDArray(array(rows.data, dtype=self._dtype), rows.indices, rows.indptr, rows.shape)


def _stack(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    widths = np.concatenate([np.diff(p.indptr) for p in parts])
    return _Rows(np.concatenate([p.data for p in parts]), np.concatenate([p.indices for p in parts]),
                      np.append(0, np.cumsum(widths)), (len(widths), parts[0].shape[1]))


def _parse(text: bytes, rows: int, columns: int, labels: int, dtype: np.dtype) -> _Parsed:
    """Parse complete rows. Raises ValueError; its text describes a single row, so it is shown for one row only."""
    characters = np.frombuffer(text + b"\n", np.uint8)
    at = np.flatnonzero((characters <= ord(" ")) | (characters == ord(":")) | (characters == ord(",")))
    kind, after_word = _KINDS[characters[at]], np.diff(at, prepend=-1) > 1  # of each byte that is not part of a word
    words = np.cumsum(after_word)
    width = np.diff(words[kind == _LINE_END], prepend=0)  # words of each line
    width = width[width > 0]
    begins = np.cumsum(width) - width
    place = np.arange(words[-1]) - np.repeat(begins, width) - labels  # of each word in its line; negative for labels
    colons = kind == _COLON
    is_index = (place >= 0) & (place & 1 == 0)
    if (len(width) != rows or np.any((width < labels) | (width - labels & 1 > 0))
            or not np.array_equal(colons[after_word], is_index) or np.count_nonzero(colons) != np.count_nonzero(is_index)
            or not after_word[1:][colons[:-1]].all() or not kind.all()):
        raise ValueError(f"it is not {labels} label{'s' * (labels != 1)} and pairs index:value.")
    values = numbers(text, np.append(0, at[:-1] + 1)[after_word], at[after_word])
    index, indptr = values[is_index], np.concatenate([[0], np.cumsum((width - labels) // 2)])
    fits = (index >= 0) & (index < columns) & (index == np.floor(index))
    if not fits.all():
        raise ValueError(f"index {index[~fits][0]:g} is not one of {columns} columns, which are counted from 0.")
    row = np.repeat(np.arange(rows), np.diff(indptr))
    order = np.lexsort((index, row))
    index = index[order]
    if np.any((np.diff(index) == 0) & (np.diff(row) == 0)):
        raise ValueError("an index occurs twice.")
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32
        values = values.astype(dtype)
    return _Parsed(values[place < 0].reshape(rows, labels),
                   _Rows(values[(place > 0) & ~is_index][order], index.astype(np.int64), indptr, (rows, columns)))
