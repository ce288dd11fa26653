"""RecordIter: batches of the records of a file, read ahead on threads, in a plan's order, resumable anywhere."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

import numpy as np

from ...context import cpu
from ...dtype import as_dtype
from ...errors import ParameterError
from ...ndarray import NDArray
from ...ndarray.core.chunk import layout_of
from ..iterator import DataDesc, DataIter
from ..iterator_state import MOST_EPOCHS, check_keys, integers
from ..loading.loader import BatchRequest, Loader, LoadRecord
from ..loading.prefetch_queue import PrefetchQueue, PrefetchSlot
from ..plan import BatchPlan
from ..records.record_file import RecordFile

_log = logging.getLogger("tritium.io")


class RecordIter(DataIter):
    """Batches of what `load` makes of the records of `file`, as `plan` says.

    data, label:   what the arrays of a batch are.
    draws, seed:   how many random numbers a record takes, and their seed.
    threads:       that load; the number of cores unless given.
    prefetch:      batches that are ready ahead.
    on_error:      see Loader.
    """

    def __init__(self, file: RecordFile, plan: BatchPlan, load: LoadRecord, data: DataDesc, label: DataDesc, *, draws: int,
                 seed: int, threads: int | None, prefetch: int, on_error: str):
        super().__init__(plan.batch_size)
        name = type(self).__name__
        if prefetch < 0:
            raise ParameterError(f"{name}: prefetch_buffer={prefetch} is less than 0.")
        self.plan, self.provide_data, self.provide_label = plan, [data], [label]
        self._file, self._draws, self._seed = file, draws, seed
        self._loader = Loader(load, _cores() if threads is None else threads, on_error, name,
                              file.fetch if file.source.is_remote else None)
        self._queue = PrefetchQueue([layout_of(d.shape, as_dtype(d.dtype), cpu()) for d in (data, label)], prefetch + 2, name)
        self._epoch, self._begin, self._batch = 0, 0, -1
        self.skipped: dict[int, str] = {}
        self._slot: PrefetchSlot | None = None

    @property
    def preprocess_threads(self) -> int:
        """Threads that decode."""
        return self._loader.workers.count

    @property
    def num_batches(self) -> int:
        """Batches of this epoch."""
        return self.plan.batches(self._begin)

    # ---- batches ----
    def iter_next(self) -> bool:
        if self._batch >= self.num_batches - 1:
            if self._batch == self.num_batches - 1:
                self._report()
            self._batch, self._slot = self.num_batches, None
            return False
        self._fill_up()
        slot = self._queue.take()
        self._batch += 1  # after an error, too: the next call goes on behind the bad batch
        self._fill_up()
        if slot.tag.error is not None:
            self._slot = None
            raise slot.tag.error
        self._slot = slot
        self.skipped |= slot.tag.bad
        return True

    def getdata(self) -> list[NDArray]:
        return [self._current().arrays[0]]

    def getlabel(self) -> list[NDArray]:
        return [self._current().arrays[1]]

    def getindex(self) -> np.ndarray:
        """Which records of the file the batch holds, int64[batch_size]."""
        return self._current().tag.records

    def getpad(self) -> int:
        return self._current().tag.pad

    def reset(self) -> None:
        """Begin the next epoch; where a batch of this one was given."""
        if self._batch < 0:
            return
        ended = self._batch >= self.num_batches - 1
        self._drop()
        self._begin = self.plan.following(self._begin) if ended else 0
        self._epoch, self._batch = self._epoch + 1, -1
        self.skipped = {}
        self._file.check()
        if ended:  # whoever took a whole epoch will want the next
            self._fill_up()

    def close(self) -> None:
        """End the threads and give the file back. Dropping the iterator does the same, later."""
        self._drop()
        self._loader.close()
        self._file.close()

    def __enter__(self) -> RecordIter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self):
        if hasattr(self, "_queue"):
            self._drop()

    def _current(self) -> PrefetchSlot:
        if self._slot is None:
            raise ParameterError(f"{type(self).__name__}: there is no batch. Call next() first, or reset().")
        return self._slot

    def _fill_up(self) -> None:
        """Begin as many batches as the ring holds."""
        while len(self._queue) < self._queue.depth and (batch := self._batch + 1 + len(self._queue)) < self.num_batches:
            request = BatchRequest(self.plan, self._epoch, self._begin, batch, self._seed, self._draws)
            self._queue.begin(partial(self._loader.fill, request), request)

    def _drop(self) -> None:
        for request in self._queue.drop():
            request.cancelled = True
        self._slot = None

    def _report(self) -> None:
        lost = self._file.damage
        if self.skipped or lost:
            _log.warning("%s: epoch %d: %d of %d records could not be read, and %d bytes of %s hold no record. First: %s",
                         type(self).__name__, self._epoch, len(self.skipped), self.plan.size,
                         sum(d.stop - d.start for d in lost), self._file.path,
                         next(iter(self.skipped.values()), None) or f"byte {lost[0].start:,} {lost[0].why}")

    # ---- resuming ----
    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as a few plain numbers: `load_state_dict` goes on from there in any process."""
        return {"data": self._file.identity(), "plan": self.plan.identity(), "seed_aug": self._seed,
                "epoch": self._epoch, "begin": self._begin, "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken: the next batch is the one behind it. Refuses one of another data set."""
        name, mine = type(self).__name__, self.state_dict()
        check_keys(name, state, mine)
        for what, meaning in (("data", "data set"), ("plan", "plan"), ("seed_aug", "seed")):
            if state[what] != mine[what]:
                raise ParameterError(f"{name}.load_state_dict: the state is of another {meaning}: {state[what]}, this iterator "
                                     f"has {mine[what]}.")
        epoch, begin, batch = integers(name, state, "epoch", "begin", "batch")
        if not 0 <= epoch < MOST_EPOCHS or not 0 <= begin <= self.batch_size or not -1 <= batch <= self.plan.batches(0):
            raise ParameterError(f"{name}.load_state_dict: epoch {epoch}, begin {begin}, batch {batch} cannot be.")
        self._drop()
        self._epoch, self._begin, self._batch = epoch, begin, batch


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
