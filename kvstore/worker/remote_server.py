"""RemoteServer: a server as a worker sees it. It connects, encodes requests, turns frames into answers, and watches deadlines.

Requests are encoded as late as possible: small pushes go together, the highest priority first. Everything is used where the event
loop's poller may be used.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import environment
from ...errors import DeadWorkerError, FrameError, KVStoreError, RoundMadeError
from ..protocol.session import Name, Session, ValuesLostError
from ..wire import sockets
from ..wire.frame import INLINE, LARGEST_MESSAGE, WANT_VALUE, FrameType, Record, WireFrame, decode, encode, pack, unpack
from ..wire.stream import Stream
from .requests import URGENT, Group, Push, Question, Request, in_frames

if TYPE_CHECKING:
    from .client import Client

_GROUP_DEADLINE = 1.0  # seconds after which a push is abandoned because another one of its call has failed
_log = logging.getLogger(__name__)


class RemoteServer:
    """Server `index`.

    ready:       the handshake is complete.
    shared:      it reads this worker's shared memory.
    handshaken:  completes with the first handshake.
    lost:        the error that ends every request; None: the server is usable.
    incarnation: of the server process.
    waiting:     requests that are not encoded.
    asked:       (number of a frame, name) -> the sent request that its answer is for. Pushes are in the session.
    """

    def __init__(self, client: Client, index: int):
        self.index, self.ready, self.shared, self.incarnation = index, False, False, -1
        self.handshaken: Future[None] = Future()
        self.lost: KVStoreError | None = None
        self.session: Session[Push] = Session(environment.KV_RETAIN_BYTES.get())
        self.stream: Stream | None = None
        self.waiting: deque[Request] = deque()
        self.asked: dict[tuple[int, Name], Request] = {}
        self._client, self._seq, self._warned = client, 0, 0.0
        client.loop.connections.append(self)

    # ---- connecting -------------------------------------------------------------------------------------------------------
    @property
    def location(self) -> dict[str, Any]:
        """Where the server is, as the coordinator describes it."""
        return self._client.coordinator.locations[self.index]

    @property
    def away(self) -> bool:
        """True if the server is away as far as the coordinator knows, or the coordinator is away, too."""
        return not self.ready and (self.location["down"] or self._client.coordinator.lost_since is not None)

    @property
    def busy(self) -> bool:
        """True while a push is not answered, or anything waits to be sent."""
        return bool(self.session.sent or self.waiting or (self.stream is not None and self.stream.full))

    def moved(self, reconnect: bool = False) -> None:
        """Handle news of the server: it is away, or runs in a new process. reconnect: connect again in any case."""
        if self.lost is not None:
            return
        if self.location["down"]:
            self.close()
        elif reconnect or self.location["incarnation"] != self.incarnation or self.stream is None:
            self.reconnect()

    def _on_lost(self, _: OSError) -> None:
        """Connect again: at once if the connection was in use, otherwise at the next check."""
        ready = self.ready
        self.close()
        if ready and self.lost is None:
            self.reconnect()

    def reconnect(self) -> None:
        """Connect again, and send again what is not answered."""
        self.close()
        client, location = self._client, self.location
        self.incarnation = location["incarnation"]
        try:
            self.stream = sockets.connect(client.loop.poller, location["address"], client.credentials, location["public"],
                                          LARGEST_MESSAGE, on_message=self._on_message, on_end=self._on_lost,
                                          on_large=self._on_large)
        except OSError:
            return  # `check` tries again
        self._put(URGENT, FrameType.HANDSHAKE, [], pack({"probe": client.probe}))

    def close(self) -> None:
        """Close the connection. Everything waits until there is a new one."""
        self.ready = False
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def _on_handshake_reply(self, frame: WireFrame) -> None:
        """Send again what the server does not have, in order. The answer to SAVE has the same form."""
        text = unpack(frame.payload)
        applied = {(key, index): round for key, index, round, _ in text["rounds"]}
        try:
            self.session.on_disk({(key, index): on_disk for key, index, _, on_disk in text["rounds"]}, complete=True)
            if "shared" not in text:
                question = self.asked.pop((frame.seq, Question.NAME), None)
                if isinstance(question, Question):
                    question.answers += applied.items()
                    question.end()
                return
            self.session.handshake(self.incarnation, bool(text["durable"]), applied)
        except ValuesLostError:
            why = "restarted without its snapshots. If servers may move to another machine, TRITIUM_KV_SNAPSHOT_DIR must be a " \
                  "folder that all machines see." if self.session.durable else \
                  "died, and its values are lost: the job keeps no snapshots. Start it with TRITIUM_KV_SNAPSHOT_ROUNDS=10."
            self.end(KVStoreError(f"KVStore: server {self.index} {why}"))
            return
        self.shared, self.ready = bool(text["shared"]), True
        if not self.handshaken.done():
            self.handshaken.set_result(None)
        for r in self._take_back():
            self._enqueue(r)

    def _take_back(self) -> list[Request]:
        """Remove and return what is not answered, in order: sent pushes, other sent requests, and what waits."""
        requests = [*self.session.take_sent(), *self.asked.values(), *self.waiting]
        self.asked.clear()
        self.waiting.clear()
        return requests

    # ---- sending ----------------------------------------------------------------------------------------------------------
    def submit(self, request: Request, priority: float) -> None:
        """Send a request as soon as its turn comes."""
        if self.lost is not None:
            request.end(self.lost)
            return
        request.started, request.priority = time.monotonic(), priority
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        if not isinstance(request, Push) or self.session.submit(request):
            self.waiting.append(request)

    def flush(self) -> None:
        """Do what follows from the last events, and encode everything that waits once the handshake is complete."""
        session = self.session
        while session.superseded:
            push = session.superseded.pop(0)
            push.end(RoundMadeError(
                f"KVStore.push: worker {self._client.rank}, key {self._client.name_of(push.name)}: round {push.round} already "
                f"includes an earlier push that had been reported as failed. This push was not applied; push again for round "
                f"{push.round + 1}."))
        if not self.ready:
            return
        if session.save:
            session.save = False
            self._put(URGENT, FrameType.SAVE, [], b"")
        again, session.again = session.again, []
        for push in again:
            self._put_requests([push], URGENT, 0)
        if self.waiting:
            requests = list(self.waiting)
            self.waiting.clear()
            for some in in_frames(requests):
                self._put_requests(some, some[0].priority, WANT_VALUE)

    def _put_requests(self, requests: Sequence[Request], priority: float, flags: int) -> None:
        pieces = [r.payload for r in requests if len(r.payload)]
        seq = self._put(priority, requests[0].type, [record for r in requests for record in r.records],
                        pieces[0] if len(pieces) == 1 else b"".join(pieces), flags)
        for r in requests:
            if isinstance(r, Push):
                self.session.send(r, seq)
            else:
                self.asked[seq, r.name] = r

    def _put(self, priority: float, type: FrameType, records: Sequence[Record], payload: Any, flags: int = 0) -> int:
        """Send a frame. Returns its number."""
        self._seq += 1
        if self.stream is not None:
            head = encode(type, records, len(payload), flags=flags, rank=self._client.rank, seq=self._seq)
            self.stream.put(head, payload, priority)
        return self._seq

    # ---- receiving ----------------------------------------------------------------------------------------------------------
    def _on_message(self, head: Any, payload: Any) -> None:
        try:
            frame = decode(head, payload)
        except FrameError as e:
            _log.warning("kvstore: server %d sent an invalid frame: %s", self.index, e)
            return
        question = self.asked.get((frame.seq, Question.NAME))
        if frame.type is FrameType.HANDSHAKE_REPLY:
            self._on_handshake_reply(frame)
        elif frame.type is FrameType.REJECTED:
            self._on_rejection(frame)
        elif isinstance(question, Question):
            question.answers.append((frame, frame.payload))
            if frame.type is not FrameType.STATES:
                del self.asked[frame.seq, Question.NAME]
                question.end()
        elif frame.type is FrameType.ANSWER:
            self._on_answer(frame)

    def _on_large(self, head: bytes, size: int) -> memoryview | None:
        """Return the place of a large payload: where its value is wanted. States of an optimizer may have any size."""
        try:
            frame = decode(head, size=size)
        except FrameError:
            return None
        if frame.type in (FrameType.STATES, FrameType.HANDSHAKE_REPLY):
            return np.empty(size, np.uint8).data
        request = self._find(frame.seq, frame.records[0]) if frame.type is FrameType.ANSWER and len(frame.table) == 1 else None
        out = None if request is None else request.out
        return out.view(np.uint8).data if out is not None and out.nbytes == size else None

    def _find(self, seq: int, r: Record) -> Request | None:
        """Return the sent request that a record of the answer with a number refers to."""
        return self.asked.get((seq, r.name)) or self.session.find(r.name, r.round, seq)

    def _on_answer(self, frame: WireFrame) -> None:
        """Store values, and end the pulls and pushes that are answered."""
        at, on_disk = 0, {}
        for r in frame.records:
            if self.session.durable:
                on_disk[r.name] = r.at
            request = self._find(frame.seq, r)
            if request is None:
                self.session.applied(r.name, r.round)
            if r.segment == INLINE:
                wanted = request is not None and request.store(r, frame.payload, at)
                at += r.nbytes
            else:  # otherwise it was sent again
                wanted = not isinstance(request, Push) or r.reply == request.reply
            if request is None or not wanted:
                continue
            if isinstance(request, Push):
                self.session.acknowledge(request)
            else:
                del self.asked[frame.seq, r.name]
            request.end()
        self.session.on_disk(on_disk)

    def _on_rejection(self, frame: WireFrame) -> None:
        m = unpack(frame.payload)
        text, dead, applied = str(m["text"]), {int(r): str(why) for r, why in m["gone"].items()}, bool(m.get("made"))
        self._client.coordinator.learn_gone(dead, m["generation"])
        question = self.asked.pop((frame.seq, Question.NAME), None)
        if question is not None:
            keys = "".join(f"key {self._client.name_of(r.name)}: " for r in frame.records[:1])
            question.end(KVStoreError(f"KVStore: server {self.index}: {keys}{text}."))
            return
        for r in frame.records:
            request = self._find(frame.seq, r)
            if isinstance(request, Push):
                self.session.reject(request, applied=applied, dead=bool(dead))
                error = self.explain(f"{text}. The push was applied; pull the value" if applied else text, dead, request)
                error.made = applied
                request.group.failing = request.group.failing or (time.monotonic(), error)
                request.end(error)
            elif request is not None:
                del self.asked[frame.seq, r.name]
                request.end(self.explain(text, dead, request))

    def explain(self, text: str, dead: Mapping[int, str], request: Request) -> KVStoreError:
        """Return the error of a rejected request, with worker, key and round."""
        push = isinstance(request, Push)
        subject = f"KVStore.{'push' if push else 'pull'}: worker {self._client.rank}, key {self._client.name_of(request.name)}" \
                  f"{f', round {request.round}' if push else ''}: {text}."
        if dead:
            return DeadWorkerError(f"{subject} Push again when a replacement has joined, or start the job with policy 'wait' or "
                                   f"'shrink'.")
        return KVStoreError(subject)

    # ---- deadlines --------------------------------------------------------------------------------------------------------
    def check(self, now: float) -> None:
        """Connect again if there is no connection. Report requests that take long, and end those that take too long."""
        client = self._client
        if self.stream is None and self.lost is None and not self.location["down"]:
            self.reconnect()
        failing = [(p, p.group.failing[1]) for p in self.session.sent
                   if p.group.failing is not None and now - p.group.failing[0] > _GROUP_DEADLINE]
        if failing:  # the caller can repeat the rejected pushes of the group only when these have ended
            self._abandon(failing)
        requests = [r for r in (*self.session.sent, *self.asked.values(), *self.waiting) if not isinstance(r, Question)]
        if not requests:
            return
        waited = now - min(r.started for r in requests)
        if waited > client.stall and now - self._warned > client.stall:
            self._warned = now
            keys = ", ".join(f"key {client.name_of(r.name)} round {r.round}" for r in requests[:5])
            _log.warning("kvstore: worker %d has waited %.0f s for server %d: %s%s", client.rank, waited, self.index, keys,
                         "" if self.ready else "; the server is away")
            self._log_missing([r for r in requests if isinstance(r, Push) or client.kind == "async"][:5])
        if waited > client.timeout:
            error = KVStoreError(f"KVStore: worker {client.rank}: server {self.index} did not answer for key "
                                 f"{client.name_of(requests[0].name)} within {client.timeout:.0f} s. TRITIUM_KV_TIMEOUT sets "
                                 f"the limit.")
            self._abandon([(r, error) for r in requests if isinstance(r, Push)])
            self._fail(error)

    def _abandon(self, pushes: Sequence[tuple[Push, BaseException]]) -> None:
        """Fail pushes whose outcome is unknown. The next handshake, on a new connection, shows which of them were applied."""
        self.session.abandon([p for p, _ in pushes])
        for p, error in pushes:
            if p in self.waiting:
                self.waiting.remove(p)
            p.end(error)
        if self.stream is not None:
            self.reconnect()

    def _log_missing(self, requests: Sequence[Request]) -> None:
        if not self.ready or not requests:
            return
        names = {"{}.{}".format(*r.name): self._client.name_of(r.name) for r in requests}

        question = Question(self.index, FrameType.MISSING, [Record(*r.name, 0, 0, 0) for r in requests])

        def log(error: BaseException | None) -> None:
            for name, (n, ranks) in unpack(question.answers[0][1]).items() if error is None else ():
                _log.warning("kvstore: key %s round %d waits for workers %s", names.get(name), n, ranks)

        question.group = Group(1, log)
        self.submit(question, URGENT)

    def end(self, error: KVStoreError) -> None:
        """End every request, now and from now on, with error."""
        self.lost = error
        self.close()
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        for r in (*self.session.superseded, *self._take_back()):
            r.end(error)
        self.session.superseded.clear()
        if not self.handshaken.done():
            self.handshaken.set_exception(error)
