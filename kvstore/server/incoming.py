"""Incoming: the contributions of workers, from their frames: checked, decoded, and put together from runs.

Every record is checked against the key table before memory is accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...errors import FrameError
from ..protocol.rounds import MOST_AHEAD, Rounds
from ..protocol.row_sparse import row_size
from ..wire.compression import TwoBit
from ..wire.frame import DTYPES, INLINE, TWO_BITS, Record, WireFrame
from ..wire.shared_memory import SegmentViews
from .values import Name, StoredValues


class _Partial:
    """A contribution of which some runs have arrived, each some arrays of equal length: elements, or row indices and their rows.

    attempt:  its round, and the number of its frames.
    size:     elements or rows of all runs together.
    """

    def __init__(self, attempt: tuple[int, int], size: int, run: Sequence[np.ndarray]):
        self.attempt, self.size, self.missing, self.lengths = attempt, size, size, dict[int, int]()
        self.data = [np.empty((size, *part.shape[1:]), part.dtype) for part in run]

    def add(self, offset: int, run: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """Add a run, and return all data when they are complete. A repeated run counts once.

        Raises FrameError for runs that overlap.
        """
        if offset not in self.lengths:
            self.lengths[offset] = len(run[0])
            for whole, part in zip(self.data, run):
                whole[offset:offset + len(part)] = part
            self.missing -= len(run[0])
        if self.missing > 0:
            return None
        end = 0
        for start, length in sorted(self.lengths.items()):
            if start != end:
                raise FrameError(f"frame: the runs of a push do not join: one starts at {start}, the one before ends at {end}")
            end += length
        return self.data


class Incoming:
    """The contributions on their way to a server. views: the shared memory of each rank."""

    def __init__(self, values: StoredValues, rounds: Rounds, views: Mapping[int, SegmentViews]):
        self._values, self._rounds, self._views = values, rounds, views
        self._partial: dict[tuple[int, Name], _Partial] = {}

    def drop(self, rank: int) -> None:
        self._partial = {k: p for k, p in self._partial.items() if k[0] != rank}

    def add(self, rank: int, seq: int, r: Record, size: int, run: Sequence[np.ndarray], last: bool
            ) -> Sequence[np.ndarray] | None:
        """Add a run of a contribution of that size, and return its data when all runs have arrived.

        A run of an earlier attempt than the current one is ignored. The last run of a contribution that was applied before is
        returned as it is: it needs an acknowledgement, and its data are not used.
        """
        applied, attempt = self._rounds.last_applied(r.name, rank), (r.round, seq)
        if r.round > applied + MOST_AHEAD:
            raise FrameError(f"round {r.round} is too far ahead: the key is at {applied}")
        if r.round <= applied:
            return run if last else None
        partial = self._partial.get((rank, r.name))
        if partial is not None and partial.attempt > attempt:
            return None
        if partial is None or (partial.attempt, partial.size, len(partial.data)) != (attempt, size, len(run)):
            partial = self._partial[rank, r.name] = _Partial(attempt, size, run)
        complete = partial.add(r.offset, run)
        if complete is not None:
            del self._partial[rank, r.name]
        return complete

    # ---- decoding -------------------------------------------------------------------------------------------------------
    def data(self, rank: int, frame: WireFrame) -> Iterable[tuple[Record, np.ndarray]]:
        """Yield each record with its elements. All records are checked before the first is yielded."""
        for r in frame.records:
            self._check(r)
        at = 0
        for r in frame.records:
            if r.segment == INLINE:
                if r.dtype != TWO_BITS:
                    data = np.frombuffer(frame.payload, DTYPES[r.dtype], r.n, at)
                    at += data.nbytes
                    yield r, data
                    continue
                raw = np.frombuffer(frame.payload, np.uint8, r.nbytes, at)
                at += r.nbytes
            else:
                raw = self.place(rank, r.segment, r.at, r.nbytes)
            if r.dtype == TWO_BITS:
                yield r, TwoBit(np.int32(r.at).view(np.float32).item()).expand(raw, r.n)
            else:
                yield r, raw.view(DTYPES[r.dtype]) if raw.ctypes.data % DTYPES[r.dtype].itemsize == 0 else np.frombuffer(
                    raw.tobytes(), DTYPES[r.dtype])

    def rows(self, frame: WireFrame) -> tuple[Record, np.ndarray, np.ndarray]:
        """Return the record of a frame with rows, their indices, and the rows."""
        (r,) = frame.records
        self._check(r._replace(offset=0), empty=True)
        value = self._values[r.name]
        rows, width = value.array.shape[0], row_size(value.array.shape)
        count = r.n // width
        if r.segment != INLINE or r.n % width or r.dtype == TWO_BITS or r.offset + count > r.at or r.at > rows:
            raise FrameError(f"frame: {r.n} elements from row {r.offset} of {r.at} do not fit key {value.key[2:]!r}, slice "
                             f"{r.slice}: {value.array.shape}")
        indices = self.row_indices(frame.payload, r.nbytes, count, rows)
        return r, indices, np.frombuffer(frame.payload, value.flat.dtype, r.n).reshape(count, *value.array.shape[1:])

    def row_indices(self, payload: memoryview, at: int, count: int, rows: int) -> np.ndarray:
        """Return the count row indices that end a payload, from byte `at`. Raises FrameError unless they ascend below rows."""
        if len(payload) != at + 8 * count:
            raise FrameError(f"frame: a payload of {len(payload)} bytes; {count} row indices after {at} bytes were expected")
        indices = np.frombuffer(payload, "<i8", count, at).copy()
        check_ascending(indices, rows)
        return indices

    def place(self, rank: int, segment: int, at: int, nbytes: int) -> np.ndarray:
        if rank not in self._views or segment < 0:
            raise FrameError(f"frame: a record names segment {segment}, which this server cannot read")
        return self._views[rank].bytes(segment, at, nbytes)

    def _check(self, r: Record, empty: bool = False) -> None:
        value = self._values[r.name]
        dtype = np.dtype("float32") if r.dtype == TWO_BITS else DTYPES[r.dtype]
        if dtype != value.flat.dtype or r.offset + r.n > len(value.flat) or (not r.n and len(value.flat) and not empty):
            raise FrameError(f"frame: {r.n} {dtype} at {r.offset} do not fit key {value.key[2:]!r}, slice {r.slice}: "
                             f"{len(value.flat)} {value.flat.dtype}")


def check_ascending(indices: np.ndarray, rows: int) -> None:
    """Raise FrameError unless the indices ascend and are below rows."""
    if len(indices) and (indices[0] < 0 or indices[-1] >= rows or (indices[1:] <= indices[:-1]).any()):
        raise FrameError(f"frame: the row indices do not ascend from 0 to {rows - 1}")
