"""The requests of a worker to a server, each about one slice of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from ..protocol.session import Contribution, Name
from ..wire.frame import CHUNK, CODES, INLINE, MOST_RECORDS, NOTHING, FrameType, Record

LARGE = 512 << 10  # bytes: a larger contribution has a frame of its own
URGENT = float("inf")  # priority of what must not wait
Done = Callable[[BaseException | None], None]
Place = tuple[int, int]  # segment of shared memory, byte


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

    round:    that a push contributes to; of a pull: the last that this worker has contributed to, which the value must contain.
    out:      flat array for the value; None if it is not wanted. reply: its place, for the server.
    group:    set when the request is submitted.
    records:  of its frame, which has this type and, unless it is a push, this payload.
    """

    group: Group

    def __init__(self, type: FrameType, server: int, name: Name, round: int = 0, out: np.ndarray | None = None,
                 out_place: Place | None = None, payload: Any = b"", records: Sequence[Record] = ()):
        self.type, self.server, self.name, self.round, self.out, self.payload = type, server, name, round, out, payload
        self.started = self.priority = 0.0
        self.reply: Place = (NOTHING, 0) if out is None else out_place or (INLINE, 0)
        self.records = records or [Record(*name, 0, 0, round, NOTHING, 0, *self.reply)]

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
    """A request outside the order of keys. future: gets the (frame, payload) of each answer."""

    NAME: Name = -1, 0

    def __init__(self, server: int, type: FrameType, records: Sequence[Record] = (), payload: bytes = b""):
        super().__init__(type, server, self.NAME, payload=payload)
        self.records, self.future, self.answers = records, Future[list[Any]](), list[Any]()

    def end(self, error: BaseException | None = None) -> None:
        self.future.set_exception(error) if error is not None else self.future.set_result(self.answers)


class Push(Request, Contribution):
    """A contribution.

    data:       [n], or what form says.
    form:       `dtype` and `n` of its record: TWO_BITS and the number of values, ROWS and that of bytes; None: data holds values.
    threshold:  of the 2-bit form.
    done:       called when the push has ended, before its group counts it.
    place:      place of data, if it is in shared memory.
    """

    def __init__(self, server: int, name: Name, round: int, out: np.ndarray | None, data: np.ndarray,
                 done: Done = lambda error: None, *, place: Place | None = None, out_place: Place | None = None,
                 form: tuple[int, int] | None = None, threshold: float = 0):
        Request.__init__(self, FrameType.PUSH, server, name, round, out, out_place)
        Contribution.__init__(self, name, round, data.nbytes)
        self.data, self.done, self.place = data, done, place
        code, n = form or (CODES[data.dtype], len(data))
        at = place or (INLINE, int(np.float32(threshold).view(np.int32)))
        self.records = [Record(*name, code, n, round, *at, *self.reply)]
        self.alone = form is not None or (place is None and data.nbytes > LARGE)  # in its frame

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
        nbytes = r.nbytes if r.place is None else 0
        if nbytes > room or len(small) >= MOST_RECORDS or (
                small and small[0].priority > r.priority and nbytes > CHUNK // 64):
            yield small
            small, room = [], CHUNK
        small.append(r)
        room -= nbytes
    yield from filter(None, [small, *(pulls[i:i + MOST_RECORDS] for i in range(0, len(pulls), MOST_RECORDS))])
