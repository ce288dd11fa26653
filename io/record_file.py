"""RecordFile: the records of one RecordIO file by number, read by any thread; what is damaged is passed over and known."""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from typing import Any, NamedTuple

import numpy as np

from ..errors import FileError
from .files import ByteSource, is_url
from .recordio import MAGIC

_HEAD = struct.Struct("<II")
_BITS, _LENGTH = 29, (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_SCAN_BYTES = 1 << 24  # a file is searched for heads in pieces of this many bytes


class Damage(NamedTuple):
    """Bytes [start, stop) of a file that hold no record, and why."""

    start: int
    stop: int
    why: str


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
                first = self.damage[0]
                raise FileError(f"{self.path}: record {int(np.searchsorted(offsets, first.start))} at byte "
                                f"{first.start:,} {first.why} (bytes {first.start:,} to {first.stop:,}). Give "
                                f"on_error='skip' to go on at the next record, or write the file anew.")
        self.offsets = offsets
        self._ends = np.append(offsets[1:], self.source.size)
        for lost in self.damage:  # what stands before damage ends there, not at the next record
            before = int(np.searchsorted(offsets, lost.start)) - 1
            if before >= 0:
                self._ends[before] = min(self._ends[before], lost.start)

    def __len__(self) -> int:
        return len(self.offsets)

    def read(self, number: int) -> bytes:
        """The payload of a record. Raises FileError that says where it is damaged."""
        start = int(self.offsets[number])
        data = self.source.read(start, int(self._ends[number]))
        at, pieces, cflag = 0, [], _FIRST
        while cflag in (_FIRST, _MIDDLE):
            if at + 8 > len(data):
                raise self._error(number, "is cut short: its last part is missing")
            magic, word = _HEAD.unpack_from(data, at)
            cflag, length = word >> _BITS, word & _LENGTH
            if magic != MAGIC:
                raise self._error(number, f"has no magic number at byte {start + at:,} ({magic:#010x}, not {MAGIC:#010x})")
            if cflag not in ((_WHOLE, _FIRST) if not pieces else (_MIDDLE, _LAST)):
                raise self._error(number, f"has a part of kind {cflag} at byte {start + at:,}, where none can be")
            if at + 8 + length > len(data):
                raise self._error(number, f"is cut short: it takes {length:,} more bytes at byte {start + at + 8:,}, "
                                          f"{len(data) - at - 8:,} are there")
            pieces.append(data[at + 8:at + 8 + length])
            at += 8 + -(-length // 4) * 4
        return pieces[0] if len(pieces) == 1 else struct.pack("<I", MAGIC).join(pieces)

    def where(self, number: int) -> str:
        """How messages name a record: file, number, byte offset."""
        return f"{self.path}: record {number} at byte {int(self.offsets[number]):,}"

    def check(self) -> None:
        """Raises FileError if the file no longer has the size it was opened with."""
        self.source.check()

    def close(self) -> None:
        """Give the file back."""
        self.source.close()

    def identity(self) -> dict[str, Any]:
        """What tells this set of records from another."""
        return {"bytes": self.source.size, "records": len(self), "index": zlib.crc32(self.offsets.tobytes())}

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
        if offsets[0] < 0 or offsets[-1] > self.source.size - _HEAD.size or np.any(offsets % 4):
            return self._rebuild(idx_path, f"points outside the {self.source.size:,} bytes of the file")
        picked = offsets[np.unique(np.linspace(0, len(offsets) - 1, 64).astype(int))].tolist()
        for offset, head in zip(picked, self.source.read_many([(o, o + 8) for o in picked])):
            magic, word = _HEAD.unpack(head)
            if magic != MAGIC or word >> _BITS not in (_WHOLE, _FIRST):
                return self._rebuild(idx_path, f"points at byte {offset:,}, where no record begins")
        return offsets

    def _rebuild(self, idx_path: str, why: str) -> None:
        warnings.warn(f"{idx_path}: {why}; the records are searched in {self.path} instead.", stacklevel=6)


def find_heads(source: ByteSource) -> tuple[np.ndarray, list[Damage]]:
    """The byte offset of every whole record, int64[N], and the places that hold none, both in order.

    Where bytes are missing or too many, the heads behind are no longer at multiples of 4: a damaged place is searched
    again at the other distances.
    """
    records, damage = _search(source, 0, source.size)
    return np.sort(records), sorted(damage)


def _search(source: ByteSource, start: int, stop: int) -> tuple[np.ndarray, list[Damage]]:
    records, damage = _scan(source, start, stop)
    left = []
    for lost in damage:
        whole = records[records < lost.start]
        before = int(whole.max()) if len(whole) else lost.start - 8  # bytes may be missing inside the record before it
        tries = [_scan(source, before + 8 + by, lost.stop)[0] for by in (1, 2, 3)] if lost.stop - lost.start > 4 else []
        most = max(tries, key=len, default=records[:0])
        if not len(most):
            left.append(lost)
            continue
        found, rest = _search(source, int(most[0]), lost.stop)
        if most[0] < lost.start:
            records = records[records != before]
            lost = Damage(before, lost.stop, "is cut short: another one begins inside it")
        records = np.concatenate([records, found])
        left += [lost._replace(stop=int(most[0])), *rest]
    return records, left


def _scan(source: ByteSource, start: int, stop: int) -> tuple[np.ndarray, list[Damage]]:
    """Records and damage among bytes [start, stop), the heads at multiples of 4 from start."""
    heads, words = [], []
    carried = np.empty(0, "<u4")
    for at in range(start, stop, _SCAN_BYTES):
        piece = source.read(at, min(at + _SCAN_BYTES, stop))
        u32 = np.concatenate([carried, np.frombuffer(piece, "<u4", len(piece) // 4)])
        found = np.flatnonzero(u32[:-1] == MAGIC)
        heads.append(found * 4 + at - 4 * len(carried))
        words.append(u32[found + 1])
        carried = u32[-1:]  # the last word of a piece waits for its successor
    head = np.concatenate([np.empty(0, np.int64), *heads])
    word = np.concatenate([np.empty(0, np.int64), *words]).astype(np.int64)
    cflag, length = word >> _BITS, word & _LENGTH
    ends = head + 8 + (length + 3) // 4 * 4
    following = np.append(head[1:], stop)[:len(head)]
    if start == stop or (len(head) and head[0] == start and np.array_equal(ends, following) and not cflag.any()):
        return head, []  # nothing is damaged and nothing is split, as in nearly every file
    fits = ends <= following  # a part that reaches into the next head, or past the end, is damaged
    return _join(head.tolist(), ends.tolist(), following.tolist(), cflag.tolist(), fits.tolist(), start, stop)


def _join(head: list[int], ends: list[int], following: list[int], cflag: list[int], fits: list[bool],
          begin: int, end: int) -> tuple[np.ndarray, list[Damage]]:
    """Records of the parts that join, and what lies between them."""
    records, damage = [], []

    def lose(start: int, stop: int, why: str) -> None:
        if damage and damage[-1].stop == start:
            damage[-1] = damage[-1]._replace(stop=stop)
        elif start < stop:
            damage.append(Damage(start, stop, why))

    lose(begin, head[0] if head else end, "has no magic number: this is not a RecordIO file, or its front is lost")
    i = 0
    while i < len(head):
        last = i
        if cflag[i] == _FIRST:
            while fits[last] and ends[last] == following[last] and last + 1 < len(head) and cflag[last + 1] == _MIDDLE:
                last += 1
            if fits[last] and ends[last] == following[last] and last + 1 < len(head) and cflag[last + 1] == _LAST:
                last += 1
        if fits[last] and cflag[last] == (_WHOLE if last == i else _LAST):
            records.append(head[i])
            lose(ends[last], following[last], "has no magic number")
        elif not fits[last]:
            lose(head[i], following[last], f"is cut short: it takes {ends[last] - head[last] - 8:,} bytes, "
                                           f"{following[last] - head[last] - 8:,} are left")
        elif cflag[last] > _LAST:
            lose(head[i], following[last], f"is a part of kind {cflag[last]}, which does not exist")
        elif cflag[i] == _FIRST:
            lose(head[i], following[last], "is split, and its other parts do not follow")
        else:
            lose(head[i], following[last], f"begins with a part of kind {cflag[i]}, and only 0 and 1 begin a record")
        i = last + 1
    return np.array(records, np.int64), damage
