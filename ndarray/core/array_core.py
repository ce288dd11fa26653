"""ArrayCore: what every array has: a place in a chunk, a layout, and waiting. Operations come in NDArray, on top."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import engine
from ...context import Context
from ...dtype import as_dtype
from ...engine import Var
from ...engine.gpu import cuda
from ...engine.interrupts import ki_protected
from ...engine.memory import storage
from ...engine.memory.allowance import allowed
from ...kernels.op import Spec
from . import chunk as chunks
from .chunk import Chunk, Layout, layout


class ArrayCore:
    """A dense, row-major array at an offset of a chunk, whose values may still be under way.

    chunk:   the memory; arrays that share it share its variable.
    offset:  bytes into the chunk.

    A tiny fresh array is a NumPy array, `_view`, and nothing else: it gets chunk and variable when somebody asks for
    `_chunk`. While `_var` is None, nothing was ever pushed that uses the array.
    """

    __slots__ = ("__weakref__", "_entry", "_grad", "_grad_req", "_held", "_layout", "_offset", "_var", "_view")

    def __init__(self, chunk: Chunk, offset: int, shape: tuple[int, ...], dtype: Any):
        self._held: Chunk | None = chunk
        self._var: Var | None = chunk.var
        self._offset = offset
        self._layout: Layout = layout(tuple(shape), as_dtype(dtype), chunk.ctx)
        self._view: Any = None
        self._entry: Any = None  # (tape node, output number) of what computed it, or None
        self._grad: Any = None
        self._grad_req: Any = None

    @classmethod
    def _from_chunk(cls, chunk: Chunk, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """The array at offset bytes of chunk."""
        return cls(chunk, offset, shape, dtype)

    @property
    def _chunk(self) -> Chunk:
        """Its memory and variable."""
        chunk = self._held
        return chunk if chunk is not None else self._settle()

    @ki_protected
    def _settle(self) -> Chunk:
        """Give a tiny fresh array its chunk. Of several threads that do, one wins."""
        made = Chunk(storage.Block(self._view, self._layout.nbytes, self._layout.ctx), Var(), self._layout.ctx)
        with chunks.making:
            if self._held is None:
                self._var = made.var  # first: who finds the chunk must find the variable
                self._held = made
            return self._held

    # ---- what it is ----
    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, slowest axis first."""
        return self._layout.shape

    @property
    def dtype(self) -> Any:
        """The element type as numpy's class, `np.float32`, as MXNet gives it."""
        return self._layout.dtype.type

    @property
    def context(self) -> Context:
        """Where it lives."""
        return self._layout.ctx

    @property
    def ctx(self) -> Context:
        """Where it lives."""
        return self._layout.ctx

    @property
    def size(self) -> int:
        """Elements."""
        return self._layout.size

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self._layout.nbytes

    @property
    def ndim(self) -> int:
        """Axes."""
        return len(self._layout.shape)

    @property
    def stype(self) -> str:
        """Storage type; always "default", dense."""
        return "default"

    @property
    def _spec(self) -> Spec:
        return self._layout.spec

    # ---- its bytes ----
    def _device(self) -> Any:
        """The device array: numpy on the CPU, a torch tensor on a GPU. For engine functions, or after a wait."""
        view = self._view
        if view is None:
            what = self._layout
            if what.target == "gpu":
                view = storage.view(self._chunk.block, self._offset, what.shape, what.dtype)
            else:
                view = np.ndarray(what.shape, what.dtype, self._chunk.block.memory, self._offset)
            if storage.access_checker is not None:  # CheckedEngine asks every time
                return storage.access_checker.view(self._chunk.block, view) if what.target == "cpu" else view
            self._view = view
        return view

    def wait_to_read(self) -> None:
        """Block until all writes pushed so far are done. Raises what failed, naming the operator."""
        if self._var is not None:
            engine.current().wait_for_var(self._var)

    wait_to_write = wait_to_read

    def asnumpy(self) -> np.ndarray:
        """The values, copied to a numpy array. Waits; raises what failed."""
        self.wait_to_read()
        device = self._device()
        return np.array(cuda.to_host(device) if self._layout.target == "gpu" else device)


class _Made:
    """array_class: what `wrap` makes arrays of; NDArray puts itself here.
    ahead: bytes of the arrays made since the engine was last let catch up; most: how many there may be.
    """

    array_class: type[ArrayCore] = ArrayCore
    ahead = 0
    most = 0


_new = object.__new__


def wrap(chunk: Chunk, offset: int, what: Layout) -> Any:
    """An NDArray at offset bytes of chunk."""
    a = _new(_Made.array_class)
    a._held, a._var, a._offset, a._layout = chunk, chunk.var, offset, what
    a._view = a._entry = a._grad = a._grad_req = None
    return a


def fresh(view: np.ndarray, what: Layout) -> Any:
    """An NDArray that is view, tiny and nobody else's."""
    a = _new(_Made.array_class)
    a._view, a._layout, a._offset = view, what, 0
    a._held = a._var = a._entry = a._grad = a._grad_req = None
    return a


def allocate(what: Layout) -> Any:
    """A fresh NDArray, uninitialised."""
    if what.tiny and storage.access_checker is None:
        return fresh(np.empty(what.shape, what.dtype), what)
    _Made.ahead += what.nbytes  # threads that count at the same time may lose some: then they get a little further
    if _Made.ahead > _Made.most:
        _let_catch_up()
    return wrap(Chunk.new(what.nbytes, what.ctx), 0, what)


def _let_catch_up() -> None:
    """Results take memory only when they are computed, but values from the host at once, and so does what workers compute
    ahead of the one they all wait for: a loop that never waits is held back once for every 256 MB it makes."""
    if not _Made.most:
        _Made.most = min(1 << 28, allowed() // 16)
    if _Made.ahead > _Made.most:
        _Made.ahead = 0
        engine.current().catch_up()


def use_class(cls: type[ArrayCore]) -> None:
    """Let `wrap` make arrays of cls."""
    _Made.array_class = cls
