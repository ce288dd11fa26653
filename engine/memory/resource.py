"""What operators ask for besides arrays: random numbers and scratch memory (MXNet's kRandom and kTempSpace).

Random: numbers of a counter-based generator are handed out by count, when work is pushed. Two random operators need no
order between them, and results depend on the order of pushes alone.
Scratch: per (context, slot) one block that grows to the largest request, guarded by a var; slots are taken in turn.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any, NamedTuple

from ...context import Context, current_context
from ...dtype import as_dtype
from ...errors import EngineError
from ...fork import in_forked_child
from ..deps import Var
from ..gpu import cuda
from . import storage

SLOTS = 4  # scratch blocks per context: how many functions with scratch may overlap
_MASK = (1 << 64) - 1


class _Stream:
    """A seed and how many numbers were handed out."""

    __slots__ = ("offset", "seed")

    def __init__(self, seed: int):
        self.seed, self.offset = seed, 0


class Workspace(NamedTuple):
    """Scratch for one function.

    array:  the device array; uninitialised; may be replaced for others when a larger one is asked for.
    var:    put it among the function's mutable vars: it keeps other users of the slot away.
    """

    array: Any
    var: Var


class _Slot:
    __slots__ = ("block", "var")

    def __init__(self) -> None:
        self.var = Var()
        self.block: storage.Block | None = None


_lock = threading.RLock()  # re-entered when the garbage collector drops an array inside
_shared = _Stream(0)
_own: dict[Context, _Stream] = {}
_slots: dict[tuple[Context, int], _Slot] = {}
_turn: dict[Context, Any] = {}


def seed(n: int, ctx: Context | str = "all") -> None:
    """Start the generator anew. "all": one stream of numbers that all contexts draw from, in push order.

    n:    any integer; its lowest 64 bits count.
    ctx:  a context gets a stream of its own, until the next seed for "all".
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
    """Reserve the next count numbers: (seed, offset of the first). Call it when pushing, not inside a function.

    ctx: where they will be used; None is the current context.
    """
    if count < 0:
        raise EngineError(f"resource.get_random: count is negative: {count}.")
    with _lock:
        stream = _own.get(current_context() if ctx is None else ctx, _shared) if _own else _shared
        offset = stream.offset
        stream.offset = offset + count
        return stream.seed, offset


def get_workspace(shape: tuple[int, ...], dtype: Any, ctx: Context) -> Workspace:
    """Scratch on ctx for a function about to be pushed; the next of a few slots. Raises OutOfMemoryError."""
    dtype = as_dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    with _lock:
        turn = _turn.setdefault(ctx, itertools.count())
        key = (ctx, next(turn) % SLOTS)
        slot = _slots.get(key) or _slots.setdefault(key, _Slot())
        if slot.block is None or slot.block.nbytes < nbytes:
            block = storage.alloc(nbytes, ctx, slot.var)
            if ctx.is_gpu:
                cuda.share(block.memory)  # the next function with this slot may be on another stream
            slot.block = block  # queued functions keep the old bytes alive through their arrays
        return Workspace(storage.view(slot.block, 0, shape, dtype), slot.var)


def release_workspaces(ctx: Context) -> None:
    """Let go of ctx's scratch blocks; the next request makes new ones."""
    with _lock:
        for key in [k for k in _slots if k[0] == ctx]:
            del _slots[key]


@in_forked_child
def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()
