"""RemoteServer: a server as a worker sees it. It turns requests into frames and frames into answers, and checks deadlines.

`Session` keeps the contributions, `ServerConnection` moves the bytes. Used where the event loop's sockets may be used.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import environment
from ...errors import DeadWorkerError, FrameError, KVStoreError, RoundMadeError
from ..protocol.session import Action, Name, Session, ValuesLostError, Verb
from ..wire.frame import (
    CHUNK,
    INLINE,
    MOST_RECORDS,
    RUN,
    WANT_VALUE,
    FrameType,
    Record,
    WireFrame,
    decode,
    encode,
    pack,
    unpack,
)
from .requests import Pull, PullRows, Push, PushRows, Request
from .server_connection import ServerConnection

if TYPE_CHECKING:
    from .client import Client

_log = logging.getLogger(__name__)
_URGENT = float("inf")  # priority of messages that must not wait
_GROUP_DEADLINE = 1.0  # seconds after which a push is abandoned because another one of its call has failed


class _Question(NamedTuple):
    """A request outside the order of keys, which may be sent again. answers: those received, if there is more than one frame."""

    type: FrameType
    records: Sequence[Record]
    payload: bytes
    future: Future[list[Any]]
    answers: list[Any]


class RemoteServer:
    """Server `index`.

    ready:       the handshake is complete.
    shared:      it reads this worker's shared memory.
    handshaken:  completes with the first handshake.
    lost:        the error that ends every request; None: the server is usable.
    """

    def __init__(self, client: Client, index: int):
        self.index, self.ready, self.shared = index, False, False
        self.handshaken: Future[None] = Future()
        self.lost: KVStoreError | None = None
        self.session: Session[Push] = Session(environment.KV_RETAIN_BYTES.get())
        self.connection = ServerConnection(client, self._on_message, self._on_lost)
        self._client = client
        self.incarnation = -1  # of the server process
        self._queue: deque[Request] = deque()
        self._pulls: dict[int, dict[Name, Pull]] = {}  # seq -> name -> pull that is sent
        self._questions: dict[int, _Question] = {}  # seq -> question that is sent
        self._unasked: list[_Question] = []  # questions that wait for the handshake
        self._handshake_records: list[Record] = []  # of an incomplete answer to a handshake
        self._seq = 0
        self._warned = 0.0
        client.loop.connections.append(self)

    # ---- connecting -------------------------------------------------------------------------------------------------------
    @property
    def _location(self) -> dict[str, Any]:
        return self._client.coordinator.locations[self.index]

    def moved(self, reconnect: bool = False) -> None:
        """Handle news of the server: it is away, or runs in a new process. reconnect: connect again in any case."""
        if self.lost is not None:
            return
        if self._location["down"]:
            self.disconnect()
        elif reconnect or self._location["incarnation"] != self.incarnation or self.connection.stream is None:
            self.reconnect()

    def _on_lost(self) -> None:
        """Connect again: at once if the connection was in use, otherwise at the next check."""
        ready = self.ready
        self.disconnect()
        if ready and self.lost is None:
            self.reconnect()

    def reconnect(self) -> None:
        """Connect again, and send again what is not answered."""
        self.disconnect()
        self.incarnation = self._location["incarnation"]
        self.connection.open(self._location)
        self._seq += 1
        self._send(FrameType.HANDSHAKE, [], pack({"probe": self._client.probe}))

    def disconnect(self) -> None:
        """Close the connection. Everything waits until there is a new one."""
        self.ready, self._handshake_records = False, []
        self.connection.close()
        for question in self._questions.values():
            question.answers.clear()
        self._unasked += self._questions.values()
        self._questions.clear()

    @property
    def away(self) -> bool:
        """True if the server is away as far as the coordinator knows, or the coordinator is away, too."""
        return not self.ready and (self._location["down"] or self._client.coordinator.lost_since is not None)

    @property
    def busy(self) -> bool:
        """True while a push is not answered, or anything waits to be sent."""
        return bool(self.session.sent or self._queue or self.connection.pending)

    def _on_handshake_reply(self, frame: WireFrame) -> None:
        """Send again what the server does not have, in order. The answer to SAVE has the same form."""
        text = unpack(frame.payload)
        self._handshake_records += frame.records
        if text.get("more"):
            return
        records, self._handshake_records = self._handshake_records, []
        try:
            self._execute(self.session.on_disk({r.name: r.at for r in records}, complete=True))
        except ValuesLostError:
            self.end(KVStoreError(f"KVStore: server {self.index} restarted without its snapshots. If servers may move to another "
                                  f"machine, TRITIUM_KV_SNAPSHOT_DIR must be a folder that all machines see."))
            return
        if "shared" not in text:
            if frame.seq in self._questions:
                self._questions.pop(frame.seq).future.set_result(records)
            return
        self.shared, self.ready = bool(text["shared"]), True
        try:
            actions = self.session.handshake(self.incarnation, bool(text["durable"]), {r.name: r.round for r in records})
        except ValuesLostError:
            self.end(KVStoreError(f"KVStore: server {self.index} died, and its values are lost: the job keeps no snapshots. "
                                  f"Start it with TRITIUM_KV_SNAPSHOT_ROUNDS=10."))
            return
        if not self.handshaken.done():
            self.handshaken.set_result(None)
            return
        self._execute(actions)
        requests = [*self.session.take_sent(), *self._sent_pulls(), *self._queue]
        self._pulls = {}
        self._queue.clear()
        for r in requests:
            self._enqueue(r)
        unasked, self._unasked = self._unasked, []
        for question in unasked:
            self._put_question(question)

    def _execute(self, actions: Sequence[Action[Push]]) -> None:
        """Carry out what the session wants."""
        for verb, push in actions:
            if verb is Verb.RELEASE:
                push.release()
            elif verb is Verb.RESEND:
                self._send_pushes([push], _URGENT, want_value=False)
            elif verb is Verb.SAVE:
                self._send(FrameType.SAVE, [], b"", seq=0)
            else:
                push.end(RoundMadeError(
                    f"KVStore.push: worker {self._client.rank}, key {self._client.name_of(push.key)}: round {push.round} already "
                    f"includes an earlier push that had been reported as failed. This push was not applied; push again for round "
                    f"{push.round + 1}."))

    # ---- sending ----------------------------------------------------------------------------------------------------------
    def submit(self, request: Request, priority: int) -> None:
        if self.lost is not None:
            request.end(self.lost)
            return
        request.started, request.priority = time.monotonic(), priority
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        request.left = request.size
        if isinstance(request, Push):
            actions = self.session.submit(request)
            if actions:
                self._execute(actions)
                return
        self._queue.append(request)

    def ask(self, type: FrameType, records: Sequence[Record], payload: bytes, future: Future[list[Any]]) -> None:
        """Send a request outside the order of keys. future: gets the answers, or the records of a HANDSHAKE_REPLY."""
        question = _Question(type, records, payload, future, [])
        if self.lost is not None:
            future.set_exception(self.lost)
        elif self.ready:
            self._put_question(question)
        else:
            self._unasked.append(question)

    def _put_question(self, question: _Question) -> None:
        self._seq += 1
        self._questions[self._seq] = question
        self._send(question.type, question.records, question.payload)

    def flush(self) -> None:
        """Encode the queue and send as much as the socket accepts: small pushes together, the highest priority first."""
        if not self.ready:
            self.connection.flush()  # the handshake
            return
        small: list[Push] = []
        pulls: list[Pull] = []
        room = CHUNK
        while self._queue:
            r = self._queue.popleft()
            if isinstance(r, PullRows):
                self._send_pulls([r], FrameType.PULL_ROWS, r.rows.tobytes())
                continue
            if isinstance(r, Pull):
                pulls.append(r)
                continue
            assert isinstance(r, Push)
            self.session.send(r)
            nbytes = 0 if r.place is not None else r.nbytes
            if r.initial or r.threshold or nbytes > RUN or isinstance(r, PushRows):
                self._send_pushes([r], r.priority)
                continue
            if nbytes > room or len(small) >= MOST_RECORDS or (small and small[0].priority > r.priority and nbytes > CHUNK // 64):
                self._send_pushes(small, small[0].priority)
                small, room = [], CHUNK
            small.append(r)
            room -= nbytes
        if small:
            self._send_pushes(small, small[0].priority)
        for i in range(0, len(pulls), MOST_RECORDS):
            self._send_pulls(pulls[i:i + MOST_RECORDS])
        self.connection.flush()

    def _send_pulls(self, pulls: Sequence[Pull], type: FrameType = FrameType.PULL, payload: bytes = b"") -> None:
        self._seq += 1
        self._pulls[self._seq] = {p.name: p for p in pulls}
        records = [Record(*p.name, 0, 0, p.round, reply_segment=p.reply[0], reply_at=p.reply[1]) for p in pulls]
        self._put(pulls[0].priority, type, records, payload)

    def _send_pushes(self, pushes: Sequence[Push], priority: float, want_value: bool = True) -> None:
        """Send pushes in one frame if they have one run each, otherwise in a frame for each run."""
        type, flags = (FrameType.INITIALIZE, 0) if pushes[0].initial else (FrameType.PUSH, WANT_VALUE if want_value else 0)
        type = FrameType.PUSH_ROWS if isinstance(pushes[0], PushRows) else type
        runs = [run for p in pushes for run in p.runs()]
        self._seq += 1
        self.session.number(pushes, self._seq)
        if len(pushes) == 1 and len(runs) > 1:
            for r, data in runs:
                self._put(priority, type, [r], data, flags)
            return
        pieces = [data for _, data in runs if data is not None]
        self._put(priority, type, [r for r, _ in runs], pieces[0] if len(pieces) == 1 else b"".join(pieces), flags)

    def _put(self, priority: float, type: FrameType, records: Sequence[Record], payload: Any, flags: int = 0,
             seq: int | None = None) -> None:
        seq = self._seq if seq is None else seq
        head = encode(type, records, len(payload), flags=flags, rank=self._client.rank, seq=seq)
        self.connection.put(priority, head, payload)

    def _send(self, type: FrameType, records: Sequence[Record], payload: bytes, seq: int | None = None) -> None:
        """Send a frame before everything that waits."""
        self._put(_URGENT, type, records, payload, seq=seq)
        self.connection.flush()

    def close(self) -> None:
        self.connection.close()

    # ---- receiving ----------------------------------------------------------------------------------------------------------
    def _on_message(self, head: Any, payload: Any) -> None:
        try:
            frame = decode(head, payload)
        except FrameError as e:
            _log.warning("kvstore: server %d sent an invalid frame: %s", self.index, e)
            return
        if frame.type is FrameType.HANDSHAKE_REPLY:
            self._on_handshake_reply(frame)
        elif frame.type is FrameType.REJECTED:
            self._on_rejection(frame)
        elif frame.seq in self._questions:
            question = self._questions[frame.seq]
            question.answers.append((frame, bytes(frame.payload)))
            if frame.type is not FrameType.STATES:
                del self._questions[frame.seq]
                question.future.set_result(question.answers)
        elif frame.type is FrameType.ANSWER:
            self._on_answer(frame)

    def _on_answer(self, frame: WireFrame) -> None:
        """Store values, and end the pulls and pushes whose answers are complete."""
        pulls, at, on_disk = self._pulls.get(frame.seq), 0, {}
        for r in frame.records:
            if self.session.durable:
                on_disk[r.name] = r.at
            push = self.session.find(r.name, r.round, frame.seq) if pulls is None else None
            request = push if pulls is None else pulls.get(r.name)
            if r.segment == INLINE:
                if request is not None:
                    request.store(r, frame.payload, at)
                at += r.nbytes
            elif push is not None and push.initial:
                push.left -= r.n
            elif request is not None and (push is None or (r.reply_segment, r.reply_at) == push.reply):  # else it was sent again
                request.left = 0
            if request is None or request.left > 0:
                continue
            if push is not None:
                self._execute(self.session.acknowledge(push))
            elif pulls is not None:
                del pulls[r.name]
            request.end()
        if pulls is not None and not pulls:
            del self._pulls[frame.seq]
        self._execute(self.session.on_disk(on_disk))

    def _on_rejection(self, frame: WireFrame) -> None:
        m = unpack(frame.payload)
        text, dead, applied = str(m["text"]), {int(r): str(why) for r, why in m["gone"].items()}, bool(m.get("made"))
        self._client.coordinator.learn_gone(dead, m["generation"])
        if frame.seq in self._questions:
            keys = "".join(f"key {self._client.name_of(r.key)}: " for r in frame.records[:1])
            self._questions.pop(frame.seq).future.set_exception(KVStoreError(f"KVStore: server {self.index}: {keys}{text}."))
            return
        pulls = self._pulls.get(frame.seq) if frame.seq else None
        if pulls is not None:
            for pull in [pulls.pop(r.name) for r in frame.records if r.name in pulls]:
                pull.end(self.explain(text, dead, pull))
            if not pulls:
                del self._pulls[frame.seq]
            return
        for r in frame.records:
            push = self.session.find(r.name, r.round, frame.seq)
            if push is not None:  # otherwise a run of one that has ended
                self._execute(self.session.reject(push, applied=applied, dead=bool(dead)))
                error = self.explain(f"{text}. The push was applied; pull the value" if applied else text, dead, push)
                error.made = applied
                push.group.failing = push.group.failing or (time.monotonic(), error)
                push.end(error)

    def explain(self, text: str, dead: Mapping[int, str], request: Request) -> KVStoreError:
        """Return the error of a rejected request, with worker, key and round."""
        subject = f"KVStore.{'push' if isinstance(request, Push) else 'pull'}: worker {self._client.rank}, key " \
                  f"{self._client.name_of(request.key)}"
        if isinstance(request, Push):
            subject += f", round {request.round}"
        if dead:
            return DeadWorkerError(f"{subject}: {text}. Push again when a replacement has joined, or start the job with policy "
                                   f"'wait' or 'shrink'.")
        return KVStoreError(f"{subject}: {text}.")

    # ---- deadlines --------------------------------------------------------------------------------------------------------
    def check(self, now: float) -> None:
        """Connect again if there is no connection. Report requests that take long, and end those that take too long."""
        if self.connection.stream is None and self.lost is None and not self._location["down"]:
            self.reconnect()
        failing = [(p, p.group.failing[1]) for p in self.session.sent
                   if p.group.failing is not None and now - p.group.failing[0] > _GROUP_DEADLINE]
        if failing:  # the caller can repeat the rejected pushes of the group only when these have ended
            self._abandon(failing)
        requests = [*self.session.sent, *self._sent_pulls(), *self._queue]
        if not requests:
            return
        timeouts, waited = self._client.timeouts, now - min(r.started for r in requests)
        if waited > timeouts.stall and now - self._warned > timeouts.stall:
            self._warned = now
            keys = ", ".join(f"key {self._client.name_of(r.key)} round {r.round}" for r in requests[:5])
            _log.warning("kvstore: worker %d has waited %.0f s for server %d: %s%s", self._client.rank, waited, self.index, keys,
                         "" if self.ready else "; the server is away")
            self._log_missing([r for r in requests if isinstance(r, Push) or self._client.kind == "async"][:5])
        if waited > timeouts.timeout:
            error = KVStoreError(f"KVStore: worker {self._client.rank}: server {self.index} did not answer for key "
                                 f"{self._client.name_of(requests[0].key)} within {timeouts.timeout:.0f} s. TRITIUM_KV_TIMEOUT "
                                 f"sets the limit.")
            self._abandon([(r, error) for r in requests if isinstance(r, Push)])
            self.fail(error)

    def _sent_pulls(self) -> list[Pull]:
        return [p for pulls in self._pulls.values() for p in pulls.values()]

    def _abandon(self, pushes: Sequence[tuple[Push, BaseException]]) -> None:
        """Fail pushes whose outcome is unknown. The next handshake, on a new connection, shows which of them were applied."""
        self.session.abandon([p for p, _ in pushes])
        for p, error in pushes:
            if p in self._queue:
                self._queue.remove(p)
            p.end(error)
        if self.connection.stream is not None:
            self.reconnect()

    def _log_missing(self, requests: Sequence[Request]) -> None:
        """Log which workers the rounds of requests wait for."""
        if not self.ready or not requests:
            return
        future: Future[list[Any]] = Future()
        names = {f"{r.key}.{r.index}": self._client.name_of(r.key) for r in requests}

        def log(answer: Future[list[Any]]) -> None:
            if answer.exception() is None:
                for name, (n, ranks) in json.loads(answer.result()[0][1]).items():
                    _log.warning("kvstore: key %s round %d waits for workers %s", names.get(name), n, ranks)

        future.add_done_callback(log)
        self.ask(FrameType.MISSING, [Record(*r.name, 0, 0, 0) for r in requests], b"", future)

    # ---- ending -----------------------------------------------------------------------------------------------------------
    def end(self, error: KVStoreError) -> None:
        """End every request, now and from now on, with error."""
        self.lost = error
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End every request in flight with error."""
        requests = [*self.session.end(), *self._sent_pulls(), *self._queue]
        questions = [*self._questions.values(), *self._unasked]
        self._pulls, self._questions, self._unasked = {}, {}, []
        self._queue.clear()
        self.connection.drop_waiting()
        for r in requests:
            r.end(error)
        for question in questions:
            question.future.set_exception(error)
        if not self.handshaken.done():
            self.handshaken.set_exception(error)
