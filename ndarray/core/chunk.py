"""Chunk: bytes on a context and the variable that orders work on them. Layout: shape, dtype and context of an array."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...context import Context
from ...engine import Var
from ...engine.gpu import streams
from ...engine.interrupts import ki_protected
from ...engine.memory import storage
from ...errors import ShapeError
from ...fork import lock_free_in_child
from ...kernels.op import Spec

ShapeLike = int | Sequence[int]  # of an array: its sizes, or the size of its one axis
_TINY = 1 << 14  # bytes: malloc is faster than the pool, and so little memory needs no statistics


class Chunk:
    """Memory that arrays share: a storage block, one engine variable, and the context both belong to.

    overwrites:  the in-place writes made while recording (tape.Overwrite), which concern every array on this memory.
    """

    __slots__ = ("__weakref__", "block", "ctx", "overwrites", "var")

    def __init__(self, block: storage.Block, var: Var, ctx: Context):
        self.block, self.var, self.ctx = block, var, ctx
        self.overwrites: tuple[Any, ...] = ()

    def twin(self) -> Chunk:
        """Return a chunk of the same memory and variable without the recorded overwrites."""
        return Chunk(self.block, self.var, self.ctx)

    @staticmethod
    def new(nbytes: int, ctx: Context, var: Var | None = None) -> Chunk:
        """Return a chunk of undefined bytes; larger ones are allocated on first use. Raises ContextError, OutOfMemoryError."""
        var = Var() if var is None else var
        if nbytes <= _TINY and not ctx.is_gpu:
            block = storage.Block(np.empty(nbytes, np.uint8), nbytes, ctx, var)
        else:
            block = storage.alloc_lazily(nbytes, ctx, var)
        return DeviceChunk(block, var, ctx) if ctx.is_gpu else Chunk(block, var, ctx)


class DeviceChunk(Chunk):
    """A chunk on a GPU. When its last array is deleted, functions that use it may still be queued on a stream."""

    __slots__ = ()

    @ki_protected
    def __del__(self) -> None:
        pending, block = self.var.pending_events, self.block
        if pending is None or (block.lease is not None and streams.only_computed(pending, self.ctx.device_id)):
            return  # nothing but the compute stream, in whose order the pool gives the bytes out again, has used them
        memory = block.taken()
        if memory is not None:
            streams.record_streams(memory, pending)


class Layout:
    """Shape, dtype and context. `layout_of` returns one object for equal ones, so that caches compare by identity.

    mask:   True for the 0 and 1 of a comparison in a numeric dtype; such an array selects when used as an index.
    plain:  the same layout without mask; None for a layout that is not a mask.
    tiny:   True if an array of it is a NumPy array until its chunk is asked for (see ArrayCore).
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
        """Return True if shape, dtype and context are equal; masks do not count."""
        return self is other or (self.plain or self) is (other.plain or other)

    def of(self, shape: tuple[int, ...]) -> Layout:
        """Return this layout with another shape."""
        return layout_of(shape, self.dtype, self.ctx, self.mask)

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.dtype}, {self.ctx})"


making = lock_free_in_child()  # held for the few instructions that publish a new layout, or the chunk of an array
#: Weak, because a program with ever new shapes must not grow for ever.
_layouts: weakref.WeakValueDictionary[tuple, Layout] = weakref.WeakValueDictionary()


def layout_of(shape: tuple[int, ...], dtype: np.dtype, ctx: Context, mask: bool = False) -> Layout:
    """Return the Layout of shape, dtype and ctx; mask is ignored for bool. Raises ShapeError for a negative size."""
    key: tuple = (shape, dtype, ctx.device_type, ctx.device_id)
    if mask and dtype.kind != "b":
        key = (*key, True)
    layout = _layouts.get(key)
    if layout is None:
        shape = tuple(int(n) for n in shape)
        if shape and min(shape) < 0:
            raise ShapeError(f"NDArray: negative size in shape {shape}.")
        new = Layout(shape, dtype, ctx, layout_of(shape, dtype, ctx) if len(key) == 5 else None)
        with making:
            layout = _layouts.get(key)
            if layout is None:
                layout = _layouts[key] = new
    return layout
