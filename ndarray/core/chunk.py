"""Chunk: bytes on a context and the variable that orders work on them. Layout: what an array is, without its bytes."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np

from ...context import Context
from ...engine import Var
from ...engine.gpu import streams
from ...engine.interrupts import ki_protected
from ...engine.memory import storage
from ...errors import ShapeError
from ...kernels.op import Spec

_TINY = 4096  # bytes: malloc is faster than the pool, and what so little memory adds up to needs no statistics


class Chunk:
    """Memory that arrays share: a storage block, one engine variable, and the context both belong to.

    overwrites:  what was written in place while recording (tape.Overwrite), for arrays that share the memory.
    """

    __slots__ = ("__weakref__", "block", "ctx", "overwrites", "var")

    def __init__(self, block: storage.Block, var: Any, ctx: Context):
        self.block, self.var, self.ctx = block, var, ctx
        self.overwrites: tuple[Any, ...] = ()

    def twin(self) -> Chunk:
        """The same memory and variable, for arrays that are to know nothing of what was recorded."""
        return Chunk(self.block, self.var, self.ctx)

    @property
    def version(self) -> int:
        """How many functions that write it were pushed; the tape compares."""
        return self.var.version

    @staticmethod
    def new(nbytes: int, ctx: Context, var: Var | None = None) -> Chunk:
        """Uninitialised bytes, taken when they are first used. Raises ContextError; OutOfMemoryError for the impossible."""
        var = Var() if var is None else var
        if nbytes <= _TINY and not ctx.is_gpu:
            block = storage.Block(np.empty(nbytes, np.uint8), nbytes, ctx, var)
        else:
            block = storage.alloc_lazily(nbytes, ctx, var)
        return DeviceChunk(block, var, ctx) if ctx.is_gpu else Chunk(block, var, ctx)


class DeviceChunk(Chunk):
    """A chunk on a GPU, where functions have only been enqueued when the last array that knows it is gone."""

    __slots__ = ()

    @ki_protected
    def __del__(self) -> None:
        pending, memory = self.var.pending_events, self.block.taken()
        if pending is not None and memory is not None:
            streams.record_streams(memory, pending)


class Layout:
    """Shape, dtype and context; one object for equal ones (`layout`), so that caches compare by identity.

    mask:  whether it holds truths, as comparisons give them, in a dtype of numbers: as an index it selects. plain: without that.
    """

    __slots__ = ("__weakref__", "ctx", "dtype", "mask", "nbytes", "plain", "shape", "size", "spec", "target", "tiny")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, ctx: Context, plain: Layout | None = None):
        self.shape, self.dtype, self.ctx = shape, dtype, ctx
        self.mask, self.plain = plain is not None, plain
        self.spec = Spec(shape, dtype)
        self.size, self.nbytes = self.spec.size, self.spec.nbytes
        self.target = "gpu" if ctx.is_gpu else "cpu"
        self.tiny = 0 < self.nbytes <= _TINY and self.target == "cpu"

    @property
    def context(self) -> Context:
        """For `errors.describe`."""
        return self.ctx

    def same(self, other: Layout) -> bool:
        """Whether both are of one shape, dtype and context, masks or not."""
        return self is other or (self.plain or self) is (other.plain or other)

    def of(self, shape: tuple[int, ...]) -> Layout:
        """This layout in another shape."""
        return layout_of(shape, self.dtype, self.ctx, self.mask)

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.dtype}, {self.ctx})"


#: Those that something still has: a program with ever new shapes must not grow for ever.
making = threading.RLock()  # held for the few instructions that let one layout, or an array's one chunk, be known
_layouts: weakref.WeakValueDictionary[tuple, Layout] = weakref.WeakValueDictionary()


def layout_of(shape: tuple[int, ...], dtype: np.dtype, ctx: Context, mask: bool = False) -> Layout:
    """The Layout of shape (a tuple of ints), dtype and ctx; bool needs no mask. Raises ShapeError for a negative size."""
    key: tuple = (shape, dtype, ctx.device_type, ctx.device_id)
    if mask and dtype.kind != "b":
        key = (*key, True)
    found = _layouts.get(key)
    if found is None:
        shape = tuple(int(n) for n in shape)
        if shape and min(shape) < 0:
            raise ShapeError(f"NDArray: negative size in shape {shape}.")
        made = Layout(shape, dtype, ctx, layout_of(shape, dtype, ctx) if len(key) == 5 else None)
        with making:
            found = _layouts.get(key)
            if found is None:
                found = _layouts[key] = made
    return found


def _after_fork() -> None:
    """In a forked child the lock may be held by a thread that is not here."""
    global making
    making = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
