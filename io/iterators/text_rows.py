"""Rows of text files: TextRows finds and parses lines, `numbers` parses fields, TextIter makes batches of them."""

from __future__ import annotations

import bisect
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FileError
from ...integers import cdiv
from ..iterator import DataDesc
from ..plan import BatchPlan
from ..records.files import ByteSource, expand
from .row_iter import RowIter

_SCAN_BYTES = 1 << 24  # line ends are searched in pieces of this size
_BLOCK_BYTES = 1 << 20  # rows are parsed in blocks of about this size


class TextRows:
    """The rows of a text file, or of all files of a folder in the order of their names. Empty lines do not count.

    parse:      (bytes of complete rows, number of rows) -> a value that can be sliced by rows, or ValueError.
    longest:    bytes a row may have; a longer one is refused before it is read.
    """

    def __init__(self, path: str | os.PathLike, parse: Callable[[bytes, int], Any], longest: int):
        self.path = os.fspath(path)
        self._files = [_Lines(p, longest) for p in expand(path)]
        self._parse = parse
        self._first = np.cumsum([0, *(f.rows for f in self._files)]).tolist()
        self.rows: int = self._first[-1]
        self._block: tuple[int, int, Any] = (0, 0, None)  # the rows [start, stop) that were parsed last, and their values

    def take(self, numbers: np.ndarray) -> list[Any]:
        """Return the values of rows int64[n] in this order, in one or more pieces for each run of consecutive rows.

        Raises FileError that names file and line.
        """
        pieces = []
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            start, stop = int(run[0]), int(run[-1]) + 1
            while start < stop:
                block_start, block_stop, values = self._block
                if not block_start <= start < block_stop:
                    block_start, block_stop, values = self._block = self._parse_block(start)
                end = min(stop, block_stop)
                pieces.append(values[start - block_start : end - block_start])
                start = end
        return pieces

    def _parse_block(self, row: int) -> tuple[int, int, Any]:
        """Parse the block of rows that starts here; all are of one file."""
        file = bisect.bisect_right(self._first, row) - 1
        lines, first = self._files[file], self._first[file]
        start = row - first
        stop = lines.block_end(start)
        try:
            values = self._parse(lines.text(start, stop), stop - start)
        except ValueError:
            raise self._first_error(lines, start, stop) from None
        return row, first + stop, values

    def _first_error(self, lines: _Lines, start: int, stop: int) -> FileError:
        for row in range(start, stop):
            try:
                self._parse(lines.text(row, row + 1), 1)
            except ValueError as e:
                return FileError(f"{lines.source.path}: line {lines.number(row):,}: {e}")
        return FileError(f"{lines.source.path}: lines {lines.number(start):,} to {lines.number(stop - 1):,} cannot be read.")

    def check(self) -> None:
        """Raise FileError if a file's size has changed."""
        for lines in self._files:
            lines.source.check()


class _Lines:
    """Start and end of every line of one file that is not empty."""

    def __init__(self, path: str, longest: int):
        self.source = ByteSource(path)
        starts, ends, begin = [], [], 0  # begin: start of the line that continues in the next piece
        for at in range(0, self.source.size, _SCAN_BYTES):
            piece = np.frombuffer(self.source.read(at, min(at + _SCAN_BYTES, self.source.size)), np.uint8)
            newlines = np.flatnonzero(piece == ord("\n")) + at
            after_return = np.zeros(len(newlines), bool)
            after_return[newlines > at] = piece[newlines[newlines > at] - at - 1] == ord("\r")
            begins = np.concatenate([[begin], newlines[:-1] + 1]) if len(newlines) else newlines
            not_empty = newlines - after_return > begins
            starts.append(begins[not_empty])
            ends.append(newlines[not_empty])
            if len(newlines):
                begin = int(newlines[-1]) + 1
        if begin < self.source.size:  # the last line has no newline
            starts.append(np.array([begin]))
            ends.append(np.array([self.source.size]))
        self.starts = np.concatenate([np.empty(0, np.int64), *starts])
        self.ends = np.concatenate([np.empty(0, np.int64), *ends])
        if len(self.starts) and self.starts[0] == 0 and self.source.read(0, min(3, self.source.size)) == b"\xef\xbb\xbf":
            self.starts[0] = 3  # a byte order mark
        self.rows = len(self.starts)
        length = self.ends - self.starts
        if self.rows and length.max() > longest:
            row = int(length.argmax())
            raise FileError(f"{path}: line {self.number(row):,} has {length[row]:,} bytes; a row takes at most {longest:,}.")

    def block_end(self, start: int) -> int:
        """Return the row after the block that starts here: at least one row, about _BLOCK_BYTES in all."""
        return max(start + 1, int(np.searchsorted(self.ends, self.starts[start] + _BLOCK_BYTES)))

    def text(self, start: int, stop: int) -> bytes:
        return self.source.read(int(self.starts[start]), int(self.ends[stop - 1]))

    def number(self, row: int) -> int:
        """Return the line number of a row, from 1, counting empty lines."""
        start = int(self.starts[row])
        return 1 + sum(self.source.read(at, min(at + _SCAN_BYTES, start)).count(b"\n") for at in range(0, start, _SCAN_BYTES))


