"""Framing: how RecordIO lays records into a file, and where they are found again, also after damage.

A part is u32 magic, u32 (cflag << 29 | length), the payload, zero padding to 4 bytes. A payload is split where the
magic stands at a multiple of 4 in it, and the magic is dropped there: cflag 0 is a whole record, 1 the first part,
2 a middle one, 3 the last. So a magic at a multiple of 4 in the file is always the head of a part, and an index can
be rebuilt.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ...errors import FileError
from .files import ByteSource

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
HEAD = struct.Struct("<II")
LENGTH_BITS = 29
MAX_PART = (1 << LENGTH_BITS) - 1
WHOLE, FIRST, MIDDLE, LAST = range(4)
SCAN_BYTES = 1 << 24  # a file is searched for heads in pieces of this many bytes


class Damage(NamedTuple):
    """Bytes [start, stop) of a file that hold no record, and why."""

    start: int
    stop: int
    why: str


def frame(payload: bytes) -> bytes:
    """The bytes of one record in a file, byte for byte MXNet's. Raises FileError for 512 MiB and more."""
    if len(payload) > MAX_PART:
        raise FileError(f"RecordIO: a record of {len(payload):,} bytes is too long: the format holds {MAX_PART:,}. "
                        f"Split it.")
    cuts, at = [], payload.find(MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            cuts.append(at)
            at += 3  # the next place where a magic can stand is behind this one
        at = payload.find(MAGIC_BYTES, at + 1)
    starts = [0, *(c + 4 for c in cuts)]
    pieces = []
    for i, (start, end) in enumerate(zip(starts, [*cuts, len(payload)])):
        last = i == len(cuts)
        cflag = (WHOLE if not cuts else LAST) if last else (FIRST if i == 0 else MIDDLE)
        pieces += (HEAD.pack(MAGIC, cflag << LENGTH_BITS | end - start), payload[start:end])
    pieces.append(bytes(-len(payload) % 4))
    return b"".join(pieces)


def find_offsets(source: ByteSource) -> tuple[np.ndarray, list[Damage]]:
    """The byte offset of every whole record, int64[N], and the places that hold none, both in order.

    Where bytes are missing or too many, the heads behind are no longer at multiples of 4: a damaged place is searched
    again at the other distances.
    """
    records, damage = _search(source, 0, source.size)
    return np.sort(records), sorted(damage)


def describe_damage(path: str, offsets: np.ndarray, damage: list[Damage]) -> str:
    """What a message says of the first damaged place: file, record number, byte."""
    first = damage[0]
    return (f"{path}: record {int(np.searchsorted(offsets, first.start))} at byte {first.start:,} {first.why} "
            f"(bytes {first.start:,} to {first.stop:,})")


def _search(source: ByteSource, start: int, stop: int) -> tuple[np.ndarray, list[Damage]]:
    records, damage = _scan(source, start, stop)
    left = []
    while damage:
        lost = damage.pop()
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
            damage = [d for d in damage if d.start < before]  # what lay behind it is searched with the others
            lost = Damage(before, lost.stop, "is cut short: another one begins inside it")
        records = np.concatenate([records, found])
        left += rest
        damage.append(lost._replace(stop=int(most[0])))  # at a third distance there may be more in front of these
    return records, left


def _scan(source: ByteSource, start: int, stop: int) -> tuple[np.ndarray, list[Damage]]:
    """Records and damage among bytes [start, stop), the heads at multiples of 4 from start."""
    heads, words = [], []
    carried = np.empty(0, "<u4")
    for at in range(start, stop, SCAN_BYTES):
        piece = source.read(at, min(at + SCAN_BYTES, stop))
        u32 = np.concatenate([carried, np.frombuffer(piece, "<u4", len(piece) // 4)])
        found = np.flatnonzero(u32[:-1] == MAGIC)
        heads.append(found * 4 + at - 4 * len(carried))
        words.append(u32[found + 1])
        carried = u32[-1:]  # the last word of a piece waits for its successor
    head = np.concatenate([np.empty(0, np.int64), *heads])
    word = np.concatenate([np.empty(0, np.int64), *words]).astype(np.int64)
    cflag, length = word >> LENGTH_BITS, word & MAX_PART
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
        if cflag[i] == FIRST:
            while fits[last] and ends[last] == following[last] and last + 1 < len(head) and cflag[last + 1] == MIDDLE:
                last += 1
            if fits[last] and ends[last] == following[last] and last + 1 < len(head) and cflag[last + 1] == LAST:
                last += 1
        if fits[last] and cflag[last] == (WHOLE if last == i else LAST):
            records.append(head[i])
            lose(ends[last], following[last], "has no magic number")
        elif not fits[last]:
            lose(head[i], following[last], f"is cut short: it takes {ends[last] - head[last] - 8:,} bytes, "
                                           f"{following[last] - head[last] - 8:,} are left")
        elif cflag[last] > LAST:
            lose(head[i], following[last], f"is a part of kind {cflag[last]}, which does not exist")
        elif cflag[i] == FIRST:
            lose(head[i], following[last], "is split, and its other parts do not follow")
        else:
            lose(head[i], following[last], f"begins with a part of kind {cflag[i]}, and only 0 and 1 begin a record")
        i = last + 1
    return np.array(records, np.int64), damage
