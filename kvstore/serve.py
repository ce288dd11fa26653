"""Serving: what a shard does with a frame of a worker. Frames in, (rank, head, payload) out; no sockets and no waiting.

`rounds.py` decides which contributions make an update, `values.py` makes it. Every record is held against the key table before
memory is touched. What is wrong with one frame is answered with REFUSED and harms nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FrameError, KVStoreError, MXNetError
from .compression import TwoBit
from .frame import CHUNK, CODES, DTYPES, INLINE, MOST_RECORDS, NOTHING, TWO_BITS, WANT, Frame, Op, Record, encode, pack, unpack
from .rounds import Answer, Apply, Refuse, Rounds
from .shared import Views
from .values import Name, Values

Out = tuple[int, bytes, list[Any]]  # rank, head, payload in pieces


class _Want(NamedTuple):
    """Where a rank would like the value of the round it contributed to."""

    round: int
    segment: int
    at: int


class _Partial:
    """A contribution that comes in several runs."""

    def __init__(self, n: int, dtype: np.dtype):
        self.data, self.missing, self.seen = np.empty(n, dtype), n, set[int]()

    def add(self, offset: int, run: np.ndarray) -> bool:
        """Whether it is complete now. The same run twice counts once."""
        if offset not in self.seen:
            self.seen.add(offset)
            self.data[offset:offset + len(run)] = run
            self.missing -= len(run)
        return self.missing <= 0


class Shard:
    """The state of one shard.

    job:     its id, which names the workers' shared memory.
    folder:  for snapshots; None keeps none. every: rounds of a key between two of them.
    """

    def __init__(self, job: str, policy: str, kind: str, folder: Path | None = None, every: int = 0):
        self.job, self.every = job, every if folder is not None else 0
        self.values = Values(folder if every else None)
        self.rounds = Rounds(kind != "async", policy)
        self.members: dict[int, int] = {}
        self._gone: dict[int, str] = {}
        self._views: dict[int, Views] = {}
        self._partial: dict[tuple[int, Name, int], _Partial] = {}
        self._wants: dict[tuple[int, Name], _Want] = {}
        self._answers: dict[int, list[Answer]] = {}
        self._failed: dict[tuple[Name, int], str] = {}
        self._touched: dict[Name, None] = {}
        self._out: list[Out] = []

    # ---- what the coordinator says --------------------------------------------------------------------------------------
    def control(self, m: Mapping[str, Any]) -> list[Out]:
        """Take over members, keys or an optimizer."""
        if m.get("kind"):
            self.rounds.sync = m["kind"] != "async"
        if "members" in m:
            self._set_members({int(r): i for r, i in m["members"]["ranks"].items()},
                              {int(r): why for r, why in m["members"]["gone"].items()})
        for entry in m.get("keys", ()):
            self._make(entry, m.get("index"))
        if m.get("op") == "optimizer" or m.get("optimizer"):
            self.values.set_optimizer(m.get("spec") or m.get("optimizer"))
            if m.get("op") == "optimizer":
                self.save()
        return self._flush()

    def _set_members(self, members: dict[int, int], gone: dict[int, str]) -> None:
        for rank in [r for r in self._views if members.get(r) != self.members.get(r)]:
            del self._views[rank]
        lost = {r for r in members if members[r] != self.members.get(r)} | gone.keys()
        self._partial = {k: p for k, p in self._partial.items() if k[0] not in lost}
        newly = gone.keys() - self._gone.keys()
        self.members, self._gone = members, gone
        self._do(self.rounds.set_members(members, gone))
        if newly and len(gone) < len(members):
            self.save()  # a rank that is away sends nothing again: what it contributed must not be lost with this shard

    def _make(self, entry: Mapping[str, Any], index: Any) -> None:
        for part, (shard, start, stop) in enumerate(entry["parts"]):
            name = (int(entry["id"]), part)
            if shard != index or name in self.values:
                continue
            shape = tuple(entry["shape"]) if len(entry["parts"]) == 1 else (stop - start,)
            self.values.make(name, entry["key"], shape, entry["dtype"])
            self.rounds.add(name)

    def restore(self) -> None:
        """Read every value that is on disk."""
        for name, _ in self.values.items():
            found = self.values.load(name)
            if found is not None:
                self.rounds.add(name, *found)

    def save(self, names: Iterable[Name] | None = None) -> None:
        """Write what has changed since it was written last."""
        if not self.every:
            return
        for name, value in self.values.items() if names is None else [(n, self.values[n]) for n in names]:
            if value.filled and value.durable != self.rounds.version(name):
                self.values.save(name, self.rounds.version(name), self.rounds.applied(name))

    # ---- what workers say -----------------------------------------------------------------------------------------------
    def receive(self, rank: int, frame: Frame) -> list[Out]:
        """What to send because of a frame that came from rank (authenticated)."""
        try:
            if frame.rank != rank:
                raise FrameError(f"frame: it says it is of worker {frame.rank}; it came from worker {rank}")
            getattr(self, f"_on_{frame.op.name.lower()}", self._on_unknown)(rank, frame)
        except (MXNetError, ValueError, KeyError, TypeError, OverflowError) as e:
            self._refuse(rank, frame.records, str(e), seq=frame.seq)
        out = self._flush()
        due = [n for n in self._touched if self.every and self.rounds.version(n) - self.values[n].durable >= self.every]
        self._touched.clear()
        self.save(due)
        return out

    def _on_unknown(self, rank: int, frame: Frame) -> None:
        raise FrameError(f"frame: {frame.op.name} is no request")

    def _on_hello(self, rank: int, frame: Frame) -> None:
        m = unpack(frame.payload)
        self._wants = {k: w for k, w in self._wants.items() if k[0] != rank}
        self._partial = {k: p for k, p in self._partial.items() if k[0] != rank}
        views = Views(self.job, rank, self.members[rank])
        shared = False
        if isinstance(m.get("probe"), str):
            try:
                shared = bytes(views.bytes(0, 0, 16)).hex() == m["probe"]
            except FrameError:
                shared = False
        if shared:
            self._views[rank] = views
        self._welcome(rank, frame.seq, {"shared": shared, "durable": bool(self.every)})

    def _welcome(self, rank: int, seq: int, text: dict[str, Any]) -> None:
        records = [Record(*name, CODES[v.flat.dtype], len(v.flat), self.rounds.done_by(name, rank), at=max(v.durable, 0))
                   for name, v in self.values.items()]
        body = pack(text)
        for i in range(0, max(len(records), 1), MOST_RECORDS):
            self._out.append((rank, encode(Op.WELCOME, records[i:i + MOST_RECORDS], len(body), seq=seq), [body]))

    def _on_save(self, rank: int, frame: Frame) -> None:
        self.save()
        self._welcome(rank, frame.seq, {})

    def _on_fill(self, rank: int, frame: Frame) -> None:
        if rank:
            raise FrameError("frame: only worker 0 gives keys their first values")
        done = []
        for r, data in self._data(rank, frame):
            value = self.values[r.key, r.part]
            if self.rounds.version((r.key, r.part)):
                raise FrameError(f"frame: key {value.key[2:]!r} has its value already")
            value.flat[r.offset:r.offset + r.n] = data
            if r.offset + r.n == len(value.flat):
                value.filled = True
                self._touched[r.key, r.part] = None
                done.append((r.key, r.part))
        self.save(done)
        records = [r._replace(segment=NOTHING, at=0) for r in frame.records]
        self._out.append((rank, encode(Op.ANSWER, records, seq=frame.seq), []))

    def _on_push(self, rank: int, frame: Frame) -> None:
        if not self.rounds.sync and not self.values.updates:
            raise KVStoreError("dist_async needs an optimizer on the server: call set_optimizer first")
        if frame.flags & WANT:
            for r in frame.records:
                self._wants[rank, (r.key, r.part)] = _Want(r.round, r.reply_segment, r.reply_at)
        for r, data in self._data(rank, frame, keep=True):
            name = (r.key, r.part)
            size = len(self.values[name].flat)
            if r.n != size:
                key = (rank, name, r.round)
                if r.round <= self.rounds.done_by(name, rank):
                    self._do([Answer(rank, name, r.round)])
                    continue
                partial = self._partial.get(key)
                if partial is None:
                    partial = self._partial[key] = _Partial(size, self.values[name].flat.dtype)
                if not partial.add(r.offset, data):
                    continue
                data = self._partial.pop(key).data
            self._do(self.rounds.push(name, rank, r.round, data))

    def _on_pull(self, rank: int, frame: Frame) -> None:
        for r in frame.records:
            if not self.values[r.key, r.part].filled:
                raise KVStoreError(f"key {self.values[r.key, r.part].key[2:]!r} has no value yet")
        self._send_values(rank, frame.records, frame.seq)

    def _on_missing(self, rank: int, frame: Frame) -> None:
        text = {f"{r.key}.{r.part}": self.rounds.missing((r.key, r.part)) for r in frame.records}
        body = pack(text)
        self._out.append((rank, encode(Op.TEXT, [], len(body), seq=frame.seq), [body]))

    def _on_states(self, rank: int, frame: Frame) -> None:
        """Asked for: the states of every updater. With a payload: take them over."""
        if frame.records:
            (r,) = frame.records
            value = self.values[r.key, r.part]
            if value.updater is None:
                raise KVStoreError("the server has no optimizer")
            value.updater.set_states(bytes(frame.payload), "optimizer states")
            self.save()
            self._out.append((rank, encode(Op.TEXT, [], 2, seq=frame.seq), [b"{}"]))
            return
        blobs = [(name, v.updater.get_states(True)) for name, v in self.values.items() if v.updater is not None]
        records = [Record(*name, CODES[np.dtype("uint8")], len(blob), 0, segment=INLINE) for name, blob in blobs]
        body = json.dumps(len(blobs)).encode()
        for record, (_, blob) in zip(records, blobs):
            for at in range(0, max(len(blob), 1), CHUNK):
                run = memoryview(blob)[at:at + CHUNK]
                piece = record._replace(n=len(run), offset=at, round=len(blob))
                self._out.append((rank, encode(Op.STATES, [piece], len(run), seq=frame.seq), [run]))
        self._out.append((rank, encode(Op.TEXT, [], len(body), seq=frame.seq), [body]))

    # ---- bytes in -------------------------------------------------------------------------------------------------------
    def _data(self, rank: int, frame: Frame, keep: bool = False) -> Iterable[tuple[Record, np.ndarray]]:
        """Each record with its elements; all records are checked before the first is given out."""
        if frame.op is Op.PUSH or frame.op is Op.FILL:
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
            elif rank in self._views and r.segment >= 0:
                raw = self._views[rank].bytes(r.segment, r.at, r.nbytes)
            else:
                raise FrameError(f"frame: a record says its bytes are in segment {r.segment}, which cannot be read here")
            if r.dtype == TWO_BITS:
                yield r, TwoBit(np.int32(r.at).view(np.float32).item()).expand(raw, r.n)
            else:
                yield r, raw.view(DTYPES[r.dtype]) if raw.ctypes.data % DTYPES[r.dtype].itemsize == 0 else np.frombuffer(
                    raw.tobytes(), DTYPES[r.dtype])

    def _check(self, r: Record) -> None:
        if (r.key, r.part) not in self.values:
            raise FrameError(f"frame: there is no key number {r.key}, part {r.part}")
        value = self.values[r.key, r.part]
        code = np.dtype("float32") if r.dtype == TWO_BITS else DTYPES[r.dtype]
        if code != value.flat.dtype or r.offset + r.n > len(value.flat) or (not r.n and len(value.flat)):
            raise FrameError(f"frame: {r.n} {code} at {r.offset} do not fit key {value.key[2:]!r}, part {r.part}: "
                             f"{len(value.flat)} {value.flat.dtype}")

    # ---- doing, and bytes out -------------------------------------------------------------------------------------------
    def _do(self, actions: Iterable[Any]) -> None:
        for a in actions:
            name: Name = a.key
            if isinstance(a, Apply):
                self._touched[name] = None
                try:
                    self.values[name].update(a.data)
                    self.values[name].filled = True
                except Exception as e:
                    self._failed[name, a.version] = f"the update failed: {type(e).__name__}: {e}"
            elif isinstance(a, Answer):
                if (name, a.round) in self._failed:
                    self._do([Refuse(a.rank, name, a.round, self._failed[name, a.round])])
                    continue
                self._answers.setdefault(a.rank, []).append(a)
            elif isinstance(a, Refuse):
                self._wants.pop((a.rank, name), None)
                self._refuse(a.rank, [Record(*name, 0, 0, a.round)], a.text, dead=a.dead)

    def _refuse(self, rank: int, records: Iterable[Record], text: str, dead: tuple[int, ...] = (), seq: int = 0) -> None:
        body = pack({"text": text, "dead": dead})
        self._out.append((rank, encode(Op.REFUSED, list(records), len(body), seq=seq), [body]))

    def _flush(self) -> list[Out]:
        """Everything that is to be sent now."""
        for rank, answers in self._answers.items():
            wanted = []
            for a in answers:
                name: Any = a.key
                want = self._wants.get((rank, name))
                if want is not None and want.round == a.round:
                    del self._wants[rank, name]
                    place = want.segment, want.at
                else:
                    place = NOTHING, 0
                wanted.append(Record(name[0], name[1], 0, 0, a.round, 0, NOTHING, 0, place[0], place[1]))
            self._send_values(rank, wanted, 0)
        self._answers.clear()
        out, self._out = self._out, []
        return out

    def _send_values(self, rank: int, records: Iterable[Record], seq: int) -> None:
        """Answer records with values: into shared memory where the worker named a place, else in frames of up to CHUNK."""
        batch: list[Record] = []
        pieces: list[Any] = []
        room = CHUNK

        def ship() -> None:
            nonlocal batch, pieces, room
            if batch:
                self._out.append((rank, encode(Op.ANSWER, batch, CHUNK - room, seq=seq), pieces))
            batch, pieces, room = [], [], CHUNK

        for r in records:
            value = self.values[r.key, r.part]
            if r.reply_segment == INLINE and 0 < value.flat.nbytes <= room and len(batch) < MOST_RECORDS:
                batch.append(Record(r.key, r.part, value.code, len(value.flat),
                                    r.round or self.rounds.done_by((r.key, r.part), rank), 0, INLINE, max(value.durable, 0)))
                pieces.append(value.flat.data)
                room -= value.flat.nbytes
                continue
            done = r._replace(dtype=value.code, n=len(value.flat), at=max(value.durable, 0), offset=0,
                              round=r.round or self.rounds.done_by((r.key, r.part), rank), segment=NOTHING)
            if r.reply_segment >= 0:
                self._views[rank].bytes(r.reply_segment, r.reply_at, value.flat.nbytes)[:] = value.flat.view(np.uint8)
            elif r.reply_segment == INLINE:
                raw = value.flat.view(np.uint8)
                for at in range(0, max(raw.nbytes, 1), CHUNK):
                    run = raw[at:at + CHUNK]
                    if run.nbytes > room or len(batch) >= MOST_RECORDS:
                        ship()
                    size = value.flat.itemsize
                    batch.append(done._replace(segment=INLINE, offset=at // size, n=run.nbytes // size))
                    pieces.append(run.data)
                    room -= run.nbytes
                continue
            if len(batch) >= MOST_RECORDS:
                ship()
            batch.append(done)
        ship()
