"""PlanIter: an iterator's position in its BatchPlan. RowIter: batches from a source whose rows are read by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...context import cpu
from ...dtype import as_dtype
from ...ndarray import NDArray
from ...ndarray.core.array_core import allocate
from ...ndarray.core.chunk import layout_of
from ..iterator import DataBatch, DataDesc, DataIter
from ..iterator_state import MAX_EPOCHS, check_counts, check_keys, integers
from ..plan import BatchPlan


class PlanIter(DataIter):
    """An iterator whose batches hold the rows of a plan: one data array and one label array. (`mx.io.MXDataIter`.)

    getdata and getlabel return these arrays themselves, as those of MXNet's iterators in C++.
    """

    def __init__(self, plan: BatchPlan, data: DataDesc, label: DataDesc):
        super().__init__(plan.batch_size)
        self.plan = plan
        self.provide_data, self.provide_label = [data], [label]
        self._layouts = [layout_of(d.shape, as_dtype(d.dtype), cpu()) for d in (data, label)]
        self._epoch, self._batch = 0, -1
        self._begin = 0  # rows that the last batch of the previous epoch took from the front

    @property
    def num_batches(self) -> int:
        """Batches of this epoch."""
        return self.plan.batches(self._begin)

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())

    def _next_epoch(self) -> bool:
        """Move to the next epoch. Returns True if this one was read to its end."""
        complete = self._batch >= self.num_batches - 1
        self._begin = self.plan.following(self._begin) if complete else 0
        self._epoch, self._batch = self._epoch + 1, -1
        return complete

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data, for `load_state_dict` in this or another process."""
        return {**self._identity(), "epoch": self._epoch, "begin": self._begin, "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch after the one at which the state was saved. Refuses a state of another source or plan."""
        name, own = type(self).__name__, self._identity()
        check_keys(name, state, (*own, "epoch", "begin", "batch"), own)
        epoch, begin, batch = integers(name, state, "epoch", "begin", "batch")
        check_counts(name, 0 <= epoch < MAX_EPOCHS and 0 <= begin <= self.batch_size and -1 <= batch <= self.plan.batches(0),
                     epoch=epoch, begin=begin, batch=batch)
        self._epoch, self._begin, self._batch = epoch, begin, batch

    def _identity(self) -> dict[str, Any]:
        """Return the values that a state must share to fit this iterator."""
        raise NotImplementedError(f"{type(self).__name__}._identity")


class RowIter(PlanIter):
    """Batches of the rows of a plan. A subclass implements `read(numbers)`: the data and label arrays of these rows.

    BatchPlan decides the rows of each batch, also of parts and at the end of an epoch.
    """

    def __init__(self, source: str, plan: BatchPlan, data: DataDesc, label: DataDesc):
        super().__init__(plan, data, label)
        self._source = source
        self._index = np.empty(0, np.int64)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the data and label values of rows int64[batch], in the shapes of provide_data and provide_label."""
        raise NotImplementedError(f"{type(self).__name__}.read")

    def reset(self) -> None:
        """Begin the next epoch. With round_batch it starts behind the rows that filled up the last batch."""
        self._next_epoch()

    def iter_next(self) -> bool:
        self._batch += 1
        if self._batch >= self.num_batches:
            self._batch = self.num_batches
            return False
        self._index = self.plan.numbers(self._epoch, self._begin, self._batch)
        self._values = self.read(self._index)
        return True

    def getindex(self) -> np.ndarray:
        """Return the batch's rows, int64[batch_size], as indices into the whole source."""
        return self._index

    def getdata(self) -> Any:
        return self._array(0)

    def getlabel(self) -> Any:
        return self._array(1)

    def _array(self, which: int) -> NDArray:
        """Return the data (0) or the label (1) as an array."""
        array = allocate(self._layouts[which])
        array.device_array()[...] = self._values[which]  # written without a push: no task knows the array yet
        return array

    def getpad(self) -> int:
        return self.plan.pad(self._begin, self._batch)

    def _identity(self) -> dict[str, Any]:
        return {"source": self._source, **self.plan.identity()}
