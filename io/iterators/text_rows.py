"""TextRows: the lines of text files. Line ends are found once; the lines of a batch are parsed together."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FileError
from ..records.files import ByteSource, expand

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

    def read(self, start: int, stop: int) -> list[Any]:
        """Return the values of rows [start, stop), in pieces. Raises FileError that names file and line."""
        pieces = []
        while start < stop:
            block_start, block_stop, values = self._block
            if not block_start <= start < block_stop:
                block_start, block_stop, values = self._block = self._parse_block(start)
            end = min(stop, block_stop)
            pieces.append(values[start - block_start : end - block_start])
            start = end
        return pieces

    def take(self, numbers: np.ndarray) -> list[Any]:
        """Return the values of rows int64[n] in this order, in one or more pieces for each run of consecutive rows."""
        is_last = np.append(numbers[1:] != numbers[:-1] + 1, True)  # of a run
        ends = numbers[is_last].tolist()
        starts = [int(numbers[0]), *numbers[1:][is_last[:-1]].tolist()]
        return [piece for start, end in zip(starts, ends) for piece in self.read(start, end + 1)]

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
