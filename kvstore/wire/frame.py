"""Frames: what workers and server shards send each other. A fixed header, fixed records, and one run of raw bytes.

A frame is two messages: a head of 8 + 10·n little-endian int64 (header, then n records), and the payload, in the order of the
records that have `segment` == INLINE. Nothing is allocated or believed before every number is within its bounds. The crc covers
the head; the payload, like the head, arrives under CURVE's authentication. Control messages are JSON objects (`pack`, `unpack`).
"""

from __future__ import annotations

import enum
import itertools
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtype import bfloat16
from ...errors import FrameError
from ...integers import cdiv

MAGIC = 0x4B565354  # "KVST"
CHUNK = 4 << 20  # bytes: the longest payload of one record, and of many small ones together
RUN = 512 << 10  # bytes: longer arrays travel in runs; one is in the cache while it is encrypted, and others are under way
LARGEST_MESSAGE = CHUNK + (1 << 20)  # bytes: what a socket accepts as one message
MOST_RECORDS = 8192
INLINE, NOTHING = -1, -2  # as `segment`: in the payload; no bytes at all
WANT = 1  # flag: the sender wants the value in the answer

_HEADER = struct.Struct("<8q")  # magic, op, flags, rank, seq, count, nbytes, crc
_FIELDS = ("key", "part", "dtype", "n", "round", "offset", "segment", "at", "reply_segment", "reply_at")
_HEAD = _HEADER.size
_RECORD = 8 * len(_FIELDS)
_NO_CRC = bytes(8)  # what stands in its place while it is computed

DTYPES: tuple[np.dtype, ...] = tuple(np.dtype(d) for d in (
    "float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", bfloat16, "int16", "uint16", "uint32", "uint64"))
TWO_BITS = 64  # as `dtype`: float32 values in 2-bit form (compression.py)
CODES = {d: i for i, d in enumerate(DTYPES)}


class Op(enum.IntEnum):
    """What a frame asks or answers."""

    HELLO = 1  # worker: who I am. Answered by WELCOME
    WELCOME = 2  # records: key, part, round = version here, at = version on disk
    FILL = 3  # rank 0: first values
    PUSH = 4  # contributions to rounds
    PULL = 5  # records: which keys
    ANSWER = 6  # records: round = version, at = version on disk; with the value if it was wanted
    REFUSED = 7  # records that were not done; the payload is JSON: text, gone {rank: why}, generation of that
    STATES = 8  # JSON in the payload: optimizer states, asked for or given
    SAVE = 9  # write what has changed to disk now. Answered by WELCOME
    MISSING = 10  # which ranks does a round wait for? Answered by JSON
    TEXT = 11  # an answer in JSON
    PUSH_ROWS = 12  # one record: n elements of rows, from row `offset` of `at` rows; their numbers follow them, int64
    PULL_ROWS = 13  # one record; the payload numbers the rows. Answered by ANSWER with n elements for each


