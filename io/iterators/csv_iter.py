"""CSVIter: batches out of files of comma-separated numbers."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError
from ..iterator import DataDesc
from ..plan import BatchPlan
from ..text_arguments import accepts_text
from .row_iter import RowIter
from .text_numbers import numbers
from .text_rows import TextRows

_LONGEST_NUMBER = 512  # bytes that one number of a file may take


class CSVIter(RowIter):
    """Batches out of comma-separated files, one example a line, numbers only, no header. See RowIter for the last batch.

    data_csv:    a file, a folder (all its files, by name), or a URL.
    data_shape:  of one example; a line has as many numbers.
    label_csv:   the labels' file, as many lines; without it every label is 0.
    label_shape: of one label; (1,) gives labels of shape (batch_size,).
    dtype:       float32 unless given.
    num_parts, part_index:  read one part of the lines.
    prefetch_buffer, ctx:   MXNet's; accepted, and without effect.
    Errors name file and line. Lines are found at once, and read when their batch is asked for.
    """

    @accepts_text
    def __init__(self, data_csv: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 label_csv: str | os.PathLike | None = None, label_shape: Sequence[int] = (1,), round_batch: bool = True,
                 num_parts: int = 1, part_index: int = 0, dtype: Any = None, data_name: str = "data",
                 label_name: str = "softmax_label", prefetch_buffer: int = 4, ctx: Any = None):
        self._dtype = as_dtype(dtype or "float32")
        self._shape, shape = tuple(data_shape), tuple(label_shape)
        self._label_shape = () if shape == (1,) else shape
        self._data = self._table(data_csv, self._shape)
        self._labels = None if label_csv in (None, "NULL") else self._table(label_csv, shape)
        if self._labels is not None and self._labels.rows != self._data.rows:
            raise FileError(f"CSVIter: {os.fspath(data_csv)} has {self._data.rows:,} rows, {label_csv} has "
                            f"{self._labels.rows:,}. Every row needs its label.")
        kind = self._dtype.type
        source = os.fspath(data_csv)
        super().__init__(source, BatchPlan(self._data.rows, batch_size, num_parts=num_parts, part_index=part_index,
                                      round_batch=round_batch, name="CSVIter", source=source),
                         DataDesc(data_name, (batch_size, *self._shape), kind),
                         DataDesc(label_name, (batch_size, *self._label_shape), kind))

    def _table(self, path: str | os.PathLike, shape: tuple[int, ...]) -> TextRows:
        columns = int(np.prod(shape, dtype=np.int64))

        def parse(text: bytes, rows: int) -> np.ndarray:
            try:
                values = _whole_numbers(text, self._dtype) if self._dtype.kind in "iub" else _fields(text, rows)
            except ValueError as e:
                raise ValueError(f"it is not {columns} comma-separated numbers of dtype {self._dtype.name}: {e}") from None
            if values.shape != (rows, columns):
                raise ValueError(f"it has {values.shape[-1]} numbers; shape {shape} takes {columns}.")
            with np.errstate(over="ignore"):  # 1e300 is infinite in float32
                return values.astype(self._dtype, copy=False)

        return TextRows(path, parse, columns * _LONGEST_NUMBER)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = np.concatenate(self._data.take(numbers)).reshape(-1, *self._shape)
        if self._labels is None:
            return data, np.zeros((len(numbers), *self._label_shape), self._dtype)
        return data, np.concatenate(self._labels.take(numbers)).reshape(-1, *self._label_shape)

    def reset(self) -> None:
        super().reset()
        for table in (self._data, self._labels):
            if table is not None:
                table.check()


def _fields(text: bytes, rows: int) -> np.ndarray:
    """The numbers of a text, float64[rows, columns]. Raises ValueError if it is not `rows` lines of as many fields each."""
    if b"\r" in text or text.count(b"\n") >= rows:  # then some lines are empty
        text = b"\n".join(line for line in text.replace(b"\r\n", b"\n").split(b"\n") if line)
    characters = np.frombuffer(text, np.uint8)
    between = np.flatnonzero((characters == ord(",")) | (characters == ord("\n")))
    values = numbers(text, np.append(0, between + 1), np.append(between, len(text)))
    columns, rest = divmod(len(values), rows)
    line_ends = np.flatnonzero(characters[between] == ord("\n"))
    if rest or not np.array_equal(line_ends, np.arange(columns - 1, len(between), columns)):
        raise ValueError("its lines differ in their fields.")
    return values.reshape(rows, columns)


def _whole_numbers(text: bytes, dtype: np.dtype) -> np.ndarray:
    """As _fields, of an integer dtype: 64 bits of one are more than a float64 holds."""
    try:
        return np.loadtxt(io.BytesIO(text), dtype, delimiter=",", comments=None, ndmin=2)
    except ValueError as e:
        raise ValueError(f"{e}.") from None
