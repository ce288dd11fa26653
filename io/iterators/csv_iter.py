"""CSVIter: batches from files of comma-separated numbers."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ..text_arguments import accepts_text
from .text_rows import TextIter, TextRows, numbers

_MAX_NUMBER_BYTES = 512


class CSVIter(TextIter):
    """Batches from comma-separated files: one example per line, numbers only, no header. See RowIter for the last batch.

    data_csv:    a file, a folder (all its files, by name), or a URL.
    data_shape:  shape of one example; a line has as many numbers.
    label_csv:   file of the labels, with as many lines. Without it every label is 0.
    label_shape: shape of one label; (1,) gives labels of shape (batch_size,).
    dtype:       float32 unless given.
    num_parts, part_index:  read one part of the lines.
    prefetch_buffer, ctx:   accepted for MXNet's sake, without effect.
    Errors name file and line. Only line ends are searched at first; a line is parsed when its batch is read.
    """

    @accepts_text
    def __init__(self, data_csv: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 label_csv: str | os.PathLike | None = None, label_shape: Sequence[int] = (1,), round_batch: bool = True,
                 num_parts: int = 1, part_index: int = 0, dtype: Any = None, data_name: str = "data",
                 label_name: str = "softmax_label", prefetch_buffer: int = 4, ctx: Any = None):
        self._dtype = as_dtype(dtype or "float32")
        self._shape, shape = tuple(data_shape), tuple(label_shape)
        self._label_shape = () if shape == (1,) else shape
        rows = self._table(data_csv, self._shape)
        label_rows = None if label_csv in (None, "NULL") else self._table(label_csv, shape)
        super().__init__(rows, label_rows, batch_size, round_batch, num_parts, part_index,
                         (data_name, self._shape), (label_name, self._label_shape), self._dtype)

    def _table(self, path: str | os.PathLike, shape: tuple[int, ...]) -> TextRows:
        columns = int(np.prod(shape, dtype=np.int64))

        def parse(text: bytes, rows: int) -> np.ndarray:
            try:
                values = _integers(text, rows, self._dtype) if self._dtype.kind in "iub" else _fields(text, rows)
            except ValueError as e:
                raise ValueError(f"it is not {columns} comma-separated numbers of dtype {self._dtype.name}: "
                                 f"{str(e).rstrip('.')}.") from None
            if values.shape != (rows, columns):
                raise ValueError(f"it has {values.shape[-1]} numbers; shape {shape} takes {columns}.")
            with np.errstate(over="ignore"):  # 1e300 is infinite in float32
                return values.astype(self._dtype, copy=False)

        return TextRows(path, parse, columns * _MAX_NUMBER_BYTES)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = np.concatenate(self._data.take(numbers)).reshape(-1, *self._shape)
        if self._labels is None:
            return data, np.zeros((len(numbers), *self._label_shape), self._dtype)
        return data, np.concatenate(self._labels.take(numbers)).reshape(-1, *self._label_shape)


def _integers(text: bytes, rows: int, dtype: np.dtype) -> np.ndarray:
    """Parse [rows, columns] of an integer dtype; 1.9 and 1.9e0 are 1. Raises ValueError as _fields, and for what does not fit."""
    try:
        return np.loadtxt(io.BytesIO(text), dtype, delimiter=",", comments=None, ndmin=2)  # float64 does not hold every one
    except ValueError:
        whole = np.trunc(_fields(text, rows))
        with np.errstate(invalid="ignore"):
            values = whole.astype(dtype)
        if not np.array_equal(values, whole):
            raise
        return values


def _fields(text: bytes, rows: int) -> np.ndarray:
    """Parse float64[rows, columns]. Raises ValueError unless the text is `rows` lines of equally many fields."""
    if b"\r" in text or text.count(b"\n") >= rows:  # then some lines are empty
        text = b"\n".join(line for line in text.replace(b"\r\n", b"\n").split(b"\n") if line)
    characters = np.frombuffer(text, np.uint8)
    separators = np.flatnonzero((characters == ord(",")) | (characters == ord("\n")))
    values = numbers(text, np.append(0, separators + 1), np.append(separators, len(text)))
    columns, rest = divmod(len(values), rows)
    line_ends = np.flatnonzero(characters[separators] == ord("\n"))
    if rest or not np.array_equal(line_ends, np.arange(columns - 1, len(separators), columns)):
        raise ValueError("its lines have different numbers of fields.")
    return values.reshape(rows, columns)
