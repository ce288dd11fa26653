"""The frames that workers and servers exchange: a fixed header, fixed records, and one block of raw bytes.

A frame is a message of stream.py. Its head is 8 + 9·n little-endian int64: the header, then n records. The payload holds the
bytes of the records whose `segment` is INLINE, in their order. `decode` checks every number before it allocates memory. The
checksum covers the head; the transport authenticates both. Messages to and from the coordinator are JSON objects (`pack`,
`unpack`).
"""

from __future__ import annotations

import enum
import functools
import itertools
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...dtype import bfloat16
from ...errors import FrameError
from ...integers import cdiv

MAGIC = 0x4B565354  # "KVST"
CHUNK = 4 << 20  # bytes: the longest payload of many records together
LARGEST_MESSAGE = CHUNK + (1 << 20)  # bytes: a longer payload is accepted only if it fits the one key that it is about
MOST_RECORDS = 8192
Place = tuple[int, int]  # the number of a segment of shared memory, and a byte in it; or one of:
INLINE, NOTHING = -1, -2  # values of `segment`: bytes in the payload; no bytes at all
WANT_VALUE = 1  # flag: the answer shall contain the new value

_HEADER = struct.Struct("<8q")  # magic, type, flags, rank, seq, count, nbytes, crc
_FIELDS = ("key", "slice", "dtype", "n", "round", "segment", "at", "reply_segment", "reply_at")
_HEAD = _HEADER.size
_RECORD = 8 * len(_FIELDS)
LARGEST_HEAD = _HEAD + _RECORD * MOST_RECORDS  # bytes
_NO_CRC = bytes(8)  # replaces the checksum field while the checksum is computed

DTYPES: tuple[np.dtype, ...] = tuple(np.dtype(d) for d in (
    "float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", bfloat16, "int16", "uint16", "uint32", "uint64"))
TWO_BITS = 64  # value of `dtype`: n float32 values in 2-bit form (compression.py)
ROWS = 65  # value of `dtype`: n bytes, which are the indices of some rows, int64, and then the rows
CODES = {d: i for i, d in enumerate(DTYPES)}


class FrameType(enum.IntEnum):
    HANDSHAKE = 1  # from a worker that has connected
    HANDSHAKE_REPLY = 2  # JSON: shared, durable, rounds [[key, slice, last round applied for this worker, last one on disk]]
    INITIALIZE = 3  # from the first worker: the initial value of a key
    PUSH = 4  # contributions to rounds
    PULL = 5  # records: the keys whose values are wanted
    ANSWER = 6  # to PUSH, PULL and INITIALIZE. Records: round, at = last round on disk; with the value if it was wanted
    REJECTED = 7  # records that were not applied; the payload is JSON: text, gone {rank: why}, generation, made
    STATES = 8  # optimizer states: a request for them, those of one key, or new ones in the payload
    SAVE = 9  # write changed values to disk now. Answered by HANDSHAKE_REPLY
    MISSING = 10  # request: the ranks that a round waits for. Answered by TEXT
    TEXT = 11  # an answer in JSON
    PULL_ROWS = 12  # one record; the payload holds row indices. Answered by ANSWER with n elements for each row


class Record(NamedTuple):
    """The elements of one slice of a key.

    key:      the key's number in the job's key table.  slice:  index of the slice, for a key that is split over servers.
    dtype:    index into DTYPES, TWO_BITS or ROWS.      n:      elements.
    round:    update of the key, from 1.
    segment:  the sender's shared memory segment that holds the bytes, from byte `at`; INLINE; or NOTHING.
    reply_segment, reply_at:  the place where the sender wants the value; INLINE for the answer's payload.
    """

    key: int
    slice: int
    dtype: int
    n: int
    round: int
    segment: int = NOTHING
    at: int = 0
    reply_segment: int = INLINE
    reply_at: int = 0

    @property
    def name(self) -> tuple[int, int]:
        return self.key, self.slice

    @property
    def reply(self) -> Place:
        return self.reply_segment, self.reply_at

    @property
    def nbytes(self) -> int:
        """Size of the elements in the payload or in shared memory, in bytes."""
        if self.dtype == TWO_BITS:
            return cdiv(self.n, 16) * 4
        return self.n if self.dtype == ROWS else self.n * DTYPES[self.dtype].itemsize


@dataclass(eq=False)
class WireFrame:
    """A decoded frame. table: the records as integers [n, 9]; payload: bytes."""

    type: FrameType
    flags: int
    rank: int
    seq: int
    table: np.ndarray
    payload: memoryview

    @functools.cached_property
    def records(self) -> list[Record]:
        return [Record._make(row) for row in self.table.tolist()]


