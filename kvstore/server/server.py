"""Serving: what a shard does with a frame of a worker. Frames in, (rank, head, payload) out; no sockets and no waiting.

`rounds.py` decides which contributions make an update, `values.py` makes it. Every record is held against the key table before
memory is touched. What is wrong with one frame, or fails because of it, is answered with REFUSED and harms nobody else: no frame
ends the process. A contribution counts if, and only if, its worker is told so: an update that fails is taken back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import FrameError, KVStoreError, MXNetError
from ..protocol.partial_push import Partial, PartialRows
from ..protocol.rounds import MOST_AHEAD, Answer, Apply, Refuse, Rounds
from ..protocol.row_sparse import Rows, part_shape, row_size
from ..wire.compression import TwoBit
from ..wire.encrypted_channel import Offer
from ..wire.frame import (
    CHUNK,
    CODES,
    DTYPES,
    INLINE,
    MOST_RECORDS,
    NOTHING,
    RUN,
    TWO_BITS,
    WANT,
    Frame,
    Op,
    Record,
    encode,
    pack,
    unpack,
)
from ..wire.shared_memory import Views
from .batched_rounds import Made, Unison
from .values import Name, Value, Values

Out = tuple[int, bytes, list[Any]]  # rank, head, payload in pieces of bytes
_log = logging.getLogger(__name__)


class _Want(NamedTuple):
    """Where a rank would like the value of the round it contributed to."""

    round: int
    segment: int
    at: int


class Shard:
    """The state of one shard.

    job:        its id, which names the workers' shared memory.
    folder:     for snapshots; None keeps none. every: rounds of a key between two of them.
    staleness:  async: a pull waits while its worker is more contributions than that ahead of the slowest; None: it never waits.
    offer:      a new lane (encrypted_channel.py) for a rank that has connected, if it wants one.
    """

    def __init__(self, job: str, policy: str, kind: str, folder: Path | None = None, every: int = 0,
                 staleness: int | None = None, offer: Callable[[int, bool], Offer | None] = lambda rank, wanted: None):
        self.job, self.every, self.staleness = job, every if folder is not None else 0, staleness
        self._offer = offer
        self.values = Values(folder if every else None)
        self.rounds = Rounds(kind != "async", policy)
        self.members: dict[int, int] = {}
        self.optimizers = 0  # how many it was told of
        self._gone: dict[int, str] = {}
        self._generation = 0  # of members, as the coordinator counts
        self._views: dict[int, Views] = {}
        self._unison = Unison(self.values, self.rounds, self._views)
        self._partial: dict[tuple[int, Name], Partial | PartialRows] = {}
        self._wants: dict[tuple[int, Name], _Want] = {}
        self._answers: dict[int, list[Answer]] = {}
        self._held: list[tuple[int, Frame]] = []  # pulls that wait for rounds, or for slower workers
        self.trouble = ""  # what of the coordinator's last message could not be done, and why
        self._touched: dict[Name, None] = {}
        self._out: list[Out] = []

    # ---- what the coordinator says --------------------------------------------------------------------------------------
    def control(self, m: Mapping[str, Any]) -> list[Out]:
        """Take over members, keys or an optimizer. `trouble` tells what cannot be done."""
        self._one_by_one()
        self._unison.forget()
        self.trouble = ""
        if m.get("kind"):
            self.rounds.sync = m["kind"] != "async"
        if "members" in m:
            self._generation = m["members"]["generation"]
            self._set_members({int(r): i for r, i in m["members"]["ranks"].items()},
                              {int(r): why for r, why in m["members"]["gone"].items()})
        try:
            for entry in m.get("keys", ()):
                self._make(entry, m.get("index"))
            if int(m.get("optimizers", 0)) > self.optimizers:
                self.values.set_optimizer(m["optimizer"])
                self.optimizers = int(m["optimizers"])
                if "epoch" in m:  # no first news: the values that are here may have states on disk
                    self.save()
        except Exception as e:
            self.trouble = _why(e)
        self._release()
        return self._flush()

    def _set_members(self, members: dict[int, int], gone: dict[int, str]) -> None:
        for rank in [r for r, i in self.members.items() if members.get(r) != i]:
            self._begin(rank)
        for rank in gone:
            self._drop_unsaid(rank)
        save = bool(gone.keys() - self._gone.keys()) and len(gone) < len(members)
        grown = bool(self.members and members.keys() - self.members.keys())
        self.members, self._gone = members, gone
        self._do(self.rounds.set_members(members, gone))
        if grown:  # what is on disk does not know of them
            for _, value in self.values.items():
                value.durable = -1
        if save or grown:
            self.save()  # a rank that is away sends nothing again: what it contributed must not be lost with this shard

    def _begin(self, rank: int) -> None:
        """A rank begins anew: what is known of its connection, or its process, is nothing any more."""
        self._drop_unsaid(rank)
        self._views.pop(rank, None)
        self._wants = {k: w for k, w in self._wants.items() if k[0] != rank}

    def _drop_unsaid(self, rank: int) -> None:
        """Drop what a rank has not said to the end, or waits for an answer to."""
        self._partial = {k: p for k, p in self._partial.items() if k[0] != rank}
        self._held = [h for h in self._held if h[0] != rank]

    def _make(self, entry: Mapping[str, Any], index: Any) -> None:
        for part, (shard, _, _) in enumerate(entry["parts"]):
            name = (int(entry["id"]), part)
            shape = part_shape(entry["shape"], entry["parts"], part)
            if shard != index or (name in self.values and (
                    self.values[name].filled or self.values[name].agrees(entry["key"], shape, entry["dtype"]))):
                continue  # what is there and not filled may be of a key whose making was given up
            self.values.make(name, entry["key"], shape, entry["dtype"])
            self.rounds.add(name)

    def restore(self) -> None:
        """Read every value that is on disk."""
        for name, _ in self.values.items():
            found = self.values.load(name)
            if found is not None:
                self.rounds.add(name, *found)

    def save(self, names: Iterable[Name] | None = None) -> None:
        """Write what has changed since it was written last. What cannot be written stays with the workers, and is tried again."""
        if not self.every:
            return
        for name, value in self.values.items() if names is None else [(n, self.values[n]) for n in names]:
            if value.filled and value.durable != self.rounds.version(name):
                try:
                    self.values.save(name, self.rounds.version(name), self.rounds.applied(name))
                except Exception as e:
                    _log.error("kvstore: key %s cannot be written to disk: %s", value.key[2:], _why(e))

    # ---- what workers say -----------------------------------------------------------------------------------------------
    def receive(self, rank: int, frame: Frame) -> list[Out]:
        """What to send because of a frame that came from rank (authenticated)."""
        made = self._unison.hold(rank, frame) if frame.rank == rank else False
        if made is False:
            self._one_by_one()
            self._handle(rank, frame)
        elif made is not True:
            self._answer_together(made)
        if self._held:
            self._release()
        out = self._flush()
        if self.every:
            self.save([n for n in self._touched if self._due(self.values[n], self.rounds.version(n))])
        self._touched.clear()
        return out

    def keeps(self, frame: Frame) -> bool:
        """Whether `receive` may hold on to the frame's payload. Runs of a value are copied to where the others are."""
        if frame.op is not Op.PUSH or len(frame.table) != 1:
            return True
        (r,) = frame.records
        return (r.key, r.part) not in self.values or r.n == len(self.values[r.key, r.part].flat)

    def _due(self, value: Value, version: int) -> bool:
        """Whether it is to be written. Keys take turns, so that no round waits for all of them, and workers keep less."""
        return version - value.durable >= self.every or (version + value.turn) % self.every == 0

    def _one_by_one(self) -> None:
        """Before anything else is done: deal with the frames that were held."""
        for rank, frame in self._unison.release():
            self._handle(rank, frame)

    def _answer_together(self, made: Made) -> None:
        self._touched.update(dict.fromkeys(made.names))
        if made.answers and not made.failed:
            self._out += made.answers
            return
        for name, (round, _) in made.failed.items():
            self.rounds.take_back(name, round)
        for rank, frame in made.frames.items():
            for r in frame.records:
                name = (r.key, r.part)
                if name in made.failed:
                    self._refuse(rank, [r], made.failed[name][1])
                    continue
                self._wants[rank, name] = _Want(r.round, r.reply_segment, r.reply_at)
                self._do([Answer(rank, name, r.round)])

    def _handle(self, rank: int, frame: Frame) -> None:
        try:
            if frame.rank != rank:
                raise FrameError(f"frame: it says it is of worker {frame.rank}; it came from worker {rank}")
            getattr(self, f"_on_{frame.op.name.lower()}", self._on_unknown)(rank, frame)
        except Exception as e:
            self._refuse(rank, frame.records, _why(e), seq=frame.seq)

    def _on_unknown(self, rank: int, frame: Frame) -> None:
        raise FrameError(f"frame: {frame.op.name} is no request")

    def _on_hello(self, rank: int, frame: Frame) -> None:
        m = unpack(frame.payload)
        self._begin(rank)
        self.rounds.forget(rank)
        views = Views(self.job, rank, self.members[rank])
        shared = False
        if isinstance(m.get("probe"), str):
            try:
                shared = bytes(views.bytes(0, 0, 16)).hex() == m["probe"]
            except FrameError:
                shared = False
        if shared:
            self._views[rank] = views
        try:
            lane = self._offer(rank, m.get("lane") is True)
        except OSError as e:
            _log.warning("kvstore: worker %d gets no lane: %s", rank, e)
            lane = None
        self._welcome(rank, frame.seq, {"shared": shared, "durable": bool(self.every), "lane": lane})

    def _welcome(self, rank: int, seq: int, text: dict[str, Any]) -> None:
        records = [Record(*name, v.code, len(v.flat), self.rounds.done_by(name, rank), at=self._on_disk(name, rank))
                   for name, v in self.values.items()]
        for i in range(0, max(len(records), 1), MOST_RECORDS):
            body = pack({**text, "more": i + MOST_RECORDS < len(records)})
            self._out.append((rank, encode(Op.WELCOME, records[i:i + MOST_RECORDS], len(body), seq=seq), [body]))

    def _on_disk(self, name: Name, rank: int) -> int:
        """The last round of a key that is on disk. Async: the last contribution of rank."""
        value = self.values[name]
        return max(value.durable, 0) if self.rounds.sync else value.saved.get(rank, 0)

    def _on_save(self, rank: int, frame: Frame) -> None:
        self.save()
        self._welcome(rank, frame.seq, {})

    def _on_fill(self, rank: int, frame: Frame) -> None:
        first = min((r for r in self.members if self._gone.get(r) != "left"), default=rank)
        if rank != first:
            raise FrameError(f"frame: only worker {first} gives keys their first values")
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
        self._need_optimizer()
        contributions = list(self._data(rank, frame))  # all of them are there, or nothing is done
        again = not frame.flags & WANT
        if not again:
            self._note_wants(rank, frame)
        for r, data in contributions:
            try:
                self._contribute(rank, frame.seq, r, data, again)
            except Exception as e:  # the others may be in their rounds already
                self._refuse(rank, [r], _why(e), seq=frame.seq)

    def _contribute(self, rank: int, seq: int, r: Record, data: np.ndarray, again: bool) -> None:
        """A contribution, or a run of one."""
        name = (r.key, r.part)
        size = len(self.values[name].flat)
        if r.n != size:
            if self._comes_late(rank, r, seq, r.offset + r.n == size):
                return
            partial = self._partial.get((rank, name))
            if not isinstance(partial, Partial) or partial.which != (r.round, seq):
                partial = self._partial[rank, name] = Partial((r.round, seq), size, self.values[name].flat.dtype)
            if not partial.add(r.offset, data):
                return
            del self._partial[rank, name]
            data = partial.data
        self._do(self.rounds.push(name, rank, r.round, data, again))

    def _note_wants(self, rank: int, frame: Frame) -> None:
        """Where the values go. Raises FrameError for a place that is not there."""
        for r in frame.records:
            if r.reply_segment >= 0:
                self._place(rank, r.reply_segment, r.reply_at, self.values[r.key, r.part].flat.nbytes)
        for r in frame.records:
            want = self._wants.get((rank, (r.key, r.part)))
            if want is None or want.round <= r.round:  # an earlier frame that comes again wants nothing any more
                self._wants[rank, (r.key, r.part)] = _Want(r.round, r.reply_segment, r.reply_at)

    def _comes_late(self, rank: int, r: Record, seq: int, last: bool) -> bool:
        """Whether a run of a contribution is of one that has been applied, or of an earlier one than that which comes now.

        What has been applied is answered: once, when its last run comes again.
        """
        name = (r.key, r.part)
        done, partial = self.rounds.done_by(name, rank), self._partial.get((rank, name))
        if r.round > done + MOST_AHEAD:
            raise FrameError(f"round {r.round} is too far ahead: the key is at {done}")
        if r.round <= done and last:
            self._do(self.rounds.push(name, rank, r.round, None))
        return r.round <= done or (partial is not None and partial.which > (r.round, seq))

    def _on_push_rows(self, rank: int, frame: Frame) -> None:
        """A run of rows; one of no rows is a contribution too."""
        self._need_optimizer()
        (r,) = frame.records
        name = (r.key, r.part)
        self._check(r._replace(offset=0), empty=True)
        value = self.values[name]
        rows, width = value.array.shape[0], row_size(value.array.shape)
        count = r.n // width
        if r.segment != INLINE or r.n % width or r.dtype == TWO_BITS or r.offset + count > r.at or r.at > rows:
            raise FrameError(f"frame: {r.n} elements are no {r.at} rows of key {value.key[2:]!r}, part {r.part}: "
                             f"{value.array.shape}")
        numbers = self._row_numbers(frame.payload, r.nbytes, count, rows)
        if self._comes_late(rank, r, frame.seq, r.offset + count == r.at):
            return
        partial = self._partial.get((rank, name))
        if not isinstance(partial, PartialRows) or partial.which != (r.round, frame.seq) or partial.total != r.at:
            partial = self._partial[rank, name] = PartialRows((r.round, frame.seq), r.at)
        given = np.frombuffer(frame.payload, value.flat.dtype, r.n).reshape(count, *value.array.shape[1:])
        whole = partial.add(r.offset, Rows(numbers, given.copy()))
        if whole is not None:
            del self._partial[rank, name]
            value.sparse = True
            self._do(self.rounds.push(name, rank, r.round, whole, not frame.flags & WANT))

    def _on_pull_rows(self, rank: int, frame: Frame) -> None:
        """Some rows of a value, one after another, in frames of up to CHUNK."""
        (r,) = frame.records
        if self._too_early(rank, frame):
            return
        value = self.values[r.key, r.part]
        if not value.filled:
            raise KVStoreError(f"key {value.key[2:]!r} has no value yet")
        numbers = self._row_numbers(frame.payload, 0, len(frame.payload) // 8, value.array.shape[0])
        width, size = row_size(value.array.shape), value.flat.itemsize
        step = max(CHUNK // (width * size), 1)
        for start in range(0, len(numbers), step):
            some = value.raw.reshape(-1, width * size)[numbers[start:start + step]].reshape(-1).data
            record = Record(r.key, r.part, value.code, len(some) // size, self.rounds.done_by((r.key, r.part), rank),
                            start * width, INLINE, self._on_disk((r.key, r.part), rank))
            self._out.append((rank, encode(Op.ANSWER, [record], len(some), seq=frame.seq), [some]))

    def _row_numbers(self, payload: memoryview, at: int, count: int, rows: int) -> np.ndarray:
        """The count numbers of rows that end a payload, from byte `at`. Raises FrameError unless they ascend below rows."""
        if len(payload) != at + 8 * count:
            raise FrameError(f"frame: {len(payload)} bytes are not the numbers of {count} rows after {at} bytes")
        numbers = np.frombuffer(payload, "<i8", count, at).copy()
        if count and (numbers[0] < 0 or numbers[-1] >= rows or (numbers[1:] <= numbers[:-1]).any()):
            raise FrameError(f"frame: the numbers of rows do not ascend from 0 to {rows - 1}")
        return numbers

    def _need_optimizer(self) -> None:
        if not self.rounds.sync and not self.values.updates:
            raise KVStoreError("dist_async needs an optimizer on the server: call set_optimizer first")

    def _on_pull(self, rank: int, frame: Frame) -> None:
        if self._too_early(rank, frame):
            return
        for r in frame.records:
            if not self.values[r.key, r.part].filled:
                raise KVStoreError(f"key {self.values[r.key, r.part].key[2:]!r} has no value yet")
            if r.reply_segment >= 0:
                self._place(rank, r.reply_segment, r.reply_at, self.values[r.key, r.part].flat.nbytes)
        self._send_values(rank, [r._replace(round=0) for r in frame.records], frame.seq)

    def _too_early(self, rank: int, frame: Frame) -> bool:
        """Whether a pull has to wait, and is held: for slower workers, or for a round that its worker has seen made.

        The latter is one that was lost with the server's last process, and is made again of what workers kept.
        """
        names = self._names(frame)
        early = any(r.round > self.rounds.done_by(name, rank) for r, name in zip(frame.records, names))
        if not early and (self.staleness is None or self.rounds.sync or not any(
                self.rounds.behind(name, rank, self.staleness) for name in names)):
            return False
        self._held.append((rank, frame))
        return True

    def _names(self, frame: Frame) -> list[Name]:
        """The keys that a frame is about. Raises FrameError if one is not there."""
        return [self.values[r.key, r.part].name for r in frame.records]

    def _release(self) -> None:
        """Answer the pulls that need not wait any more."""
        held, self._held = self._held, []
        for rank, frame in held:
            self._handle(rank, frame)

    def _on_missing(self, rank: int, frame: Frame) -> None:
        """For whom keys wait: in sync their next rounds, in async the pulls of this worker."""
        text = {f"{name[0]}.{name[1]}": self.rounds.missing(name) if self.rounds.sync else
                (self.rounds.done_by(name, rank), self.rounds.behind(name, rank, self.staleness or 0))
                for name in self._names(frame)}
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
    def _data(self, rank: int, frame: Frame) -> Iterable[tuple[Record, np.ndarray]]:
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
            else:
                raw = self._place(rank, r.segment, r.at, r.nbytes)
            if r.dtype == TWO_BITS:
                yield r, TwoBit(np.int32(r.at).view(np.float32).item()).expand(raw, r.n)
            else:
                yield r, raw.view(DTYPES[r.dtype]) if raw.ctypes.data % DTYPES[r.dtype].itemsize == 0 else np.frombuffer(
                    raw.tobytes(), DTYPES[r.dtype])

    def _place(self, rank: int, segment: int, at: int, nbytes: int) -> np.ndarray:
        """A range of a rank's shared memory."""
        if rank not in self._views or segment < 0:
            raise FrameError(f"frame: a record says its bytes are in segment {segment}, which cannot be read here")
        return self._views[rank].bytes(segment, at, nbytes)

    def _check(self, r: Record, empty: bool = False) -> None:
        value = self.values[r.key, r.part]
        code = np.dtype("float32") if r.dtype == TWO_BITS else DTYPES[r.dtype]
        if code != value.flat.dtype or r.offset + r.n > len(value.flat) or (not r.n and len(value.flat) and not empty):
            raise FrameError(f"frame: {r.n} {code} at {r.offset} do not fit key {value.key[2:]!r}, part {r.part}: "
                             f"{len(value.flat)} {value.flat.dtype}")

    # ---- doing, and bytes out -------------------------------------------------------------------------------------------
    def _do(self, actions: Iterable[Any]) -> None:
        failed: dict[Name, str] = {}  # why a round of a key could not be made: what follows about it is not so
        for a in actions:
            name: Name = a.key
            if isinstance(a, Refuse):
                self._wants.pop((a.rank, name), None)
                self._refuse(a.rank, [Record(*name, 0, 0, a.round)], a.text, dead=a.dead)
            elif isinstance(a, Apply) and name not in failed:
                self._touched[name] = None
                try:
                    self.values[name].update(a.data)
                    self.values[name].filled = True
                except Exception as e:
                    failed[name] = f"the update failed: {_why(e, True)}"
                    self.rounds.take_back(name, a.version)
            elif isinstance(a, Answer) and name in failed:
                self.rounds.take_back_from(name, a.rank, a.round)
                self._do([Refuse(a.rank, name, a.round, failed[name])])
            elif isinstance(a, Answer):
                self._answers.setdefault(a.rank, []).append(a)

    def _refuse(self, rank: int, records: Iterable[Record], text: str, dead: tuple[int, ...] = (), seq: int = 0,
                made: bool = False) -> None:
        """made: what was contributed is in its round all the same."""
        body = pack({"text": text, "gone": {str(r): self._gone[r] for r in dead}, "generation": self._generation, "made": made})
        refused = [r._replace(segment=NOTHING, at=0) for r in records]  # the payload is no value
        self._out.append((rank, encode(Op.REFUSED, refused, len(body), seq=seq), [body]))

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
        """Answer records with values, in frames of up to CHUNK."""
        batch: list[Record] = []
        pieces: list[Any] = []
        room = CHUNK

        def ship() -> None:
            nonlocal batch, pieces, room
            if batch:
                self._out.append((rank, encode(Op.ANSWER, batch, CHUNK - room, seq=seq), pieces))
            batch, pieces, room = [], [], CHUNK

        for r in records:
            try:
                runs = self._value_for(rank, r)
            except Exception as e:
                self._refuse(rank, [r], f"the value cannot be sent: {_why(e)}", seq=seq, made=not seq)
                continue
            for done, run in runs:
                if len(runs) > 1 or len(run) > room or len(batch) >= MOST_RECORDS:
                    ship()
                batch.append(done)
                if done.segment == INLINE:
                    pieces.append(run)
                    room -= len(run)
        ship()

    def _value_for(self, rank: int, r: Record) -> Sequence[tuple[Record, Any]]:
        """A value as records, with the bytes of each: in shared memory where the worker named a place, else in runs."""
        value = self.values[r.key, r.part]
        done = r._replace(dtype=value.code, n=len(value.flat), at=self._on_disk(value.name, rank), offset=0,
                          round=r.round or self.rounds.done_by(value.name, rank), segment=NOTHING)
        if r.reply_segment >= 0:
            self._place(rank, r.reply_segment, r.reply_at, len(value.raw))[:] = value.raw
        if r.reply_segment != INLINE:
            return [(done, b"")]
        size, runs = value.flat.itemsize, [value.raw[at:at + RUN].data for at in range(0, max(len(value.raw), 1), RUN)]
        return [(done._replace(segment=INLINE, offset=i * RUN // size, n=len(run) // size), run) for i, run in enumerate(runs)]


def _why(e: Exception, named: bool = False) -> str:
    """What a worker is told of an error. Those that are not raised on purpose go to the log, too. named: with its class."""
    if not isinstance(e, MXNetError):
        _log.error("kvstore: a server's error", exc_info=e)
    return str(e) if isinstance(e, MXNetError) and not named else f"{type(e).__name__}: {e}"
