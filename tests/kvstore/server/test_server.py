"""A server's answers to incomplete, late, repeated and invalid frames. Expected answers are written by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tritium.kvstore.server.server import Server
from tritium.kvstore.server.values import StoredValues
from tritium.kvstore.wire.frame import INLINE, ROWS, WANT_VALUE, FrameType, Record, decode, encode, unpack

SIZES = [2, 3, 4, 2, 8]
MEMBERS = {"0": 1, "1": 1}
pytestmark = pytest.mark.usefixtures("serial")


def make_server(policy="fail", kind="sync", folder=None, snapshot_rounds=0):
    s = Server("00000000beef", policy, kind, folder, snapshot_rounds)
    keys = [{"id": i, "key": f"i:{i}", "shape": [n], "dtype": "float32", "slices": [[0, 0, n]]} for i, n in enumerate(SIZES)]
    s.control({"members": {"ranks": MEMBERS, "gone": {}, "generation": 0}, "keys": keys, "index": 0})
    for rank in range(2):
        s.receive(rank, decode(encode(FrameType.HANDSHAKE, [], 2, rank=rank), b"{}"))
    for i, n in enumerate(SIZES):
        head = encode(FrameType.INITIALIZE, [Record(i, 0, 0, n, 0, INLINE)], 4 * n, rank=0)
        s.receive(0, decode(head, np.zeros(n, "f").tobytes()))
    return s


def push(rank, n, key, number, *, seq=0, flags=WANT_VALUE):
    """A frame with a contribution whose elements are all `number`."""
    data = np.full(SIZES[key], number, "f")
    record = Record(key, 0, 0, len(data), n, INLINE)
    return decode(encode(FrameType.PUSH, [record], data.nbytes, rank=rank, seq=seq, flags=flags), data.tobytes())


def decoded(out):
    return [(rank, decode(head, payload)) for rank, head, payload in out]


def test_a_frame_with_one_invalid_record_changes_nothing():
    s = make_server()
    data = np.ones(2, "f")
    records = [Record(0, 0, 0, 2, 1, INLINE), Record(1, 0, 0, 3, 1, 7)]
    frame = decode(encode(FrameType.PUSH, records, 8, rank=0, flags=WANT_VALUE), data.tobytes())
    ((_, rejected),) = decoded(s.receive(0, frame))
    assert rejected.type is FrameType.REJECTED and len(rejected.records) == 2
    assert b"segment 7, which this server cannot read" in bytes(rejected.payload)
    assert s.receive(1, push(1, 1, 0, 5)) == []  # the round waits for worker 0
    assert len(s.receive(0, push(0, 1, 0, 3))) == 2 and s.values[0, 0].flat.tolist() == [8, 8]


@pytest.mark.parametrize("type", [FrameType.PUSH, FrameType.PULL])
def test_an_invalid_reply_place_is_rejected_and_affects_no_other_worker(type):
    s = make_server()
    record = Record(0, 0, 0, 2, 1 if type is FrameType.PUSH else 0, INLINE, 0, 3, 0)
    ((_, rejected),) = decoded(s.receive(0, decode(encode(type, [record], 8, rank=0, seq=4, flags=WANT_VALUE),
                                                  np.ones(2, "f").tobytes())))
    assert rejected.type is FrameType.REJECTED and rejected.seq == 4
    assert b"segment 3, which this server cannot read" in bytes(rejected.payload)
    s.receive(1, push(1, 1, 0, 5))
    assert len(s.receive(0, push(0, 1, 0, 3))) == 2 and s.values[0, 0].flat.tolist() == [8, 8]


def test_an_applied_contribution_that_is_repeated_is_acknowledged():
    s = make_server()
    s.receive(1, push(1, 1, 4, 1))
    s.receive(0, push(0, 1, 4, 2))
    ((_, answer),) = decoded(s.receive(0, push(0, 1, 4, 7, seq=9)))
    assert answer.type is FrameType.ANSWER and np.frombuffer(answer.payload, "f").tolist() == [3] * 8


def test_a_payload_is_as_long_as_its_key_allows():
    s = make_server()
    for type, dtype, most in ((FrameType.PUSH, 0, 8 * 4), (FrameType.PUSH, ROWS, 8 * 12), (FrameType.STATES, 3, 8 * 8 * 4)):
        for key, n, fits in ((4, most, True), (4, most + 80, False), (9, 8, False)):
            frame = decode(encode(type, [Record(key, 0, dtype, n if dtype else n // 4, 1, INLINE)], n, rank=0), size=n)
            assert s.may_send(frame, n) == fits
    assert not s.may_send(decode(encode(FrameType.PUSH, [], 8, rank=0), size=8), 8)


def test_a_handshake_drops_contributions_that_are_not_applied():
    s = make_server()
    s.receive(0, push(0, 1, 0, 1))
    s.receive(0, decode(encode(FrameType.HANDSHAKE, [], 2, rank=0), b"{}"))
    assert s.receive(1, push(1, 1, 0, 1)) == [] and s.rounds.missing(s._batches[s.values[0, 0]]) == (1, [0])


def test_a_pull_waits_for_the_round_that_its_worker_knows():
    """A restarted server has the older value of its snapshot, until workers have sent their retained contributions again."""
    s = make_server()
    pull = decode(encode(FrameType.PULL, [Record(0, 0, 0, 0, 1)], 0, rank=0, seq=5))
    assert s.receive(0, pull) == [] and s.receive(0, push(0, 1, 0, 1, flags=0)) == []
    answers = [f for rank, f in decoded(s.receive(1, push(1, 1, 0, 2, flags=0))) if f.seq == 5]
    assert np.frombuffer(answers[0].payload, "f").tolist() == [3, 3]


def test_a_round_applied_before_a_server_restart_is_applied_again_in_spite_of_a_dead_worker():
    s = make_server()
    s.receive(0, push(0, 1, 0, 1, flags=0))  # no value wanted: it was acknowledged, and then the server restarted
    assert s.control({"members": {"ranks": MEMBERS, "gone": {"1": "died"}, "generation": 0}}) == []
    ((_, rejected),) = decoded(s.receive(0, push(0, 1, 1, 1)))
    assert rejected.type is FrameType.REJECTED
    s.control({"members": {"ranks": MEMBERS, "gone": {}, "generation": 0}})
    s.receive(1, push(1, 1, 0, 2, flags=0))
    assert s.values[0, 0].flat.tolist() == [3, 3]


def test_a_frame_of_a_removed_worker_does_not_delay_the_others():
    """Policy shrink: the removed worker was only unreachable, and sends a frame. Frames of the others are not held."""
    s = make_server("shrink")
    s.control({"members": {"ranks": MEMBERS, "gone": {"1": "died"}, "generation": 0}})

    def push_all(rank):
        records = [Record(i, 0, 0, n, 1, INLINE) for i, n in enumerate(SIZES)]
        head = encode(FrameType.PUSH, records, 4 * sum(SIZES), rank=rank, flags=WANT_VALUE)
        return decode(head, np.ones(sum(SIZES), "f").tobytes())

    assert {f.type for _, f in decoded(s.receive(1, push_all(1)))} == {FrameType.REJECTED}
    ((rank, answer),) = decoded(s.receive(0, push_all(0)))
    assert rank == 0 and answer.type is FrameType.ANSWER


def test_async_a_worker_learns_which_of_its_own_contributions_are_on_disk(tmp_path, monkeypatch):
    s = make_server(kind="async", folder=tmp_path, snapshot_rounds=100)
    monkeypatch.setattr(StoredValues, "has_optimizer", True)
    for rank, count in ((0, 3), (1, 5)):
        for n in range(1, count + 1):
            s.receive(rank, push(rank, n, 0, 1))
    for rank, count in ((0, 3), (1, 5)):
        ((_, reply),) = decoded(s.receive(rank, decode(encode(FrameType.SAVE, [], 0, rank=rank, seq=3))))
        assert unpack(reply.payload)["rounds"][0] == [0, 0, count, count]
