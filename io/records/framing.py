"""The RecordIO format: how records are laid out in a file, and how they are found again, also after damage.

A part is u32 magic, u32 (kind << 29 | length), the payload, and zero padding to 4 bytes. A record whose payload has the
magic at a multiple of 4 is split there, without the magic. Kinds: 0 a whole record, 1 the first part, 2 a middle one,
3 the last. So a magic at a multiple of 4 in the file always begins a part, and an index can be rebuilt.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...errors import FileError
from .files import ByteSource

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
HEADER = struct.Struct("<II")
LENGTH_BITS = 29
MAX_PART = (1 << LENGTH_BITS) - 1
WHOLE, FIRST, MIDDLE, LAST = range(4)
SCAN_BYTES = 1 << 24  # a file is searched for headers in pieces of this size


class Damage(NamedTuple):
    """Bytes [start, stop) of a file that hold no record, and the reason."""

    start: int
    stop: int
    why: str


def frame(payload: bytes) -> bytes:
    """Return the bytes of one record in a file, equal to MXNet's. Raises FileError for 512 MiB and more."""
    if len(payload) > MAX_PART:
        raise FileError(f"RecordIO: a record of {len(payload):,} bytes is too long: the format holds {MAX_PART:,}. Split it.")
    cuts, kinds = [], [WHOLE]
    if MAGIC_BYTES in payload:
        cuts = (np.flatnonzero(np.frombuffer(payload, "<u4", len(payload) // 4) == MAGIC) * 4).tolist()
        kinds = [FIRST, *[MIDDLE] * (len(cuts) - 1), LAST] if cuts else kinds
    pieces = []
    for kind, start, end in zip(kinds, [0, *(c + 4 for c in cuts)], [*cuts, len(payload)]):
        pieces += (HEADER.pack(MAGIC, kind << LENGTH_BITS | end - start), payload[start:end])
    return b"".join([*pieces, bytes(-len(payload) % 4)])


def part_kind(header: bytes) -> int | None:
    """Return the kind of part that 8 bytes begin, or None without a magic number."""
    magic, word = HEADER.unpack(header)
    return word >> LENGTH_BITS if magic == MAGIC else None


def read_record(read: Callable[[int, int], bytes], start: int, end: int, error: Callable[[str], FileError]) -> tuple[bytes, int]:
    """Read the record at byte start. Return its payload and the byte after its padding, which the file may lack.

    read:   read(start, stop) returns these bytes of the file.
    end:    the record must end before this byte.
    error:  makes the error to raise from a text such as "is cut short: ...".
    """
    pieces, at = [], start
    while True:
        header = read(at, max(at, min(at + HEADER.size, end)))
        if len(header) < HEADER.size:
            raise error("is cut short: its last part is missing" if pieces else
                        f"is cut short: its header takes 8 bytes, {len(header)} are left")
        magic, word = HEADER.unpack(header)
        kind, length = word >> LENGTH_BITS, word & MAX_PART
        if magic != MAGIC:
            raise error(f"has no magic number at byte {at:,} ({magic:#010x}, not {MAGIC:#010x}): " +
                        ("this is not a RecordIO file" if at == 0 else "the file is damaged"))
        if kind not in ((MIDDLE, LAST) if pieces else (WHOLE, FIRST)):
            raise error(f"is split, and at byte {at:,} a part of kind {kind} follows, not 2 or 3" if pieces else
                        f"begins with a part of kind {kind}, not 0 or 1")
        at += HEADER.size
        payload = read(at, max(at, min(at + length, end)))
        if len(payload) < length:
            raise error(f"is cut short: it takes {length:,} more bytes at byte {at:,}, {len(payload):,} are left")
        pieces.append(payload)
        at += (length + 3) // 4 * 4
        if kind in (WHOLE, LAST):
            return (pieces[0] if len(pieces) == 1 else MAGIC_BYTES.join(pieces)), at


def find_offsets(source: ByteSource) -> tuple[np.ndarray, list[Damage]]:
    """Return the byte offset of every complete record, int64[N], and the damaged places between them, both in order.

    Where bytes were lost or inserted, later headers are not at multiples of 4. So each damaged place is searched again at
    the other three alignments.
    """
    records, damage = _search(source, 0, source.size)
    return np.sort(records), sorted(damage)


def describe_damage(path: str, offsets: np.ndarray, damage: list[Damage]) -> str:
    """Describe the first damaged place: file, record number, bytes."""
    first = damage[0]
    return (f"{path}: record {int(np.searchsorted(offsets, first.start))} at byte {first.start:,} {first.why} "
            f"(bytes {first.start:,} to {first.stop:,})")


def _search(source: ByteSource, start: int, stop: int) -> tuple[np.ndarray, list[Damage]]:
    records, damage = _scan(source, start, stop)
    final = []
    while damage:
        lost = damage.pop()
        earlier = records[records < lost.start]
        before = int(earlier.max()) if len(earlier) else lost.start - 8  # bytes may be missing inside the record before it
        tries = [_scan(source, before + 8 + shift, lost.stop)[0] for shift in (1, 2, 3)] if lost.stop - lost.start > 4 else []
        best = max(tries, key=len, default=records[:0])
        if not len(best):
            final.append(lost)
            continue
        shifted, rest = _search(source, int(best[0]), lost.stop)
        if best[0] < lost.start:
            records = records[records != before]
            damage = [d for d in damage if d.start < before]  # later damage lies in the part that was searched again
            lost = Damage(before, lost.stop, "is cut short: another one begins inside it")
        records = np.concatenate([records, shifted])
        final += rest
        damage.append(lost._replace(stop=int(best[0])))  # before these there may be records at yet another alignment
    return records, final


def _scan(source: ByteSource, start: int, stop: int) -> tuple[np.ndarray, list[Damage]]:
    """Find records and damage in bytes [start, stop), with headers at multiples of 4 from start."""
    offsets, words = [], []
    carried = np.empty(0, "<u4")
    for at in range(start, stop, SCAN_BYTES):
        piece = source.read(at, min(at + SCAN_BYTES, stop))
        u32 = np.concatenate([carried, np.frombuffer(piece, "<u4", len(piece) // 4)])
        magics = np.flatnonzero(u32[:-1] == MAGIC)
        offsets.append(magics * 4 + at - 4 * len(carried))
        words.append(u32[magics + 1])
        carried = u32[-1:]  # the last word of a piece may be a magic whose length follows
    offset = np.concatenate([np.empty(0, np.int64), *offsets])
    word = np.concatenate([np.empty(0, np.int64), *words]).astype(np.int64)
    kind, length = word >> LENGTH_BITS, word & MAX_PART
    ends = offset + 8 + (length + 3) // 4 * 4
    following = np.append(offset[1:], stop)[:len(offset)]
    if start == stop or (len(offset) and offset[0] == start and np.array_equal(ends, following) and not kind.any()):
        return offset, []  # nothing is damaged or split, as in nearly every file
    fits = ends <= following  # a part that reaches into the next header or past the end is damaged
    return _join(offset.tolist(), ends.tolist(), following.tolist(), kind.tolist(), fits.tolist(), start, stop)


def _join(offset: list[int], ends: list[int], following: list[int], kind: list[int], fits: list[bool],
          begin: int, end: int) -> tuple[np.ndarray, list[Damage]]:
    """Join parts to records; return the records' offsets and the damage between them."""
    records, damage = [], []

    def lose(start: int, stop: int, why: str) -> None:
        if damage and damage[-1].stop == start:
            damage[-1] = damage[-1]._replace(stop=stop)
        elif start < stop:
            damage.append(Damage(start, stop, why))

    lose(begin, offset[0] if offset else end, "has no magic number: this is not a RecordIO file, or its beginning is lost")
    i = 0
    while i < len(offset):
        last = i
        if kind[i] == FIRST:
            while fits[last] and ends[last] == following[last] and last + 1 < len(offset) and kind[last + 1] == MIDDLE:
                last += 1
            if fits[last] and ends[last] == following[last] and last + 1 < len(offset) and kind[last + 1] == LAST:
                last += 1
        if fits[last] and kind[last] == (WHOLE if last == i else LAST):
            records.append(offset[i])
            lose(ends[last], following[last], "has no magic number")
        elif not fits[last]:
            lose(offset[i], following[last], f"is cut short: it takes {ends[last] - offset[last] - 8:,} bytes, "
                                             f"{following[last] - offset[last] - 8:,} are left")
        elif kind[i] == FIRST:
            lose(offset[i], following[last], "is split, and its other parts do not follow")
        else:
            lose(offset[i], following[last], f"begins with a part of kind {kind[i]}, not 0 or 1")
        i = last + 1
    return np.array(records, np.int64), damage
