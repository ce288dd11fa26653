"""RecordFile: the records of one RecordIO file by number, for any thread. Damaged places are skipped and listed."""

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
from .files import ByteSource, is_url
from .framing import FIRST, HEADER, WHOLE, Damage, describe_damage, find_offsets, part_kind, read_record

_SAMPLED = 64  # offsets of an index that are checked when it is opened
_log = logging.getLogger("tritium.io")
_repair_lock = threading.Lock()  # not in the file, which must be picklable
_WINDOW = 1 << 20  # bytes read at once; with an index the next listed record may be far away


class RecordFile:
    """Record i is the i-th record of the file.

    path:      a local path or a URL.
    idx_path:  its index, lines of `key<TAB>byte offset`; then only the records that it lists count. If it is missing or wrong,
               the records are searched in the file, with a warning.
    tolerant:  skip damaged places and list them in `damage`; otherwise the first one raises FileError. Wrong lines of the
               index are corrected, too, when they are used.
    A record begins with a magic number, which is at a multiple of 4 nowhere else, so reading continues at the next record
    after any damage.
    """

    def __init__(self, path: str | os.PathLike, idx_path: str | os.PathLike | None = None, *, tolerant: bool = False):
        self.source = ByteSource(path)
        self.path, self.tolerant = self.source.path, tolerant
        self.damage: list[Damage] = []
        self._index: str | None = None  # an index of which not all lines were checked
        self._repaired = False
        offsets = self._from_index(os.fspath(idx_path)) if idx_path else None
        self.offsets = self._find_offsets() if offsets is None else offsets
        self._checksum: int | None = None  # of the offsets, computed on demand
        self._ends = self._ends_of(self.offsets, self.offsets)

    def _find_offsets(self) -> np.ndarray:
        """Return the offsets of the file's records, and set `damage`."""
        offsets, self.damage = find_offsets(self.source)
        if self.damage and not self.tolerant:
            raise FileError(f"{describe_damage(self.path, offsets, self.damage)}. Give on_error='skip' to continue at the next "
                            f"record, or write the file again.")
        return offsets

    def _ends_of(self, offsets: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
        """Return the byte before which the record at each offset ends: the next boundary, damage, or end of the file."""
        edges = np.sort(np.concatenate([boundaries, [d.start for d in self.damage], [self.source.size]]).astype(np.int64))
        return edges[np.searchsorted(edges, offsets, side="right")]

    def __len__(self) -> int:
        return len(self.offsets)

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Read the framed bytes of several records at once, for `read`. Of a long record only the beginning is read."""
        spans = [(int(self.offsets[n]), int(self._ends[n])) for n in numbers]
        return self.source.read_many([(start, min(end, start + _WINDOW)) for start, end in spans])

    def read(self, number: int, fetched: bytes | None = None) -> bytes:
        """Return the payload of a record. Raises FileError that says where it is damaged.

        fetched:  the result of `fetch` for this record.
        """
        try:
            return self._read(number, fetched)
        except UnreachableError:
            raise
        except FileError as e:
            if self._index is None:
                raise
            error, wrong = e, self._wrong_offset(number)
        # where bytes are missing or inserted, data of a record may look like a header: then the line before is wrong, too
        if self.tolerant and (wrong is not None or self._repaired or (number and self._wrong_offset(number - 1) is not None)):
            self._repair_index(self._index)
            try:
                return self._read(number)
            except FileError as e:
                error, wrong = e, self._wrong_offset(number)
        if wrong is not None:
            error = FileError(f"{str(error).rstrip('.')}; {self._index}: {self._key_of(self._index, wrong)} points at byte "
                              f"{wrong:,}, where no record begins.")
        raise error

    def _read(self, number: int, fetched: bytes | None = None) -> bytes:
        start, end = int(self.offsets[number]), int(self._ends[number])
        window = self.source.read(start, min(end, start + _WINDOW)) if fetched is None else fetched

        def read(first: int, stop: int) -> bytes:
            nonlocal window
            if stop - start > len(window):
                window += self.source.read(start + len(window), stop)
            return window[first - start:stop - start]

        return read_record(read, start, end, lambda text: FileError(f"{self.where(number)} {text}."))[0]

    def where(self, number: int) -> str:
        """Return the name of a record in messages: file, number, byte offset."""
        return f"{self.path}: record {number} at byte {int(self.offsets[number]):,}"

    def span(self, number: int) -> int:
        """Return the bytes from a record to the next one."""
        return int(self._ends[number] - self.offsets[number])

    def close(self) -> None:
        """Close the file."""
        self.source.close()

    def identity(self) -> dict[str, Any]:
        """Return values that identify this set of records."""
        if self._checksum is None:
            self._checksum = zlib.crc32(self.offsets.tobytes())
        return {"bytes": self.source.size, "records": len(self), "index": self._checksum}

    # ---- the index file ----
    def _from_index(self, idx_path: str) -> np.ndarray | None:
        """Return the offsets of the records that it means, ascending; None, with a warning, if it is unusable."""
        if not is_url(idx_path) and not os.path.exists(idx_path):
            return self._warn_unusable(idx_path, "does not exist")
        lines = read_index(idx_path)
        if lines is None:
            return self._warn_unusable(idx_path, "is not lines of `key<TAB>offset`")
        keys, listed = lines
        offsets = np.unique(listed)
        why, repeated = self._first_fault(keys, listed, offsets), len(listed) - len(offsets)
        if why is None and not (repeated and self.tolerant):
            self._index = idx_path
        else:
            meant = reconcile(listed, self._find_offsets())
            wrong, offsets = meant != listed, np.unique(meant[meant >= 0])
            if why is not None and 2 * np.count_nonzero(wrong) > len(listed):
                return self._warn_unusable(idx_path, why)
            if why is not None:
                warnings.warn(f"{idx_path}: {why}; {np.count_nonzero(wrong):,} lines are wrong, and the records of "
                              f"{np.count_nonzero(wrong & (meant >= 0)):,} of them were found in {self.path}.", stacklevel=5)
        if repeated:
            warnings.warn(f"{idx_path}: {repeated:,} of its offsets are repeated; each record counts once.", stacklevel=5)
        return offsets

    def _first_fault(self, keys: list[bytes], listed: np.ndarray, offsets: np.ndarray) -> str | None:
        """Describe a wrong line, found by checking all ranges and some records. offsets: listed, sorted and unique."""
        size = self.source.size
        outside = np.flatnonzero((listed < 0) | (listed > size - HEADER.size) | (listed % 4 != 0))
        if len(outside):
            line = int(outside[0])
            return f"key {_text(keys[line])} points at byte {listed[line]:,}, where no record can begin in {size:,} bytes"
        sample = offsets[np.unique(np.linspace(0, len(offsets) - 1, _SAMPLED).astype(int))].tolist()
        for offset, header in zip(sample, self.source.read_many([(o, o + HEADER.size) for o in sample])):
            if part_kind(header) not in (WHOLE, FIRST):
                line = int(np.flatnonzero(listed == offset)[0])
                return f"key {_text(keys[line])} points at byte {offset:,}, where no record begins"
        return None

    def _warn_unusable(self, idx_path: str, why: str) -> None:
        warnings.warn(f"{idx_path}: {why}; the records are searched in {self.path} instead.", stacklevel=6)

    def _wrong_offset(self, number: int) -> int | None:
        """Return the offset of this record, or of the next one, if no record begins there."""
        for offset in (int(self.offsets[number]), int(self._ends[number])):
            if offset + HEADER.size <= self.source.size and not self._record_begins_at(offset):
                return offset
        return None

    def _record_begins_at(self, offset: int) -> bool:
        return part_kind(self.source.read(offset, offset + HEADER.size)) in (WHOLE, FIRST)

    def _repair_index(self, idx_path: str) -> None:
        """Correct the offsets of wrong lines, once. Records keep their numbers, so other records are not affected."""
        with _repair_lock:
            if self._repaired:
                return
            self.identity()  # stays that of the index as it was read
            lines = read_index(idx_path)
            if lines is not None and np.array_equal(np.unique(lines[1]), self.offsets):
                listed, (found, self.damage) = lines[1], find_offsets(self.source)
                meant = reconcile(listed, np.union1d(found, self._damaged(np.setdiff1d(listed, found))))
                known = meant >= 0
                offsets = self.offsets.copy()
                offsets[np.searchsorted(self.offsets, listed[known])] = meant[known]
                self.offsets, self._ends = offsets, self._ends_of(offsets, found)
                _log.warning("%s: %d of its %d lines point where no record begins; the records of %d of them were found in %s.",
                             idx_path, np.count_nonzero(meant != listed), len(listed),
                             np.count_nonzero(known & (meant != listed)), self.path)
            self._repaired = True

    def _damaged(self, offsets: np.ndarray) -> list[int]:
        """Return the offsets at which a damaged record begins.

        Index lines that point there are correct and keep their number, so that the other records keep theirs.
        """
        spans = np.array([(d.start, d.stop) for d in self.damage], np.int64).reshape(-1, 2)
        before = np.searchsorted(spans[:, 0], offsets, side="right")
        inside = offsets[(np.append(0, spans[:, 1])[before] > offsets) & (offsets + HEADER.size <= self.source.size)]
        return [offset for offset in inside.tolist() if self._record_begins_at(offset)]

    def _key_of(self, idx_path: str, offset: int) -> str:
        """Name the line of the index that points at offset."""
        lines = read_index(idx_path)
        line = [] if lines is None else np.flatnonzero(lines[1] == offset)[:1].tolist()
        return f"key {_text(lines[0][line[0]])}" if lines and line else "a line that has changed"


def read_index(path: str | os.PathLike) -> tuple[list[bytes], np.ndarray] | None:
    """Return keys and byte offsets int64[N] in the order of the lines; None if it is missing, or not all `key<TAB>offset`."""
    if not is_url(path := os.fspath(path)) and not os.path.exists(path):
        return None
    with ByteSource(path) as index:
        fields = index.read(0, index.size).split()
    try:
        offsets = np.array(fields[1::2], np.int64)
    except (ValueError, OverflowError):
        return None
    return (fields[0::2], offsets) if len(offsets) and len(fields) % 2 == 0 else None


def reconcile(listed: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the offset of the record that each line of an index means, int64[N]; -1 where that is ambiguous.

    A line is right if a record begins at its offset and no earlier line has it. A run of wrong lines means the unlisted
    records between the right lines around it, if there are as many. If after that no more unlisted records than wrong
    lines are left, they belong to these lines in order.
    listed:   int64[N], the offsets in the lines.
    offsets:  int64[M], where records begin, ascending.
    """
    first = np.zeros(len(listed), bool)
    first[np.unique(listed, return_index=True)[1]] = True
    right = first & np.isin(listed, offsets)
    meant = np.where(right, listed, -1)
    unlisted = np.setdiff1d(offsets, listed[right])
    edges = np.flatnonzero(np.diff(np.concatenate([[True], right, [True]])))  # of the runs of wrong lines
    for start, stop in edges.reshape(-1, 2).tolist():
        after = np.searchsorted(unlisted, listed[start - 1]) if start else 0
        until = np.searchsorted(unlisted, listed[stop]) if stop < len(listed) else len(unlisted)
        if until - after == stop - start:
            meant[start:stop] = unlisted[after:until]
    values, counts = np.unique(meant, return_counts=True)
    meant[np.isin(meant, values[counts > 1]) & ~right] = -1  # claimed by two runs of an unordered index
    rest, unknown = np.setdiff1d(unlisted, meant), np.flatnonzero(meant < 0)
    if len(rest) <= len(unknown):
        meant[unknown[:len(rest)]] = rest
    return meant


def _text(key: bytes) -> str:
    return key[:60].decode("utf-8", "replace")
