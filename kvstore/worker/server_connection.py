"""Link: one worker's connection to one shard, and what is under way on it. Used by the client's thread alone."""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zmq

from ...errors import FrameError, KVStoreError, RoundMadeError
from ..wire import encrypted_channel, sockets
from ..wire.frame import (
    CHUNK,
    INLINE,
    LARGEST_MESSAGE,
    MOST_RECORDS,
    RUN,
    WANT,
    Op,
    Record,
    decode,
    encode,
    pack,
    unpack,
)
from .requests import Fetch, FetchRows, Send, SendRows, Work

if TYPE_CHECKING:
    from .client import Client

_log = logging.getLogger(__name__)
_FIRST = float("inf")  # priority of what must not wait
_MOST_BROKEN = 3  # lanes that may end on their own, soon after each other, before no more are asked for
_SOON = 60.0  # seconds
_MOST_IN_SOCKET = 32  # messages; beyond them what waits is ours to order
_DOOMED = 1.0  # seconds after which a contribution is given up because of what became of the others that were sent with it


class _Ask(NamedTuple):
    """A request outside the order of keys, which may be sent again. answers: what has come, where it is more than one frame."""

    op: Op
    records: Sequence[Record]
    payload: bytes
    future: Future[list[Any]]
    answers: list[Any]


