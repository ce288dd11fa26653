"""RecordFile: the records of one RecordIO file by number, read by any thread; what is damaged is passed over and known."""

from __future__ import annotations

import logging
import os
import threading
import warnings
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FileError, UnreachableError
from ...integers import cdiv
from .files import ByteSource, is_url
from .framing import (
    FIRST,
    HEAD,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MAGIC_BYTES,
    MAX_PART,
    MIDDLE,
    WHOLE,
    Damage,
    describe_damage,
    find_offsets,
)
from .record_index import read_index, reconcile

_CHECKED = 64  # places an index points at that are looked at when it is opened
_log = logging.getLogger("tritium.io")
_repair_lock = threading.Lock()  # one for all files: a file that has one goes to no other process
_WINDOW = 1 << 20  # bytes read at once; an index may leave records out, so the next one can be far away


class RecordFile:
    """Record i of a file is the i-th from its front.

    path:      a local path or a URL.
    idx_path:  its index, lines of `key<TAB>byte offset`; then the records are those it lists. If it is missing, or does not
               fit, the heads are searched in the file and a warning says so.
    tolerant:  damaged places are passed over, and listed in `damage`; otherwise the first is a FileError. What a wrong line
               of the index means is searched too, when the line is used.
    Each head is found by its magic number, which stands nowhere else at a multiple of 4, so reading goes on at the next
    good head after any damage.
    """

    def __init__(self, path: str | os.PathLike, idx_path: str | os.PathLike | None = None, *, tolerant: bool = False):
        self.source = ByteSource(path)
        self.path, self.tolerant = self.source.path, tolerant
        self.damage: list[Damage] = []
        self._index: str | None = None  # whose lines were not all looked at
        self._repaired = False
        offsets = self._from_index(os.fspath(idx_path)) if idx_path else None
        self.offsets = self._heads() if offsets is None else offsets
        self._checksum: int | None = None  # of the offsets, once somebody asked
        self._ends = self._ends_of(self.offsets, self.offsets)

    def _heads(self) -> np.ndarray:
        """Where the file's records begin; what lies between them becomes `damage`."""
        heads, self.damage = find_offsets(self.source)
        if self.damage and not self.tolerant:
            raise FileError(f"{describe_damage(self.path, heads, self.damage)}. Give on_error='skip' to go on at the next "
                            f"record, or write the file anew.")
        return heads

    def _ends_of(self, offsets: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """How far the record at each offset can reach: to the next head or damage, or the end of the file."""
        edges = np.sort(np.concatenate([heads, [d.start for d in self.damage], [self.source.size]]).astype(np.int64))
        return edges[np.searchsorted(edges, offsets, side="right")]

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
        try:
            return self._read(number, fetched)
        except UnreachableError:
            raise
        except FileError as e:
            if self._index is None:
                raise
            error, wrong = e, self._wrong_place(number)
        # what looks like a head may stand inside a record, where bytes are missing or too many: then the line before is wrong too
        if self.tolerant and (wrong is not None or self._repaired or (number and self._wrong_place(number - 1) is not None)):
            self._repair_index(self._index)
            try:
                return self._read(number)
            except FileError as e:
                error, wrong = e, self._wrong_place(number)
        if wrong is not None:
            error = FileError(f"{str(error).rstrip('.')}; {self._index}: {self._key(self._index, wrong)} points at byte "
                              f"{wrong:,}, where no record begins.")
        raise error

    def _read(self, number: int, fetched: bytes | None = None) -> bytes:
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
            at += 8 + cdiv(length, 4) * 4
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
        """The offsets of the records it means, ascending; None, after a warning, if it does not fit."""
        if not is_url(idx_path) and not os.path.exists(idx_path):
            return self._rebuild(idx_path, "is not there")
        lines = read_index(idx_path)
        if lines is None:
            return self._rebuild(idx_path, "is not lines of `key<TAB>offset`")
        keys, listed = lines
        offsets = np.unique(listed)
        why, twice = self._misplaced(keys, listed, offsets), len(listed) - len(offsets)
        if why is None and not (twice and self.tolerant):
            self._index = idx_path
        else:
            meant = reconcile(listed, self._heads())
            wrong, offsets = meant != listed, np.unique(meant[meant >= 0])
            if why is not None and 2 * np.count_nonzero(wrong) > len(listed):
                return self._rebuild(idx_path, why)
            if why is not None:
                warnings.warn(f"{idx_path}: {why}; of {np.count_nonzero(wrong):,} such lines, the records that "
                              f"{np.count_nonzero(wrong & (meant >= 0)):,} mean were found in {self.path}.", stacklevel=5)
        if twice:
            warnings.warn(f"{idx_path}: {twice:,} of its offsets stand twice; each record counts once.", stacklevel=5)
        return offsets

    def _misplaced(self, keys: list[bytes], listed: np.ndarray, offsets: np.ndarray) -> str | None:
        """What is wrong with an index that does not fit, as far as some of its offsets show. offsets: listed, ascending."""
        size = self.source.size
        outside = np.flatnonzero((listed < 0) | (listed > size - HEAD.size) | (listed % 4 != 0))
        if len(outside):
            line = int(outside[0])
            return f"key {_text(keys[line])} points at byte {listed[line]:,}, where no record can begin in {size:,} bytes"
        picked = offsets[np.unique(np.linspace(0, len(offsets) - 1, _CHECKED).astype(int))].tolist()
        for offset, head in zip(picked, self.source.read_many([(o, o + HEAD.size) for o in picked])):
            if not _begins(head):
                line = int(np.flatnonzero(listed == offset)[0])
                return f"key {_text(keys[line])} points at byte {offset:,}, where no record begins"
        return None

    def _rebuild(self, idx_path: str, why: str) -> None:
        warnings.warn(f"{idx_path}: {why}; the records are searched in {self.path} instead.", stacklevel=6)

    def _wrong_place(self, number: int) -> int | None:
        """Where the index points at no record's beginning: at this record, or inside it."""
        for place in (int(self.offsets[number]), int(self._ends[number])):
            if place + HEAD.size <= self.source.size and not _begins(self.source.read(place, place + HEAD.size)):
                return place
        return None

    def _repair_index(self, idx_path: str) -> None:
        """Once: find the records that wrong lines mean. Their numbers stay, so nothing changes for the others."""
        with _repair_lock:
            if self._repaired:
                return
            self.identity()  # as the index has it, before and after
            lines = read_index(idx_path) if is_url(idx_path) or os.path.exists(idx_path) else None
            if lines is not None and np.array_equal(np.unique(lines[1]), self.offsets):
                listed, (heads, self.damage) = lines[1], find_offsets(self.source)
                meant = reconcile(listed, np.union1d(heads, self._damaged(np.setdiff1d(listed, heads))))
                known = meant >= 0
                offsets = self.offsets.copy()
                offsets[np.searchsorted(self.offsets, listed[known])] = meant[known]
                self.offsets, self._ends = offsets, self._ends_of(offsets, heads)
                _log.warning("%s: %d of its %d lines point where no record begins; the records that %d of them mean were found "
                             "in %s.", idx_path, np.count_nonzero(meant != listed), len(listed),
                             np.count_nonzero(known & (meant != listed)), self.path)
            self._repaired = True

    def _damaged(self, places: np.ndarray) -> list[int]:
        """Those of places where a damaged record begins. A line that points there is right, and keeps its number: whoever read
        that was told of the damage, and will not ask again for another record under it."""
        spans = np.array([(d.start, d.stop) for d in self.damage], np.int64).reshape(-1, 2)
        before = np.searchsorted(spans[:, 0], places, side="right")
        inside = places[(np.append(0, spans[:, 1])[before] > places) & (places + HEAD.size <= self.source.size)]
        return [p for p in inside.tolist() if _begins(self.source.read(p, p + HEAD.size))]

    def _key(self, idx_path: str, offset: int) -> str:
        """How a message names the line that points at offset."""
        lines = read_index(idx_path) if is_url(idx_path) or os.path.exists(idx_path) else None
        line = [] if lines is None else np.flatnonzero(lines[1] == offset)[:1].tolist()
        return f"key {_text(lines[0][line[0]])}" if lines and line else "a line that was there"


def _begins(head: bytes) -> bool:
    """Whether these 8 bytes are the head of a record's first part."""
    magic, word = HEAD.unpack(head)
    return magic == MAGIC and word >> LENGTH_BITS in (WHOLE, FIRST)


def _text(key: bytes) -> str:
    return key[:60].decode("utf-8", "replace")
