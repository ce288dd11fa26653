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

    def close(self) -> None:
        """Finish the queued jobs and end the threads."""
        self.fetchers.close()
        self.workers.close()


class BatchRequest:
    """One batch to fill: batch number `batch` of an epoch of the plan, which starts at position begin.

    seed, draws:  seed and count of each record's random numbers.
    records:      int64[batch_size]; after filling, the records in the batch.
    pad:          how many of the last rows are padding; after filling, including rows that on_error added.
    bad:          after filling, the error text of each record that should have counted.
    error:        after filling, the error that `next()` raises instead of returning the batch, or None.
    """

    def __init__(self, loader: Loader, plan: BatchPlan, epoch: int, begin: int, batch: int, seed: int, draws: int):
        self.loader, self.records, self.pad = loader, plan.numbers(epoch, begin, batch), plan.pad(begin, batch)
        self.bad: dict[int, str] = {}
        self.error: BaseException | None = None
        self.cancelled = False
        self._replacements = partial(plan.after, epoch, begin, batch)
        self._uniforms = partial(uniforms, seed, epoch, count=draws)
        self._lock, self._rows_left = threading.Lock(), len(self.records)
        self._errors: dict[int, BaseException] = {}  # by row
        self._fetched: dict[int, bytes] = {}  # by record
        self._unreachable: FileError | None = None

    def fill(self, arrays: list[np.ndarray], on_complete: Callable[..., None]) -> None:
        """Fill arrays, [batch, ...] each; the last thread calls on_complete()."""
        self._arrays, self._on_complete, self._numbers = arrays, on_complete, self._uniforms(self.records)
        if self.loader.fetch is None:
            self._start()
        else:
            self.loader.fetchers.put(self._fetch)

    def _fetch(self) -> None:
        """Fetch the bytes of all records, then start reading them."""
        try:
            if not self.cancelled and self.loader.fetch is not None:
                records = sorted(set(self.records.tolist()))
                self._fetched = dict(zip(records, self.loader.fetch(records)))
        except FileError as e:
            self._unreachable = e
        self._start()

    def _start(self) -> None:
        """Queue jobs of a few rows each."""
        for first_row in range(0, len(self.records), _RECORDS_PER_JOB):
            self.loader.workers.put(partial(self._read_rows, first_row))

    def _read_rows(self, start: int) -> None:
        """Read the records of a few rows. The last of these jobs completes the batch."""
        stop = min(start + _RECORDS_PER_JOB, len(self.records))
        for row in range(start, stop):
            if self.cancelled:
                break
            try:
                self._read(int(self.records[row]), self._numbers[row], row)
            except BaseException as e:
                self._errors[row] = e.with_traceback(None)
        with self._lock:
            self._rows_left -= stop - start
            is_last = self._rows_left == 0
        if is_last:
            try:
                self.error = None if self.cancelled else self._handle_errors()
            except BaseException as e:
                self.error = e.with_traceback(None)
            on_complete = self._on_complete
            del self._arrays, self._fetched, self._on_complete  # the request lives as long as its batch
            on_complete()  # without the error: `next()` raises it, and an earlier `waitall` must not

    def _read(self, record: int, numbers: np.ndarray, row: int) -> None:
        known = self.loader.bad_records.get(record)
        if known is not None:
            raise FileError(known)
        if self._unreachable is not None:
            raise self._unreachable
        try:
            self.loader.load(record, numbers.tolist(), [a[row:row + 1] for a in self._arrays], self._fetched.get(record))
        except UnreachableError:
            raise
        except FileError as e:
            if self.loader.on_error != "raise":
                self.loader.bad_records[record] = str(e)
            raise

    def _handle_errors(self) -> BaseException | None:
        """Treat the rows that failed as on_error says; return the error of the batch, if any."""
        if not self._errors:
            return None
        rows = sorted(self._errors)
        valid = len(self.records) - self.pad
        for row in rows:  # errors that are not about a record are never skipped
            if not isinstance(e := self._errors[row], FileError) or isinstance(e, UnreachableError):
                return e
        counted = [row for row in rows if row < valid]
        if self.loader.on_error == "raise":
            more = f" ({len(counted) - 1} more in this batch.)" if len(counted) > 1 else ""
            return FileError(f"{self._errors[rows[0]]}{more} Give on_error='skip' to skip such records.")
        self.bad = {int(self.records[row]): str(self._errors[row]) for row in counted}
        self.records = self.records.copy()
        for row in rows:
            self._replace(row)
        if self.loader.on_error == "skip" and counted:
            good = [row for row in range(valid) if row not in self._errors]
            order = good + [row for row in range(len(self.records)) if row not in set(good)]
            for a in self._arrays:
                a[...] = a[order]
            self.records, self.pad = self.records[order], len(order) - len(good)
        return None

    def _replace(self, row: int) -> None:
        """Fill a failed row with the next record that can be read."""
        for record in self._replacements(row):
            try:
                self._read(record, self._uniforms(np.array([record]))[0], row)
            except UnreachableError:
                raise
            except FileError:
                continue
            self.records[row] = record
            return
        raise FileError(f"{self._errors[row]} And no other record of this part can be read.")
