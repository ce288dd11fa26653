"""RecordFile: the records of one RecordIO file by number, read by any thread; what is damaged is passed over and known."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import FileError
from .files import ByteSource, is_url
from .framing import FIRST, HEAD, LAST, LENGTH_BITS, MAGIC, MAGIC_BYTES, MAX_PART, MIDDLE, WHOLE, Damage, find_heads, tell_damage

_WINDOW = 1 << 20  # bytes read at once; an index may leave records out, so the next one can be far away


class RecordFile:
    """Record i of a file is the i-th from its front.

    path:      a local path or a URL.
    idx_path:  its index, lines of `key<TAB>byte offset`; then the records are those it lists. If it is missing, or points
               where no record begins, the heads are searched in the file and a warning says so.
    tolerant:  damaged places are passed over, and listed in `damage`; otherwise the first is a FileError.
    Each head is found by its magic number, which stands nowhere else at a multiple of 4, so reading goes on at the next
    good head after any damage.
    """

    def __init__(self, path: str | os.PathLike, idx_path: str | os.PathLike | None = None, *, tolerant: bool = False):
        self.source = ByteSource(path)
        self.path = self.source.path
        self.damage: list[Damage] = []
        offsets = self._from_index(os.fspath(idx_path)) if idx_path else None
        if offsets is None:
            offsets, self.damage = find_heads(self.source)
            if self.damage and not tolerant:
                raise FileError(f"{tell_damage(self.path, offsets, self.damage)}. Give on_error='skip' to go on at the next "
                                f"record, or write the file anew.")
        self.offsets = offsets
        self._checksum: int | None = None  # of the offsets, once somebody asked
        self._ends = np.append(offsets[1:], self.source.size)
        for lost in self.damage:  # what stands before damage ends there, not at the next record
            before = int(np.searchsorted(offsets, lost.start)) - 1
            if before >= 0:
                self._ends[before] = min(self._ends[before], lost.start)

    def __len__(self) -> int:
        return len(self.offsets)

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """The bytes of several records as they stand in the file, asked for together; of a long one the first ones. `read`
        takes them."""
        spans = [(int(self.offsets[n]), int(self._ends[n])) for n in numbers]
        return self.source.read_many([(start, min(end, start + _WINDOW)) for start, end in spans])

    def read(self, number: int, fetched: bytes | None = None) -> bytes:
        """The payload of a record. Raises FileError that says where it is damaged.

        fetched:  what `fetch` gave for it.
        """
        start, end = int(self.offsets[number]), int(self._ends[number])
        data = self.source.read(start, min(end, start + _WINDOW)) if fetched is None else fetched
        at, pieces, cflag = 0, [], FIRST
        while cflag in (FIRST, MIDDLE):
            data = self._longer(data, start, end, at + 8)
            if at + 8 > len(data):
                raise self._error(number, "is cut short: its last part is missing")
            magic, word = HEAD.unpack_from(data, at)
            cflag, length = word >> LENGTH_BITS, word & MAX_PART
            if magic != MAGIC:
                raise self._error(number, f"has no magic number at byte {start + at:,} ({magic:#010x}, not {MAGIC:#010x})")
            if cflag not in ((WHOLE, FIRST) if not pieces else (MIDDLE, LAST)):
                raise self._error(number, f"has a part of kind {cflag} at byte {start + at:,}, where none can be")
            data = self._longer(data, start, end, at + 8 + length)
            if at + 8 + length > len(data):
                raise self._error(number, f"is cut short: it takes {length:,} more bytes at byte {start + at + 8:,}, "
                                          f"{len(data) - at - 8:,} are there")
            pieces.append(data[at + 8:at + 8 + length])
            at += 8 + -(-length // 4) * 4
        return pieces[0] if len(pieces) == 1 else MAGIC_BYTES.join(pieces)

    def _longer(self, data: bytes, start: int, end: int, size: int) -> bytes:
        """data, which begins at start, with what it lacks of size bytes, as far as the record can reach."""
        stop = min(end, start + size)
        return data + self.source.read(start + len(data), stop) if stop > start + len(data) else data

    def where(self, number: int) -> str:
        """How messages name a record: file, number, byte offset."""
        return f"{self.path}: record {number} at byte {int(self.offsets[number]):,}"

    def span(self, number: int) -> int:
        """Bytes of the file up to where the next record begins."""
        return int(self._ends[number] - self.offsets[number])

    def check(self) -> None:
        """Raises FileError if the file no longer has the size it was opened with."""
        self.source.check()

    def close(self) -> None:
        """Give the file back."""
        self.source.close()

    def identity(self) -> dict[str, Any]:
        """What tells this set of records from another."""
        if self._checksum is None:
            self._checksum = zlib.crc32(self.offsets.tobytes())
        return {"bytes": self.source.size, "records": len(self), "index": self._checksum}

    def _error(self, number: int, what: str) -> FileError:
        return FileError(f"{self.where(number)} {what}.")

    # ---- the index file ----
    def _from_index(self, idx_path: str) -> np.ndarray | None:
        """The offsets it lists, ascending; None, after a warning, if they cannot be used."""
        if not is_url(idx_path) and not os.path.exists(idx_path):
            return self._rebuild(idx_path, "is not there")
        with ByteSource(idx_path) as index:
            fields = index.read(0, index.size).split()
        try:
            offsets = np.unique(np.array(fields[1::2], np.int64))
        except (ValueError, OverflowError):
            return self._rebuild(idx_path, "is not lines of `key<TAB>offset`")
        if len(fields) % 2 or not len(offsets):
            return self._rebuild(idx_path, "is not lines of `key<TAB>offset`")
        if len(offsets) < len(fields) // 2:
            warnings.warn(f"{idx_path}: {len(fields) // 2 - len(offsets):,} of its offsets stand twice; each record counts "
                          f"once.", stacklevel=5)
        if offsets[0] < 0 or offsets[-1] > self.source.size - HEAD.size or np.any(offsets % 4):
            return self._rebuild(idx_path, f"points outside the {self.source.size:,} bytes of the file")
        picked = offsets[np.unique(np.linspace(0, len(offsets) - 1, 64).astype(int))].tolist()
        for offset, head in zip(picked, self.source.read_many([(o, o + 8) for o in picked])):
            magic, word = HEAD.unpack(head)
            if magic != MAGIC or word >> LENGTH_BITS not in (WHOLE, FIRST):
                return self._rebuild(idx_path, f"points at byte {offset:,}, where no record begins")
        return offsets

    def _rebuild(self, idx_path: str, why: str) -> None:
        warnings.warn(f"{idx_path}: {why}; the records are searched in {self.path} instead.", stacklevel=6)
