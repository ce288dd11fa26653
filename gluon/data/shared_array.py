"""Arrays sent to another process by descriptor of the memory that holds them, so that their bytes are not copied.

Importing this module registers NDArray with multiprocessing's ForkingPickler: queues, pipes and pools pass arrays in this way.
The memory has no name in a file system. It is freed when no process uses it, also after a process was killed.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...context import cpu
from ...dtype import as_dtype
from ...engine import Var
from ...engine.memory import storage
from ...errors import OutOfMemoryError
from ...ndarray import Chunk, NDArray
from ...ndarray.core.chunk import layout_of

_BY_VALUE = 4096  # bytes up to which an array is pickled itself
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # its pages are mapped at once, which is faster than one by one
_HAS_MEMFD = hasattr(os, "memfd_create")

Key = tuple[int, int]  # the process that shared some memory, and a number


class SharedBytes(np.ndarray):
    """Bytes in memory that can be shared. fd: a descriptor of it, or -1 after it was handed over."""

    fd = -1
    _address: int | None = None

    def __del__(self) -> None:
        if self._address is not None:
            _libc().munmap(self._address, self.nbytes)
        if self.fd >= 0:
            os.close(self.fd)


class Outbox:
    """The memory that a worker process has pickled since its last answer. The answer takes the descriptors along.

    open:  None in processes that are not workers of a WorkerPool; they pass descriptors through multiprocessing.
    """

    open: list[tuple[Key, SharedBytes]] | None = None
    numbers = itertools.count()


#: Descriptors that arrived with an answer which has not been unpickled yet.
arrived: dict[Key, int] = {}


def shared_empty(shape: Sequence[int], dtype: DTypeLike) -> NDArray:
    """Return an array of undefined values on cpu(0), which can be sent to another process without a copy."""
    layout = layout_of(tuple(shape), as_dtype(dtype), cpu())
    if layout.nbytes <= _BY_VALUE or not _HAS_MEMFD:
        return NDArray(layout, np.empty(layout.shape, layout.dtype)) if layout.tiny else _on(
            np.empty(layout.nbytes, np.uint8), layout.shape, layout.dtype)
    fd = os.memfd_create("tritium")
    try:
        os.truncate(fd, layout.nbytes)
        memory = _map(fd, layout.nbytes)
    except BaseException:
        os.close(fd)
        raise
    memory.fd = fd
    return _on(memory, layout.shape, layout.dtype)


def _on(memory: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, offset: int = 0) -> NDArray:
    ctx = cpu()
    chunk = Chunk(storage.Block(memory, memory.nbytes, ctx), Var(), ctx)
    return NDArray(layout_of(shape, dtype, ctx), None, chunk, offset)


@cache
def _libc() -> Any:
    """The C library's mmap and munmap: Python's mmap would keep a descriptor open for each array."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _map(fd: int, nbytes: int) -> SharedBytes:
    address = _libc().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _POPULATE, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OutOfMemoryError(f"DataLoader: {nbytes:,} bytes of shared memory cannot be mapped: "
                               f"{os.strerror(ctypes.get_errno())}. Use smaller batches, fewer workers or thread_pool=True.")
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).view(SharedBytes)
    memory._address = address
    return memory


# ---- pickling -----------------------------------------------------------------------------------------------------------
def reduce_ndarray(data: NDArray) -> tuple[Any, tuple]:
    """Return the function and arguments that make data again in another process. Wait for its values first."""
    shape, dtype = data.shape, data.layout.dtype
    if data.nbytes <= _BY_VALUE or not _HAS_MEMFD:
        return _from_value, (data.asnumpy().tobytes(), shape, dtype.name)
    data.wait_to_read()
    memory = data.chunk.block.memory
    if not isinstance(memory, SharedBytes) or memory.fd < 0:
        copy = shared_empty(shape, dtype)
        copy.device_array()[...] = data.device_array() if data.layout.target == "cpu" else data.asnumpy()
        data = copy
        memory = data.chunk.block.memory
    handle: Any
    if Outbox.open is None:
        handle = DupFd(memory.fd)
    else:
        handle = os.getpid(), next(Outbox.numbers)
        Outbox.open.append((handle, memory))
    return rebuild_ndarray, (handle, memory.nbytes, shape, dtype.name, data.offset)


def rebuild_ndarray(handle: Any, nbytes: int, shape: tuple[int, ...], dtype: str, offset: int) -> NDArray:
    """Return the array on memory that another process shared. It is on cpu(0)."""
    fd = arrived.pop(handle) if isinstance(handle, tuple) else handle.detach()
    try:
        return _on(_map(fd, nbytes), shape, as_dtype(dtype), offset)
    finally:
        os.close(fd)


def _from_value(data: bytes, shape: tuple[int, ...], dtype: str) -> NDArray:
    values = np.frombuffer(bytearray(data), as_dtype(dtype)).reshape(shape)
    layout = layout_of(shape, values.dtype, cpu())
    return NDArray(layout, values) if layout.tiny else _on(values.reshape(-1).view(np.uint8), shape, values.dtype)


ForkingPickler.register(NDArray, reduce_ndarray)
#: Bytes of an object, and the object again. Only bytes of our own processes are read.
dumps: Callable[[Any], Any] = ForkingPickler.dumps
loads: Callable[[Any], Any] = vars(ForkingPickler)["loads"]
