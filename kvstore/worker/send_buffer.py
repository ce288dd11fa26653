"""Staging: several arrays in one piece of memory on the host; in shared memory, if it is worth it and the servers see it."""

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

if TYPE_CHECKING:
    from .client import Client

Place = tuple[int, int]  # segment, byte


class Piece:
    """Fresh arrays of the shapes and dtypes of others.

    places:  where each is in shared memory, None if it is not.
    apart:   each has a variable of its own; else they have one.
    """

    def __init__(self, client: Client, like: Sequence[NDArray], apart: bool = False):
        layouts = [layout_of(tuple(a.shape), np.dtype(a.dtype), cpu()) for a in like]
        align = max(layout.dtype.itemsize for layout in layouts)  # equal dtypes lie side by side, without gaps
        starts = list(itertools.accumulate((cdiv(layout.nbytes, align) * align for layout in layouts), initial=0))
        nbytes = max(starts.pop() if len(starts) > 1 else 0, 1)
        self._client, self._users = client, 0
        self._slot = client.take_slot(nbytes) if nbytes >= SMALLEST and client.shared else None
        self.places: list[Place | None] = [None if self._slot is None else (self._slot.segment, at) for at in starts]
        if self._slot is None and apart:
            self.arrays = [NDArray(layout, chunk=Chunk.new(max(layout.nbytes, 1), cpu())) for layout in layouts]
        elif self._slot is None:
            chunk = Chunk.new(nbytes, cpu())
            self.arrays = [NDArray(layout, chunk=chunk, offset=at) for at, layout in zip(starts, layouts)]
        elif apart:
            view = self._slot.view
            blocks = [storage.Block(view[at:at + layout.nbytes], layout.nbytes, cpu()) for at, layout in zip(starts, layouts)]
            self.arrays = [NDArray(layout, chunk=Chunk(block, Var(), cpu())) for block, layout in zip(blocks, layouts)]
        else:
            chunk = Chunk(storage.Block(self._slot.view, nbytes, cpu()), Var(), cpu())
            self.arrays = [NDArray(layout, chunk=chunk, offset=at) for at, layout in zip(starts, layouts)]

    def lend(self, users: int) -> None:
        """The memory is free for others once so many users have called `release`."""
        self._users = users

    def release(self) -> None:
        """One of them does not need it any more."""
        self._users -= 1
        if not self._users and self._slot is not None:
            self._client.give_slot(self._slot)
