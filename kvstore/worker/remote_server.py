"""RemoteServer: a server as a worker sees it. It carries out handshakes, and turns frames into answers.

`Session` keeps the contributions. Three classes are around it: `RequestQueue` encodes, `ServerConnection` moves the bytes, and
`Retry` watches deadlines. They are used where the event loop's poller may be used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import environment
from ...errors import DeadWorkerError, FrameError, KVStoreError, RoundMadeError
from ..protocol.session import Action, Session, ValuesLostError, Verb
from ..wire.frame import (
    INLINE,
    FrameType,
    Record,
    WireFrame,
    decode,
    pack,
    unpack,
)
from .request_queue import URGENT, RequestQueue
from .requests import Pull, Push, Request
from .retry import Retry
from .server_connection import ServerConnection

if TYPE_CHECKING:
    from .client import Client

_log = logging.getLogger(__name__)


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
        self.queue = RequestQueue(self.session, self.connection, client.rank)
        self._retry = Retry(client, self)
        self._questions: dict[int, _Question] = {}  # seq -> question that is sent
        self._unasked: list[_Question] = []  # questions that wait for the handshake
        self._handshake_records: list[Record] = []  # of an incomplete answer to a handshake
        client.loop.connections.append(self)

    # ---- connecting -------------------------------------------------------------------------------------------------------
    @property
    def location(self) -> dict[str, Any]:
        """Where the server is, as the coordinator describes it."""
        return self._client.coordinator.locations[self.index]

    def moved(self, reconnect: bool = False) -> None:
        """Handle news of the server: it is away, or runs in a new process. reconnect: connect again in any case."""
        if self.lost is not None:
            return
        if self.location["down"]:
            self.disconnect()
        elif reconnect or self.location["incarnation"] != self.incarnation or self.connection.stream is None:
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
        self.incarnation = self.location["incarnation"]
        self.connection.open(self.location)
        self.queue.number()
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
        return not self.ready and (self.location["down"] or self._client.coordinator.lost_since is not None)

    @property
    def busy(self) -> bool:
        """True while a push is not answered, or anything waits to be sent."""
        return bool(self.session.sent or self.queue.waiting or self.connection.pending)

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
        for r in self.queue.take_back():
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
                self.queue.send_pushes([push], URGENT, want_value=False)
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
        self.queue.waiting.append(request)

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
        self._questions[self.queue.number()] = question
        self._send(question.type, question.records, question.payload)

    def flush(self) -> None:
        """Send what waits, as far as the connection accepts it."""
        if self.ready:
            self.queue.encode()
        self.connection.flush()  # before the handshake is complete, nothing else waits there

    def _send(self, type: FrameType, records: Sequence[Record], payload: bytes, seq: int | None = None) -> None:
        """Send a frame before everything that waits."""
        self.queue.put(URGENT, type, records, payload, seq=seq)
        self.connection.flush()

    def check(self, now: float) -> None:
        self._retry.check(now)

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
        at, on_disk = 0, {}
        for r in frame.records:
            if self.session.durable:
                on_disk[r.name] = r.at
            request = self.queue.find(frame.seq, r)
            push = request if isinstance(request, Push) else None
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
            if isinstance(request, Pull):
                self.queue.remove_pull(frame.seq, request)
            else:
                self._execute(self.session.acknowledge(request))
            request.end()
        self._execute(self.session.on_disk(on_disk))

    def _on_rejection(self, frame: WireFrame) -> None:
        m = unpack(frame.payload)
        text, dead, applied = str(m["text"]), {int(r): str(why) for r, why in m["gone"].items()}, bool(m.get("made"))
        self._client.coordinator.learn_gone(dead, m["generation"])
        if frame.seq in self._questions:
            keys = "".join(f"key {self._client.name_of(r.key)}: " for r in frame.records[:1])
            self._questions.pop(frame.seq).future.set_exception(KVStoreError(f"KVStore: server {self.index}: {keys}{text}."))
            return
        for r in frame.records:
            request = self.queue.find(frame.seq, r)
            if isinstance(request, Pull):
                self.queue.remove_pull(frame.seq, request)
                request.end(self.explain(text, dead, request))
            elif request is not None:  # otherwise a run of one that has ended
                self._execute(self.session.reject(request, applied=applied, dead=bool(dead)))
                error = self.explain(f"{text}. The push was applied; pull the value" if applied else text, dead, request)
                error.made = applied
                request.group.failing = request.group.failing or (time.monotonic(), error)
                request.end(error)

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

    # ---- ending -----------------------------------------------------------------------------------------------------------
    def end(self, error: KVStoreError) -> None:
        """End every request, now and from now on, with error."""
        self.lost = error
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End every request in flight with error."""
        requests = [*self.session.end(), *self.queue.take_back()]
        questions = [*self._questions.values(), *self._unasked]
        self._questions, self._unasked = {}, []
        self.connection.drop_waiting()
        for r in requests:
            r.end(error)
        for question in questions:
            question.future.set_exception(error)
        if not self.handshaken.done():
            self.handshaken.set_exception(error)
