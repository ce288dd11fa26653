"""PrefetchingIter: fetches the next batch of other iterators on threads while the current one is used."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from ...errors import ParameterError
from ..iterator import CurrentBatchIter, DataBatch, DataDesc, DataIter, as_batch
from ..iterator_state import check_keys, state_of
from ..loading.threads import ThreadPool


class PrefetchingIter(CurrentBatchIter):
    """The batches of `iters` joined, their data in one list and their labels in another, fetched one batch ahead.

    iters:  one iterator, or several with equally many batches.
    rename_data, rename_label:  a dict from name to new name for each iterator.
    An iterator's error is raised by the `next` that would have returned its batch.
    """

    def __init__(self, iters: DataIter | Sequence[DataIter], rename_data: Sequence[dict[str, str]] | None = None,
                 rename_label: Sequence[dict[str, str]] | None = None):
        self.iters: list[Any] = list(iters) if isinstance(iters, (list, tuple)) else [iters]
        if not self.iters:
            raise ParameterError("PrefetchingIter: iters is empty. Give at least one iterator.")
        for name, names in (("rename_data", rename_data), ("rename_label", rename_label)):
            if names is not None and len(names) != len(self.iters):
                raise ParameterError(f"PrefetchingIter: {name} has {len(names)} entries for {len(self.iters)} iterators.")
        self.rename_data, self.rename_label = rename_data, rename_label
        super().__init__(self.provide_data[0].shape[0])
        self._pool = ThreadPool(len(self.iters), "PrefetchingIter")
        self._ahead: list[Future] = []
        _iterators.add(self)
        self._fetch_next()

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of the data arrays of all iterators, renamed."""
        return _renamed([it.provide_data for it in self.iters], self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of the label arrays of all iterators, renamed."""
        return _renamed([it.provide_label for it in self.iters], self.rename_label)

    def reset(self) -> None:
        """Reset all iterators."""
        wait(self._ahead)
        for it in self.iters:
            it.reset()
        self._fetch_next()

    def iter_next(self) -> bool:
        wait(self._ahead)
        try:
            batches = [future.result() for future in self._ahead]
        except BaseException:
            self._fetch_next()
            raise
        ended = sum(b is None for b in batches)
        if ended:
            self.current_batch = None
            if ended < len(batches):
                raise ParameterError("PrefetchingIter: the iterators have different numbers of batches.")
            return False
        batches = [as_batch(b) for b in batches]
        self.current_batch = DataBatch([a for b in batches for a in b.data or ()], [a for b in batches for a in b.label or ()],
                                       batches[0].pad, batches[0].index, provide_data=self.provide_data,
                                       provide_label=self.provide_label)
        self._fetch_next()
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data: the states of the inner iterators before the batch that is being fetched."""
        return {"inner": [state or state_of(it, "PrefetchingIter") for it, state in zip(self.iters, self._states)]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state. The inner iterators check their own parts of it."""
        check_keys("PrefetchingIter", state, ("inner",))
        inner = state["inner"]
        if not isinstance(inner, list) or len(inner) != len(self.iters):
            raise ParameterError(f"PrefetchingIter.load_state_dict: this is not a state of {len(self.iters)} iterators.")
        wait(self._ahead)
        for it, inner_state in zip(self.iters, inner):
            it.load_state_dict(inner_state)
        self._fetch_next()

    def _fetch_next(self) -> None:
        self._states = [_state(it) for it in self.iters]
        self._ahead = [Future() for _ in self.iters]
        for it, future in zip(self.iters, self._ahead):
            self._pool.put(partial(_fetch, it, future))


def _state(it: Any) -> dict[str, Any] | None:
    """Return an iterator's state, or None if it has none."""
    try:
        return it.state_dict() if hasattr(it, "state_dict") else None
    except ParameterError:
        return None


def _fetch(it: Any, future: Future) -> None:
    try:
        future.set_result(next(it, None))
    except BaseException as e:
        future.set_exception(e)


def _renamed(descriptions: Sequence[Sequence[Any]], names: Sequence[dict[str, str]] | None) -> list[DataDesc]:
    out = []
    for i, arrays in enumerate(descriptions):
        table: dict[str, str] = names[i] if names is not None else {}
        for d in arrays:  # DataDesc, or the pair (name, shape) of a user's own iterator
            d = d if isinstance(d, DataDesc) else DataDesc(*d)
            name = str(d.name)
            out.append(DataDesc(table.get(name, name), d.shape, d.dtype, d.layout))
    return out


_iterators: weakref.WeakSet[PrefetchingIter] = weakref.WeakSet()


def _before_fork() -> None:
    """Finish the batches being fetched: a forked child has no threads that would."""
    for it in list(_iterators):
        wait(it._ahead)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
