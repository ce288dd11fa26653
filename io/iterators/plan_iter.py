"""PlanIter: the position of an iterator in its BatchPlan, and the states that save it."""

from __future__ import annotations

from typing import Any

from ...context import cpu
from ...dtype import as_dtype
from ...ndarray.core.chunk import layout_of
from ..iterator import DataDesc, DataIter
from ..iterator_state import MAX_EPOCHS, check_counts, check_identity, check_keys, integers
from ..plan import BatchPlan


class PlanIter(DataIter):
    """An iterator whose batches hold the rows of a plan: one data array and one label array."""

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
        check_keys(name, state, (*own, "epoch", "begin", "batch"))
        check_identity(name, state, own)
        epoch, begin, batch = integers(name, state, "epoch", "begin", "batch")
        check_counts(name, 0 <= epoch < MAX_EPOCHS and 0 <= begin <= self.batch_size and -1 <= batch <= self.plan.batches(0),
                     epoch=epoch, begin=begin, batch=batch)
        self._epoch, self._begin, self._batch = epoch, begin, batch

    def _identity(self) -> dict[str, Any]:
        """Return the values that a state must share to fit this iterator."""
        raise NotImplementedError(f"{type(self).__name__}._identity")