class Record(NamedTuple):
    """One run of elements of one part of a key.

    key:      the key's number in the job's table.      part:  which part of a split key.
    dtype:    index into DTYPES, or TWO_BITS.           n:     elements in this run.
    round:    which update of the key, from 1.          offset: of the run in the part, in elements.
    segment:  the sender's shared memory that holds the bytes, at byte `at`; INLINE; or NOTHING.
    reply_segment, reply_at:  where the sender would like the value; INLINE for the answer's payload.
    """

    key: int
    part: int
    dtype: int
    n: int
    round: int
    offset: int = 0
    segment: int = NOTHING
    at: int = 0
    reply_segment: int = INLINE
    reply_at: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes the elements take, in the payload or in shared memory."""
        if self.dtype == TWO_BITS:
            return cdiv(self.n, 16) * 4
        return self.n * DTYPES[self.dtype].itemsize


class Frame:
    """What arrived. table: the records as numbers [n, 10]; payload: bytes."""

    __slots__ = ("_records", "flags", "op", "payload", "rank", "seq", "table")

    def __init__(self, op: Op, flags: int, rank: int, seq: int, table: np.ndarray, payload: memoryview,
                 records: list[Record] | None):
        self.op, self.flags, self.rank, self.seq, self.table, self.payload = op, flags, rank, seq, table, payload
        self._records = records

    @property
    def records(self) -> list[Record]:
        """The same, one by one."""
        if self._records is None:
            self._records = [Record._make(row) for row in self.table.tolist()]
        return self._records


def encode(op: Op, records: Sequence[Record] | np.ndarray = (), nbytes: int = 0, *, flags: int = 0, rank: int = -1,
           seq: int = 0) -> bytes:
    """The head of a frame with a payload of nbytes."""
    if isinstance(records, np.ndarray):
        body = records.tobytes()
    else:
        body = struct.pack(f"<{len(records) * len(_FIELDS)}q", *itertools.chain.from_iterable(records))
    numbers = (MAGIC, op, flags, rank, seq, len(records), nbytes)
    crc = zlib.crc32(body, zlib.crc32(_HEADER.pack(*numbers, 0)))
    return _HEADER.pack(*numbers, crc) + body


def decode(head: Any, payload: Any = b"") -> Frame:
    """A frame from its two messages (buffers). Raises FrameError, before anything is allocated, for what cannot be one."""
    head, payload = memoryview(head), memoryview(payload)
    if len(head) < _HEAD or (len(head) - _HEAD) % _RECORD or (len(head) - _HEAD) // _RECORD > MOST_RECORDS:
        raise FrameError(f"frame: {len(head)} bytes are no head of 64 + 80·n bytes, n <= {MOST_RECORDS}.")
    magic, op, flags, rank, seq, count, nbytes, crc = _HEADER.unpack_from(head)
    if magic != MAGIC:
        raise FrameError(f"frame: it begins with {magic:#x}, not with {MAGIC:#x}.")
    if crc != zlib.crc32(head[_HEAD:], zlib.crc32(_NO_CRC, zlib.crc32(head[:_HEAD - 8]))):
        raise FrameError("frame: the head's checksum is wrong.")
    if count != (len(head) - _HEAD) // _RECORD or nbytes != len(payload):
        raise FrameError(f"frame: it says {count} records and {nbytes} bytes; there are {(len(head) - _HEAD) // _RECORD} and "
                         f"{len(payload)}.")
    if op not in Op._value2member_map_:
        raise FrameError(f"frame: there is no operation {op}.")
    table = np.frombuffer(head, "<i8", offset=_HEAD).reshape(-1, len(_FIELDS))
    records = [Record._make(row) for row in table.tolist()] if count <= _FEW else None
    needed = _bytes_of_many(table) if records is None else sum([_bytes_of(r) for r in records])
    if needed > nbytes:
        raise FrameError(f"frame: its records need {needed} bytes, the payload has {nbytes}.")
    return Frame(Op(op), flags, rank, seq, table, payload, records)


_FEW = 8  # records: fewer are looked at one by one, which is faster then
_LEAST = (0, 0, 0, 0, 0, 0, NOTHING, 0, NOTHING, 0)
_MOST = ((1 << 31) - 1, (1 << 16) - 1, TWO_BITS, (1 << 40) - 1, (1 << 60) - 1, (1 << 40) - 1, (1 << 20) - 1, (1 << 60) - 1,
         (1 << 20) - 1, (1 << 60) - 1)
_SIZES = np.array([d.itemsize for d in DTYPES])


def _bytes_of(r: Record) -> int:
    """Bytes of the payload that are a record's. Raises FrameError if a number is not within its bounds."""
    for least, number, most in zip(_LEAST, r, _MOST):
        if not least <= number <= most:
            raise FrameError(f"frame: a record is out of bounds: {tuple(r)}.")
    if not (r.dtype < len(DTYPES) or r.dtype == TWO_BITS):
        raise FrameError(f"frame: a record is out of bounds: {tuple(r)}.")
    return r.nbytes if r.segment == INLINE else 0


def _bytes_of_many(table: np.ndarray) -> int:
    """As _bytes_of, for all of them; those that are not ordinary are looked at one by one."""
    dtypes, n = table[:, 2], table[:, 3]
    plain = ((table >= _LEAST) & (table <= _MOST)).all(axis=1) & (dtypes < len(DTYPES))
    if plain.all():
        return int((n * _SIZES[dtypes])[table[:, 6] == INLINE].sum())
    return sum([_bytes_of(Record._make(row)) for row in table.tolist()])


def pack(message: dict[str, Any]) -> bytes:
    """A control message as bytes."""
    return json.dumps(message, separators=(",", ":")).encode()


def unpack(data: Any) -> dict[str, Any]:
    """What `pack` was given. Raises FrameError if it is no JSON object."""
    try:
        message = json.loads(bytes(data))
    except (ValueError, RecursionError) as e:
        raise FrameError(f"control message: no JSON: {type(e).__name__}.") from e
    if not isinstance(message, dict):
        raise FrameError(f"control message: JSON of a {type(message).__name__}, not an object.")
    return message
