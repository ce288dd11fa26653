"""The requests of a worker to a server, each about one slice of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..protocol.session import Name, State
from ..wire.compression import packed_bytes
from ..wire.frame import CHUNK, CODES, INLINE, NOTHING, RUN, TWO_BITS, Record

Done = Callable[[BaseException | None], None]
Place = tuple[int, int]  # segment of shared memory, byte


class Request:
    """A request about one slice of a key.

    index:      of the slice.
    out:        flat array for the value; None if it is not wanted.
    out_place:  place of out, if it is in shared memory.
    done:       called when the request has ended, with its error or None.
    group:      the requests submitted in the same call, whose caller waits for all of them.
    failing:    (since when, error): another request of the group has failed, so this one must end soon.
    """

    __slots__ = ("done", "failing", "group", "index", "key", "left", "name", "out", "out_place", "priority", "server", "started")

    def __init__(self, server: int, key: int, index: int, out: np.ndarray | None, out_place: Place | None, done: Done):
        self.server, self.key, self.index, self.out, self.out_place, self.done = server, key, index, out, out_place, done
        self.name: Name = key, index
        self.left, self.started, self.priority = 0, 0.0, 0
        self.group: Sequence[Request] = ()
        self.failing: tuple[float, BaseException] | None = None

    def restart(self) -> None:
        """Expect the complete answer: the request is sent for the first time, or again."""
        self.left = 0 if self.out is None else len(self.out)

    def fail(self, error: BaseException, now: float) -> None:
        """End with an error, and mark the other requests of the group as failing."""
        for r in self.group:
            if r is not self and r.failing is None:
                r.failing = now, error
        self.group = ()
        self.done(error)

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
    """A request for a value. round: the last that this worker has contributed to; the value must contain it."""

    __slots__ = ("round",)

    def __init__(self, server: int, key: int, index: int, out: np.ndarray | None, out_place: Place | None, done: Done,
                 round: int = 0):
        super().__init__(server, key, index, out, out_place, done)
        self.round = round


class PullRows(Pull):
    """A request for rows of a value. rows: their indices in the slice, int64."""

    __slots__ = ("rows",)

    def __init__(self, server: int, key: int, index: int, rows: np.ndarray, out: np.ndarray, done: Done, round: int = 0):
        super().__init__(server, key, index, out, None, done, round)
        self.rows = rows


class Push(Request):
    """A contribution (protocol/session.py): data [n], or n values in 2-bit form.

    place:    place of data, if it is in shared memory.
    release:  called when data is not needed any more.
    """

    __slots__ = ("code", "data", "initial", "n", "nbytes", "place", "process", "release", "round", "seq", "state", "threshold")

    def __init__(self, server: int, key: int, index: int, data: np.ndarray, round: int, out: np.ndarray | None, done: Done, *,
                 place: Place | None = None, out_place: Place | None = None, initial: bool = False,
                 release: Callable[[], None] = lambda: None, code: int = -1, n: int = -1, threshold: float = 0):
        super().__init__(server, key, index, out, out_place, done)
        self.data, self.round, self.place, self.release, self.initial = data, round, place, release, initial
        self.nbytes = data.nbytes
        self.code = CODES[data.dtype] if code < 0 else code
        self.n = len(data) if n < 0 else n
        self.threshold, self.seq, self.process, self.state = threshold, 0, -1, State.QUEUED
        self.restart()

    def restart(self) -> None:
        """Expect the complete answer: the request is sent for the first time, or again."""
        super().restart()
        if self.initial:
            self.left = self.n

    def runs(self) -> Iterable[tuple[Record, Any]]:
        """Yield records of up to RUN bytes each, with their bytes."""
        segment, at = self.reply
        if self.code == TWO_BITS:  # the threshold is sent as `at`
            bits = int(np.float32(self.threshold).view(np.int32))
            per_run = RUN * 4
            for start in range(0, max(self.n, 1), per_run):
                n = min(per_run, self.n - start)
                raw = self.data[start // 4:start // 4 + packed_bytes(n)]
                yield Record(self.key, self.index, self.code, n, self.round, start, INLINE, bits, segment, at), raw.data
            return
        if self.place is not None:
            yield Record(self.key, self.index, self.code, self.n, self.round, 0, *self.place, segment, at), None
            return
        raw, size = self.data.view(np.uint8), self.data.itemsize
        step = RUN // size * size
        for start in range(0, max(raw.nbytes, 1), step):
            run = raw[start:start + step]
            yield Record(self.key, self.index, self.code, run.nbytes // size, self.round, start // size, INLINE, 0, segment,
                         at), run.data


class PushRows(Push):
    """A contribution of some rows. rows [n]: their indices in the slice, int64, ascending; data [n · width]."""

    __slots__ = ("rows", "width")

    def __init__(self, server: int, key: int, index: int, rows: np.ndarray, data: np.ndarray, width: int, round: int, done: Done):
        super().__init__(server, key, index, data, round, None, done)
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
