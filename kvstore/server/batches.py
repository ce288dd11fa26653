"""Batches: the values whose rounds are made together, and contributions to them from frames.

Every value of a server belongs to one batch, and a batch has one round at a time (`Rounds`, of which it is a key). Workers that
run one program push the same keys together, in equal frames: such keys become one batch, so that a round of them is one sum and
one answer. A frame that is composed otherwise separates its keys again, with the contributions that wait: no worker can tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FrameError
from ..array_ops import sum_into
from ..protocol.rounds import Rounds
from ..protocol.row_sparse import Rows, row_size
from ..wire.compression import TwoBit
from ..wire.frame import CHUNK, DTYPES, INLINE, ROWS, TWO_BITS, Record, WireFrame
from ..wire.shared_memory import SegmentViews
from .values import StoredValue, StoredValues

KEY, TYPE, ROUND, SEGMENT, AT, REPLY_SEGMENT, REPLY_AT = slice(0, 2), slice(2, 4), 4, 5, 6, 7, 8  # columns of a frame's table

_MOST_CANDIDATES = 256  # keys that may become a batch, of up to 0.1 MB each


class Batch:
    """Values of one dtype.

    starts:  [n + 1], the first byte of each value among the bytes of all, and their number.
    table:   [n, 9], their records, with 0 where those of different rounds differ.
    """

    def __init__(self, values: Sequence[StoredValue]):
        self.values = values
        self.starts = np.cumsum([0, *[len(v.raw) for v in values]])
        self.table = np.array([(*v.name, v.code, len(v.flat), 0, 0, 0, 0, 0) for v in values])
        self.key, self.nbytes = self.table[:, KEY].tobytes(), int(self.starts[-1])
        self._bounds = list(itertools.pairwise((self.starts // values[0].flat.itemsize).tolist()))  # of elements
        self._raw: np.ndarray | None = None

    @property
    def raw(self) -> np.ndarray:
        """The bytes of all values. Those of several are never written again."""
        if len(self.values) == 1:
            return self.values[0].raw
        if self._raw is None:
            self._raw = np.concatenate([v.raw for v in self.values])
        return self._raw

    def part(self, i: int, data: Any, reply: Any) -> tuple[Any, Any]:
        """Return what the i-th value gets of a contribution: its elements, and the place for the answer."""
        start, stop = self._bounds[i]
        return data[start:stop], (reply[0], reply[1] + int(self.starts[i])) if reply is not None and reply[0] >= 0 else reply

    def set(self, data: np.ndarray) -> None:
        """Set initial values."""
        for i, value in enumerate(self.values):
            value.flat[:], _ = self.part(i, data, None)
            value.filled = True
        self._raw = None

    def update(self, contributions: Sequence[Any]) -> dict[StoredValue, Exception]:
        """Merge the sum of contributions into the values. Returns the errors of those whose update failed."""
        parts: list[Sequence[Any]] = [contributions]
        self._raw, failed = None, dict[StoredValue, Exception]()
        if len(self.values) > 1:
            total = contributions[0]
            if len(contributions) > 1:
                total = np.empty_like(total)
                sum_into(total, contributions)
                if self.values[0].updater is None:  # nor has any other value: the sum is what they will hold
                    self._raw = total.view(np.uint8)
            parts = [(total[start:stop],) for start, stop in self._bounds]
        for value, part in zip(self.values, parts):
            try:
                value.update(part)
                value.filled = True
            except Exception as e:
                failed[value] = e
        return failed


class Batches:
    """The batches of a server. views: the shared memory of each rank, as far as the server can read it."""

    def __init__(self, values: StoredValues, rounds: Rounds):
        self.views: dict[int, SegmentViews] = {}
        self._values, self._rounds = values, rounds
        self._of: dict[bytes, Batch] = {}  # by their keys: those of several values
        self._senders: dict[bytes, set[int]] = {}  # by keys that are no batch: the ranks that have sent them in one frame
        self._alone: dict[StoredValue, Batch] = {}
        self._batch: dict[StoredValue, Batch] = {}  # that each value belongs to

    def __getitem__(self, value: StoredValue) -> Batch:
        return self._batch[value]

    def add(self, value: StoredValue, earlier: StoredValue | None = None) -> None:
        """Add a value, or replace an earlier one, without rounds."""
        if earlier is not None:
            self.separate([earlier])
            del self._rounds[self._batch.pop(earlier)], self._alone[earlier]
        self._batch[value] = self._alone[value] = Batch([value])
        self._rounds.add(self._batch[value])

    def separate(self, values: Sequence[StoredValue]) -> list[Batch]:
        """Return a batch for each of these values alone."""
        for value in values:
            batch = self._batch[value]
            if len(batch.values) > 1:
                del self._of[batch.key]
                self._batch.update((v, self._alone[v]) for v in batch.values)
                self._rounds.split(batch, [self._alone[v] for v in batch.values], batch.part)
        return [self._batch[value] for value in values]

    def contributions(self, rank: int, frame: WireFrame) -> list[tuple[Batch, Record, Any]]:
        """Return the batches that a frame contributes to, their first records, and the elements, or Rows.

        If one is invalid, there are none.
        """
        batch = self._whole(rank, frame.table) if len(frame.table) > 1 else None
        if batch is not None:
            r = Record._make(frame.table[0].tolist())
            return [(batch, r, self._bytes(rank, frame, r, 0, batch.nbytes).view(DTYPES[r.dtype]))]
        for r in frame.records:
            _check(r, self._values[r.name])
        found, at = list[tuple[Batch, Record, Any]](), 0
        for r, batch in zip(frame.records, self.separate([self._values[r.name] for r in frame.records])):
            raw = self._bytes(rank, frame, r, at, r.nbytes)
            at += r.nbytes if r.segment == INLINE else 0
            found.append((batch, r, _elements(r, raw, batch.values[0])))
        return found

    def _whole(self, rank: int, table: np.ndarray) -> Batch | None:
        """Return the batch of all records of a frame, if they are one, or can become one."""
        batch = self._of.get(table[:, KEY].tobytes()) or self._join(rank, table)
        return batch if batch is not None and (table[:, ROUND] == table[0, ROUND]).all() and np.array_equal(
            table[:, TYPE], batch.table[:, TYPE]) and _adjoin(table, SEGMENT, batch) and _adjoin(
                table, REPLY_SEGMENT, batch) else None

    def _join(self, rank: int, table: np.ndarray) -> Batch | None:
        """Make the keys of a table one batch, if all workers send them together, they have one dtype, and their states are equal.

        Keys that are pushed one by one share frames by chance; to join and separate them would take longer.
        """
        if len(self._senders) > _MOST_CANDIDATES:
            self._senders.clear()
        senders = self._senders.setdefault(table[:, KEY].tobytes(), set())
        senders.add(rank)
        if not senders >= self._rounds.contributors:
            return None
        values = [self._values[name] for name in map(tuple, table[:, KEY].tolist())]
        batch = Batch(values)
        if batch.nbytes > CHUNK or len(set(values)) < len(values) or len({v.code for v in values}) > 1 or not self._rounds.join(
                self.separate(values), batch):
            return None
        senders.clear()
        self._of[batch.key] = batch
        self._batch.update(dict.fromkeys(values, batch))
        return batch

    def of_pull(self, table: np.ndarray) -> list[tuple[Batch, Record]]:
        """Return batches with the values that are asked for, as far as possible together, and their first records."""
        batch = self._of.get(table[:, KEY].tobytes())
        if batch is not None and _adjoin(table, REPLY_SEGMENT, batch):
            return [(batch, Record._make(table[0].tolist()))]
        return [(self._alone[self._values[r.name]], r) for r in map(Record._make, table.tolist())]

    def _bytes(self, rank: int, frame: WireFrame, r: Record, at: int, nbytes: int) -> np.ndarray:
        """Return the bytes of a record and those after it. at: of the payload."""
        if r.segment == INLINE:
            return np.frombuffer(frame.payload, np.uint8, nbytes, at)
        return self.place(rank, r.segment, r.at, nbytes)

    def place(self, rank: int, segment: int, at: int, nbytes: int) -> np.ndarray:
        """Return a range of a worker's shared memory. Raises FrameError if there is none."""
        if rank not in self.views or segment < 0:
            raise FrameError(f"frame: a record names segment {segment}, which this server cannot read")
        return self.views[rank].bytes(segment, at, nbytes)


