"""RowIter: batches from a source whose rows are read by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ndarray import NDArray
from ...ndarray.core.array_core import allocate
from ..iterator import DataDesc
from ..plan import BatchPlan
from .plan_iter import PlanIter


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

    def getdata(self) -> list[NDArray]:
        return [self._array(0)]

    def getlabel(self) -> list[NDArray]:
        return [self._array(1)]

    def _array(self, which: int) -> NDArray:
        """Return the data (0) or the label (1) as an array."""
        array = allocate(self._layouts[which])
        array.device_array()[...] = self._values[which]  # written without a push: no task knows the array yet
        return array

    def getpad(self) -> int:
        return self.plan.pad(self._begin, self._batch)

    def _identity(self) -> dict[str, Any]:
        return {"source": self._source, **self.plan.identity()}
