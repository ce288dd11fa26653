"""RowIter: batches out of a source whose rows are numbered."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...context import cpu
from ...dtype import as_dtype
from ...errors import ParameterError
from ...ndarray import NDArray
from ...ndarray.core.array_core import allocate
from ...ndarray.core.chunk import layout_of
from ..iterator import DataDesc, DataIter
from ..iterator_state import MOST_EPOCHS, check_keys, integers
from ..plan import BatchPlan


class RowIter(DataIter):
    """Batches of the rows of a plan. A subclass gives `read(numbers)`: the data and the label array of these rows.

    Which rows make which batch, of parts and at the end of an epoch, is BatchPlan's matter.
    """

    def __init__(self, source: str, plan: BatchPlan, data: DataDesc, label: DataDesc):
        super().__init__(plan.batch_size)
        self.plan = plan
        self.provide_data, self.provide_label = [data], [label]
        self._layouts = [layout_of(d.shape, as_dtype(d.dtype), cpu()) for d in (data, label)]
        self._source = source
        self._begin = 0  # rows that the last epoch's last batch took from the front
        self._epoch, self._batch = 0, -1
        self._index = np.empty(0, np.int64)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The data and label values of rows int64[batch], shaped as they were described."""
        raise NotImplementedError(f"{type(self).__name__}.read")

    @property
    def num_batches(self) -> int:
        """Batches of this epoch."""
        return self.plan.batches(self._begin)

    def reset(self) -> None:
        """Begin the next epoch; behind what filled the last one's last batch, if that was given (round_batch)."""
        complete = self._batch >= self.num_batches - 1
        self._begin = self.plan.following(self._begin) if complete else 0
        self._epoch, self._batch = self._epoch + 1, -1

    def iter_next(self) -> bool:
        self._batch += 1
        if self._batch >= self.num_batches:
            self._batch = self.num_batches
            return False
        self._index = self.plan.numbers(self._epoch, self._begin, self._batch)
        self._values = self.read(self._index)
        return True

    def getindex(self) -> np.ndarray:
        """The rows in the batch, int64[batch_size], as numbers in the whole source."""
        return self._index

    def getdata(self) -> list[NDArray]:
        return [self._array(0)]

    def getlabel(self) -> list[NDArray]:
        return [self._array(1)]

    def _array(self, which: int) -> NDArray:
        """The data (0) or the label (1) that was read."""
        made = allocate(self._layouts[which])
        made.device_array()[...] = self._values[which]  # nobody else knows it yet: no need to queue
        return made

    def getpad(self) -> int:
        return self.plan.pad(self._begin, self._batch)

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as plain data: `load_state_dict` goes on from there, also in another process."""
        return {**self._identity(), "epoch": self._epoch, "begin": self._begin, "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken: the next batch is the one behind it. Refuses one of another source."""
        name = type(self).__name__
        check_keys(name, state, self.state_dict())
        for key, mine in self._identity().items():
            if state[key] != mine:
                raise ParameterError(f"{name}.load_state_dict: the state is of {key} {state[key]!r}, "
                                     f"this iterator has {mine!r}.")
        epoch, begin, batch = integers(name, state, "epoch", "begin", "batch")
        if not 0 <= epoch < MOST_EPOCHS or not 0 <= begin <= self.batch_size or not -1 <= batch <= self.plan.batches(0):
            raise ParameterError(f"{name}.load_state_dict: epoch {epoch}, begin {begin} and batch {batch} "
                                 f"cannot be.")
        self._epoch, self._begin, self._batch = epoch, begin, batch

    def _identity(self) -> dict[str, Any]:
        return {"source": self._source, **self.plan.identity()}
