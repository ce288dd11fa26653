"""Server: handles the frames of workers. Frames in, (rank, head, payload) out; no sockets and no waiting.

`incoming.py` decodes contributions, `rounds.py` decides which of them form an update, `values.py` computes it, and `outgoing.py`
encodes the answers. A frame that is invalid, or whose handling fails, is answered with REJECTED and affects no other worker; no
frame ends the process. A contribution counts if and only if its worker gets an acknowledgement: an update that fails is reverted.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FrameError, KVStoreError
from ..protocol.rounds import Acknowledge, Apply, Reject, Rounds
from ..protocol.row_sparse import Rows, slice_shape
from ..wire.frame import CODES, INLINE, NOTHING, WANT_VALUE, FrameType, Record, WireFrame, pack, unpack
from ..wire.shared_memory import SegmentViews
from .batched_rounds import BatchedRounds
from .incoming import Incoming, row_indices
from .outgoing import Out, Outgoing, describe
from .values import Name, StoredValue, StoredValues

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
        self.members: dict[int, int] = {}
        self.optimizers = 0  # optimizers that the coordinator has announced
        self.error = ""
        self._views: dict[int, SegmentViews] = {}
        self._batched = BatchedRounds(self.values, self.rounds, self._views)
        self._incoming = Incoming(self.values, self._views)
        self._outgoing = Outgoing(self.values, self.rounds, self._incoming)
        self._waiting_pulls: list[tuple[int, WireFrame]] = []  # for a round, or for slower workers
        self._changed: dict[Name, None] = {}

    # ---- messages of the coordinator ------------------------------------------------------------------------------------
    def control(self, m: Mapping[str, Any]) -> list[Out]:
        """Take over members, keys or an optimizer from a message of the coordinator. Sets `error`."""
        self._unbatch()
        self._batched.forget()
        self.error = ""
        if m.get("kind"):
            self.rounds.sync = m["kind"] != "async"
        if "members" in m:
            self._outgoing.generation = m["members"]["generation"]
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
        return self._outgoing.take()

    def _set_members(self, members: dict[int, int], gone: dict[int, str]) -> None:
        for rank in [r for r, i in self.members.items() if members.get(r) != i]:
            self._views.pop(rank, None)
        self._waiting_pulls = [p for p in self._waiting_pulls if members.get(p[0]) == self.members[p[0]] and p[0] not in gone]
        save = bool(gone.keys() - self._outgoing.gone.keys()) and len(gone) < len(members)
        grown = bool(self.members and members.keys() - self.members.keys())
        self.members, self._outgoing.gone = members, gone
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
            if server != own_index or (name in self.values and (
                    self.values[name].filled or self.values[name].agrees(entry["key"], shape, entry["dtype"]))):
                continue  # a value without initial value may be of a key that the coordinator has removed
            self.values.create(name, entry["key"], shape, entry["dtype"])
            self.rounds.add(name)

    def restore(self) -> None:
        for name in self.values:
            snapshot = self.values.load(name)
            if snapshot is not None:
                self.rounds.add(name, *snapshot)

    def save(self, names: Iterable[Name] | None = None) -> None:
        """Write the values that have changed since their last snapshots. A failed write is retried; workers retain the pushes."""
        if not self.snapshot_rounds:
            return
        for name, value in self.values.items() if names is None else [(n, self.values[n]) for n in names]:
            if value.filled and value.durable != self.rounds[name].version:
                try:
                    self.values.save(name, self.rounds[name].version, self.rounds[name].applied)
                except Exception as e:
                    _log.error("kvstore: key %s cannot be written to disk: %s", value.key[2:], describe(e))

    # ---- frames of workers ----------------------------------------------------------------------------------------------
    def receive(self, rank: int, frame: WireFrame) -> list[Out]:
        """Handle a frame of an authenticated rank. Returns the frames to send."""
        held, batch = self._batched.add(rank, frame) if frame.rank == rank else (False, None)
        if not held:
            self._unbatch()
            self._handle(rank, frame)
        elif batch is not None:
            self._changed.update(dict.fromkeys(batch.names))
            self._outgoing.add(batch.answers)
            self._execute(batch.actions)
        if self._waiting_pulls:
            self._retry_pulls()
        outgoing = self._outgoing.take()
        if self.snapshot_rounds:
            self.save([n for n in self._changed if self._is_due(self.values[n], self.rounds[n].version)])
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

    def _unbatch(self) -> None:
        """Handle the held frames one by one, before anything else happens."""
        for rank, frame in self._batched.release():
            self._handle(rank, frame)

    def _handle(self, rank: int, frame: WireFrame) -> None:
        try:
            if frame.rank != rank:
                raise FrameError(f"frame: it names worker {frame.rank} as its sender and came from worker {rank}")
            handler = getattr(self, f"_on_{frame.type.name.lower()}", None)
            if handler is None:
                raise FrameError(f"frame: {frame.type.name} is not a request")
            handler(rank, frame)
        except Exception as e:
            self._outgoing.reject(rank, frame.records, describe(e), seq=frame.seq)

    def _on_handshake(self, rank: int, frame: WireFrame) -> None:
        m = unpack(frame.payload)
        self._waiting_pulls = [p for p in self._waiting_pulls if p[0] != rank]
        self._views.pop(rank, None)
        self.rounds.forget(rank)
        views = SegmentViews(self.job, rank, self.members[rank])
        with contextlib.suppress(FrameError):
            if bytes(views.bytes(0, 0, 16)).hex() == m.get("probe"):
                self._views[rank] = views
        self._answer_handshake(rank, frame.seq, shared=rank in self._views, durable=bool(self.snapshot_rounds))

    def _answer_handshake(self, rank: int, seq: int, **fields: Any) -> None:
        rounds = [(*name, self.rounds.last_applied(name, rank), self._outgoing.last_durable(name, rank)) for name in self.values]
        self._outgoing.send(rank, FrameType.HANDSHAKE_REPLY, [], pack({**fields, "rounds": rounds}), seq)

    def _on_save(self, rank: int, frame: WireFrame) -> None:
        self.save()
        self._answer_handshake(rank, frame.seq)

    def _on_initialize(self, rank: int, frame: WireFrame) -> None:
        first = min((r for r in self.members if self._outgoing.gone.get(r) != "left"), default=rank)
        if rank != first:
            raise FrameError(f"frame: initial values come from worker {first}, not from worker {rank}")
        for r, data in self._incoming.contributions(rank, frame):
            value = self.values[r.name]
            if self.rounds[r.name].version:
                raise FrameError(f"frame: key {value.key[2:]!r} has a value already")
            value.flat[:] = data
            value.filled = True
        self.save([r.name for r in frame.records])
        self._outgoing.send(rank, FrameType.ANSWER, [r._replace(segment=NOTHING, at=0) for r in frame.records], b"", frame.seq)

    def _on_push(self, rank: int, frame: WireFrame) -> None:
        self._require_optimizer()
        contributions = self._incoming.contributions(rank, frame)
        resent = not frame.flags & WANT_VALUE
        if not resent:
            self._check_reply_places(rank, frame)
        for r, data in contributions:
            try:
                self.values[r.name].sparse |= type(data) is Rows
                reply = None if resent else (r.reply_segment, r.reply_at)
                self._execute(self.rounds.push(r.name, rank, r.round, data, resent, reply))
            except Exception as e:  # earlier contributions of the frame may have been applied
                self._outgoing.reject(rank, [r], describe(e), seq=frame.seq)

    def _check_reply_places(self, rank: int, frame: WireFrame) -> None:
        for r in frame.records:
            if r.reply_segment >= 0:
                self._incoming.place(rank, r.reply_segment, r.reply_at, self.values[r.name].flat.nbytes)

    def _on_pull_rows(self, rank: int, frame: WireFrame) -> None:
        (r,) = frame.records
        if self._must_wait(rank, frame):
            return
        value = self._filled(r)
        indices = row_indices(np.frombuffer(frame.payload, np.uint8), value.array.shape[0])
        rows = value.raw.reshape(value.array.shape[0], -1)[indices].reshape(-1)
        record = Record(r.key, r.slice, value.code, len(rows) // value.flat.itemsize, self.rounds.last_applied(r.name, rank),
                        INLINE, self._outgoing.last_durable(r.name, rank))
        self._outgoing.send(rank, FrameType.ANSWER, [record], rows.data, frame.seq)

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
        self._outgoing.send_values(rank, [r._replace(round=0) for r in frame.records], frame.seq)

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
        waiting, self._waiting_pulls = self._waiting_pulls, []
        for rank, frame in waiting:
            self._handle(rank, frame)

    def _on_missing(self, rank: int, frame: WireFrame) -> None:
        """Answer which ranks keys wait for: sync, their next rounds; async, the pulls of this worker."""
        names = [self.values[r.name].name for r in frame.records]
        self._outgoing.send(rank, FrameType.TEXT, [], pack({
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
            self._outgoing.send(rank, FrameType.TEXT, [], b"{}", frame.seq)
            return
        states = [(name, v.updater.get_states(True)) for name, v in self.values.items() if v.updater is not None]
        for name, blob in states:
            record = Record(*name, CODES[np.dtype("uint8")], len(blob), 0, INLINE)
            self._outgoing.send(rank, FrameType.STATES, [record], blob, frame.seq)
        self._outgoing.send(rank, FrameType.TEXT, [], json.dumps(len(states)).encode(), frame.seq)

    # ---- updating and encoding ------------------------------------------------------------------------------------------
    def _execute(self, actions: Iterable[Any]) -> None:
        failed: dict[Name, str] = {}  # keys whose update failed: their acknowledgements become rejections
        for a in actions:
            name: Name = a.key
            if isinstance(a, Reject):
                self._outgoing.reject(a.rank, [Record(*name, 0, 0, a.round)], a.text, dead=a.dead)
            elif isinstance(a, Apply) and name not in failed:
                self._changed[name] = None
                try:
                    self.values[name].update(a.data)
                    self.values[name].filled = True
                except Exception as e:
                    failed[name] = f"the update failed: {describe(e, True)}"
                    self.rounds[name].version = a.version - 1
            elif isinstance(a, Acknowledge) and name in failed:
                if not self.rounds.sync:
                    self.rounds[name].applied[a.rank] = a.round - 1
                self._execute([Reject(a.rank, name, a.round, failed[name])])
            elif isinstance(a, Acknowledge):
                self._outgoing.acknowledge(a)
