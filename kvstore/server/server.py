"""Server: handles the frames of workers. Frames in, (rank, head, payload) out; no sockets and no waiting.

`rounds.py` decides which contributions form an update, and `values.py` computes it. Every record is checked against the key table
before memory is accessed. A frame that is invalid, or whose handling fails, is answered with REJECTED and affects no other
worker; no frame ends the process. A contribution counts if and only if its worker gets an acknowledgement: an update that fails
is reverted.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import FrameError, KVStoreError, MXNetError
from ..protocol.rounds import MOST_AHEAD, Acknowledge, Apply, Reject, Rounds
from ..protocol.row_sparse import Rows, row_size, slice_shape
from ..wire.compression import TwoBit
from ..wire.frame import (
    CHUNK,
    CODES,
    DTYPES,
    INLINE,
    MOST_RECORDS,
    NOTHING,
    RUN,
    TWO_BITS,
    WANT_VALUE,
    FrameType,
    Record,
    WireFrame,
    encode,
    pack,
    unpack,
)
from ..wire.shared_memory import SegmentViews
from .batched_rounds import AppliedBatch, BatchedRounds
from .values import Name, PartialPush, StoredValue, StoredValues

Out = tuple[int, bytes, list[Any]]  # rank, head, payload in pieces of bytes
_log = logging.getLogger(__name__)


class _Reply(NamedTuple):
    """The place where a rank wants the value of the round it contributed to."""

    round: int
    segment: int
    at: int


class Server:
    """The state of one server.

    job:              the job's id, which is part of the names of the workers' shared memory.
    folder:           for snapshots; None keeps none.
    snapshot_rounds:  rounds of a key between two snapshots.
    max_staleness:    async: a pull waits while its worker is more contributions than that ahead of the slowest; None: no limit.
    error:            why the coordinator's last message could not be carried out, or "".
    """

    def __init__(self, job: str, policy: str, kind: str, folder: Path | None = None, snapshot_rounds: int = 0,
                 max_staleness: int | None = None):
        self.job, self.snapshot_rounds, self.max_staleness = job, snapshot_rounds if folder is not None else 0, max_staleness
        self.values = StoredValues(folder if snapshot_rounds else None)
        self.rounds = Rounds(kind != "async", policy)
        self.members: dict[int, int] = {}
        self.optimizers = 0  # optimizers that the coordinator has announced
        self.error = ""
        self._gone: dict[int, str] = {}
        self._generation = 0  # of the members, as the coordinator counts
        self._views: dict[int, SegmentViews] = {}
        self._batched = BatchedRounds(self.values, self.rounds, self._views)
        self._partial: dict[tuple[int, Name], PartialPush] = {}
        self._replies: dict[tuple[int, Name], _Reply] = {}
        self._acknowledged: dict[int, list[Acknowledge]] = {}
        self._waiting_pulls: list[tuple[int, WireFrame]] = []  # for a round, or for slower workers
        self._changed: dict[Name, None] = {}
        self._outgoing: list[Out] = []
        self._handlers: dict[FrameType, Callable[[int, WireFrame], None]] = {
            FrameType.HANDSHAKE: self._on_handshake, FrameType.INITIALIZE: self._on_initialize, FrameType.PUSH: self._on_push,
            FrameType.PUSH_ROWS: self._on_push_rows, FrameType.PULL: self._on_pull, FrameType.PULL_ROWS: self._on_pull_rows,
            FrameType.SAVE: self._on_save, FrameType.MISSING: self._on_missing, FrameType.STATES: self._on_states}

    # ---- messages of the coordinator ------------------------------------------------------------------------------------
    def control(self, m: Mapping[str, Any]) -> list[Out]:
        """Take over members, keys or an optimizer from a message of the coordinator. Sets `error`."""
        self._unbatch()
        self._batched.forget()
        self.error = ""
        if m.get("kind"):
            self.rounds.sync = m["kind"] != "async"
        if "members" in m:
            self._generation = m["members"]["generation"]
            self._set_members({int(r): i for r, i in m["members"]["ranks"].items()},
                              {int(r): why for r, why in m["members"]["gone"].items()})
        try:
            for entry in m.get("keys", ()):
                self._create(entry, m.get("index"))
            if int(m.get("optimizers", 0)) > self.optimizers:
                self.values.set_optimizer(m["optimizer"])
                self.optimizers = int(m["optimizers"])
                if "epoch" in m:  # not the first message, after which `restore` may find states on disk
                    self.save()
        except Exception as e:
            self.error = _describe(e)
        self._retry_pulls()
        return self._flush()

    def _set_members(self, members: dict[int, int], gone: dict[int, str]) -> None:
        for rank in [r for r, i in self.members.items() if members.get(r) != i]:
            self._reset(rank)
        for rank in gone:
            self._drop_incomplete(rank)
        save = bool(gone.keys() - self._gone.keys()) and len(gone) < len(members)
        grown = bool(self.members and members.keys() - self.members.keys())
        self.members, self._gone = members, gone
        self._execute(self.rounds.set_members(members, gone))
        if grown:  # the snapshots do not contain the new members
            for value in self.values.values():
                value.durable = -1
        if save or grown:
            self.save()  # a rank that is gone sends nothing again: a restart of this server must not lose its contributions

    def _reset(self, rank: int) -> None:
        """Discard everything known of a rank's connection or process: it starts again."""
        self._drop_incomplete(rank)
        self._views.pop(rank, None)
        self._replies = {k: w for k, w in self._replies.items() if k[0] != rank}

    def _drop_incomplete(self, rank: int) -> None:
        """Drop a rank's incomplete contributions and waiting pulls."""
        self._partial = {k: p for k, p in self._partial.items() if k[0] != rank}
        self._waiting_pulls = [p for p in self._waiting_pulls if p[0] != rank]

    def _create(self, entry: Mapping[str, Any], own_index: Any) -> None:
        for i, (server, _, _) in enumerate(entry["parts"]):
            name = (int(entry["id"]), i)
            shape = slice_shape(entry["shape"], entry["parts"], i)
            if server != own_index or (name in self.values and (
                    self.values[name].filled or self.values[name].agrees(entry["key"], shape, entry["dtype"]))):
                continue  # a value without initial value may be of a key that the coordinator has removed
            self.values.create(name, entry["key"], shape, entry["dtype"])
            self.rounds.add(name)

    def restore(self) -> None:
        """Read every value that has a snapshot."""
        for name in self.values:
            snapshot = self.values.load(name)
            if snapshot is not None:
                self.rounds.add(name, *snapshot)

    def save(self, names: Iterable[Name] | None = None) -> None:
        """Write the values that have changed since their last snapshots. A failed write is retried; workers retain the pushes."""
        if not self.snapshot_rounds:
            return
        for name, value in self.values.items() if names is None else [(n, self.values[n]) for n in names]:
            if value.filled and value.durable != self.rounds.version(name):
                try:
                    self.values.save(name, self.rounds.version(name), self.rounds.applied(name))
                except Exception as e:
                    _log.error("kvstore: key %s cannot be written to disk: %s", value.key[2:], _describe(e))

    # ---- frames of workers ----------------------------------------------------------------------------------------------
    def receive(self, rank: int, frame: WireFrame) -> list[Out]:
        """Handle a frame of an authenticated rank. Returns the frames to send."""
        held, batch = self._batched.add(rank, frame) if frame.rank == rank else (False, None)
        if not held:
            self._unbatch()
            self._handle(rank, frame)
        elif batch is not None:
            self._answer_batch(batch)
        if self._waiting_pulls:
            self._retry_pulls()
        outgoing = self._flush()
        if self.snapshot_rounds:
            self.save([n for n in self._changed if self._is_due(self.values[n], self.rounds.version(n))])
        self._changed.clear()
        return outgoing

    def may_retain_payload(self, frame: WireFrame) -> bool:
        """Return whether `receive` may keep a reference to the frame's payload. Runs of a value are copied."""
        if frame.type is not FrameType.PUSH or len(frame.table) != 1:
            return True
        (r,) = frame.records
        return r.name not in self.values or r.n == len(self.values[r.name].flat)

    def _is_due(self, value: StoredValue, version: int) -> bool:
        """Return whether a snapshot is due. Keys take turns, so that no round waits for all of them."""
        return version - value.durable >= self.snapshot_rounds or (version + value.turn) % self.snapshot_rounds == 0

    def _unbatch(self) -> None:
        """Handle the held frames one by one, before anything else happens."""
        for rank, frame in self._batched.release():
            self._handle(rank, frame)

    def _answer_batch(self, batch: AppliedBatch) -> None:
        self._changed.update(dict.fromkeys(batch.names))
        if batch.answers and not batch.failed:
            self._outgoing += batch.answers
            return
        for name, (round, _) in batch.failed.items():
            self.rounds.revert(name, round)
        for rank, frame in batch.frames.items():
            for r in frame.records:
                if r.name in batch.failed:
                    self._reject(rank, [r], batch.failed[r.name][1])
                    continue
                self._replies[rank, r.name] = _Reply(r.round, r.reply_segment, r.reply_at)
                self._execute([Acknowledge(rank, r.name, r.round)])

    def _handle(self, rank: int, frame: WireFrame) -> None:
        try:
            if frame.rank != rank:
                raise FrameError(f"frame: it names worker {frame.rank} as its sender and came from worker {rank}")
            handler = self._handlers.get(frame.type)
            if handler is None:
                raise FrameError(f"frame: {frame.type.name} is not a request")
            handler(rank, frame)
        except Exception as e:
            self._reject(rank, frame.records, _describe(e), seq=frame.seq)

    def _on_handshake(self, rank: int, frame: WireFrame) -> None:
        m = unpack(frame.payload)
        self._reset(rank)
        self.rounds.forget(rank)
        views = SegmentViews(self.job, rank, self.members[rank])
        with contextlib.suppress(FrameError):
            if bytes(views.bytes(0, 0, 16)).hex() == m.get("probe"):
                self._views[rank] = views
        self._answer_handshake(rank, frame.seq, {"shared": rank in self._views, "durable": bool(self.snapshot_rounds)})

    def _answer_handshake(self, rank: int, seq: int, text: dict[str, Any]) -> None:
        records = [Record(*name, v.code, len(v.flat), self.rounds.last_applied(name, rank), at=self._last_durable(name, rank))
                   for name, v in self.values.items()]
        for i in range(0, max(len(records), 1), MOST_RECORDS):
            body = pack({**text, "more": i + MOST_RECORDS < len(records)})
            self._send(rank, FrameType.HANDSHAKE_REPLY, records[i:i + MOST_RECORDS], body, seq)

    def _last_durable(self, name: Name, rank: int) -> int:
        """Return the last round of a key that is on disk. Async: the last contribution of rank."""
        value = self.values[name]
        return max(value.durable, 0) if self.rounds.sync else value.saved.get(rank, 0)

    def _on_save(self, rank: int, frame: WireFrame) -> None:
        self.save()
        self._answer_handshake(rank, frame.seq, {})

    def _on_initialize(self, rank: int, frame: WireFrame) -> None:
        first = min((r for r in self.members if self._gone.get(r) != "left"), default=rank)
        if rank != first:
            raise FrameError(f"frame: initial values come from worker {first}, not from worker {rank}")
        complete = []
        for r, data in self._data(rank, frame):
            value = self.values[r.name]
            if self.rounds.version(r.name):
                raise FrameError(f"frame: key {value.key[2:]!r} has a value already")
            value.flat[r.offset:r.offset + r.n] = data
            if r.offset + r.n == len(value.flat):
                value.filled = True
                self._changed[r.name] = None
                complete.append(r.name)
        self.save(complete)
        records = [r._replace(segment=NOTHING, at=0) for r in frame.records]
        self._outgoing.append((rank, encode(FrameType.ANSWER, records, seq=frame.seq), []))

    def _on_push(self, rank: int, frame: WireFrame) -> None:
        self._require_optimizer()
        contributions = list(self._data(rank, frame))  # if one of them is invalid, none is used
        resent = not frame.flags & WANT_VALUE
        if not resent:
            self._note_replies(rank, frame)
        for r, data in contributions:
            try:
                self._contribute(rank, frame.seq, r, data, resent)
            except Exception as e:  # earlier contributions of the frame may have been applied
                self._reject(rank, [r], _describe(e), seq=frame.seq)

    def _contribute(self, rank: int, seq: int, r: Record, data: np.ndarray, resent: bool) -> None:
        """Add a contribution, or a run of one."""
        size = len(self.values[r.name].flat)
        if r.n != size:
            if self._is_stale(rank, r, seq, r.offset + r.n == size):
                return
            complete = self._collect(rank, r, seq, size, data)
            if complete is None:
                return
            (data,) = complete
        self._execute(self.rounds.push(r.name, rank, r.round, data, resent))

    def _collect(self, rank: int, r: Record, seq: int, size: int, *run: np.ndarray) -> list[np.ndarray] | None:
        """Add a run to the contribution of that size that it belongs to, and return its data when it is complete."""
        partial = self._partial.get((rank, r.name))
        if partial is None or (partial.attempt, partial.size, len(partial.data)) != ((r.round, seq), size, len(run)):
            partial = self._partial[rank, r.name] = PartialPush((r.round, seq), size)
        complete = partial.add(r.offset, run)
        if complete is not None:
            del self._partial[rank, r.name]
        return complete

    def _note_replies(self, rank: int, frame: WireFrame) -> None:
        """Remember the places for the values. Raises FrameError for an invalid one."""
        self._check_reply_places(rank, frame)
        for r in frame.records:
            reply = self._replies.get((rank, r.name))
            if reply is None or reply.round <= r.round:  # a repeated earlier frame must not replace a later one
                self._replies[rank, r.name] = _Reply(r.round, r.reply_segment, r.reply_at)

    def _check_reply_places(self, rank: int, frame: WireFrame) -> None:
        for r in frame.records:
            if r.reply_segment >= 0:
                self._place(rank, r.reply_segment, r.reply_at, self.values[r.name].flat.nbytes)

    def _is_stale(self, rank: int, r: Record, seq: int, last: bool) -> bool:
        """Return whether a run belongs to a contribution that is applied, or to an earlier attempt than the current one.

        The last run of an applied contribution is acknowledged again.
        """
        applied, partial = self.rounds.last_applied(r.name, rank), self._partial.get((rank, r.name))
        if r.round > applied + MOST_AHEAD:
            raise FrameError(f"round {r.round} is too far ahead: the key is at {applied}")
        if r.round <= applied and last:
            self._execute(self.rounds.push(r.name, rank, r.round, None))
        return r.round <= applied or (partial is not None and partial.attempt > (r.round, seq))

    def _on_push_rows(self, rank: int, frame: WireFrame) -> None:
        """Add a run of rows. A contribution without rows counts, too."""
        self._require_optimizer()
        (r,) = frame.records
        self._check(r._replace(offset=0), empty=True)
        value = self.values[r.name]
        rows, width = value.array.shape[0], row_size(value.array.shape)
        count = r.n // width
        if r.segment != INLINE or r.n % width or r.dtype == TWO_BITS or r.offset + count > r.at or r.at > rows:
            raise FrameError(f"frame: {r.n} elements from row {r.offset} of {r.at} do not fit key {value.key[2:]!r}, slice "
                             f"{r.slice}: {value.array.shape}")
        indices = self._row_indices(frame.payload, r.nbytes, count, rows)
        if self._is_stale(rank, r, frame.seq, r.offset + count == r.at):
            return
        run = np.frombuffer(frame.payload, value.flat.dtype, r.n).reshape(count, *value.array.shape[1:])
        complete = self._collect(rank, r, frame.seq, r.at, indices, run)
        if complete is not None:
            _check_ascending(complete[0], rows)
            value.sparse = True
            self._execute(self.rounds.push(r.name, rank, r.round, Rows(*complete), not frame.flags & WANT_VALUE))

    def _on_pull_rows(self, rank: int, frame: WireFrame) -> None:
        """Answer with some rows of a value, in frames of up to CHUNK."""
        (r,) = frame.records
        if self._must_wait(rank, frame):
            return
        value = self._filled(r)
        indices = self._row_indices(frame.payload, 0, len(frame.payload) // 8, value.array.shape[0])
        width, size = row_size(value.array.shape), value.flat.itemsize
        step = max(CHUNK // (width * size), 1)
        for start in range(0, len(indices), step):
            some = value.raw.reshape(-1, width * size)[indices[start:start + step]].reshape(-1).data
            record = Record(r.key, r.slice, value.code, len(some) // size, self.rounds.last_applied(r.name, rank),
                            start * width, INLINE, self._last_durable(r.name, rank))
            self._send(rank, FrameType.ANSWER, [record], some, frame.seq)

    def _row_indices(self, payload: memoryview, at: int, count: int, rows: int) -> np.ndarray:
        """Return the count row indices that end a payload, from byte `at`. Raises FrameError unless they ascend below rows."""
        if len(payload) != at + 8 * count:
            raise FrameError(f"frame: a payload of {len(payload)} bytes; {count} row indices after {at} bytes were expected")
        indices = np.frombuffer(payload, "<i8", count, at).copy()
        _check_ascending(indices, rows)
        return indices

    def _require_optimizer(self) -> None:
        if not self.rounds.sync and not self.values.has_optimizer:
            raise KVStoreError("dist_async needs an optimizer on the server: call set_optimizer first")

    def _filled(self, r: Record) -> StoredValue:
        value = self.values[r.name]
        if not value.filled:
            raise KVStoreError(f"key {value.key[2:]!r} has no value yet")
        return value

    def _on_pull(self, rank: int, frame: WireFrame) -> None:
        if self._must_wait(rank, frame):
            return
        for r in frame.records:
            self._filled(r)
        self._check_reply_places(rank, frame)
        self._send_values(rank, [r._replace(round=0) for r in frame.records], frame.seq)

    def _must_wait(self, rank: int, frame: WireFrame) -> bool:
        """Hold a pull, and return True, if it has to wait for slower workers or for a round that its worker knows as applied.

        Such a round was lost in a restart of this server. It is applied again when the workers have sent their contributions.
        """
        names = [self.values[r.name].name for r in frame.records]  # raises FrameError for an unknown key
        wait = any(r.round > self.rounds.last_applied(name, rank) for r, name in zip(frame.records, names))
        if not wait and (self.max_staleness is None or self.rounds.sync or not any(
                self.rounds.behind(name, rank, self.max_staleness) for name in names)):
            return False
        self._waiting_pulls.append((rank, frame))
        return True

    def _retry_pulls(self) -> None:
        """Answer the pulls that need not wait any longer."""
        waiting, self._waiting_pulls = self._waiting_pulls, []
        for rank, frame in waiting:
            self._handle(rank, frame)

    def _on_missing(self, rank: int, frame: WireFrame) -> None:
        """Answer which ranks keys wait for: sync, their next rounds; async, the pulls of this worker."""
        names = [self.values[r.name].name for r in frame.records]
        self._send(rank, FrameType.TEXT, [], pack({
            f"{name[0]}.{name[1]}": self.rounds.missing(name) if self.rounds.sync else
            (self.rounds.last_applied(name, rank), self.rounds.behind(name, rank, self.max_staleness or 0))
            for name in names}), frame.seq)

    def _on_states(self, rank: int, frame: WireFrame) -> None:
        """Answer with the states of every updater. A frame with a record sets the states in its payload."""
        if frame.records:
            (r,) = frame.records
            value = self.values[r.name]
            if value.updater is None:
                raise KVStoreError("the server has no optimizer")
            value.updater.set_states(bytes(frame.payload), "optimizer states")
            self.save()
            self._send(rank, FrameType.TEXT, [], b"{}", frame.seq)
            return
        states = [(name, v.updater.get_states(True)) for name, v in self.values.items() if v.updater is not None]
        for name, blob in states:
            for at in range(0, max(len(blob), 1), CHUNK):
                run = memoryview(blob)[at:at + CHUNK]
                record = Record(*name, CODES[np.dtype("uint8")], len(run), len(blob), at, segment=INLINE)
                self._send(rank, FrameType.STATES, [record], run, frame.seq)
        self._send(rank, FrameType.TEXT, [], json.dumps(len(states)).encode(), frame.seq)

    # ---- decoding -------------------------------------------------------------------------------------------------------
    def _data(self, rank: int, frame: WireFrame) -> Iterable[tuple[Record, np.ndarray]]:
        """Yield each record with its elements. All records are checked before the first is yielded."""
        for r in frame.records:
            self._check(r)
        at = 0
        for r in frame.records:
            if r.segment == INLINE:
                if r.dtype != TWO_BITS:
                    data = np.frombuffer(frame.payload, DTYPES[r.dtype], r.n, at)
                    at += data.nbytes
                    yield r, data
                    continue
                raw = np.frombuffer(frame.payload, np.uint8, r.nbytes, at)
                at += r.nbytes
            else:
                raw = self._place(rank, r.segment, r.at, r.nbytes)
            if r.dtype == TWO_BITS:
                yield r, TwoBit(np.int32(r.at).view(np.float32).item()).expand(raw, r.n)
            else:
                yield r, raw.view(DTYPES[r.dtype]) if raw.ctypes.data % DTYPES[r.dtype].itemsize == 0 else np.frombuffer(
                    raw.tobytes(), DTYPES[r.dtype])

    def _place(self, rank: int, segment: int, at: int, nbytes: int) -> np.ndarray:
        """Return a range of a rank's shared memory."""
        if rank not in self._views or segment < 0:
            raise FrameError(f"frame: a record names segment {segment}, which this server cannot read")
        return self._views[rank].bytes(segment, at, nbytes)

    def _check(self, r: Record, empty: bool = False) -> None:
        value = self.values[r.name]
        dtype = np.dtype("float32") if r.dtype == TWO_BITS else DTYPES[r.dtype]
        if dtype != value.flat.dtype or r.offset + r.n > len(value.flat) or (not r.n and len(value.flat) and not empty):
            raise FrameError(f"frame: {r.n} {dtype} at {r.offset} do not fit key {value.key[2:]!r}, slice {r.slice}: "
                             f"{len(value.flat)} {value.flat.dtype}")

    # ---- updating and encoding ------------------------------------------------------------------------------------------
    def _execute(self, actions: Iterable[Any]) -> None:
        failed: dict[Name, str] = {}  # keys whose update failed: their acknowledgements become rejections
        for a in actions:
            name: Name = a.key
            if isinstance(a, Reject):
                self._replies.pop((a.rank, name), None)
                self._reject(a.rank, [Record(*name, 0, 0, a.round)], a.text, dead=a.dead)
            elif isinstance(a, Apply) and name not in failed:
                self._changed[name] = None
                try:
                    self.values[name].update(a.data)
                    self.values[name].filled = True
                except Exception as e:
                    failed[name] = f"the update failed: {_describe(e, True)}"
                    self.rounds.revert(name, a.version)
            elif isinstance(a, Acknowledge) and name in failed:
                self.rounds.revert_contribution(name, a.rank, a.round)
                self._execute([Reject(a.rank, name, a.round, failed[name])])
            elif isinstance(a, Acknowledge):
                self._acknowledged.setdefault(a.rank, []).append(a)

    def _send(self, rank: int, type: FrameType, records: Sequence[Record], payload: Any, seq: int) -> None:
        self._outgoing.append((rank, encode(type, records, len(payload), seq=seq), [payload]))

    def _reject(self, rank: int, records: Iterable[Record], text: str, dead: tuple[int, ...] = (), seq: int = 0,
                applied: bool = False) -> None:
        """Answer with REJECTED. applied: the contribution was applied all the same, and only its value cannot be sent."""
        gone = {str(r): self._gone[r] for r in dead}
        body = pack({"text": text, "gone": gone, "generation": self._generation, "made": applied})
        self._send(rank, FrameType.REJECTED, [r._replace(segment=NOTHING, at=0) for r in records], body, seq)

    def _flush(self) -> list[Out]:
        """Encode the acknowledgements, and return everything to send."""
        for rank, acknowledged in self._acknowledged.items():
            records = []
            for a in acknowledged:
                name: Any = a.key
                place = NOTHING, 0
                reply = self._replies.get((rank, name))
                if reply is not None and reply.round == a.round:
                    del self._replies[rank, name]
                    place = reply.segment, reply.at
                records.append(Record(name[0], name[1], 0, 0, a.round, 0, NOTHING, 0, place[0], place[1]))
            self._send_values(rank, records, 0)
        self._acknowledged.clear()
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _send_values(self, rank: int, records: Iterable[Record], seq: int) -> None:
        """Answer records with values, in frames of up to CHUNK."""
        batch: list[Record] = []
        pieces: list[Any] = []
        room = CHUNK

        def send_batch() -> None:
            nonlocal batch, pieces, room
            if batch:
                self._outgoing.append((rank, encode(FrameType.ANSWER, batch, CHUNK - room, seq=seq), pieces))
            batch, pieces, room = [], [], CHUNK

        for r in records:
            try:
                runs = self._value_for(rank, r)
            except Exception as e:
                self._reject(rank, [r], f"the value cannot be sent: {_describe(e)}", seq=seq, applied=not seq)
                continue
            for answer, run in runs:
                if len(runs) > 1 or len(run) > room or len(batch) >= MOST_RECORDS:
                    send_batch()
                batch.append(answer)
                if answer.segment == INLINE:
                    pieces.append(run)
                    room -= len(run)
        send_batch()

    def _value_for(self, rank: int, r: Record) -> Sequence[tuple[Record, Any]]:
        """Return a value as records with their bytes: in shared memory if the worker named a place, otherwise in runs."""
        value = self.values[r.name]
        answer = r._replace(dtype=value.code, n=len(value.flat), at=self._last_durable(value.name, rank), offset=0,
                            round=r.round or self.rounds.last_applied(value.name, rank), segment=NOTHING)
        if r.reply_segment >= 0:
            self._place(rank, r.reply_segment, r.reply_at, len(value.raw))[:] = value.raw
        if r.reply_segment != INLINE:
            return [(answer, b"")]
        size, runs = value.flat.itemsize, [value.raw[at:at + RUN].data for at in range(0, max(len(value.raw), 1), RUN)]
        return [(answer._replace(segment=INLINE, offset=i * RUN // size, n=len(run) // size), run) for i, run in enumerate(runs)]


def _check_ascending(indices: np.ndarray, rows: int) -> None:
    if len(indices) and (indices[0] < 0 or indices[-1] >= rows or (indices[1:] <= indices[:-1]).any()):
        raise FrameError(f"frame: the row indices do not ascend from 0 to {rows - 1}")


def _describe(e: Exception, with_class: bool = False) -> str:
    """Return the text of an error for a worker. Errors that no code raises on purpose are also logged."""
    if not isinstance(e, MXNetError):
        _log.error("kvstore: unexpected error in a server", exc_info=e)
    return str(e) if isinstance(e, MXNetError) and not with_class else f"{type(e).__name__}: {e}"
