"""SendBuffer: new arrays for data that is sent; in shared memory if they are large enough and the servers can read it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...context import cpu
from ...engine import Var
from ...engine.memory import storage
from ...integers import cdiv
from ...ndarray import NDArray
from ...ndarray.core.chunk import Chunk, layout_of
from ..wire.shared_memory import SMALLEST
from .requests import Place

if TYPE_CHECKING:
    from .client import Client


class SendBuffer:
    """New arrays with the shapes and dtypes of others, in one block of memory.

    places:    the place of each in shared memory, or None.
    separate:  each array has an engine variable of its own; otherwise they share one.
    """

    def __init__(self, client: Client, like: Sequence[NDArray], separate: bool = False):
        layouts = [layout_of(tuple(a.shape), np.dtype(a.dtype), cpu()) for a in like]
        align = max(layout.dtype.itemsize for layout in layouts)  # arrays of one dtype have no gaps between them
        starts = list(itertools.accumulate((cdiv(layout.nbytes, align) * align for layout in layouts), initial=0))
        nbytes = max(starts.pop() if len(starts) > 1 else 0, 1)
        self._pool, self._users = client.pool, 0
        self._slot = self._pool.take(nbytes) if self._pool is not None and nbytes >= SMALLEST and client.shared else None
        self.places: list[Place | None] = [None if self._slot is None else (self._slot.segment, at) for at in starts]
        if separate:
            self.arrays = [NDArray(layout, chunk=self._chunk(at, layout.nbytes)) for at, layout in zip(starts, layouts)]
        else:
            chunk = self._chunk(0, nbytes)
            self.arrays = [NDArray(layout, chunk=chunk, offset=at) for at, layout in zip(starts, layouts)]

    def _chunk(self, at: int, nbytes: int) -> Chunk:
        if self._slot is None:
            return Chunk.new(max(nbytes, 1), cpu())
        return Chunk(storage.Block(self._slot.view[at:at + nbytes], nbytes, cpu()), Var(), cpu())

    def lend(self, users: int) -> None:
        """Free the memory when `release` has been called so many times."""
        self._users = users

    def release(self) -> None:
        """Note that one of the users has ended."""
        self._users -= 1
        if not self._users and self._slot is not None and self._pool is not None:
            self._pool.give(self._slot)