class Link:
    """index: which shard."""

    def __init__(self, client: Client, index: int):
        self.client, self.index = client, index
        self.incarnation = -1
        self._where: dict[str, Any] = {}
        self._welcomer = -1  # the process that sent the last welcome
        self.shared = False
        self.welcomed: Future[None] = Future()
        self.socket: zmq.Socket | None = None
        self._lane: encrypted_channel.Lane | None = None
        self._broken, self._joined_at = 0, 0.0  # lanes that have ended on their own, and since when there is one
        self.ready = False
        self._down = False  # the coordinator says that the shard is away
        self.durable = False
        self._queue: deque[Work] = deque()
        self._runs: list[tuple[float, int, bytes, Any]] = []  # heap: (-priority, order, head, payload) the socket has not taken
        self._order = itertools.count()
        self.lost: KVStoreError | None = None
        self._sent: dict[tuple[int, int, int], Send] = {}  # (key, part, round) that is not answered
        self._fetching: dict[int, dict[tuple[int, int], Fetch]] = {}  # seq -> name -> what is asked for
        self._kept: dict[tuple[int, int], deque[Send]] = {}  # answered, and not on the shard's disk
        self._on_disk: dict[tuple[int, int], int] = {}  # versions that the shard has said it has written
        self._kept_bytes = 0
        self._cap = int(os.environ.get("TRITIUM_KV_RETAIN_BYTES", str(256 << 20)))
        self._saving = False
        self._asked: dict[int, _Ask] = {}
        self._to_ask: list[_Ask] = []  # when the shard is back
        self._given_up: list[Send] = []  # of which it is not known whether they count
        self._made: dict[tuple[int, int], int] = {}  # name -> round of those that did
        self._welcome_records: list[Record] = []  # of a welcome that is not all here
        self._seq = 0
        self._warned = 0.0

    # ---- being connected --------------------------------------------------------------------------------------------------
    def where(self, m: dict[str, Any], anew: bool = False) -> None:
        """What the coordinator says of the shard: it is away, or in a process to which there is no connection yet.

        anew:  connect in any case, and send again what is not answered.
        """
        self._down = bool(m.get("down"))
        if self.lost is not None:
            return
        if self._down:
            self.down()
        elif anew or m["incarnation"] != self.incarnation or self.socket is None:
            self.connect(m)

    def connect(self, where: dict[str, Any]) -> None:
        """Connect to a shard's process, and say hello."""
        self.down()
        self._where, self.incarnation = where, where["incarnation"]
        c = self.client
        self.socket = sockets.connect(c._context, c._keys, where["public"], where["address"], LARGEST_MESSAGE, _MOST_IN_SOCKET)
        self._watch = sockets.Watch(self.socket)
        c.watch(sockets.descriptor(self.socket))
        hello = pack({"probe": c.probe, "lane": self._broken < _MOST_BROKEN and encrypted_channel.available()})
        self._seq += 1
        self._put(encode(Op.HELLO, [], len(hello), rank=c.rank, seq=self._seq), hello)

    def down(self) -> None:
        """The shard is gone: hold everything until it is back."""
        self.ready, self._saving = False, False
        self._runs, self._welcome_records = [], []
        if self.socket is not None:
            self.client.unwatch(sockets.descriptor(self.socket))
            self.close()
        for ask in self._asked.values():
            ask.answers.clear()
        self._to_ask += self._asked.values()
        self._asked.clear()

    def close(self) -> None:
        if self.socket is not None:
            self._watch.close()
            self.socket.close(0)
            self.socket = None
        self._close_lane()

    def _close_lane(self) -> None:
        if self._lane is not None:
            self._lane.close()
            self._lane = None

    def _join_lane(self, offer: Sequence[Any]) -> None:
        host = self._where["address"].removeprefix("tcp://").rpartition(":")[0]
        try:
            self._lane = encrypted_channel.join(host, encrypted_channel.Offer(*offer), self.client._poller)
        except OSError as e:
            _log.warning("kvstore: worker %d has no lane to server %d: %s. What is large goes the slower way.", self.client.rank,
                         self.index, e)
            return
        self._joined_at = time.monotonic()

    def _put_on_lane(self, head: bytes, payload: Any) -> None:
        assert self._lane is not None
        try:
            self._lane.put(head, payload)
        except OSError as e:
            self._lane_ended(e)

    def _turn_lane(self) -> None:
        try:
            for _ in range(encrypted_channel.READS):
                if self._lane is not None and self._lane.full:
                    self._lane.flush()
                self._drain()
                if self._lane is None:
                    return
                more = self._lane.read()
                for head, payload in self._lane.messages():
                    self._hear(head, payload)
                if not more:
                    return
        except OSError as e:
            self._lane_ended(e)

    def _lane_ended(self, why: OSError) -> None:
        """Connect anew, and send again what is not answered."""
        _log.info("kvstore: worker %d, server %d: %s", self.client.rank, self.index, why)
        self._broken = self._broken + 1 if time.monotonic() - self._joined_at < _SOON else 1
        self.connect(self._where)

    def _welcome(self, frame: Any) -> None:
        """The shard says how far each key is: what it may not have is sent again, in order."""
        text = unpack(frame.payload)
        self._welcome_records += frame.records
        if text.get("more"):
            return
        records, self._welcome_records = self._welcome_records, []
        done = {(r.key, r.part): r.round for r in records}
        on_disk = {(r.key, r.part): r.at for r in records}
        if any(on_disk.get(name, 0) < version for name, version in self._on_disk.items()):
            self.end(KVStoreError(f"KVStore: server {self.index} came back without its snapshots. Where servers may move to "
                                  f"another machine, TRITIUM_KV_SNAPSHOT_DIR must be a folder that all of them see."))
            return
        self._drop_kept(on_disk)
        if "shared" not in text:  # an answer to SAVE
            self._saving = False
            if frame.seq in self._asked:
                self._asked.pop(frame.seq).future.set_result(records)
            return
        first, same = not self.welcomed.done(), self.incarnation == self._welcomer
        self._welcomer = self.incarnation
        if text.get("lane"):
            self._join_lane(text["lane"])
        self.shared, self.durable, self.ready = bool(text["shared"]), bool(text["durable"]), True
        if first:
            self.welcomed.set_result(None)
            return
        if not self.durable and not same and (self._sent or done or self._kept):
            self.end(KVStoreError(f"KVStore: server {self.index} died, and its values with it: the job keeps no snapshots. "
                                  f"Start it with TRITIUM_KV_SNAPSHOT_ROUNDS=10."))
            return
        self._settle(done)
        again = [s for kept in self._kept.values() for s in kept if s.round > done.get(s.name, 0)]
        for s in sorted(again, key=lambda s: s.round):
            self._encode([s], _FIRST, want=False)
        self._queue.extendleft(reversed([*self._sent.values(), *(f for fs in self._fetching.values() for f in fs.values())]))
        self._sent, self._fetching = {}, {}
        queue, self._queue = self._queue, deque()
        for w in queue:
            w.restart()
            if not self._is_made(w):
                self._queue.append(w)
        to_ask, self._to_ask = self._to_ask, []
        for ask in to_ask:
            self._put_ask(ask)

    def _settle(self, done: dict[tuple[int, int], int]) -> None:
        """What was given up counts or not. If it was sent to an earlier process, nobody knows any more: it shall count."""
        given_up, self._given_up = self._given_up, []
        for s in given_up:
            if s.process in (-1, self.incarnation) and s.round > done.get(s.name, 0):
                s.release()
            else:
                self._made[s.name] = s.round
                self._keep(s)

    def _is_made(self, w: Work) -> bool:
        """Whether w contributes to a round that was made of what this worker had given up. It has ended then."""
        if not isinstance(w, Send) or self._made.get(w.name) != w.round:
            return False
        del self._made[w.name]
        w.release()
        w.done(RoundMadeError(f"KVStore.push: worker {self.client.rank}, key {self.client.key_names.get(w.key, w.key)}: round "
                              f"{w.round} was made after all, of what was pushed before and given up. This push does not count. "
                              f"Push again for the next round."))
        return True

    # ---- sending ----------------------------------------------------------------------------------------------------------
    def queue(self, w: Work, priority: int) -> None:
        if self.lost is not None:
            w.done(self.lost)
            return
        if self._is_made(w):
            return
        w.started, w.priority = time.monotonic(), priority
        w.restart()
        self._queue.append(w)

    def ask(self, op: Op, records: Sequence[Record], payload: bytes, future: Future[list[Any]]) -> None:
        ask = _Ask(op, records, payload, future, [])
        if self.lost is not None:
            future.set_exception(self.lost)
        elif self.ready:
            self._put_ask(ask)
        else:
            self._to_ask.append(ask)

    def _put_ask(self, ask: _Ask) -> None:
        self._seq += 1
        self._asked[self._seq] = ask
        self._put(encode(ask.op, ask.records, len(ask.payload), rank=self.client.rank, seq=self._seq), ask.payload)

    def flush(self) -> None:
        """Hand over what the socket takes: the highest priority first, small contributions together."""
        if not self.ready:
            return
        small: list[Send] = []
        fetches: list[Fetch] = []
        room = CHUNK
        while self._queue:
            w = self._queue.popleft()
            if isinstance(w, Fetch):
                if type(w) is FetchRows:
                    self._fetch([w], Op.PULL_ROWS, w.numbers.tobytes())
                else:
                    fetches.append(w)
                continue
            assert isinstance(w, Send)
            self._sent[*w.name, w.round] = w
            nbytes = 0 if w.place is not None else w.data.nbytes
            if w.fill or w.threshold or nbytes > RUN or type(w) is SendRows:
                self._encode([w], w.priority)
                continue
            if nbytes > room or len(small) >= MOST_RECORDS or (small and small[0].priority > w.priority and nbytes > CHUNK // 64):
                self._encode(small, small[0].priority)
                small, room = [], CHUNK
            small.append(w)
            room -= nbytes
        if small:
            self._encode(small, small[0].priority)
        for i in range(0, len(fetches), MOST_RECORDS):
            self._fetch(fetches[i:i + MOST_RECORDS])
        self._drain()

    def _drain(self) -> None:
        """Send until the socket is full; the rest goes when it is writable."""
        assert self.socket is not None
        while self._runs:
            _, _, head, payload = self._runs[0]
            if self._lane is not None:
                if self._lane.full:
                    break
                heapq.heappop(self._runs)
                self._put_on_lane(head, payload)
                continue
            self.client.stirred = True
            try:
                self.socket.send(head, zmq.SNDMORE | zmq.NOBLOCK)
            except zmq.Again:
                break
            self.socket.send(payload, copy=len(payload) < sockets.COPIED)
            heapq.heappop(self._runs)

    def _push_run(self, priority: float, head: bytes, payload: Any) -> None:
        heapq.heappush(self._runs, (-priority, next(self._order), head, payload))

    def _fetch(self, fetches: Sequence[Fetch], op: Op = Op.PULL, payload: bytes = b"") -> None:
        self._seq += 1
        self._fetching[self._seq] = {f.name: f for f in fetches}
        records = [Record(*f.name, 0, 0, f.round, reply_segment=f.reply[0], reply_at=f.reply[1]) for f in fetches]
        self._push_run(fetches[0].priority, encode(op, records, len(payload), rank=self.client.rank, seq=self._seq), payload)

    def _encode(self, sends: Sequence[Send], priority: float, want: bool = True) -> None:
        """As one frame if the records fit in one, else a frame for each run."""
        op, flags = (Op.FILL, 0) if sends[0].fill else (Op.PUSH, WANT if want else 0)
        op = Op.PUSH_ROWS if type(sends[0]) is SendRows else op
        runs = [run for s in sends for run in s.runs()]
        self._seq += 1
        for s in sends:
            s.seq = self._seq
            s.process = self.incarnation if s.process < 0 else s.process
        more = {"flags": flags, "rank": self.client.rank, "seq": self._seq}
        if len(sends) == 1 and len(runs) > 1:
            for r, data in runs:
                self._push_run(priority, encode(op, [r], len(data), **more), data)
            return
        pieces = [data for _, data in runs if data is not None]
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._push_run(priority, encode(op, [r for r, _ in runs], len(payload), **more), payload)

    def _put(self, head: bytes, payload: Any) -> None:
        """Send past everything that waits."""
        self._push_run(_FIRST, head, payload)
        self._drain()

    # ---- receiving ----------------------------------------------------------------------------------------------------------
    @property
    def away(self) -> bool:
        """Whether there is no server: the coordinator says so, or is away, too. Connections are made anew without that."""
        return not self.ready and (self._down or self.client.control.lost is not None)

    @property
    def busy(self) -> bool:
        """Whether something was sent, or waits to be, and is not answered."""
        return bool(self._sent or self._queue or self._runs)

    def news(self) -> bool:
        """Whether there is something to receive, or waiting runs can be sent."""
        if self.socket is None:
            return False
        return sockets.readable(self.socket) or bool(self._runs and self._lane is None and self.socket.poll(0, zmq.POLLOUT))

    def turn(self, told: bool) -> None:
        """Take what has come; from the ZeroMQ socket if told to look."""
        if told and self.socket is not None:
            for parts in sockets.receive(self.socket):
                if len(parts) == 2:
                    self._hear(parts[0].buffer, parts[1].buffer)
        if self._lane is not None:
            self._turn_lane()

    def _hear(self, head: Any, payload: Any) -> None:
        try:
            frame = decode(head, payload)
        except FrameError as e:
            _log.warning("kvstore: server %d sent no frame: %s", self.index, e)
            return
        self._take(frame)

    def _take(self, frame: Any) -> None:
        if frame.op is Op.WELCOME:
            self._welcome(frame)
        elif frame.op is Op.ANSWER and frame.seq in self._fetching:
            self._take_fetched(frame)
        elif frame.op is Op.REFUSED:
            self._take_refusal(frame)
        elif frame.seq in self._asked:
            ask = self._asked[frame.seq]
            ask.answers.append((frame, bytes(frame.payload)))
            if frame.op is not Op.STATES:
                del self._asked[frame.seq]
                ask.future.set_result(ask.answers)
        elif frame.op is Op.ANSWER:
            self._take_answers(frame)

    def _take_answers(self, frame: Any) -> None:
        at, on_disk = 0, {}
        for r in frame.records:
            if self.durable:
                on_disk[r.key, r.part] = r.at
            s = self._sent.get((r.key, r.part, r.round))
            s = s if s is not None and frame.seq in (0, s.seq) else None
            if r.segment == INLINE:
                if s is not None and s.out is not None:
                    _store(s, r, frame.payload, at)
                at += r.nbytes
            elif s is not None and (r.reply_segment, r.reply_at) == s.reply:  # else it was sent again: that answer has the value
                s.left = s.left - r.n if s.fill else 0
            if s is not None and s.left <= 0:
                del self._sent[r.key, r.part, r.round]
                self._keep(s)
                s.together = ()
                s.done(None)
        if self.durable:
            self._drop_kept(on_disk)

    def _take_fetched(self, frame: Any) -> None:
        fetches, at = self._fetching[frame.seq], 0
        for r in frame.records:
            f = fetches.get((r.key, r.part))
            if r.segment == INLINE:
                if f is not None:
                    _store(f, r, frame.payload, at)
                at += r.nbytes
            elif f is not None:
                f.left = 0
            if f is not None and f.left <= 0:
                del fetches[f.name]
                f.done(None)
        if not fetches:
            del self._fetching[frame.seq]

    def _take_refusal(self, frame: Any) -> None:
        m = unpack(frame.payload)
        text, dead = str(m["text"]), {int(r): str(why) for r, why in m["gone"].items()}
        self.client.control.heard_of(dead, m["generation"])
        if frame.seq in self._asked:
            keys = "".join(f"key {self.client.key_names.get(r.key, r.key)}: " for r in frame.records[:1])
            self._asked.pop(frame.seq).future.set_exception(KVStoreError(f"KVStore: server {self.index}: {keys}{text}."))
            return
        fetches = self._fetching.get(frame.seq) if frame.seq else None
        if fetches is not None:
            for f in [fetches.pop(name) for r in frame.records if (name := (r.key, r.part)) in fetches]:
                f.done(self.client.explain(text, dead, f))
            if not fetches:
                del self._fetching[frame.seq]
            return
        for r in frame.records:
            s = self._sent.get((r.key, r.part, r.round))
            if s is not None and frame.seq in (0, s.seq):  # else another run of an earlier one, which has ended
                del self._sent[r.key, r.part, r.round]
                if m.get("made"):
                    self._keep(s)
                    text = f"{text}. This push counts; pull the value"
                elif dead and self.durable and s.process != self.incarnation:
                    self._insist(s)
                else:
                    s.release()
                error = self.client.explain(text, dead, s)
                error.made = bool(m.get("made"))
                s.fail(error, time.monotonic())

    # ---- keeping what may be lost -------------------------------------------------------------------------------------------
    def _insist(self, s: Send) -> None:
        """It may be in a round of the shard's last process, which others have heard of: it counts, whoever has died since."""
        self._made[s.name] = s.round
        self._keep(s)
        if self._kept[s.name] and self._kept[s.name][-1] is s:
            self._encode([s], _FIRST, want=False)

    def _keep(self, s: Send) -> None:
        kept = self._kept.setdefault(s.name, deque())
        if s.fill or not self.durable or (kept and kept[-1].round >= s.round):  # of two, one given up, the first has counted
            s.release()
            return
        kept.append(s)
        self._kept_bytes += s.data.nbytes
        if self._kept_bytes > self._cap and not self._saving and self.ready:
            self._saving = True  # never dropped: written, and then dropped
            self._put(encode(Op.SAVE, [], 0, rank=self.client.rank), b"")

    def _drop_kept(self, on_disk: dict[tuple[int, int], int]) -> None:
        self._on_disk.update(on_disk)
        for name, version in on_disk.items():
            kept = self._kept.get(name)
            while kept and kept[0].round <= version:
                s = kept.popleft()
                self._kept_bytes -= s.data.nbytes
                s.release()

    def check(self, now: float) -> None:
        """Say who is missing when something takes long; end what takes too long. A lost connection is made anew."""
        if self.socket is not None and list(self._watch.lost()):
            self.connect(self._where)
        if not (self._sent or self._fetching or self._queue):
            return
        c = self.client
        doomed = [s for s in self._sent.values() if s.doomed is not None and now - s.doomed[0] > _DOOMED]
        if doomed:  # others may wait for what was refused, and this worker can repeat that only once these have ended
            self._give_up(doomed)
        pending = self._pending()
        if not pending:
            return
        oldest = min(w.started for w in pending)
        if now - oldest > c.stall and now - self._warned > c.stall:
            self._warned = now
            _log.warning("kvstore: worker %d has waited %.0f s for server %d: %s%s", c.rank, now - oldest, self.index,
                         ", ".join(f"key {c.key_names.get(w.key, w.key)} round {getattr(w, 'round', 0)}" for w in pending[:5]),
                         "" if self.ready else "; the server is away")
            self._ask_missing([w for w in pending if isinstance(w, Send) or c.kind == "async"][:5])
        if now - oldest > c.timeout:
            error = KVStoreError(f"KVStore: worker {c.rank}: key {c.key_names.get(pending[0].key, pending[0].key)} was not "
                                 f"answered within {c.timeout:.0f} s. TRITIUM_KV_TIMEOUT sets the limit.")
            for w in pending:
                w.doomed = now, error
            self._give_up([w for w in pending if isinstance(w, Send)])
            self.fail(error)

    def _pending(self) -> list[Work]:
        return [*self._sent.values(), *(f for fs in self._fetching.values() for f in fs.values()), *self._queue]

    def _give_up(self, sends: Sequence[Send]) -> None:
        """End contributions that may count, or not, with the error that dooms them. The connection is cut, and the next welcome
        tells which of them did; no other will."""
        for s in sends:
            self._sent.pop((*s.name, s.round), None)
            if s in self._queue:
                self._queue.remove(s)
            if not s.fill:
                self._given_up.append(s)
            assert s.doomed is not None
            s.done(s.doomed[1])
        if self.socket is not None:
            self.connect(self._where)

    def _ask_missing(self, sends: Sequence[Work]) -> None:
        if not self.ready or not sends:
            return
        future: Future[list[Any]] = Future()
        names = {f"{s.key}.{s.part}": self.client.key_names.get(s.key, s.key) for s in sends}

        def tell(f: Future[list[Any]]) -> None:
            if f.exception() is None:
                for name, (n, ranks) in json.loads(f.result()[0][1]).items():
                    _log.warning("kvstore: key %s round %d waits for workers %s", names.get(name), n, ranks)

        future.add_done_callback(tell)
        self.ask(Op.MISSING, [Record(*s.name, 0, 0, 0) for s in sends], b"", future)

    def end(self, error: KVStoreError) -> None:
        """Nothing can be done here any more, because of error."""
        self.lost = error
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End everything under way with error."""
        work = self._pending()
        self._sent, self._fetching = {}, {}
        self._queue.clear()
        self._runs = []
        for w in work:
            w.done(error)
        asked = [*self._asked.values(), *self._to_ask]
        self._asked, self._to_ask = {}, []
        for ask in asked:
            ask.future.set_exception(error)
        if not self.welcomed.done():
            self.welcomed.set_exception(error)


def _store(w: Work, r: Record, payload: memoryview, at: int) -> None:
    """Put one run of a value where it belongs."""
    out = w.out
    if out is None or r.offset + r.n > len(out) or r.nbytes != r.n * out.itemsize:
        return
    out[r.offset:r.offset + r.n] = np.frombuffer(payload, out.dtype, r.n, at)
    w.left -= r.n
