"""RecordIter: batches of the records of a file, read ahead on threads in a plan's order, resumable at every batch."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np

from ...errors import ParameterError
from ..iterator import DataDesc
from ..loading.loader import BatchRequest, Loader, LoadRecord
from ..loading.prefetch_queue import PrefetchQueue, PrefetchSlot
from ..plan import BatchPlan
from ..records.files import Closable, is_url
from ..records.record_file import RecordFile
from .row_iter import PlanIter

_log = logging.getLogger("tritium.io")


class RecordIter(Closable, PlanIter):
    """Batches of the records of `file` in the order of `plan`. `load` turns a record into its row of the batch.

    data, label:   descriptions of the batch's arrays.
    draws, seed:   how many random numbers a record takes, and their seed.
    threads:       threads that load; None: the number of cores.
    prefetch:      batches that are ready ahead.
    on_error:      see Loader.
    """

    def __init__(self, file: RecordFile, plan: BatchPlan, load: LoadRecord, data: DataDesc, label: DataDesc, *, draws: int,
                 seed: int, threads: int | None, prefetch: int, on_error: str):
        super().__init__(plan, data, label)
        name = type(self).__name__
        if prefetch < 0:
            raise ParameterError(f"{name}: prefetch_buffer={prefetch} is less than 0.")
        self._file, self._draws, self._seed = file, draws, seed
        self._loader = Loader(load, _cores() if threads is None else threads, on_error, name,
                              file.fetch if is_url(file.path) else None)
        self._queue = PrefetchQueue(self._layouts, prefetch + 2, name)
        self.skipped: dict[int, str] = {}
        self._slot: PrefetchSlot | None = None

    @property
    def preprocess_threads(self) -> int:
        """Threads that decode."""
        return self._loader.workers.count

    # ---- batches ----
    def iter_next(self) -> bool:
        if self._batch >= self.num_batches - 1:
            if self._batch == self.num_batches - 1:
                self._log_skipped()
            self._batch, self._slot = self.num_batches, None
            return False
        self._fill_queue()
        slot = self._queue.take()
        self._batch += 1  # after an error, too: the next call continues behind the bad batch
        self._fill_queue()
        if slot.tag.error is not None:
            self._slot = None
            raise slot.tag.error
        self._slot = slot
        self.skipped |= slot.tag.bad
        return True

    def getdata(self) -> Any:
        return self._current().arrays[0]

    def getlabel(self) -> Any:
        return self._current().arrays[1]

    def getindex(self) -> np.ndarray:
        """Return the batch's records, int64[batch_size], as indices into the file."""
        return self._current().tag.records

    def getpad(self) -> int:
        return self._current().tag.pad

    def reset(self) -> None:
        """Begin the next epoch, unless no batch of this one was read yet."""
        if self._batch < 0:
            return
        self._clear()
        complete = self._next_epoch()
        self.skipped = {}
        self._file.source.check()
        if complete:  # the next epoch will probably be read, too
            self._fill_queue()

    def close(self) -> None:
        """End the threads and close the file. Dropping the iterator does the same, later."""
        self._clear()
        self._loader.close()
        self._file.close()

    def __del__(self):
        if hasattr(self, "_queue"):
            self._clear()

    def _current(self) -> PrefetchSlot:
        if self._slot is None:
            raise ParameterError(f"{type(self).__name__}: no current batch. Call next() first, or reset().")
        return self._slot

    def _fill_queue(self) -> None:
        """Begin as many batches as the queue holds."""
        while len(self._queue) < self._queue.depth and (batch := self._batch + 1 + len(self._queue)) < self.num_batches:
            request = BatchRequest(self._loader, self.plan, self._epoch, self._begin, batch, self._seed, self._draws)
            self._queue.begin(request.fill, request)

    def _clear(self) -> None:
        for request in self._queue.clear():
            request.cancelled = True
        self._slot = None

    def _log_skipped(self) -> None:
        damage = self._file.damage
        if self.skipped or damage:
            _log.warning("%s: epoch %d: %d of %d records could not be read, and %d bytes of %s hold no record. First: %s",
                         type(self).__name__, self._epoch, len(self.skipped), self.plan.size,
                         sum(d.stop - d.start for d in damage), self._file.path,
                         next(iter(self.skipped.values()), None) or f"byte {damage[0].start:,} {damage[0].why}")

    # ---- resuming ----
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._clear()

    def _identity(self) -> dict[str, Any]:
        return {"data": self._file.identity(), "plan": self.plan.identity(), "seed_aug": self._seed}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