def encode(type: FrameType, records: Sequence[Record] | np.ndarray = (), nbytes: int = 0, *, flags: int = 0, rank: int = -1,
           seq: int = 0) -> bytes:
    """Return the head of a frame with a payload of nbytes."""
    if isinstance(records, np.ndarray):
        body = records.tobytes()
    else:
        body = struct.pack(f"<{len(records) * len(_FIELDS)}q", *itertools.chain.from_iterable(records))
    numbers = (MAGIC, type, flags, rank, seq, len(records), nbytes)
    crc = zlib.crc32(body, zlib.crc32(_HEADER.pack(*numbers, 0)))
    return _HEADER.pack(*numbers, crc) + body


def decode(head: Any, payload: Any = b"", size: int | None = None) -> WireFrame:
    """Return the frame of a message. Raises FrameError for an invalid one, before any memory is allocated.

    size:  bytes of a payload that has not arrived yet.
    """
    head, payload = memoryview(head), memoryview(payload)
    size = len(payload) if size is None else size
    if len(head) < _HEAD or (len(head) - _HEAD) % _RECORD or (len(head) - _HEAD) // _RECORD > MOST_RECORDS:
        raise FrameError(f"frame: a head of {len(head)} bytes. A head has 64 + 72·n bytes, with n <= {MOST_RECORDS}.")
    magic, type, flags, rank, seq, count, nbytes, crc = _HEADER.unpack_from(head)
    if magic != MAGIC:
        raise FrameError(f"frame: it begins with {magic:#x}, not with {MAGIC:#x}.")
    if crc != zlib.crc32(head[_HEAD:], zlib.crc32(_NO_CRC, zlib.crc32(head[:_HEAD - 8]))):
        raise FrameError("frame: the head's checksum is wrong.")
    if count != (len(head) - _HEAD) // _RECORD or nbytes != size:
        raise FrameError(f"frame: the header announces {count} records and {nbytes} bytes; received "
                         f"{(len(head) - _HEAD) // _RECORD} and {size}.")
    if type not in FrameType._value2member_map_:
        raise FrameError(f"frame: unknown type {type}.")
    table = np.frombuffer(head, "<i8", offset=_HEAD).reshape(-1, len(_FIELDS))
    frame = WireFrame(FrameType(type), flags, rank, seq, table, payload)
    needed = _nbytes_of_table(table) if count > _FEW else sum([_nbytes_of(r) for r in frame.records])
    if needed > nbytes:
        raise FrameError(f"frame: its records need {needed} bytes, the payload has {nbytes}.")
    return frame


_FEW = 8  # records: up to this number, checking them one by one is faster than NumPy
_LEAST = (0, 0, 0, 0, 0, NOTHING, 0, NOTHING, 0)
_MOST = ((1 << 31) - 1, (1 << 16) - 1, ROWS, (1 << 40) - 1, (1 << 60) - 1, (1 << 20) - 1, (1 << 60) - 1, (1 << 20) - 1,
         (1 << 60) - 1)
_SIZES = np.array([d.itemsize for d in DTYPES])


def _nbytes_of(r: Record) -> int:
    """Return the payload bytes of a record. Raises FrameError if a number is out of bounds."""
    for least, number, most in zip(_LEAST, r, _MOST):
        if not least <= number <= most:
            raise FrameError(f"frame: a record is out of bounds: {tuple(r)}.")
    if not (r.dtype < len(DTYPES) or r.dtype in (TWO_BITS, ROWS)):
        raise FrameError(f"frame: a record is out of bounds: {tuple(r)}.")
    return r.nbytes if r.segment == INLINE else 0


def _nbytes_of_table(table: np.ndarray) -> int:
    """Return the payload bytes of all records. Raises FrameError as `_nbytes_of` does."""
    dtypes, n = table[:, 2], table[:, 3]
    plain = ((table >= _LEAST) & (table <= _MOST)).all(axis=1) & (dtypes < len(DTYPES))
    if plain.all():
        return int((n * _SIZES[dtypes])[table[:, 5] == INLINE].sum())
    return sum([_nbytes_of(Record._make(row)) for row in table.tolist()])


def pack(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def unpack(data: Any) -> dict[str, Any]:
    """Return the message in the bytes of `pack`. Raises FrameError unless they are a JSON object."""
    try:
        message = json.loads(bytes(data))
    except (ValueError, RecursionError) as e:
        raise FrameError(f"control message: invalid JSON: {type(e).__name__}.") from e
    if not isinstance(message, dict):
        raise FrameError(f"control message: JSON of a {type(message).__name__}, not an object.")
    return message
