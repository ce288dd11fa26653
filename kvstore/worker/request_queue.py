"""RequestQueue: the requests of a worker to one server, from their submission to the frames that carry them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ..protocol.session import Name, Session
from ..wire.frame import CHUNK, MOST_RECORDS, RUN, WANT_VALUE, FrameType, Record, encode
from .requests import Pull, PullRows, Push, PushRows, Request
from .server_connection import ServerConnection

URGENT = float("inf")  # priority of messages that must not wait


class RequestQueue:
    """Encodes requests as late as possible: small pushes together, the highest priority first.

    waiting:  requests that are not encoded.
    pulls:    number of a frame -> name -> the sent pull that its answer is for.
    """

    def __init__(self, session: Session[Push], connection: ServerConnection, rank: int):
        self._session, self._connection, self._rank = session, connection, rank
        self.waiting: deque[Request] = deque()
        self.pulls: dict[int, dict[Name, Pull]] = {}
        self._seq = 0

    @property
    def sent_pulls(self) -> list[Pull]:
        """The pulls that are not answered."""
        return [p for pulls in self.pulls.values() for p in pulls.values()]

    def take_back(self) -> list[Request]:
        """Remove and return what is not answered, in order: sent pushes, sent pulls, and what waits."""
        requests = [*self._session.take_sent(), *self.sent_pulls, *self.waiting]
        self.pulls = {}
        self.waiting.clear()
        return requests

    def find(self, seq: int, r: Record) -> Push | Pull | None:
        """Return the sent request that a record of the answer with a number refers to."""
        return self.pulls[seq].get(r.name) if seq in self.pulls else self._session.find(r.name, r.round, seq)

    def remove_pull(self, seq: int, pull: Pull) -> None:
        """Note that a sent pull has ended."""
        del self.pulls[seq][pull.name]
        if not self.pulls[seq]:
            del self.pulls[seq]

    def encode(self) -> None:
        """Pass frames of everything that waits to the connection."""
        small: list[Push] = []
        pulls: list[Pull] = []
        room = CHUNK
        while self.waiting:
            r = self.waiting.popleft()
            if isinstance(r, PullRows):
                self._send_pulls([r], FrameType.PULL_ROWS, r.rows.tobytes())
                continue
            if isinstance(r, Pull):
                pulls.append(r)
                continue
            assert isinstance(r, Push)
            self._session.send(r)
            nbytes = 0 if r.place is not None else r.nbytes
            if r.initial or r.threshold or nbytes > RUN or isinstance(r, PushRows):
                self.send_pushes([r], r.priority)
                continue
            if nbytes > room or len(small) >= MOST_RECORDS or (small and small[0].priority > r.priority and nbytes > CHUNK // 64):
                self.send_pushes(small, small[0].priority)
                small, room = [], CHUNK
            small.append(r)
            room -= nbytes
        if small:
            self.send_pushes(small, small[0].priority)
        for i in range(0, len(pulls), MOST_RECORDS):
            self._send_pulls(pulls[i:i + MOST_RECORDS])

    def _send_pulls(self, pulls: Sequence[Pull], type: FrameType = FrameType.PULL, payload: bytes = b"") -> None:
        self.pulls[self.number()] = {p.name: p for p in pulls}
        records = [Record(*p.name, 0, 0, p.round, reply_segment=p.reply[0], reply_at=p.reply[1]) for p in pulls]
        self.put(pulls[0].priority, type, records, payload)

    def send_pushes(self, pushes: Sequence[Push], priority: float, want_value: bool = True) -> None:
        """Send pushes in one frame if they have one run each, otherwise in a frame for each run."""
        type, flags = (FrameType.INITIALIZE, 0) if pushes[0].initial else (FrameType.PUSH, WANT_VALUE if want_value else 0)
        type = FrameType.PUSH_ROWS if isinstance(pushes[0], PushRows) else type
        runs = [run for p in pushes for run in p.runs()]
        self._session.number(pushes, self.number())
        if len(pushes) == 1 and len(runs) > 1:
            for r, data in runs:
                self.put(priority, type, [r], data, flags)
            return
        pieces = [data for _, data in runs if data is not None]
        self.put(priority, type, [r for r, _ in runs], pieces[0] if len(pieces) == 1 else b"".join(pieces), flags)

    def put(self, priority: float, type: FrameType, records: Sequence[Record], payload: Any, flags: int = 0,
            seq: int | None = None) -> None:
        """Pass a frame to the connection. seq: its number; None: the last that `number` gave."""
        head = encode(type, records, len(payload), flags=flags, rank=self._rank, seq=self._seq if seq is None else seq)
        self._connection.put(priority, head, payload)

    def number(self) -> int:
        """Return a new number for a frame."""
        self._seq += 1
        return self._seq