def _adjoin(table: np.ndarray, segment: int, batch: Batch) -> bool:
    """Return whether the places in the columns `segment` and the next are one range for a batch, or not in shared memory."""
    segments, at = table[:, segment], table[:, segment + 1]
    return bool((segments == segments[0]).all() and (segments[0] < 0 or (at - at[0] == batch.starts[:-1]).all()))


def _check(r: Record, value: StoredValue) -> None:
    dtype = np.dtype("float32") if r.dtype == TWO_BITS else value.flat.dtype if r.dtype == ROWS else DTYPES[r.dtype]
    if dtype != value.flat.dtype or (r.n != len(value.flat) and r.dtype != ROWS):
        raise FrameError(f"frame: {r.n} {dtype} do not fit key {value.key[2:]!r}, slice {r.slice}: {len(value.flat)} "
                         f"{value.flat.dtype}")


def _elements(r: Record, raw: np.ndarray, value: StoredValue) -> Any:
    """Return the elements in the bytes of a record, or its Rows: first their indices, then the rows themselves."""
    if r.dtype == TWO_BITS:
        return TwoBit(np.int32(r.at).view(np.float32).item()).expand(raw, r.n)
    if r.dtype != ROWS:
        return raw.view(DTYPES[r.dtype])
    rows, *shape = value.array.shape or (0,)
    count, rest = divmod(len(raw), 8 + row_size(value.array.shape) * value.flat.itemsize)
    if rest:
        raise FrameError(f"frame: {len(raw)} bytes are no rows of key {value.key[2:]!r}: {value.array.shape}")
    return Rows(row_indices(raw[:8 * count], rows), raw[8 * count:].view(value.flat.dtype).reshape(count, *shape))


def row_indices(raw: np.ndarray, rows: int) -> np.ndarray:
    """Return the row indices in raw. Raises FrameError unless they ascend below rows."""
    if len(raw) % 8:
        raise FrameError(f"frame: {len(raw)} bytes are no row indices")
    indices = raw.view("<i8")
    if len(indices) and (indices[0] < 0 or indices[-1] >= rows or (indices[1:] <= indices[:-1]).any()):
        raise FrameError(f"frame: the row indices do not ascend from 0 to {rows - 1}")
    return indices