class TextIter(RowIter):
    """Batches of the rows of a text file, with labels from the same or another file.

    data, label:  name and shape of one example's array.
    """

    def __init__(self, rows: TextRows, label_rows: TextRows | None, batch_size: int, round_batch: bool, num_parts: int,
                 part_index: int, data: tuple[str, tuple[int, ...]], label: tuple[str, tuple[int, ...]], dtype: np.dtype):
        name = type(self).__name__
        if label_rows is not None and label_rows.rows != rows.rows:
            raise FileError(f"{name}: {rows.path} has {rows.rows:,} rows, {label_rows.path} has {label_rows.rows:,}. Every row "
                            f"needs its label.")
        self._data, self._labels = rows, label_rows
        plan = BatchPlan(rows.rows, batch_size, num_parts=num_parts, part_index=part_index, round_batch=round_batch, name=name,
                         source=rows.path)
        super().__init__(rows.path, plan, *(DataDesc(array_name, (batch_size, *shape), dtype.type)
                                            for array_name, shape in (data, label)))

    def reset(self) -> None:
        """Begin the next epoch. Raises FileError if a file's size has changed."""
        super().reset()
        for table in (self._data, self._labels):
            if table is not None:
                table.check()


def numbers(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Parse the words text[starts[i]:ends[i]] to the nearest doubles, float64[n].

    starts, ends:  int64[n], ascending; the words do not overlap.
    Raises ValueError that names the first word that is not a number.
    """
    parse = _pyarrow_parser()
    values = None if parse is None else parse(text, starts, ends)
    if values is None:  # Python decides which words are refused, so that it does not depend on pyarrow
        words = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
        values = np.array([_number(word) for word in words], np.float64)
    return values


def _number(word: bytes) -> float:
    try:
        if b"_" not in word:  # Python accepts 1_000
            return float(word)
    except ValueError:
        pass
    raise ValueError(f"{word[:60]!r} is not a number.")


@functools.cache
def _pyarrow_parser() -> Callable[[bytes, np.ndarray, np.ndarray], np.ndarray | None] | None:
    """Return a function like `numbers` that returns None where Python may decide otherwise; None without pyarrow."""
    try:
        import pyarrow
        from pyarrow import compute
    except ImportError:
        return None
    strings, double = pyarrow.large_string(), pyarrow.float64()

    def parse(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        if not len(starts) or b"(" in text:  # pyarrow accepts nan(1)
            return None
        bounds = np.empty(2 * len(starts), np.int64)
        bounds[0::2], bounds[1::2] = starts, ends
        every_second = np.full(cdiv(len(bounds), 8), 0b01010101, np.uint8)  # the text between words is null
        words = pyarrow.Array.from_buffers(strings, len(bounds) - 1, [pyarrow.py_buffer(b) for b in (every_second, bounds, text)])
        try:
            values = compute.cast(words, double)
        except pyarrow.ArrowInvalid:
            return None
        return np.frombuffer(values.buffers()[1], np.float64, len(values))[0::2]

    return parse
