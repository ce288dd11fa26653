"""Frames: what workers and server shards send each other. A fixed header, fixed records, and one run of raw bytes.

A frame is two messages: a head of 8 + 10·n little-endian int64 (header, then n records), and the payload, in the order of the
records that have `segment` == INLINE. Nothing is allocated or believed before every number is within its bounds. The crc covers
the head; the payload, like the head, arrives under CURVE's authentication. Control messages are JSON objects (`pack`, `unpack`).
"""

from __future__ import annotations

import enum
import json
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..dtype import bfloat16
from ..errors import FrameError

MAGIC = 0x4B565354  # "KVST"
CHUNK = 4 << 20  # bytes: the longest payload of one record, and of many small ones together
LARGEST_MESSAGE = CHUNK + (1 << 20)  # bytes: what a socket accepts as one message
MOST_RECORDS = 8192
INLINE, NOTHING = -1, -2  # as `segment`: in the payload; no bytes at all
WANT = 1  # flag: the sender wants the value in the answer

_HEADER = np.dtype([(n, "<i8") for n in ("magic", "op", "flags", "rank", "seq", "count", "nbytes", "crc")])
_FIELDS = ("key", "part", "dtype", "n", "round", "offset", "segment", "at", "reply_segment", "reply_at")
_HEAD = _HEADER.itemsize
_RECORD = 8 * len(_FIELDS)

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
    REFUSED = 7  # records that were not done; the payload is JSON: {"kind", "text", ...}
    STATES = 8  # JSON in the payload: optimizer states, asked for or given
    SAVE = 9  # write what has changed to disk now. Answered by WELCOME
    MISSING = 10  # which ranks does a round wait for? Answered by JSON
    TEXT = 11  # an answer in JSON


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
            return -(-self.n // 16) * 4
        return self.n * DTYPES[self.dtype].itemsize


class Frame(NamedTuple):
    op: Op
    flags: int
    rank: int
    seq: int
    records: list[Record]
    payload: memoryview


def encode(op: Op, records: Sequence[Record] = (), nbytes: int = 0, *, flags: int = 0, rank: int = -1, seq: int = 0) -> bytes:
    """The head of a frame with a payload of nbytes."""
    body = np.array(records, "<i8").tobytes() if records else b""
    head = np.array([MAGIC, op, flags, rank, seq, len(records), nbytes, 0], "<i8")
    head[7] = zlib.crc32(body, zlib.crc32(head.tobytes()))
    return head.tobytes() + body


def decode(head: Any, payload: Any = b"") -> Frame:
    """A frame from its two messages (buffers). Raises FrameError, before anything is allocated, for what cannot be one."""
    head, payload = memoryview(head), memoryview(payload)
    if len(head) < _HEAD or (len(head) - _HEAD) % _RECORD or (len(head) - _HEAD) // _RECORD > MOST_RECORDS:
        raise FrameError(f"frame: {len(head)} bytes are no head of 64 + 80·n bytes, n <= {MOST_RECORDS}.")
    numbers = np.frombuffer(head, "<i8")
    magic, op, flags, rank, seq, count, nbytes, crc = numbers[:8].tolist()
    if magic != MAGIC:
        raise FrameError(f"frame: it begins with {magic:#x}, not with {MAGIC:#x}.")
    clean = numbers[:8].copy()
    clean[7] = 0
    if crc != zlib.crc32(head[_HEAD:], zlib.crc32(clean.tobytes())):
        raise FrameError("frame: the head's checksum is wrong.")
    if count != (len(head) - _HEAD) // _RECORD or nbytes != len(payload):
        raise FrameError(f"frame: it says {count} records and {nbytes} bytes; there are {(len(head) - _HEAD) // _RECORD} and "
                         f"{len(payload)}.")
    if op not in Op._value2member_map_:
        raise FrameError(f"frame: there is no operation {op}.")
    records = [Record._make(row) for row in numbers[8:].reshape(-1, len(_FIELDS)).tolist()]
    inline = 0
    for r in records:
        if not (0 <= r.key < 1 << 31 and 0 <= r.part < 1 << 16 and 0 <= r.n < 1 << 40 and 0 <= r.offset < 1 << 40
                and 0 <= r.round < 1 << 60 and -2 <= r.segment < 1 << 20 and 0 <= r.at < 1 << 60
                and -2 <= r.reply_segment < 1 << 20 and 0 <= r.reply_at < 1 << 60
                and (0 <= r.dtype < len(DTYPES) or r.dtype == TWO_BITS)):
            raise FrameError(f"frame: a record is out of bounds: {tuple(r)}.")
        if r.segment == INLINE:
            inline += r.nbytes
    if inline > nbytes:
        raise FrameError(f"frame: its records need {inline} bytes, the payload has {nbytes}.")
    return Frame(Op(op), flags, rank, seq, records, payload)


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
