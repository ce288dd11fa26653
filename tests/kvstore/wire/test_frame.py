"""Frames: decoding returns what was encoded, and rejects everything else. Hypothesis cuts, changes and invents bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.errors import FrameError
from tritium.kvstore.wire.frame import (
    DTYPES,
    INLINE,
    MAGIC,
    NOTHING,
    ROWS,
    TWO_BITS,
    FrameType,
    Record,
    decode,
    encode,
    pack,
    unpack,
)

CODES = [*range(len(DTYPES)), TWO_BITS, ROWS]
records = st.builds(Record, st.integers(0, 2**31 - 1), st.integers(0, 100), st.sampled_from(CODES), st.integers(0, 1000),
                    st.integers(0, 2**40), st.sampled_from([INLINE, NOTHING, 0, 7]), st.integers(0, 2**40),
                    st.sampled_from([INLINE, NOTHING, 3]), st.integers(0, 2**40))


def payload_of(rs):
    return bytes(sum(r.nbytes for r in rs if r.segment == INLINE))


@settings(max_examples=40, deadline=None)
@given(st.lists(records, max_size=5), st.sampled_from(list(FrameType)), st.integers(0, 5), st.integers(0, 2**40))
def test_a_decoded_frame_equals_the_encoded_one(rs, op, rank, seq):
    payload = payload_of(rs)
    frame = decode(encode(op, rs, len(payload), rank=rank, seq=seq), payload)
    assert (frame.type, frame.rank, frame.seq, frame.records, bytes(frame.payload)) == (op, rank, seq, rs, payload)


@settings(max_examples=50, deadline=None)
@given(st.lists(records, max_size=5), st.data())
def test_a_changed_or_cut_head_is_rejected(rs, data):
    payload = payload_of(rs)
    head = bytearray(encode(FrameType.PUSH, rs, len(payload)))
    if data.draw(st.booleans()):
        head = head[:data.draw(st.integers(0, len(head) - 1))]
    else:
        head[data.draw(st.integers(0, len(head) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        decode(bytes(head), payload)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=40))
def test_random_bytes_are_rejected(head, payload):
    with pytest.raises(FrameError):
        decode(head, payload)


@pytest.mark.parametrize("field, value", [("n", 2**62), ("n", -1), ("key", -1), ("segment", -3), ("dtype", 40),
                                          ("round", -1), ("at", -5), ("slice", 2**20)])
def test_numbers_out_of_bounds_are_rejected_before_anything_is_allocated(field, value):
    record = Record(1, 0, 0, 4, 1, segment=NOTHING)._replace(**{field: value})
    with pytest.raises(FrameError, match="out of bounds"):
        decode(encode(FrameType.PUSH, [record], 0), b"")


def test_a_payload_that_is_too_short_is_rejected():
    record = Record(1, 0, 0, 1000, 1, segment=INLINE)
    with pytest.raises(FrameError, match="its records need 4000 bytes, the payload has 8"):
        decode(encode(FrameType.PUSH, [record], 8), bytes(8))


def test_a_wrong_magic_number_and_an_unknown_type_are_rejected():
    with pytest.raises(FrameError, match="not with 0x4b565354"):
        decode(np.full(8, 7, "<i8").tobytes())
    with pytest.raises(FrameError, match="unknown type 99"):
        decode(encode(99))  # type: ignore[arg-type]
    assert int.from_bytes(b"KVST", "big") == MAGIC


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b"\xff", b"3", b"[" * 100000])
def test_control_messages_are_json_objects(data):
    with pytest.raises(FrameError, match="control message"):
        unpack(data)
    assert unpack(pack({"op": "x", "n": [1, "é"]})) == {"op": "x", "n": [1, "é"]}
