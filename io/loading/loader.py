"""Loader: fills batches record by record on threads of its own, and says what to do with a record that cannot be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from ...errors import FileError, ParameterError, UnreachableError
from ..plan import BatchPlan
from .counter_random import uniforms
from .threads import ThreadPool

ON_ERROR = ("raise", "skip", "substitute")
_FETCHERS = 4  # threads that wait for bytes from afar, a batch each
_TOGETHER = 4  # records that one job reads: fewer cost more switches, more leave threads idle at a batch's end


class LoadRecord(Protocol):
    """Reads a record into its row of every array of the batch, [1, ...] each. Raises FileError that says where it is.

    fetched:  the record's bytes, if they were fetched before.
    """

    def __call__(self, record: int, numbers: Sequence[float], rows: list[np.ndarray], fetched: bytes | None = None) -> None: ...


class BatchRequest:
    """One batch to fill: number `batch` of an epoch of the plan that begins at begin.

    seed, draws:  of each record's random numbers, and how many there are.
    records:      int64[batch_size]; afterwards those that were really taken.
    pad:          how many of the last rows do not count; afterwards with those that on_error added.
    bad:          afterwards: what is wrong, by record, of those that would count.
    error:        afterwards: why there is no batch, or None.
    """

    def __init__(self, plan: BatchPlan, epoch: int, begin: int, batch: int, seed: int, draws: int):
        self.records, self.pad = plan.numbers(epoch, begin, batch), plan.pad(begin, batch)
        self.bad: dict[int, str] = {}
        self.error: BaseException | None = None
        self.cancelled = False
        self.others = partial(plan.after, epoch, begin, batch)
        self.uniforms = partial(uniforms, seed, epoch, count=draws)


class Loader:
    """Reads records of a source with `load`, on `threads` threads.

    on_error:  what becomes of a batch in which a record cannot be read.
        "raise"       the batch is an error that names the record; the next one is whole again.
        "skip"        the good records move to the front of the batch, `pad` grows, and what fills up comes from the
                      records behind. So every batch holds the records that the plan gives it, wherever it is resumed,
                      and parts keep step.
        "substitute"  the next good record stands in for it.
    fetch:     gives the bytes of several records at once. For a source that is far away: the threads that load begin with a
               batch when its bytes are there, and do not wait for them. Where they cannot be had, the batch is an error.
    """

    def __init__(self, load: LoadRecord, threads: int, on_error: str, name: str,
                 fetch: Callable[[list[int]], list[bytes]] | None = None):
        if on_error not in ON_ERROR:
            raise ParameterError(f"{name}: on_error={on_error!r} is not one of {', '.join(map(repr, ON_ERROR))}.")
        if threads < 1:
            raise ParameterError(f"{name}: preprocess_threads={threads} is less than 1.")
        self.load, self.on_error, self.name = load, on_error, name
        self.workers, self.fetch = ThreadPool(threads, name), fetch
        self.fetchers = ThreadPool(_FETCHERS, f"{name}-fetch")
        self.bad_records: dict[int, str] = {}  # what was found out about records, so that no epoch reads them again

    def fill(self, request: BatchRequest, arrays: list[np.ndarray], on_complete: Callable[..., None]) -> None:
        """Fill arrays, [batch, ...] each, as request says; the last thread calls on_complete()."""
        filling = _BatchFill(self, request, arrays, on_complete)
        if self.fetch is None:
            filling.begin()
        else:
            self.fetchers.put(filling.fetch)

    def close(self) -> None:
        """End the threads, after what they are at."""
        self.fetchers.close()
        self.workers.close()


class _BatchFill:
    """A batch under way."""

    def __init__(self, loader: Loader, request: BatchRequest, arrays: list[np.ndarray], on_complete: Callable[..., None]):
        self.loader, self.request, self.arrays, self.on_complete = loader, request, arrays, on_complete
        self.lock = threading.Lock()
        self.missing = len(request.records)
        self.numbers = request.uniforms(request.records)
        self.errors: dict[int, BaseException] = {}  # by row
        self.fetched: dict[int, bytes] = {}  # by record
        self.unreachable: FileError | None = None

    def fetch(self) -> None:
        """Fetch the bytes of all records; then let them be read."""
        try:
            if not self.request.cancelled and self.loader.fetch is not None:
                records = sorted(set(self.request.records.tolist()))
                self.fetched = dict(zip(records, self.loader.fetch(records)))
        except FileError as e:
            self.unreachable = e
        self.begin()

    def begin(self) -> None:
        """Let the threads read the records, a few at a time."""
        for start in range(0, len(self.request.records), _TOGETHER):
            self.loader.workers.put(lambda start=start: self.part(start))

    def part(self, start: int) -> None:
        """Read the records of a few rows; whoever comes last ends the batch."""
        stop = min(start + _TOGETHER, len(self.request.records))
        for row in range(start, stop):
            if self.request.cancelled:
                break
            try:
                self._read(int(self.request.records[row]), self.numbers[row], row)
            except BaseException as e:
                self.errors[row] = e.with_traceback(None)
        with self.lock:
            self.missing -= stop - start
            last = self.missing == 0
        if last:
            try:
                self.request.error = None if self.request.cancelled else self._settle()
            except BaseException as e:
                self.request.error = e.with_traceback(None)
            self.on_complete()  # the error belongs to whoever takes the batch, and not to a `waitall` before that

    def _read(self, record: int, numbers: np.ndarray, row: int) -> None:
        known = self.loader.bad_records.get(record)
        if known is not None:
            raise FileError(known)
        if self.unreachable is not None:
            raise self.unreachable
        try:
            self.loader.load(record, numbers.tolist(), [a[row:row + 1] for a in self.arrays], self.fetched.get(record))
        except UnreachableError:
            raise
        except FileError as e:
            if self.loader.on_error != "raise":
                self.loader.bad_records[record] = str(e)
            raise

    def _settle(self) -> BaseException | None:
        """Every row was tried: do with the bad ones as on_error says."""
        if not self.errors:
            return None
        request, rows = self.request, sorted(self.errors)
        valid = len(request.records) - request.pad
        ours = [row for row in rows if not isinstance(e := self.errors[row], FileError) or isinstance(e, UnreachableError)]
        if ours:
            return self.errors[ours[0]]
        counted = [row for row in rows if row < valid]
        if self.loader.on_error == "raise":
            more = f" ({len(counted) - 1} more in this batch.)" if len(counted) > 1 else ""
            return FileError(f"{self.errors[rows[0]]}{more} on_error='skip' goes on without such records.")
        request.bad = {int(request.records[row]): str(self.errors[row]) for row in counted}
        request.records = request.records.copy()
        for row in rows:
            self._replace(row)
        if self.loader.on_error == "skip" and counted:
            good = [row for row in range(valid) if row not in self.errors]
            order = good + [row for row in range(len(request.records)) if row not in set(good)]
            for a in self.arrays:
                a[...] = a[order]
            request.records, request.pad = request.records[order], len(order) - len(good)
        return None

    def _replace(self, row: int) -> None:
        """Put the next record that can be read in place of a bad one."""
        for record in self.request.others(row):
            try:
                self._read(record, self.request.uniforms(np.array([record]))[0], row)
            except UnreachableError:
                raise
            except FileError:
                continue
            self.request.records[row] = record
            return
        raise FileError(f"{self.errors[row]} And no other record of this part can be read.")
