"""The requests of a worker to a server, each about one slice of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from ...integers import cdiv
from ..protocol.session import Name, State
from ..wire.frame import CHUNK, CODES, INLINE, MOST_RECORDS, NOTHING, RUN, TWO_BITS, FrameType, Record

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

    index:      of the slice.
    round:      that a push contributes to; of a pull: the last that this worker has contributed to, which the value must contain.
    out:        flat array for the value; None if it is not wanted.
    out_place:  place of out, if it is in shared memory.
    left:       elements of the answer that have not arrived.
    group:      set when the request is submitted.
    type:       of its frames.
    records, payload:  content of its frame, unless it is a push.
    """

    group: Group
    records: Sequence[Record]
    payload: bytes

    def __init__(self, type: FrameType, server: int, key: int, index: int, round: int, out: np.ndarray | None,
                 out_place: Place | None = None):
        self.type, self.server, self.key, self.index, self.round = type, server, key, index, round
        self.out, self.out_place = out, out_place
        self.name: Name = key, index
        self.started = self.priority = 0.0

    def reset(self) -> None:
        self.left = 0 if self.out is None else len(self.out)

    def end(self, error: BaseException | None = None) -> None:
        self.group.end_one(error)

    def store(self, r: Record, payload: memoryview, at: int) -> None:
        """Copy one run of the value, from byte `at` of a payload, to out."""
        out = self.out
        if out is None or r.offset + r.n > len(out) or r.nbytes != r.n * out.itemsize:
            return
        out[r.offset:r.offset + r.n] = np.frombuffer(payload, out.dtype, r.n, at)
        self.left -= r.n

    @property
    def reply(self) -> Place:
        return (NOTHING, 0) if self.out is None else self.out_place or (INLINE, 0)


class Pull(Request):
    """A request for a value, or for some rows of it: their indices in the slice, int64."""

    def __init__(self, server: int, key: int, index: int, round: int, out: np.ndarray | None, out_place: Place | None = None,
                 rows: np.ndarray | None = None):
        super().__init__(FrameType.PULL if rows is None else FrameType.PULL_ROWS, server, key, index, round, out, out_place)
        self.records = [Record(*self.name, 0, 0, round, reply_segment=self.reply[0], reply_at=self.reply[1])]
        self.payload = b"" if rows is None else rows.tobytes()


class Question(Request):
    """A request outside the order of keys. future: gets the (frame, payload) of each answer, or the records that answer SAVE."""

    def __init__(self, server: int, type: FrameType, records: Sequence[Record] = (), payload: bytes = b""):
        super().__init__(type, server, -1, 0, 0, None)
        self.records, self.payload, self.future, self.answers = records, payload, Future[list[Any]](), list[Any]()

    def reset(self) -> None:
        self.answers.clear()

    def end(self, error: BaseException | None = None) -> None:
        self.future.set_exception(error) if error is not None else self.future.set_result(self.answers)


class Push(Request):
    """A contribution (protocol/session.py): data [n], or n values in 2-bit form.

    done:       called when the push has ended, before its group counts it.
    place:      place of data, if it is in shared memory.
    release:    called when data is not needed any more.
    threshold:  of the 2-bit form; 0: data holds the values.
    """

    def __init__(self, server: int, key: int, index: int, round: int, out: np.ndarray | None, data: np.ndarray,
                 done: Done = lambda error: None, *, place: Place | None = None, out_place: Place | None = None,
                 initial: bool = False, release: Callable[[], None] = lambda: None, n: int = -1, threshold: float = 0):
        super().__init__(FrameType.INITIALIZE if initial else FrameType.PUSH, server, key, index, round, out, out_place)
        self.data, self.done, self.place, self.release, self.initial = data, done, place, release, initial
        self.nbytes = data.nbytes
        self.code, self.n = (TWO_BITS, n) if threshold else (CODES[data.dtype], len(data))
        self.threshold, self.seq, self.process, self.state = threshold, 0, -1, State.QUEUED

    def reset(self) -> None:
        super().reset()
        if self.initial:
            self.left = self.n

    def end(self, error: BaseException | None = None) -> None:
        self.done(error)
        super().end(error)

    def runs(self) -> Iterable[tuple[Record, Any]]:
        """Yield records of up to RUN bytes each, with their bytes."""
        reply, size = self.reply, self.data.itemsize
        if self.place is not None:
            yield Record(self.key, self.index, self.code, self.n, self.round, 0, *self.place, *reply), None
            return
        raw, step, n, at = self.data.view(np.uint8), RUN // size * size, RUN // size, 0
        if self.code == TWO_BITS:  # four values in a byte; the threshold is sent as `at`
            n, at = 4 * step, int(np.float32(self.threshold).view(np.int32))
        for i in range(max(cdiv(len(raw), step), 1)):
            yield Record(self.key, self.index, self.code, min(n, self.n - i * n), self.round, i * n, INLINE, at, *reply), raw[
                i * step:(i + 1) * step].data


class PushRows(Push):
    """A contribution of some rows. rows [n]: their indices in the slice, int64, ascending; data [n · width]."""

    def __init__(self, server: int, key: int, index: int, round: int, rows: np.ndarray, data: np.ndarray, width: int, done: Done):
        super().__init__(server, key, index, round, None, data, done)
        self.type = FrameType.PUSH_ROWS
        self.rows, self.width = rows, width

    def runs(self) -> Iterable[tuple[Record, Any]]:
        """Yield records with the bytes of their rows, followed by the row indices. No rows make one empty run."""
        count, size = len(self.rows), self.width * self.data.itemsize
        step = max(CHUNK // (size + 8), 1)
        for start in range(0, max(count, 1), step):
            rows = self.rows[start:start + step]
            data = self.data[start * self.width:(start + len(rows)) * self.width]
            yield Record(self.key, self.index, self.code, len(data), self.round, start, INLINE, count, *self.reply), b"".join(
                (data.view(np.uint8).data, rows.view(np.uint8).data))


def in_frames(requests: Iterable[Request]) -> Iterable[list[Request]]:
    """Yield the requests that share a frame: small pushes, and pulls of whole values. The highest priority goes first."""
    small: list[Request] = []
    pulls: list[Request] = []
    room = CHUNK
    for r in sorted(requests, key=lambda r: -r.priority):
        if r.type is FrameType.PULL:
            pulls.append(r)
            continue
        nbytes = r.nbytes if isinstance(r, Push) and r.place is None else 0
        if not isinstance(r, Push) or isinstance(r, PushRows) or r.initial or r.threshold or nbytes > RUN:
            yield [r]
            continue
        if nbytes > room or len(small) >= MOST_RECORDS or (
                small and small[0].priority > r.priority and nbytes > CHUNK // 64):
            yield small
            small, room = [], CHUNK
        small.append(r)
        room -= nbytes
    yield from filter(None, [small, *(pulls[i:i + MOST_RECORDS] for i in range(0, len(pulls), MOST_RECORDS))])
