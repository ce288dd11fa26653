"""Batches of keys. Oracle: a server in which every key is alone."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from tritium.kvstore.server.server import Server
from tritium.kvstore.server.values import StoredValues
from tritium.kvstore.wire.frame import CODES, INLINE, WANT_VALUE, FrameType, Record, decode, encode
from tritium.kvstore.wire.shared_memory import SegmentPool, SegmentViews, remove_segments

SIZES = [5, 1, 300, 64, 7, 1024]
JOB = uuid.uuid4().hex


@pytest.fixture(autouse=True)
def _alone(serial):
    """Run as a server does, and remove the shared memory."""
    yield
    remove_segments(JOB)


def make_server(workers, batched, kind="sync", **more):
    s = Server(JOB, "fail", kind, **more)
    keys = [{"id": i, "key": f"i:{i}", "shape": [n], "dtype": "float32", "slices": [[0, 0, n]]} for i, n in enumerate(SIZES)]
    s.control({"members": {"ranks": {str(r): 1 for r in range(workers)}, "gone": {}, "generation": 0}, "keys": keys, "index": 0})
    for r in range(workers):
        s.receive(r, decode(*handshake(r)))
    first = np.zeros(sum(SIZES), "f")
    records = [Record(i, 0, CODES[first.dtype], n, 0, INLINE) for i, n in enumerate(SIZES)]
    s.receive(0, decode(encode(FrameType.INITIALIZE, records, first.nbytes, rank=0), first.tobytes()))
    if not batched:
        s._batches._whole = lambda rank, table: None
    return s


def handshake(rank):
    return encode(FrameType.HANDSHAKE, [], 2, rank=rank), b"{}"


def push(rank, n, keys, rng, pool=None, flags=WANT_VALUE):
    """Contributions to round n of keys, in the payload, or contiguous in shared memory."""
    data = [rng.normal(size=SIZES[k]).astype("f") * 10.0 ** rank for k in keys]
    raw = b"".join(d.tobytes() for d in data)
    starts = np.cumsum([0, *(d.nbytes for d in data)]).tolist()
    slots = None if pool is None else (pool.take(len(raw)), pool.take(len(raw)))
    if slots is not None:
        slots[0].view[:len(raw)] = np.frombuffer(raw, np.uint8)
    records = [Record(k, 0, 0, len(d), n, *((INLINE, 0, INLINE, 0) if slots is None else (
        slots[0].segment, at, slots[1].segment, at))) for k, d, at in zip(keys, data, starts)]
    body = raw if slots is None else b""
    return (encode(FrameType.PUSH, records, len(body), rank=rank, flags=flags), body), slots and slots[1].view[:len(raw)]


def answers_of(out):
    """The answers in a canonical order: (rank, key, round, elements, round on disk, bytes of the value), or rejections."""
    answers = []
    for rank, head, payload in out:
        payload = bytes(payload)
        frame, at = decode(head, payload), 0
        if frame.type is FrameType.REJECTED:
            answers.append((rank, "rejected", payload))
            continue
        for r in frame.records:
            value = payload[at:at + r.nbytes] if r.segment == INLINE else b""
            at += len(value)
            answers.append((rank, r.key, r.round, r.n, r.at, value))
    return sorted(answers, key=repr)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind_of_store", ["sync", "async"])
def test_batching_changes_no_answer_and_no_value(monkeypatch, seed, shared, kind_of_store):
    """Random rounds of up to three workers: the same keys, fewer, in other orders, repeated, with pulls in between."""
    monkeypatch.setattr(StoredValues, "has_optimizer", True)
    results = []
    for batched in (True, False):
        remove_segments(JOB)
        rng, order = np.random.default_rng(seed), np.random.default_rng([seed, 1])
        workers = int(order.integers(1, 4))
        s = make_server(workers, batched, kind_of_store)
        for value in s.values.values() if kind_of_store == "async" else ():
            value.updater = lambda key, grad, weight: weight.__iadd__(grad)
        pools = [SegmentPool(JOB, r, 1) if shared and r != 2 else None for r in range(workers)]
        for r, pool in enumerate(pools):
            if pool is not None:
                s._batches.views[r] = SegmentViews(JOB, r, 1)
        sent, replies, done = [], [], dict.fromkeys(range(len(SIZES)), 0)
        for _ in range(6):
            keys = order.permutation(len(SIZES))[:order.integers(1, len(SIZES) + 1)].tolist()
            kind = order.integers(5)
            frames = []
            for r in range(workers):
                mine = keys if kind else order.permutation(keys).tolist()
                at = 0 if kind != 1 else len(keys) // 2
                for part in (mine[:at], mine[at:]):
                    if part and len({done[k] for k in part}) == 1:
                        frames.append((r, *push(r, done[part[0]] + 1, part, rng, pools[r])))
                    else:
                        frames += [(r, *push(r, done[k] + 1, [k], rng, pools[r])) for k in part]
            if kind == 2:
                frames += [f for f in frames if f[0] == 0]  # sent again
            turns = order.permutation(workers).tolist()
            out = []
            for r, frame, reply in sorted(frames, key=lambda f: turns.index(f[0])):
                out += s.receive(r, decode(*frame))
                if order.integers(4) == 0:
                    pull = [Record(int(order.integers(len(SIZES))), 0, 0, 0, 0)]
                    out += s.receive(r, decode(encode(FrameType.PULL, pull, rank=r, seq=9)))
                replies.append(reply)
            sent.append(answers_of(out))
            for k in keys:
                done[k] += 1
        results.append((sent, [None if v is None else bytes(v) for v in replies], [v.flat.tobytes() for _, v in s.values.items()],
                        [s.rounds[s._batches[v]].version for _, v in s.values.items()]))
    for a, b in zip(*results):
        assert a == b


def test_equal_frames_are_summed_in_the_order_of_ranks(rng):
    s, keys = make_server(2, True), list(range(len(SIZES)))
    (one, _), (two, _) = push(1, 1, keys, rng), push(0, 1, keys, rng)
    assert s.receive(1, decode(*one)) == []
    (rank, head, payload), (other, same, again) = s.receive(0, decode(*two))
    assert (rank, other, head, payload) == (0, 1, same, again) and len({id(s._batches[v]) for v in s.values.values()}) == 1
    np.testing.assert_array_equal(np.frombuffer(payload, "f"), np.frombuffer(two[1], "f") + np.frombuffer(one[1], "f"))


def test_keys_become_a_batch_when_all_workers_have_sent_them_together(rng):
    s, keys = make_server(2, True), [0, 1, 2, 3]

    def batches():
        return len({id(s._batches[s.values[k, 0]]) for k in keys})

    for n, together in ((1, False), (2, True)):
        s.receive(0, decode(*push(0, n, keys, rng)[0]))
        for some in [keys] if together else [[k] for k in keys]:
            assert batches() == 4
            s.receive(1, decode(*push(1, n, some, rng)[0]))
    s.receive(0, decode(*push(0, 3, keys, rng)[0]))
    assert batches() == 1
    s.receive(1, decode(*push(1, 3, [0], rng)[0]))
    assert batches() == 4


def test_a_death_rejects_held_frames(rng):
    s = make_server(2, True)
    for rank, n in ((0, 1), (1, 1), (0, 2)):
        s.receive(rank, decode(*push(rank, n, [0, 1, 2, 3], rng)[0]))
    out = s.control({"members": {"ranks": {"0": 1, "1": 1}, "gone": {"1": "died"}, "generation": 0}})
    assert [(rank, [r.key for r in decode(head, payload).records]) for rank, head, payload in out] == [(0, [0, 1, 2, 3])]
    assert b"worker 1 died" in out[0][2]


def test_a_failed_update_is_rejected_for_its_key_only(rng, monkeypatch):
    s, keys = make_server(1, True), [0, 1, 2, 3]

    def fail(key, grad, weight):
        raise ValueError("no")

    s.values._make_updater = lambda: None
    for i, (_, v) in enumerate(s.values.items()):
        v.updater = fail if i == 2 else lambda key, grad, weight: weight.__iadd__(grad)
    answers = answers_of(s.receive(0, decode(*push(0, 1, keys, rng)[0])))
    assert sorted(a[1] for a in answers if a[1] != "rejected") == [0, 1, 3]
    assert [a for a in answers if a[1] == "rejected" and b"the update failed: ValueError: no" in a[2]]


def test_a_repeated_frame_does_not_take_the_value_of_a_later_one(rng):
    """One key: the frame of round 1 is repeated while its worker waits for round 2."""
    s, frames = make_server(2, True), {(r, n): push(r, n, [0], rng)[0] for r in range(2) for n in (1, 2)}
    for r in range(2):
        s.receive(r, decode(*frames[r, 1]))
    assert s.receive(0, decode(*frames[0, 2])) == []
    s.receive(0, decode(*frames[0, 1]))
    answers = answers_of(s.receive(1, decode(*frames[1, 2])))
    assert [(a[0], a[2], len(a[5])) for a in answers] == [(0, 2, 20), (1, 2, 20)]


def test_a_rejection_can_be_decoded(rng):
    """Its records refer to the bytes of the push; its payload is the error."""
    (rejection,) = answers_of(make_server(1, True).receive(0, decode(*push(0, 9999, [0], rng)[0])))
    assert rejection[1] == "rejected" and b"round 9999 is too far ahead" in rejection[2]
    wrong = encode(FrameType.INITIALIZE, [Record(0, 0, 0, 1000, 0, INLINE)], 4000, rank=0), bytes(4000)
    ((_, head, payload),) = make_server(1, True).receive(0, decode(*wrong))
    assert decode(head, payload).type is FrameType.REJECTED and b"do not fit" in payload


def test_keys_take_turns_for_snapshots(tmp_path, rng):
    """Each key every four rounds, and never all of them at once."""
    s, keys = make_server(1, True, folder=tmp_path, snapshot_rounds=4), list(range(len(SIZES)))
    s.save()
    written = []
    for n in range(1, 13):
        before = [v.durable for _, v in s.values.items()]
        s.receive(0, decode(*push(0, n, keys, rng)[0]))
        after = [v.durable for _, v in s.values.items()]
        assert all(n - d < 4 for d in after)
        written.append(sum(a != b for a, b in zip(before, after)))
    assert max(written) <= 2 and sum(written) >= 15
