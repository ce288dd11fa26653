"""PrefetchingIter: other iterators, each asked for its next batch on a thread while the last one is used."""

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
    """The batches of `iters` side by side: their data and labels in one list each, fetched one batch ahead.

    iters:  one iterator or several of the same number of batches.
    rename_data, rename_label:  for each iterator a dict of name to new name.
    An error of an iterator is raised by the `next` that would have given its batch.
    """

    def __init__(self, iters: DataIter | Sequence[DataIter], rename_data: Sequence[dict[str, str]] | None = None,
                 rename_label: Sequence[dict[str, str]] | None = None):
        self.iters: list[Any] = list(iters) if isinstance(iters, (list, tuple)) else [iters]
        if not self.iters:
            raise ParameterError("PrefetchingIter: iters is empty. Give at least one iterator.")
        for what, names in (("rename_data", rename_data), ("rename_label", rename_label)):
            if names is not None and len(names) != len(self.iters):
                raise ParameterError(f"PrefetchingIter: {what} has {len(names)} entries for {len(self.iters)} iterators.")
        self.rename_data, self.rename_label = rename_data, rename_label
        super().__init__(self.provide_data[0].shape[0])
        self._workers = ThreadPool(len(self.iters), "PrefetchingIter")
        self._ahead: list[Future] = []
        _all.add(self)
        self._ask()

    @property
    def provide_data(self) -> list[DataDesc]:
        """What the data arrays are, of all iterators, renamed."""
        return _renamed([it.provide_data for it in self.iters], self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """What the label arrays are, of all iterators, renamed."""
        return _renamed([it.provide_label for it in self.iters], self.rename_label)

    def reset(self) -> None:
        """Send all iterators to their beginning."""
        wait(self._ahead)
        for it in self.iters:
            it.reset()
        self._ask()

    def iter_next(self) -> bool:
        wait(self._ahead)
        errors = [e for e in (f.exception() for f in self._ahead) if e is not None]
        batches = [] if errors else [f.result() for f in self._ahead]
        if errors:
            self._ask()
            raise errors[0]
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
        self._ask()
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as plain data, if those inside can say where they do: before the batch they are ahead."""
        return {"inner": [state or state_of(it, "PrefetchingIter") for it, state in zip(self.iters, self._states)]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken. The iterators inside refuse a state that is not theirs."""
        check_keys("PrefetchingIter", state, ("inner",))
        inner = state["inner"]
        if not isinstance(inner, list) or len(inner) != len(self.iters):
            raise ParameterError(f"PrefetchingIter.load_state_dict: this is not a state of {len(self.iters)} iterators.")
        wait(self._ahead)
        for it, of_one in zip(self.iters, inner):
            it.load_state_dict(of_one)
        self._ask()

    def _ask(self) -> None:
        self._states = [_state(it) for it in self.iters]
        self._ahead = [Future() for _ in self.iters]
        for it, answer in zip(self.iters, self._ahead):
            self._workers.put(partial(_fetch, it, answer))


def _state(it: Any) -> dict[str, Any] | None:
    """Where an iterator stands, or None if it cannot say."""
    try:
        return it.state_dict() if hasattr(it, "state_dict") else None
    except ParameterError:
        return None


def _fetch(it: Any, answer: Future) -> None:
    try:
        answer.set_result(next(it, None))
    except BaseException as e:
        answer.set_exception(e)


def _renamed(descriptions: Sequence[Sequence[Any]], names: Sequence[dict[str, str]] | None) -> list[DataDesc]:
    out = []
    for i, of_one in enumerate(descriptions):  # DataDesc, or the pairs (name, shape) of a user's own iterator
        table: dict[str, str] = names[i] if names is not None else {}
        for d in of_one:
            d = d if isinstance(d, DataDesc) else DataDesc(*d)
            name = str(d.name)
            out.append(DataDesc(table.get(name, name), d.shape, d.dtype, d.layout))
    return out


_all: weakref.WeakSet[PrefetchingIter] = weakref.WeakSet()


def _before_fork() -> None:
    """A child has no thread that would answer: what was asked for is there before it is made."""
    for it in list(_all):
        wait(it._ahead)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
