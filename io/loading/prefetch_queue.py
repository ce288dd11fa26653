"""PrefetchQueue: batches that are filled ahead of their consumer, each in its own memory and ordered by an engine variable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ... import engine
from ...context import cpu
from ...engine import Var
from ...integers import cdiv
from ...ndarray import NDArray
from ...ndarray.core.chunk import Chunk, Layout

_ALIGNMENT = 64  # bytes


class PrefetchSlot:
    """The arrays of one batch, side by side in one chunk, and the producer's tag."""

    def __init__(self, layouts: Sequence[Layout], tag: Any):
        *offsets, end = accumulate((cdiv(layout.nbytes, _ALIGNMENT) * _ALIGNMENT for layout in layouts), initial=0)
        chunk = Chunk.new(end, cpu())
        self.var: Var = chunk.var
        self.arrays: list[NDArray] = [NDArray(layout, chunk=chunk, offset=offset) for offset, layout in zip(offsets, layouts)]
        self.tag = tag


class PrefetchQueue:
    """At most `depth` slots, in the order in which filling them began.

    An engine task that mutates the slot's variable fills it, so that every reader of its arrays runs later. The memory is
    reused when no array, view or task refers to it any more: a batch that the user keeps is never overwritten.
    """

    def __init__(self, layouts: Sequence[Layout], depth: int, name: str):
        self.layouts, self.depth, self.name = list(layouts), depth, name
        self._slots: deque[PrefetchSlot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def begin(self, fill: Callable[[list[np.ndarray], Callable[..., None]], None], tag: Any) -> None:
        """Append a slot and push fill(host arrays, on_complete) for it. Any thread may call on_complete()."""
        slot = PrefetchSlot(self.layouts, tag)
        arrays = slot.arrays

        def start(run: Any, on_complete: Callable[..., None]) -> None:
            fill([a.device_array() for a in arrays], on_complete)

        engine.current().push_async(start, cpu(), (), (slot.var,), prop="io", name=self.name)
        self._slots.append(slot)

    def take(self) -> PrefetchSlot:
        """Wait for the oldest slot and remove it. An interrupted wait removes nothing."""
        engine.current().wait_for_var(self._slots[0].var)
        return self._slots.popleft()

    def clear(self) -> list[Any]:
        """Remove all slots and return their tags. Tasks in flight still complete."""
        tags = [slot.tag for slot in self._slots]
        self._slots.clear()
        return tags
