"""Resources of operators: random numbers and scratch memory (MXNet's kRandom and kTempSpace).

Numbers of a counter-based generator are reserved by count when work is pushed. So two random operators need no order between
them, and results depend on the order of pushes alone.
Scratch memory is one block for each context and slot, which grows to the largest request and has a variable.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple

from ...context import Context, current_context
from ...dtype import as_dtype
from ...errors import EngineError
from ...fork import lock_free_in_child
from ..deps import Var
from ..gpu import cuda
from . import storage

SLOTS = 4  # scratch blocks per context: so many functions with scratch may overlap
_MASK = (1 << 64) - 1


class _Stream:
    """A seed, and how many of its numbers are reserved."""

    __slots__ = ("offset", "seed")

    def __init__(self, seed: int):
        self.seed, self.offset = seed, 0


class Workspace(NamedTuple):
    """Scratch memory for one function.

    array:  an uninitialised device array.
    var:    the slot's variable, to be put among the function's mutable variables.
    """

    array: Any
    var: Var


class _Slot:
    __slots__ = ("block", "var")

    def __init__(self) -> None:
        self.var = Var()
        self.block: storage.Block | None = None


_lock = lock_free_in_child()  # re-entered when the garbage collector drops an array inside
_shared = _Stream(0)
_own: dict[Context, _Stream] = {}
_slots: dict[Context, deque[_Slot]] = {}  # the next one first


def seed(n: int, ctx: Context | str = "all") -> None:
    """Seed the generator.

    n:    any integer; its lowest 64 bits are used.
    ctx:  "all" for the numbers that all contexts draw from, in push order. A context has numbers of its own from then on,
          until the next seed for "all".
    """
    global _shared
    fresh = _Stream(int(n) & _MASK)
    with _lock:
        if isinstance(ctx, Context):
            _own[ctx] = fresh
        elif ctx == "all":
            _shared = fresh
            _own.clear()
        else:
            raise EngineError(f'resource.seed: ctx is {ctx!r}. Give a context or "all".')


def get_random(count: int, ctx: Context | None = None) -> tuple[int, int]:
    """Reserve the next count numbers. Return (seed, offset of the first). Call it when pushing, not inside a function.

    ctx: where they are used; None for the current context.
    """
    if count < 0:
        raise EngineError(f"resource.get_random: count is negative: {count}.")
    with _lock:
        stream = _own.get(current_context() if ctx is None else ctx, _shared) if _own else _shared
        offset = stream.offset
        stream.offset = offset + count
        return stream.seed, offset


def get_workspace(shape: tuple[int, ...], dtype: Any, ctx: Context) -> Workspace:
    """Return scratch memory on ctx for a function about to be pushed, from the next slot. Raises OutOfMemoryError."""
    dtype = as_dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    with _lock:
        slots = _slots.setdefault(ctx, deque(_Slot() for _ in range(SLOTS)))
        slot = slots[0]
        slots.rotate(-1)
        if slot.block is None or slot.block.nbytes < nbytes:
            block = storage.alloc(nbytes, ctx, slot.var)
            if ctx.is_gpu:
                cuda.share(block.memory)  # the next function with this slot may be on another stream
            slot.block = block  # queued functions keep the old bytes alive through their arrays
        return Workspace(storage.view(slot.block, 0, shape, dtype), slot.var)


def release_workspaces(ctx: Context) -> None:
    """Release ctx's scratch blocks. The next request allocates new ones."""
    with _lock:
        _slots.pop(ctx, None)
