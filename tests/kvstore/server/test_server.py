"""A server's answers to frames that come half, late, twice, or from where nothing is. Oracle: what the protocol says, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tritium.kvstore.server import server
from tritium.kvstore.server.server import Shard
from tritium.kvstore.server.values import Values
from tritium.kvstore.wire.frame import INLINE, WANT, Op, Record, decode, encode, unpack

SIZES = [2, 3, 4, 2, 8]
MEMBERS = {"0": 1, "1": 1}
pytestmark = pytest.mark.usefixtures("serial")


def shard(policy="fail", kind="sync", folder=None, every=0):
    s = Shard("00000000beef", policy, kind, folder, every)
    keys = [{"id": i, "key": f"i:{i}", "shape": [n], "dtype": "float32", "parts": [[0, 0, n]]} for i, n in enumerate(SIZES)]
    s.control({"members": {"ranks": MEMBERS, "gone": {}, "generation": 0}, "keys": keys, "index": 0})
    for rank in range(2):
        s.receive(rank, decode(encode(Op.HELLO, [], 2, rank=rank), b"{}"))
    for i, n in enumerate(SIZES):
        s.receive(0, decode(encode(Op.FILL, [Record(i, 0, 0, n, 0, 0, INLINE)], 4 * n, rank=0), np.zeros(n, "f").tobytes()))
    return s


def push(rank, n, key, number, *, stop=None, start=0, seq=0, flags=WANT):
    """A run of a contribution of equal numbers."""
    data = np.full((SIZES[key] if stop is None else stop) - start, number, "f")
    return decode(encode(Op.PUSH, [Record(key, 0, 0, len(data), n, start, INLINE)], data.nbytes, rank=rank, seq=seq, flags=flags),
                  data.tobytes())


def said(out):
    return [(rank, decode(head, b"".join(bytes(p) for p in pieces))) for rank, head, pieces in out]


def test_a_frame_of_which_a_part_cannot_be_read_does_nothing():
    s = shard()
    data = np.ones(2, "f")
    frame = decode(encode(Op.PUSH, [Record(0, 0, 0, 2, 1, 0, INLINE), Record(1, 0, 0, 3, 1, 0, 7)], 8, rank=0, flags=WANT),
                   data.tobytes())
    ((_, refused),) = said(s.receive(0, frame))
    assert refused.op is Op.REFUSED and len(refused.records) == 2
    assert b"segment 7, which cannot be read here" in bytes(refused.payload)
    assert s.receive(1, push(1, 1, 0, 5)) == []  # the round waits for worker 0
    assert len(s.receive(0, push(0, 1, 0, 3))) == 2 and s.values[0, 0].flat.tolist() == [8, 8]


@pytest.mark.parametrize("op", [Op.PUSH, Op.PULL])
def test_a_value_that_is_wanted_where_nothing_is_harms_nobody(op):
    s = shard()
    record = Record(0, 0, 0, 2, 1 if op is Op.PUSH else 0, 0, INLINE, 0, 3, 0)
    ((_, refused),) = said(s.receive(0, decode(encode(op, [record], 8, rank=0, seq=4, flags=WANT),
                                                   np.ones(2, "f").tobytes())))
    assert refused.op is Op.REFUSED and refused.seq == 4 and b"segment 3, which cannot be read here" in bytes(refused.payload)
    s.receive(1, push(1, 1, 0, 5))
    assert len(s.receive(0, push(0, 1, 0, 3))) == 2 and s.values[0, 0].flat.tolist() == [8, 8]


def test_runs_that_come_again_after_their_round_are_answered_once():
    s = shard()
    s.receive(1, push(1, 1, 4, 1))
    s.receive(0, push(0, 1, 4, 2))
    out = [s.receive(0, push(0, 1, 4, 2, start=at, stop=at + 2, seq=9)) for at in range(0, 8, 2)]
    assert out[:3] == [[], [], []]
    ((_, answer),) = said(out[3])
    assert answer.op is Op.ANSWER and np.frombuffer(answer.payload, "f").tolist() == [3] * 8


def test_runs_of_two_attempts_are_not_one_contribution():
    """Half of the first one was refused (no optimizer yet), or never sent; the second one has other numbers."""
    s = shard()
    s.receive(1, push(1, 1, 4, 1))
    s.receive(0, push(0, 1, 4, 20, start=4, seq=1))
    assert s.receive(0, push(0, 1, 4, 2, stop=4, seq=2)) == []
    assert s.receive(0, push(0, 1, 4, 20, stop=4, seq=1)) == []  # late
    s.receive(0, push(0, 1, 4, 2, start=4, seq=2))
    assert s.values[4, 0].flat.tolist() == [3] * 8


def test_a_hello_drops_what_is_not_applied():
    s = shard()
    s.receive(0, push(0, 1, 0, 1))
    s.receive(0, decode(encode(Op.HELLO, [], 2, rank=0), b"{}"))
    assert s.receive(1, push(1, 1, 0, 1)) == [] and s.rounds.missing((0, 0)) == (1, [0])


def test_a_pull_waits_for_the_round_that_its_worker_has_seen():
    """A server that came back from its snapshot has an older value, until workers have sent again what they kept."""
    s = shard()
    pull = decode(encode(Op.PULL, [Record(0, 0, 0, 0, 1)], 0, rank=0, seq=5))
    assert s.receive(0, pull) == [] and s.receive(0, push(0, 1, 0, 1, flags=0)) == []
    answers = [f for rank, f in said(s.receive(1, push(1, 1, 0, 2, flags=0))) if f.seq == 5]
    assert np.frombuffer(answers[0].payload, "f").tolist() == [3, 3]


def test_what_was_made_before_a_death_is_made_again_in_spite_of_it():
    s = shard()
    s.receive(0, push(0, 1, 0, 1, flags=0))  # no WANT: it had its answer, and the server has died since
    assert s.control({"members": {"ranks": MEMBERS, "gone": {"1": "died"}, "generation": 0}}) == []
    ((_, refused),) = said(s.receive(0, push(0, 1, 1, 1)))
    assert refused.op is Op.REFUSED
    s.control({"members": {"ranks": MEMBERS, "gone": {}, "generation": 0}})
    s.receive(1, push(1, 1, 0, 2, flags=0))
    assert s.values[0, 0].flat.tolist() == [3, 3]


def test_who_is_no_member_holds_up_nobody():
    """Policy shrink: the dead is only silent, and its frame comes; the others' frames of the same keys are not kept for it."""
    s = shard("shrink")
    s.control({"members": {"ranks": MEMBERS, "gone": {"1": "died"}, "generation": 0}})

    def together(rank):
        records = [Record(i, 0, 0, n, 1, 0, INLINE) for i, n in enumerate(SIZES)]
        return decode(encode(Op.PUSH, records, 4 * sum(SIZES), rank=rank, flags=WANT), np.ones(sum(SIZES), "f").tobytes())

    assert {f.op for _, f in said(s.receive(1, together(1)))} == {Op.REFUSED}
    ((rank, answer),) = said(s.receive(0, together(0)))
    assert rank == 0 and answer.op is Op.ANSWER


def test_a_welcome_of_many_keys_says_that_more_comes(monkeypatch):
    s = shard()
    monkeypatch.setattr(server, "MOST_RECORDS", 2)
    frames = [f for _, f in said(s.receive(0, decode(encode(Op.SAVE, [], 0, rank=0, seq=3))))]
    assert [(len(f.records), unpack(f.payload)["more"]) for f in frames] == [(2, True), (2, True), (1, False)]


def test_async_each_worker_hears_which_of_its_own_are_on_disk(tmp_path, monkeypatch):
    s = shard(kind="async", folder=tmp_path, every=100)
    monkeypatch.setattr(Values, "updates", True)
    for rank, count in ((0, 3), (1, 5)):
        for n in range(1, count + 1):
            s.receive(rank, push(rank, n, 0, 1))
    for rank, count in ((0, 3), (1, 5)):
        ((_, welcome),) = said(s.receive(rank, decode(encode(Op.SAVE, [], 0, rank=rank, seq=3))))
        assert next((r.round, r.at) for r in welcome.records if r.key == 0) == (count, count)
