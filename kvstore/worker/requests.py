"""The requests of a worker to a server, each about one slice of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...integers import cdiv
from ..protocol.session import Name, State
from ..wire.frame import CHUNK, CODES, INLINE, NOTHING, RUN, TWO_BITS, Record

Done = Callable[[BaseException | None], None]
Place = tuple[int, int]  # segment of shared memory, byte


class Group:
    """The requests of one call, which waits for all of them. `done` is called with their first error, or None.

    failing:  (since when, error): a push of the group was rejected, so the others must end soon.
    """

    __slots__ = ("_done", "_error", "_left", "failing")

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
    """A request about one slice of a key.

    index:      of the slice.
    round:      that a push contributes to; of a pull: the last that this worker has contributed to, which the value must contain.
    out:        flat array for the value; None if it is not wanted.
    out_place:  place of out, if it is in shared memory.
    size:       elements of the complete answer; `left` of them have not arrived.
    group:      set when the request is submitted.
    """

    __slots__ = ("group", "index", "key", "left", "name", "out", "out_place", "priority", "round", "server", "size", "started")
    group: Group

    def __init__(self, server: int, key: int, index: int, round: int, out: np.ndarray | None, out_place: Place | None = None):
        self.server, self.key, self.index, self.round, self.out, self.out_place = server, key, index, round, out, out_place
        self.name: Name = key, index
        self.left = self.size = 0 if out is None else len(out)
        self.started, self.priority = 0.0, 0

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
        """The place for the value, as in a record."""
        return (NOTHING, 0) if self.out is None else self.out_place or (INLINE, 0)


class Pull(Request):
    """A request for a value."""

    __slots__ = ()


class PullRows(Pull):
    """A request for rows of a value. rows: their indices in the slice, int64."""

    __slots__ = ("rows",)

    def __init__(self, server: int, key: int, index: int, round: int, out: np.ndarray, rows: np.ndarray):
        super().__init__(server, key, index, round, out)
        self.rows = rows


class Push(Request):
    """A contribution (protocol/session.py): data [n], or n values in 2-bit form.

    done:       called when the push has ended, before its group counts it.
    place:      place of data, if it is in shared memory.
    release:    called when data is not needed any more.
    threshold:  of the 2-bit form; 0: data holds the values.
    """

    __slots__ = ("code", "data", "done", "initial", "n", "nbytes", "place", "process", "release", "seq", "state", "threshold")

    def __init__(self, server: int, key: int, index: int, round: int, out: np.ndarray | None, data: np.ndarray,
                 done: Done = lambda error: None, *, place: Place | None = None, out_place: Place | None = None,
                 initial: bool = False, release: Callable[[], None] = lambda: None, n: int = -1, threshold: float = 0):
        super().__init__(server, key, index, round, out, out_place)
        self.data, self.done, self.place, self.release, self.initial = data, done, place, release, initial
        self.nbytes = data.nbytes
        self.code, self.n = (TWO_BITS, n) if threshold else (CODES[data.dtype], len(data))
        self.threshold, self.seq, self.process, self.state = threshold, 0, -1, State.QUEUED
        if initial:
            self.size = self.n

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

    __slots__ = ("rows", "width")

    def __init__(self, server: int, key: int, index: int, round: int, rows: np.ndarray, data: np.ndarray, width: int, done: Done):
        super().__init__(server, key, index, round, None, data, done)
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
