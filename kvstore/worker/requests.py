"""The requests of a worker to a server, each about one slice of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..protocol.session import Contribution, Name
from ..wire.frame import CHUNK, INLINE, MOST_RECORDS, ROWS, TWO_BITS, FrameType, Record

LARGE = 512 << 10  # bytes: a larger contribution has a frame of its own
URGENT = float("inf")  # priority of what must not wait
Done = Callable[[BaseException | None], None]


class Group:
    """The requests of one call, which waits for all of them. `done` is called with their first error, or None.

    failing:  (since when, error): a push of the group was rejected, so the others must end soon.
    """

    def __init__(self, count: int, done: Done):
        self._left, self._done = count, done
        self._error: BaseException | None = None
        self.failing: tuple[float, BaseException] | None = None

    def end_one(self, error: BaseException | None) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            self._done(self._error)


class Request:
    """A request about one slice of a key. It may be sent again.

    records:  of its frame. The one of a push has the round that it contributes to, of a pull the last round that this worker has
              contributed to, which the value must contain; and the place where the value is wanted.
    payload:  of its frame, bytes.
    out:      flat array for the value; None if it is not wanted.
    group:    set when the request is submitted.
    """

    group: Group

    def __init__(self, type: FrameType, server: int, record: Record, payload: Any = b"", out: np.ndarray | None = None):
        self.type, self.server, self.records, self.payload, self.out = type, server, [record], payload, out
        self.name, self.round, self.reply = record.name, record.round, record.reply
        self.started = self.priority = 0.0

    def end(self, error: BaseException | None = None) -> None:
        self.group.end_one(error)

    def store(self, r: Record, payload: memoryview, at: int) -> bool:
        """Copy the value at byte `at` of a payload to out, unless it is there already. Returns whether it is the wanted one."""
        out = self.out
        if out is None or len(out) != r.n or r.nbytes != out.nbytes:
            return False
        out[:] = np.frombuffer(payload, out.dtype, r.n, at)
        return True


class Question(Request):
    """A request outside the order of keys. answers: (frame, payload) of each answer."""

    NAME: Name = -1, 0

    def __init__(self, server: int, type: FrameType, records: Sequence[Record] = (), payload: bytes = b""):
        super().__init__(type, server, Record(*self.NAME, 0, 0, 0), payload)
        self.records, self.answers = list(records), list[Any]()


class Push(Request, Contribution):
    """A contribution.

    data:  its bytes, in the payload or where the record says.
    done:  called when the push has ended, before its group counts it.
    """

    def __init__(self, server: int, record: Record, data: np.ndarray, out: np.ndarray | None = None,
                 done: Done = lambda error: None):
        Request.__init__(self, FrameType.PUSH, server, record, data.view(np.uint8).data if record.segment == INLINE else b"", out)
        Contribution.__init__(self, record.name, record.round, data.nbytes)
        self.data, self.done = data, done
        self.alone = len(self.payload) > LARGE or record.dtype in (TWO_BITS, ROWS)  # in its frame

    def end(self, error: BaseException | None = None) -> None:
        self.done(error)
        super().end(error)


def in_frames(requests: Iterable[Request]) -> Iterable[list[Request]]:
    """Yield the requests that share a frame: small pushes, and pulls of whole values. The highest priority goes first."""
    small: list[Request] = []
    pulls: list[Request] = []
    room = CHUNK
    for r in sorted(requests, key=lambda r: -r.priority):
        if r.type is FrameType.PULL:
            pulls.append(r)
            continue
        if not isinstance(r, Push) or r.alone:
            yield [r]
            continue
        nbytes = len(r.payload)
        if nbytes > room or len(small) >= MOST_RECORDS or (
                small and small[0].priority > r.priority and nbytes > CHUNK // 64):
            yield small
            small, room = [], CHUNK
        small.append(r)
        room -= nbytes
    yield from filter(None, [small, *(pulls[i:i + MOST_RECORDS] for i in range(0, len(pulls), MOST_RECORDS))])
