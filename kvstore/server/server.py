"""Server: handles the frames of workers. Frames in, (rank, head, payload) out; no sockets and no waiting.

`batches.py` decodes contributions, `rounds.py` decides which of them form an update, `values.py` computes it, and `answers.py`
encodes the answers. A frame that is invalid, or whose handling fails, is answered with REJECTED and affects no other worker; no
frame ends the process. A contribution counts if and only if its worker gets an acknowledgement: an update that fails is reverted.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FrameError, KVStoreError
from ..protocol.rounds import Acknowledge, Apply, Reject, Rounds
from ..protocol.row_sparse import slice_shape
from ..wire.frame import CODES, INLINE, NOTHING, WANT_VALUE, FrameType, Record, WireFrame, pack, unpack
from ..wire.shared_memory import SegmentViews
from .answers import Answers, Out, describe, records
from .batches import Batch, Batches, row_indices
from .values import StoredValue, StoredValues

_MOST_STATES = 8  # arrays of the size of a value that an optimizer may keep
_log = logging.getLogger(__name__)


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
        self.optimizers = 0  # optimizers that the coordinator has announced
        self.error = ""
        self._batches = Batches(self.values, self.rounds)
        self._answers = Answers(self.rounds, self._batches)
        self._waiting_pulls: list[tuple[int, WireFrame]] = []  # for a round, or for slower workers
        self._changed: dict[StoredValue, None] = {}

    # ---- messages of the coordinator ------------------------------------------------------------------------------------
    def control(self, m: Mapping[str, Any]) -> list[Out]:
        """Take over members, keys or an optimizer from a message of the coordinator. Sets `error`."""
        self.error = ""
        if m.get("kind"):
            self.rounds.sync = m["kind"] != "async"
        if "members" in m:
            self._answers.generation = m["members"]["generation"]
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
            self.error = describe(e)
        self._retry_pulls()
        return self._answers.take()

    def _set_members(self, members: dict[int, int], gone: dict[int, str]) -> None:
        before = self.rounds.members
        for rank in [r for r, i in before.items() if members.get(r) != i]:
            self._batches.views.pop(rank, None)
        self._waiting_pulls = [p for p in self._waiting_pulls if members.get(p[0]) == before[p[0]] and p[0] not in gone]
        save = bool(gone.keys() - self.rounds.gone.keys()) and len(gone) < len(members)
        grown = bool(before and members.keys() - before.keys())
        self._execute(self.rounds.set_members(members, gone))
        if grown:  # the snapshots do not contain the new members
            for value in self.values.values():
                value.durable = -1
        if save or grown:
            self.save()  # a rank that is gone sends nothing again: a restart of this server must not lose its contributions

    def _create(self, entry: Mapping[str, Any], own_index: Any) -> None:
        for i, (server, _, _) in enumerate(entry["slices"]):
            name = (int(entry["id"]), i)
            shape = slice_shape(entry["shape"], entry["slices"], i)
            earlier = self.values.get(name)
            if server == own_index and (earlier is None or not (
                    earlier.filled or earlier.layout == (entry["key"], shape, entry["dtype"]))):
                # an earlier value without initial value is of a key that the coordinator has removed
                self._batches.add(self.values.create(name, entry["key"], shape, entry["dtype"]), earlier)

    def restore(self) -> None:
        for value in self.values.values():
            snapshot = value.load()
            if snapshot is not None:
                self.rounds.add(self._batches[value], *snapshot)

    def save(self, values: Iterable[StoredValue] | None = None) -> None:
        """Write the values that have changed since their last snapshots. A failed write is retried; workers retain the pushes."""
        for value in (self.values.values() if values is None else values) if self.snapshot_rounds else ():
            state = self.rounds[self._batches[value]]
            if value.filled and value.durable != state.version:
                try:
                    value.save(state.version, state.applied)
                except Exception as e:
                    _log.error("kvstore: key %s cannot be written to disk: %s", value.key[2:], describe(e))

    def _last_applied(self, value: StoredValue, rank: int) -> int:
        return self.rounds.last_applied(self._batches[value], rank)

    # ---- frames of workers ----------------------------------------------------------------------------------------------
    def receive(self, rank: int, frame: WireFrame) -> list[Out]:
        """Handle a frame of an authenticated rank. Returns the frames to send."""
        self._handle(rank, frame)
        if self._changed:
            self._retry_pulls()
        outgoing = self._answers.take()
        if self.snapshot_rounds:
            self.save([v for v in self._changed if self._is_due(v, self.rounds[self._batches[v]].version)])
        self._changed.clear()
        return outgoing

    def may_send(self, frame: WireFrame, size: int) -> bool:
        """Return whether a payload of that size fits the only key of a frame: its value, states of an optimizer, or rows."""
        value = self.values.get(frame.records[0].name) if len(frame.table) == 1 else None
        return value is not None and size <= (_MOST_STATES if frame.type is FrameType.STATES else 1) * value.flat.nbytes + (
            8 * value.array.shape[0] if value.array.shape else 0)

    def _is_due(self, value: StoredValue, version: int) -> bool:
        """Return whether a snapshot is due. Keys take turns, so that no round waits for all of them."""
        return version - value.durable >= self.snapshot_rounds or (version + value.turn) % self.snapshot_rounds == 0

    def _handle(self, rank: int, frame: WireFrame) -> None:
        try:
            if frame.rank != rank:
                raise FrameError(f"frame: it names worker {frame.rank} as its sender and came from worker {rank}")
            handler = getattr(self, f"_on_{frame.type.name.lower()}", None)
            if handler is None:
                raise FrameError(f"frame: {frame.type.name} is not a request")
            handler(rank, frame)
        except Exception as e:
            self._answers.reject(rank, frame.records, describe(e), seq=frame.seq)

    def _on_handshake(self, rank: int, frame: WireFrame) -> None:
        m = unpack(frame.payload)
        self._waiting_pulls = [p for p in self._waiting_pulls if p[0] != rank]
        self._batches.views.pop(rank, None)
        self.rounds.forget(rank)
        views = SegmentViews(self.job, rank, self.rounds.members[rank])
        with contextlib.suppress(FrameError):
            if bytes(views.bytes(0, 0, 16)).hex() == m.get("probe"):
                self._batches.views[rank] = views
        self._answer_handshake(rank, frame.seq, shared=rank in self._batches.views, durable=bool(self.snapshot_rounds))

    def _answer_handshake(self, rank: int, seq: int, **fields: Any) -> None:
        rounds = [(*name, self._last_applied(v, rank), self._answers.last_durable(v, rank)) for name, v in self.values.items()]
        self._answers.send(rank, FrameType.HANDSHAKE_REPLY, [], pack({**fields, "rounds": rounds}), seq)

    def _on_save(self, rank: int, frame: WireFrame) -> None:
        self.save()
        self._answer_handshake(rank, frame.seq)

    def _on_initialize(self, rank: int, frame: WireFrame) -> None:
        first = min((r for r in self.rounds.members if self.rounds.gone.get(r) != "left"), default=rank)
        if rank != first:
            raise FrameError(f"frame: initial values come from worker {first}, not from worker {rank}")
        for batch, _, data in self._batches.contributions(rank, frame):
            if self.rounds[batch].version:
                raise FrameError(f"frame: key {batch.values[0].key[2:]!r} has a value already")
            batch.set(data)
        self.save([self.values[r.name] for r in frame.records])
        self._answers.send(rank, FrameType.ANSWER, [r._replace(segment=NOTHING, at=0) for r in frame.records], b"", frame.seq)

    def _on_push(self, rank: int, frame: WireFrame) -> None:
        if not self.rounds.sync and not self.values.has_optimizer:
            raise KVStoreError("dist_async needs an optimizer on the server: call set_optimizer first")
        wanted = bool(frame.flags & WANT_VALUE)  # otherwise it is sent again
        contributions = self._batches.contributions(rank, frame)
        if wanted:
            self._check_reply_places(rank, [(batch, r) for batch, r, _ in contributions])
        for batch, r, data in contributions:
            reply = r.reply if wanted else None
            try:
                self._execute(self.rounds.push(batch, rank, r.round, data, not wanted, reply))
            except Exception as e:  # earlier contributions of the frame may have been applied
                self._answers.reject(rank, records(batch, r.round), describe(e), seq=frame.seq)

    def _check_reply_places(self, rank: int, wanted: Iterable[tuple[Batch, Record]]) -> None:
        for batch, r in wanted:
            if r.reply_segment >= 0:
                self._batches.place(rank, *r.reply, batch.nbytes)

    def _on_pull_rows(self, rank: int, frame: WireFrame) -> None:
        (r,) = frame.records
        if self._must_wait(rank, frame):
            return
        value = self.values[r.name]
        indices = row_indices(np.frombuffer(frame.payload, np.uint8), value.array.shape[0])
        rows = value.raw.reshape(value.array.shape[0], -1)[indices].reshape(-1)
        record = Record(r.key, r.slice, value.code, len(rows) // value.flat.itemsize, self._last_applied(value, rank), INLINE,
                        self._answers.last_durable(value, rank))
        self._answers.send(rank, FrameType.ANSWER, [record], rows.data, frame.seq)

    def _on_pull(self, rank: int, frame: WireFrame) -> None:
        if self._must_wait(rank, frame):
            return
        wanted = self._batches.of_pull(frame.table)
        self._check_reply_places(rank, wanted)
        self._answers.send_values(rank, [(batch, self._last_applied(batch.values[0], rank), r.reply)
                                         for batch, r in wanted], frame.seq)

    def _must_wait(self, rank: int, frame: WireFrame) -> bool:
        """Hold a pull, and return True, if it has to wait for slower workers or for a round that its worker knows as applied, and
        that was lost in a restart of this server.
        """
        values = [self.values[r.name] for r in frame.records]  # raises FrameError for an unknown key
        wait = any(r.round > self._last_applied(value, rank) for r, value in zip(frame.records, values))
        if not wait and (self.max_staleness is None or self.rounds.sync or not any(
                self.rounds.behind(self._batches[value], rank, self.max_staleness) for value in values)):
            for value in values:
                if not value.filled:
                    raise KVStoreError(f"key {value.key[2:]!r} has no value yet")
            return False
        self._waiting_pulls.append((rank, frame))
        return True

    def _retry_pulls(self) -> None:
        waiting, self._waiting_pulls = self._waiting_pulls, []
        for rank, frame in waiting:
            self._handle(rank, frame)

    def _on_missing(self, rank: int, frame: WireFrame) -> None:
        """Answer which ranks keys wait for: sync, their next rounds; async, the pulls of this worker."""
        answer = {}
        for r in frame.records:
            batch = self._batches[self.values[r.name]]
            answer[f"{r.key}.{r.slice}"] = self.rounds.missing(batch) if self.rounds.sync else (
                self.rounds.last_applied(batch, rank), self.rounds.behind(batch, rank, self.max_staleness or 0))
        self._answers.send(rank, FrameType.TEXT, [], pack(answer), frame.seq)

    def _on_states(self, rank: int, frame: WireFrame) -> None:
        """Answer with the states of every updater. A frame with a record sets the states in its payload."""
        if frame.records:
            (r,) = frame.records
            value = self.values[r.name]
            if value.updater is None:
                raise KVStoreError("the server has no optimizer")
            value.updater.set_states(bytes(frame.payload), "optimizer states")
            self.save()
            self._answers.send(rank, FrameType.TEXT, [], b"{}", frame.seq)
            return
        states = [(name, v.updater.get_states(True)) for name, v in self.values.items() if v.updater is not None]
        for name, blob in states:
            record = Record(*name, CODES[np.dtype("uint8")], len(blob), 0, INLINE)
            self._answers.send(rank, FrameType.STATES, [record], blob, frame.seq)
        self._answers.send(rank, FrameType.TEXT, [], json.dumps(len(states)).encode(), frame.seq)

    # ---- updating -------------------------------------------------------------------------------------------------------
    def _execute(self, actions: Iterable[Any]) -> None:
        todo = deque(actions)
        failed: dict[StoredValue, str] = {}
        while todo:
            a = todo.popleft()
            batch: Batch = a.key
            if isinstance(a, Reject):
                self._answers.reject(a.rank, records(batch, a.round), a.text, dead=a.dead)
            elif batch not in self.rounds:  # it was separated, because the update of some of its values has failed
                todo.extendleft(reversed(self._parts(batch, a)))
            elif batch.values[0] not in failed:
                if isinstance(a, Apply):
                    self._apply(batch, a, failed)
                else:
                    self._answers.acknowledge(a)
            elif isinstance(a, Acknowledge):
                if not self.rounds.sync:
                    self.rounds[batch].applied[a.rank] = a.round - 1
                self._answers.reject(a.rank, records(batch, a.round), failed[batch.values[0]])

    def _apply(self, batch: Batch, a: Apply, failed: dict[StoredValue, str]) -> None:
        """Update the values of a batch. Those whose update fails keep their version, and are added to failed."""
        self._changed.update(dict.fromkeys(batch.values))
        try:
            errors = batch.update(a.data)
        except Exception as e:
            errors = dict.fromkeys(batch.values, e)
        failed.update((value, f"the update failed: {describe(e, True)}") for value, e in errors.items())
        for alone in self._batches.separate(list(errors)):
            self.rounds[alone].version = a.version - 1

    def _parts(self, batch: Batch, a: Apply | Acknowledge) -> list[Apply | Acknowledge]:
        """Return an action on a batch as actions on each of its values."""
        alone = self._batches.separate(batch.values)
        if isinstance(a, Apply):
            return [a._replace(key=b, data=tuple(batch.part(i, data, None)[0] for data in a.data)) for i, b in enumerate(alone)]
        return [a._replace(key=b, reply=batch.part(i, (), a.reply)[1]) for i, b in enumerate(alone)]
