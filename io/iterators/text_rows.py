"""Text files read by row: where each line begins, found once; a run of rows, parsed at once."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FileError
from ..records.files import ByteSource, expand

_SCAN_BYTES = 1 << 24  # a file is searched for line ends in pieces of this many bytes
_BLOCK_BYTES = 1 << 20  # rows are parsed in blocks of about so many bytes


class TextRows:
    """The rows of a text file, or of all files of a folder one after another. Empty lines are no rows.

    parse:      (bytes of whole rows, how many) -> a value that can be indexed by rows [a:b], or ValueError.
    longest:    bytes a row may have; a longer one is refused before it is read.
    """

    def __init__(self, path: str | os.PathLike, parse: Callable[[bytes, int], Any], longest: int):
        self._files = [_Lines(p, longest) for p in expand(path)]
        self._parse = parse
        self._first = np.cumsum([0, *(f.rows for f in self._files)]).tolist()
        self.rows: int = self._first[-1]
        self._block: tuple[int, int, Any] = (0, 0, None)  # the rows [from, to) that were parsed last, and their values

    def read(self, start: int, stop: int) -> list[Any]:
        """The values of rows [start, stop), in pieces. Raises FileError that names the file and the line."""
        pieces = []
        while start < stop:
            begin, end, values = self._block
            if not begin <= start < end:
                begin, end, values = self._block = self._parse_block(start)
            upto = min(stop, end)
            pieces.append(values[start - begin : upto - begin])
            start = upto
        return pieces

    def take(self, numbers: np.ndarray) -> list[Any]:
        """The values of rows int64[n] in this order, in pieces: as many as numbers have runs, or more."""
        last = np.append(numbers[1:] != numbers[:-1] + 1, True)  # of a run
        ends = numbers[last].tolist()
        starts = [int(numbers[0]), *numbers[1:][last[:-1]].tolist()]
        return [piece for start, end in zip(starts, ends) for piece in self.read(start, end + 1)]

    def _parse_block(self, row: int) -> tuple[int, int, Any]:
        """The block of rows, all of one file, that begins with this one."""
        which = bisect.bisect_right(self._first, row) - 1
        lines, base = self._files[which], self._first[which]
        start = row - base
        stop = lines.block_end(start)
        try:
            values = self._parse(lines.text(start, stop), stop - start)
        except ValueError:
            raise self._fault(lines, start, stop) from None
        return row, base + stop, values

    def _fault(self, lines: _Lines, start: int, stop: int) -> FileError:
        for row in range(start, stop):
            try:
                self._parse(lines.text(row, row + 1), 1)
            except ValueError as e:
                return FileError(f"{lines.source.path}: line {lines.number(row):,}: {e}")
        return FileError(f"{lines.source.path}: lines {lines.number(start):,} to {lines.number(stop - 1):,} cannot be read.")

    def check(self) -> None:
        """Raises FileError if a file's size has changed."""
        for lines in self._files:
            lines.source.check()


class _Lines:
    """The lines of one file: where each that is not empty begins and ends."""

    def __init__(self, path: str, longest: int):
        self.source = ByteSource(path)
        starts, ends, begin = [], [], 0  # begin: where the line that runs on into the next piece began
        for at in range(0, self.source.size, _SCAN_BYTES):
            piece = np.frombuffer(self.source.read(at, min(at + _SCAN_BYTES, self.source.size)), np.uint8)
            found = np.flatnonzero(piece == ord("\n")) + at
            after_return = np.zeros(len(found), bool)
            after_return[found > at] = piece[found[found > at] - at - 1] == ord("\r")
            begins = np.concatenate([[begin], found[:-1] + 1]) if len(found) else found
            kept = found - after_return > begins
            starts.append(begins[kept])
            ends.append(found[kept])
            if len(found):
                begin = int(found[-1]) + 1
        if begin < self.source.size:  # a last line without an end
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
            raise FileError(f"{path}: line {self.number(row):,} has {length[row]:,} bytes; what it should hold takes at "
                            f"most {longest:,}.")

    def block_end(self, start: int) -> int:
        """The row behind the block that begins with row start: at least one, at most about a block's bytes."""
        return max(start + 1, int(np.searchsorted(self.ends, self.starts[start] + _BLOCK_BYTES)))

    def text(self, start: int, stop: int) -> bytes:
        return self.source.read(int(self.starts[start]), int(self.ends[stop - 1]))

    def number(self, row: int) -> int:
        """The line number of a row, from 1: empty lines count."""
        upto = int(self.starts[row])
        return 1 + sum(self.source.read(at, min(at + _SCAN_BYTES, upto)).count(b"\n") for at in range(0, upto, _SCAN_BYTES))
