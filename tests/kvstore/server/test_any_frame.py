"""No frame ends a server: frames of every dtype, size and type, random frames, and failures inside the server.

Oracle: NumPy for values; for failures, that a contribution counts if and only if its worker got an acknowledgement.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.errors import FrameError
from tritium.kvstore.protocol.rounds import Rounds
from tritium.kvstore.server import answers
from tritium.kvstore.server.answers import Answers
from tritium.kvstore.server.batches import Batch, Batches
from tritium.kvstore.server.server import Server
from tritium.kvstore.server.values import StoredValue, StoredValues
from tritium.kvstore.wire.compression import TwoBit
from tritium.kvstore.wire.frame import (
    CODES,
    DTYPES,
    INLINE,
    ROWS,
    TWO_BITS,
    WANT_VALUE,
    FrameType,
    Record,
    decode,
    encode,
    unpack,
)
from tritium.kvstore.wire.shared_memory import SegmentPool, SegmentViews, remove_segments

JOB = uuid.uuid4().hex
CHUNK = 512  # bytes: small, so that small values have several frames
SIZES = (0, 1, 7, 33, 300)
MEMBERS = {"0": 1, "1": 1}


@pytest.fixture(autouse=True)
def _alone(serial):
    """Run as a server does, with short frames, and remove the shared memory."""
    with mock.patch.object(answers, "CHUNK", CHUNK):
        yield
    remove_segments(JOB)


def make_server(dtype, sizes=SIZES, kind="sync", folder=None, snapshot_rounds=0):
    """A server of two workers, with a key of zeros for each size; rows have width 1."""
    s = Server(JOB, "fail", kind, folder, snapshot_rounds)
    keys = [{"id": i, "key": f"s:key{i}", "shape": [n], "dtype": np.dtype(dtype).name, "slices": [[0, 0, n]]}
            for i, n in enumerate(sizes)]
    s.control({"members": {"ranks": MEMBERS, "gone": {}, "generation": 0}, "keys": keys, "index": 0})
    for rank in range(2):
        send(s, rank, FrameType.HANDSHAKE, [], b"{}")
    for i, n in enumerate(sizes):
        send(s, 0, FrameType.INITIALIZE, [record(i, dtype, n, 0)], np.zeros(n, dtype).tobytes())
    return s


def record(key, dtype, n, round, **more):
    return Record(**{"key": key, "slice": 0, "dtype": CODES[np.dtype(dtype)], "n": n, "round": round,
                     "segment": INLINE, "at": 0, "reply_segment": INLINE, "reply_at": 0, **more})


def decoded(out):
    """The frames that are sent. Their payloads must be bytes."""
    return [(rank, decode(head, payload)) for rank, head, payload in out]


def send(s, rank, type, records, payload=b"", *, seq=1, flags=WANT_VALUE):
    """Send a frame to a server, and return its answers."""
    return decoded(s.receive(rank, decode(encode(type, records, len(payload), rank=rank, seq=seq, flags=flags), payload)))


def values(answers, rank):
    """{key: bytes} of the values sent to rank."""
    found = {}
    for to, frame in answers:
        at = 0
        for r in frame.records if frame.type is FrameType.ANSWER else ():
            if r.segment == INLINE and to == rank:
                found[r.key] = bytes(frame.payload[at:at + r.nbytes])
            at += r.nbytes if r.segment == INLINE else 0
    return found


def numbers(rng, dtype, n):
    return (rng.integers(0, 2, n) if np.dtype(dtype) == bool else rng.integers(0, 50, n)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_size_and_type_of_frame(rng, dtype, tmp_path):
    s = make_server(dtype, folder=tmp_path, snapshot_rounds=1)
    pools = [SegmentPool(JOB, rank, 1) for rank in range(2)]
    for rank, pool in enumerate(pools):
        pool.take(16).view[:] = 0
        send(s, rank, FrameType.HANDSHAKE, [], b'{"probe": "%s"}' % (b"00" * 16))
    with np.errstate(all="ignore"):
        total = {}
        for round, place in enumerate(("payload", "batched", "shared", "rows"), 1):
            answers, slots = [], {}
            for rank in range(2):
                data = [numbers(rng, dtype, n) for n in SIZES]
                total = {i: d if rank == 0 else np.add(total[i], d) for i, d in enumerate(data)}
                if place == "batched":
                    answers += send(s, rank, FrameType.PUSH, [record(i, dtype, n, round) for i, n in enumerate(SIZES)],
                                     b"".join(d.tobytes() for d in data))
                    continue
                for i, d in enumerate(data):
                    if place == "payload":
                        answers += send(s, rank, FrameType.PUSH, [record(i, dtype, len(d), round)], d.tobytes())
                    elif place == "rows":
                        rows = np.arange(len(d)).tobytes() + d.tobytes()
                        answers += send(s, rank, FrameType.PUSH, [record(i, dtype, len(rows), round)._replace(dtype=ROWS)], rows)
                    else:
                        data_slot, reply_slot = pools[rank].take(4096), pools[rank].take(4096)
                        data_slot.view[:d.nbytes] = np.frombuffer(d.tobytes(), np.uint8)
                        slots[rank, i] = reply_slot, data_slot
                        answers += send(s, rank, FrameType.PUSH, [record(i, dtype, len(d), round, segment=data_slot.segment,
                                                                   reply_segment=reply_slot.segment)])
            for rank in range(2):
                assert all(f.type is FrameType.ANSWER for to, f in answers if to == rank)
                got = values(answers, rank)
                if place == "shared":
                    got = {i: bytes(slots[rank, i][0].view[:d.nbytes]) for i, d in total.items()}
                elif place == "rows":
                    got = dict.fromkeys(total, b"")
                    for i, d in total.items():
                        rows = np.arange(len(d)).tobytes()
                        got |= values(send(s, rank, FrameType.PULL_ROWS, [record(i, dtype, 0, 0)], rows), rank)
                assert got == {i: d.tobytes() for i, d in total.items()}, (place, rank)
    pulled = send(s, 1, FrameType.PULL, [record(i, dtype, 0, 0) for i in range(len(SIZES))])
    assert values(pulled, 1) == {i: d.tobytes() for i, d in total.items()}
    for request, answer in ((FrameType.SAVE, FrameType.HANDSHAKE_REPLY), (FrameType.MISSING, FrameType.TEXT),
                            (FrameType.STATES, FrameType.TEXT)):
        (_, frame), = send(s, 0, request, [] if request is not FrameType.MISSING else [record(1, dtype, 0, 0)])
        assert frame.type is answer
    for kind in (FrameType.HANDSHAKE_REPLY, FrameType.ANSWER, FrameType.REJECTED, FrameType.TEXT):
        (_, frame), = send(s, 0, kind, [record(1, dtype, 0, 0)])
        assert frame.type is FrameType.REJECTED and "is not a request" in unpack(frame.payload)["text"]
    restarted = Server(JOB, "fail", "sync", tmp_path, 1)
    restarted.control({"index": 0, "keys": [{"id": i, "key": f"s:key{i}", "shape": [n], "dtype": np.dtype(dtype).name,
                                         "slices": [[0, 0, n]]} for i, n in enumerate(SIZES)]})
    restarted.restore()
    assert {i: restarted.values[i, 0].flat.tobytes() for i in total} == {i: d.tobytes() for i, d in total.items()}


some = st.integers(-3, 40) | st.integers(0, 1 << 41)
records = st.builds(Record, st.integers(0, 6), st.integers(0, 1), st.integers(0, len(DTYPES)) | st.sampled_from((TWO_BITS, ROWS)),
                    some, some, st.integers(-2, 3), some, st.integers(-2, 3), some)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_server_works_after_any_frames(data):
    """Afterwards both workers push every key, and the rounds are applied."""
    s = make_server(data.draw(st.sampled_from(DTYPES)), kind=data.draw(st.sampled_from(("sync", "async"))))
    for _ in range(data.draw(st.integers(1, 6))):
        op, many = data.draw(st.sampled_from(FrameType)), data.draw(st.lists(records, max_size=6))
        texts = st.sampled_from((b"{}", b'{"probe": 3}', b'{"lane": true, "probe": "00"}', b"["))
        payload = data.draw(st.binary(max_size=400) | texts)
        head = encode(op, many, len(payload), rank=data.draw(st.integers(-1, 2)), seq=data.draw(st.integers(-1, 9)),
                      flags=data.draw(st.integers(0, 3)))
        try:
            frame = decode(head, payload)
        except FrameError:
            continue
        decoded(s.receive(data.draw(st.integers(0, 1)), frame))
    s.control({"kind": "sync"})
    for rank in range(2):
        send(s, rank, FrameType.HANDSHAKE, [], b"{}")
    for i, n in enumerate(SIZES):
        value = s.values[i, 0]
        ahead = s.rounds[s._batches[value]].version + 1
        for rank in range(2):
            out = send(s, rank, FrameType.PUSH, [record(i, value.flat.dtype, n, ahead)], np.ones(n, value.flat.dtype).tobytes())
        assert values(out, 0)[i] == (np.ones(n) + (value.flat.dtype != bool)).astype(value.flat.dtype).tobytes()


FAULTS = (MemoryError, OSError, RuntimeError, ZeroDivisionError, AttributeError, RecursionError, BufferError)
PLACES = ((StoredValue, "update"), (StoredValue, "save"), (SegmentViews, "bytes"), (TwoBit, "expand"), (Batch, "update"),
          (Batches, "_whole"), (Batches, "_join"), (Rounds, "push"), (Rounds, "join"), (Batches, "place"),
          (Answers, "_values_for"))


class Adds:
    """An updater: value += gradient."""

    def __call__(self, _key, grad, value):
        value.device_array().reshape(-1)[:] += grad.asnumpy().reshape(-1)

    def get_states(self, _dump):
        return b"states"

    def set_states(self, data, _source):
        pass


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("seed", range(15))
def test_a_failure_in_a_server_is_an_error_of_the_sender(tmp_path, seed, kind):
    """Both workers push every key in turn, alone or in one frame with others, and push again what was rejected."""
    faults(tmp_path, seed, kind)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_failure_in_a_server_is_an_error_of_the_sender_for_many_seeds(tmp_path, kind):
    for seed in range(100, 500):
        faults(tmp_path / str(seed), seed, kind)


def faults(folder, seed, kind):
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    sizes = (3, 1, 40, 7, 2)
    s = make_server("float32", sizes, kind, folder, 2)
    for _, value in s.values.items():
        value.updater = Adds()
    with mock.patch.object(StoredValues, "has_optimizer", True):
        Faults(s, rng, sizes, kind).run()


class Faults:
    """Two workers that know only the answers they got."""

    def __init__(self, s, rng, sizes, kind):
        self.s, self.rng, self.sizes, self.kind = s, rng, sizes, kind
        self.failing = True
        self.value = {k: np.zeros(n, "f") for k, n in enumerate(sizes)}
        self.round = {(rank, k): 0 for rank in range(2) for k in self.value}
        self.open = {}  # (rank, key) -> (round, data) of unanswered pushes

    def run(self):
        with self._faults():
            for _ in range(30):
                self._step()
            self.failing = False
            for _ in range(12):
                self._step()
        for rank in range(2):
            for k in self.value:
                answers = send(self.s, rank, FrameType.PULL, [record(k, "f", 0, 0)], seq=7)
                assert values(answers, rank)[k] == self.value[k].tobytes(), k

    @contextlib.contextmanager
    def _faults(self):
        with contextlib.ExitStack() as stack:
            for where, name in PLACES:
                stack.enter_context(mock.patch.object(where, name, self._may_fail(getattr(where, name))))
            yield

    def _may_fail(self, real):
        def called(*args, **more):
            if self.failing and self.rng.random() < 0.1:
                raise FAULTS[int(self.rng.integers(len(FAULTS)))]("a fault of the test")
            return real(*args, **more)

        return called

    def _step(self):
        """Both workers push some keys; in sync a key's round is applied when both have pushed it."""
        frames = deque()
        group = list(range(5)) if self.rng.random() < 0.5 else [int(self.rng.integers(5))]
        for rank in range(2):
            todo = [k for k in group if (rank, k) not in self.open]
            data = {k: self.rng.integers(-9, 9, self.sizes[k]).astype("f") for k in todo}
            for k in todo:
                self.round[rank, k] += 1
                self.open[rank, k] = self.round[rank, k], data[k]
            if todo:
                frames.append((rank, [record(k, "f", self.sizes[k], self.round[rank, k]) for k in todo],
                               b"".join(data[k].tobytes() for k in todo)))
        while frames:
            rank, some, payload = frames.popleft()
            self._receive(send(self.s, rank, FrameType.PUSH, some, payload))

    def _receive(self, answers):
        counted = {}
        for rank, frame in answers:
            rejected = unpack(frame.payload) if frame.type is FrameType.REJECTED else None
            assert frame.type in (FrameType.ANSWER, FrameType.REJECTED)
            for r in frame.records:
                if (rank, r.key) not in self.open or self.open[rank, r.key][0] != r.round:
                    raise AssertionError("a second answer")
                _, data = self.open.pop((rank, r.key))
                if rejected is None or rejected.get("made"):
                    counted.setdefault(r.key, {})[rank] = data
                else:
                    self.round[rank, r.key] -= 1
                assert rejected is None or rejected["text"]
        for k, by_rank in counted.items():
            assert self.kind == "async" or len(by_rank) == 2, "a round counts for both workers or for neither"
            for rank in sorted(by_rank):
                self.value[k] = self.value[k] + by_rank[rank]


