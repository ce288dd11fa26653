"""ArrayCore: an array's layout, memory and waiting. NDArray adds the operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ... import engine
from ...context import Context
from ...engine import Var
from ...engine.gpu import cuda, transfer
from ...engine.interrupts import ki_protected
from ...engine.memory import storage
from ...engine.memory.allowance import allowed
from ...kernels.cpu.c_template import address
from . import chunk as chunks
from .chunk import Chunk, DeviceChunk, Layout

if TYPE_CHECKING:
    from .ndarray import NDArray


class ArrayCore:
    """A dense, row-major array whose values may still be computed.

    layout:  shape, dtype and context.
    chunk:   the memory; arrays that share it share its variable.
    offset:  bytes into the chunk.
    view:    a NumPy array that is all of a tiny array. Its chunk and variable are made when `chunk` is first asked for, as are
             those of an array that was computed at once, in a block of its own.

    While `_var` is None, no function that uses the array was ever pushed.
    array_class: the class that operators give their results; the root's `connect` sets NDArray.
    """

    __slots__ = ("__weakref__", "_address", "_block", "_chunk_or_none", "_grad", "_grad_edge", "_var", "_view", "layout",
                 "offset")
    array_class: ClassVar[type[NDArray]]

    def __init__(self, layout: Layout, view: np.ndarray | None = None, chunk: Chunk | None = None, offset: int = 0):
        self.layout, self._view, self.offset = layout, view, offset
        self._block: storage.Block | None = None
        self._chunk_or_none = chunk
        self._var: Var | None = None if chunk is None else chunk.var
        self._grad_edge: Any = None  # (tape node, output number) of the operation that computed it, or None
        self._grad: Any = None
        self._address = 0  # once it is known

    @property
    def chunk(self) -> Chunk:
        """Its memory and variable."""
        chunk = self._chunk_or_none
        return chunk if chunk is not None else self._make_chunk()

    @ki_protected
    def _make_chunk(self) -> Chunk:
        """Give an array its chunk. If several threads do so at once, the first one's is kept."""
        layout = self.layout
        chunk = Chunk(self._block or storage.Block(self._view, layout.nbytes, layout.ctx), Var(), layout.ctx)
        with chunks.making:
            if self._chunk_or_none is None:
                self._var = chunk.var  # first: a thread that finds the chunk must find the variable
                self._chunk_or_none = chunk
            return self._chunk_or_none

    # ---- properties ----
    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, slowest axis first."""
        return self.layout.shape

    @property
    def dtype(self) -> type[np.generic]:
        """The element type as NumPy's class, such as `np.float32`, as in MXNet."""
        return self.layout.dtype.type

    @property
    def context(self) -> Context:
        """The context whose memory holds the values."""
        return self.layout.ctx

    ctx = context

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.layout.nbytes

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.layout.shape)

    @property
    def stype(self) -> str:
        """The storage type: always "default", dense."""
        return "default"

    # ---- values ----
    def device_array(self) -> Any:
        """The values in place: a NumPy array on the CPU, a torch tensor on a GPU. For engine functions, or after a wait."""
        view = self._view
        if view is None:
            layout = self.layout
            if layout.target == "gpu":
                view = storage.view(self.chunk.block, self.offset, layout.shape, layout.dtype)
            else:
                view = np.ndarray(layout.shape, layout.dtype, self.chunk.block.memory, self.offset)
            if storage.access_checker is not None:  # CheckedEngine checks every access
                return storage.access_checker.view(self.chunk.block, view) if layout.target == "cpu" else view
            self._view = view
        return view

    def address(self) -> int:
        """Where the values begin, on the host; 0 if not at a multiple of their size. For engine functions, as `device_array`."""
        if self._address:
            return self._address
        chunk = self._chunk_or_none
        at = address(self._view) if chunk is None else chunk.block.address + self.offset
        if at % self.layout.dtype.itemsize:
            return 0
        self._address = at
        return at

    def wait_to_read(self) -> None:
        """Block until all writes pushed so far are done. Raises the error of the operator that failed, with its name."""
        if self._var is not None:
            engine.current().wait_for_var(self._var)

    wait_to_write = wait_to_read

    def asnumpy(self) -> np.ndarray:
        """Wait, and return the values as a new NumPy array. Raises the error of the operator that failed."""
        if self.layout.target == "cpu":
            self.wait_to_read()
            return np.array(self.device_array())
        var = self.chunk.var
        engine.current().wait_for_var(var, on_device=False)  # this thread copies behind the writer, and waits once for both
        pending = var.pending_events
        values = transfer.to_host(self.device_array(), None if pending is None else pending.writer)
        return values if cuda.is_real() else np.array(values)


class RunAhead:
    """The memory by which the program may run ahead of the engine.

    nbytes:  allocated since the program last waited for the engine.
    limit:   the bytes at which it waits; 0 before the first use.
    """

    nbytes = 0
    limit = 0


def allocate(layout: Layout, now: bool = False) -> NDArray:
    """Return a new array with undefined values. now: its memory is taken at once, because it is written at once.

    Memory of a GPU is then for the stream of the calling function.
    """
    if layout.tiny and storage.access_checker is None:
        return ArrayCore.array_class(layout, np.empty(layout.shape, layout.dtype))
    if now and layout.target == "cpu" and storage.access_checker is None:
        array = ArrayCore.array_class(layout)
        array._block = block = storage.alloc(layout.nbytes, layout.ctx)
        array._address = block.address
        return array
    if now:
        ctx, var = layout.ctx, Var()
        block = storage.alloc(layout.nbytes, ctx, var)
        array = ArrayCore.array_class(layout, None, (DeviceChunk if ctx.is_gpu else Chunk)(block, var, ctx))
        array._address = block.address
        return array
    run_ahead(layout.nbytes)
    return ArrayCore.array_class(layout, None, Chunk.new(layout.nbytes, layout.ctx))


def run_ahead(nbytes: int) -> None:
    """Count bytes that the program allocates ahead of the engine, and wait for it from time to time."""
    RunAhead.nbytes += nbytes  # threads that add at the same time may lose some, which delays the next wait a little
    if RunAhead.nbytes > RunAhead.limit:
        _catch_up()


def _catch_up() -> None:
    """Let the engine catch up once for every 256 MB allocated.

    The memory of most results is taken when they are computed. Values from the host take memory at once, as do results that
    several workers compute ahead of the task they all wait for; a loop that never waits must not fill memory with them.
    """
    if not RunAhead.limit:
        RunAhead.limit = min(1 << 28, allowed() // 16)
    if RunAhead.nbytes > RunAhead.limit:
        RunAhead.nbytes = 0
        engine.current().catch_up()
