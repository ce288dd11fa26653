"""Loader: fills batches record by record on its own threads, and handles records that cannot be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from ...errors import FileError, ParameterError, UnreachableError, check_choice
from ..plan import BatchPlan
from .counter_random import uniforms
from .threads import ThreadPool

_FETCH_THREADS = 4  # each waits for the bytes of one remote batch
_RECORDS_PER_JOB = 4  # fewer cost more thread switches, more leave threads idle at the end of a batch


class LoadRecord(Protocol):
    """Reads a record into its row [1, ...] of every array of the batch. Raises FileError that names the record.

    fetched:  the record's bytes, if they were fetched before.
    """

    def __call__(self, record: int, numbers: Sequence[float], rows: list[np.ndarray], fetched: bytes | None = None) -> None: ...


class BatchRequest:
    """One batch to fill: batch number `batch` of an epoch of the plan, which starts at position begin.

    seed, draws:  seed and count of each record's random numbers.
    records:      int64[batch_size]; after filling, the records in the batch.
    pad:          how many of the last rows are padding; after filling, including rows that on_error added.
    bad:          after filling, the error text of each record that should have counted.
    error:        after filling, the error that `next()` raises instead of returning the batch, or None.
    """

    def __init__(self, plan: BatchPlan, epoch: int, begin: int, batch: int, seed: int, draws: int):
        self.records, self.pad = plan.numbers(epoch, begin, batch), plan.pad(begin, batch)
        self.bad: dict[int, str] = {}
        self.error: BaseException | None = None
        self.cancelled = False
        self.replacements = partial(plan.after, epoch, begin, batch)
        self.uniforms = partial(uniforms, seed, epoch, count=draws)


class Loader:
    """Reads records with `load` on `threads` threads.

    on_error:  what happens to a batch with a record that cannot be read.
        "raise"       `next()` raises an error that names the record, and the call after it returns the next batch.
        "skip"        the good records move to the front of the batch, `pad` grows, and the next records of the epoch fill
                      the rest. So each batch depends on the plan alone, wherever the epoch is resumed, and all parts give
                      equally many batches.
        "substitute"  the next good record replaces it.
    fetch:     returns the bytes of several records at once, for remote sources. Loading a batch begins when its bytes have
               arrived, so that no loading thread waits for a server. If they cannot be fetched, `next()` raises the error.
    """

    def __init__(self, load: LoadRecord, threads: int, on_error: str, name: str,
                 fetch: Callable[[list[int]], list[bytes]] | None = None):
        check_choice(name, "on_error", on_error, ("raise", "skip", "substitute"))
        if threads < 1:
            raise ParameterError(f"{name}: preprocess_threads={threads} is less than 1.")
        self.load, self.on_error, self.name = load, on_error, name
        self.workers, self.fetch = ThreadPool(threads, name), fetch
        self.fetchers = ThreadPool(_FETCH_THREADS, f"{name}-fetch")
        self.bad_records: dict[int, str] = {}  # error text by record, so that later epochs do not read them again

    def fill(self, request: BatchRequest, arrays: list[np.ndarray], on_complete: Callable[..., None]) -> None:
        """Fill arrays, [batch, ...] each; the last thread calls on_complete()."""
        job = _FillJob(self, request, arrays, on_complete)
        if self.fetch is None:
            job.start()
        else:
            self.fetchers.put(job.fetch)

    def close(self) -> None:
        """Finish the queued jobs and end the threads."""
        self.fetchers.close()
        self.workers.close()


class _FillJob:
    """A batch that is being filled."""

    def __init__(self, loader: Loader, request: BatchRequest, arrays: list[np.ndarray], on_complete: Callable[..., None]):
        self.loader, self.request, self.arrays, self.on_complete = loader, request, arrays, on_complete
        self.lock = threading.Lock()
        self.rows_left = len(request.records)
        self.numbers = request.uniforms(request.records)
        self.errors: dict[int, BaseException] = {}  # by row
        self.fetched: dict[int, bytes] = {}  # by record
        self.unreachable: FileError | None = None

    def fetch(self) -> None:
        """Fetch the bytes of all records, then start reading them."""
        try:
            if not self.request.cancelled and self.loader.fetch is not None:
                records = sorted(set(self.request.records.tolist()))
                self.fetched = dict(zip(records, self.loader.fetch(records)))
        except FileError as e:
            self.unreachable = e
        self.start()

    def start(self) -> None:
        """Queue jobs of a few rows each."""
        for first_row in range(0, len(self.request.records), _RECORDS_PER_JOB):
            self.loader.workers.put(partial(self._read_rows, first_row))

    def _read_rows(self, start: int) -> None:
        """Read the records of a few rows. The last of these jobs completes the batch."""
        stop = min(start + _RECORDS_PER_JOB, len(self.request.records))
        for row in range(start, stop):
            if self.request.cancelled:
                break
            try:
                self._read(int(self.request.records[row]), self.numbers[row], row)
            except BaseException as e:
                self.errors[row] = e.with_traceback(None)
        with self.lock:
            self.rows_left -= stop - start
            is_last = self.rows_left == 0
        if is_last:
            try:
                self.request.error = None if self.request.cancelled else self._handle_errors()
            except BaseException as e:
                self.request.error = e.with_traceback(None)
            self.on_complete()  # without the error: `next()` raises it, and an earlier `waitall` must not

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

    def _handle_errors(self) -> BaseException | None:
        """Treat the rows that failed as on_error says; return the error of the batch, if any."""
        if not self.errors:
            return None
        request, rows = self.request, sorted(self.errors)
        valid = len(request.records) - request.pad
        for row in rows:  # errors that are not about a record are never skipped
            if not isinstance(e := self.errors[row], FileError) or isinstance(e, UnreachableError):
                return e
        counted = [row for row in rows if row < valid]
        if self.loader.on_error == "raise":
            more = f" ({len(counted) - 1} more in this batch.)" if len(counted) > 1 else ""
            return FileError(f"{self.errors[rows[0]]}{more} Give on_error='skip' to skip such records.")
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
        """Fill a failed row with the next record that can be read."""
        for record in self.request.replacements(row):
            try:
                self._read(record, self.request.uniforms(np.array([record]))[0], row)
            except UnreachableError:
                raise
            except FileError:
                continue
            self.request.records[row] = record
            return
        raise FileError(f"{self.errors[row]} And no other record of this part can be read.")
