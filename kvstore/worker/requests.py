"""Errands: what a worker has a shard do, about one part of a key each. Link sends them, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...integers import cdiv
from ..wire.frame import CHUNK, CODES, INLINE, NOTHING, RUN, Record

Done = Callable[[BaseException | None], None]


class Work:
    """Something about one part of a key that a shard is to do.

    out:        flat array that takes the value; None if it is not wanted.
    out_place:  (segment, byte) of out, if it is in shared memory.
    together:   all that ends together with it, for who waits.
    doomed:     since when (time.monotonic) that cannot end well, and why.
    """

    __slots__ = ("done", "doomed", "key", "left", "out", "out_place", "part", "priority", "shard", "started", "together")

    def __init__(self, shard: int, key: int, part: int, out: np.ndarray | None, out_place: tuple[int, int] | None, done: Done):
        self.shard, self.key, self.part, self.out, self.out_place, self.done = shard, key, part, out, out_place, done
        self.left, self.started, self.priority = 0, 0.0, 0
        self.together: Sequence[Work] = ()
        self.doomed: tuple[float, BaseException] | None = None

    def restart(self) -> None:
        """It begins anew: nothing of the answer has come."""
        self.left = 0 if self.out is None else len(self.out)

    def fail(self, error: BaseException, now: float) -> None:
        """It has ended with error, which the others hear of when they have ended, too."""
        for w in self.together:
            if w is not self and w.doomed is None:
                w.doomed = now, error
        self.together = ()
        self.done(error)

    @property
    def name(self) -> tuple[int, int]:
        return self.key, self.part

    @property
    def reply(self) -> tuple[int, int]:
        """(segment, byte) as a record says it."""
        return (NOTHING, 0) if self.out is None else self.out_place or (INLINE, 0)


class Fetch(Work):
    """A value that is asked for. round: the last that this worker has contributed to; the value is not older."""

    __slots__ = ("round",)

    def __init__(self, shard: int, key: int, part: int, out: np.ndarray | None, out_place: tuple[int, int] | None, done: Done,
                 round: int = 0):
        super().__init__(shard, key, part, out, out_place, done)
        self.round = round


class FetchRows(Fetch):
    """Rows of a value that are asked for: their numbers, int64, in the part."""

    __slots__ = ("numbers",)

    def __init__(self, shard: int, key: int, part: int, numbers: np.ndarray, out: np.ndarray, done: Done, round: int = 0):
        super().__init__(shard, key, part, out, None, done, round)
        self.numbers = numbers


class Send(Work):
    """A contribution: data [n] of `round`, or n values in 2-bit form.

    place:    (segment, byte) of data, if it is in shared memory.
    release:  called when the data is not needed any more.
    fill:     it is a key's first value, not a contribution.
    seq:      of the frames it was last sent in.
    process:  of the server, by its incarnation, to which it was first sent; -1 if it was not.
    """

    __slots__ = ("code", "data", "fill", "n", "place", "process", "release", "round", "seq", "threshold")

    def __init__(self, shard: int, key: int, part: int, data: np.ndarray, round: int, out: np.ndarray | None, done: Done, *,
                 place: tuple[int, int] | None = None, out_place: tuple[int, int] | None = None, fill: bool = False,
                 release: Callable[[], None] = lambda: None, code: int = -1, n: int = -1, threshold: float = 0):
        super().__init__(shard, key, part, out, out_place, done)
        self.data, self.round, self.place, self.release, self.fill = data, round, place, release, fill
        self.code = CODES[data.dtype] if code < 0 else code
        self.n = len(data) if n < 0 else n
        self.threshold, self.seq, self.process = threshold, 0, -1
        self.restart()

    def restart(self) -> None:
        """It begins anew: nothing of the answer has come."""
        super().restart()
        if self.fill:
            self.left = self.n

    def runs(self) -> Iterable[tuple[Record, Any]]:
        """Records of up to RUN bytes each, and their bytes."""
        segment, at = self.reply
        if self.code not in CODES.values():  # 2-bit form: its threshold travels as `at`
            bits = int(np.float32(self.threshold).view(np.int32))
            per = RUN * 4
            for start in range(0, max(self.n, 1), per):
                n = min(per, self.n - start)
                raw = self.data[start // 4:start // 4 + cdiv(n, 16) * 4]
                yield Record(self.key, self.part, self.code, n, self.round, start, INLINE, bits, segment, at), raw.data
            return
        if self.place is not None:
            yield Record(self.key, self.part, self.code, self.n, self.round, 0, *self.place, segment, at), None
            return
        raw, size = self.data.view(np.uint8), self.data.itemsize
        step = RUN // size * size
        for start in range(0, max(raw.nbytes, 1), step):
            run = raw[start:start + step]
            yield Record(self.key, self.part, self.code, run.nbytes // size, self.round, start // size, INLINE, 0, segment,
                         at), run.data


class SendRows(Send):
    """A contribution of some rows, of `width` elements each: numbers [n] int64, ascending, in the part; data [n · width]."""

    __slots__ = ("numbers", "width")

    def __init__(self, shard: int, key: int, part: int, numbers: np.ndarray, data: np.ndarray, width: int, round: int,
                 done: Done):
        super().__init__(shard, key, part, data, round, None, done)
        self.numbers, self.width = numbers, width

    def runs(self) -> Iterable[tuple[Record, Any]]:
        """As Send's; the numbers of a run's rows follow its bytes. No rows are one run."""
        count, size = len(self.numbers), self.width * self.data.itemsize
        step = max(CHUNK // (size + 8), 1)
        for start in range(0, max(count, 1), step):
            numbers = self.numbers[start:start + step]
            rows = self.data[start * self.width:(start + len(numbers)) * self.width]
            yield Record(self.key, self.part, self.code, len(rows), self.round, start, INLINE, count, *self.reply), b"".join(
                (rows.view(np.uint8).data, numbers.view(np.uint8).data))
