"""Arrays sent to another process by descriptor of the memory that holds them, so that their bytes are not copied.

Importing this module registers NDArray with multiprocessing's ForkingPickler: queues, pipes and pools pass arrays in this way.
The memory has no name in a file system. It is freed when no process uses it, also after a process was killed.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import weakref
from collections import defaultdict, deque
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
from ...ndarray.core.array_core import allocate
from ...ndarray.core.chunk import layout_of

_BY_VALUE = 4096  # bytes up to which an array is pickled itself
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # its pages are mapped at once, which is faster than one by one
_HAS_MEMFD = hasattr(os, "memfd_create")

Key = tuple[int, int]  # the process that shared some memory, and a number


class Region:
    """Mapped memory that can be shared. Dropping it gives the memory back.

    fd:   a descriptor of it, or -1 where it is only read.
    key:  its name in the traffic of a WorkerPool.
    """

    def __init__(self, fd: int, nbytes: int, key: Key | None = None):
        self.fd, self.nbytes, self.key = -1, nbytes, key
        self.address = _map(fd, nbytes)
        self.fd = fd
        self.view: Callable[[], Any] = lambda: None  # the bytes of an array on it, while there is one

    def close(self) -> None:
        """Close the descriptor; the memory stays mapped."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            _libc().munmap(self.address, self.nbytes)
        self.close()

    def bytes(self, home: deque[Region] | None = None) -> SharedBytes:
        """Return the bytes. home: takes the region when they are dropped."""
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address)).view(SharedBytes)
        memory.region, memory.home = self, home
        self.view = weakref.ref(memory)
        return memory


class SharedBytes(np.ndarray):
    """The bytes of a region, which views of them keep alive."""

    region: Region | None = None
    home: deque[Region] | None = None

    def __del__(self) -> None:
        if self.home is not None and self.region is not None:
            self.home.append(self.region)


class Outbox:
    """The memory that a worker process has pickled since its last answer. The answer takes the descriptors along.

    open:  None in processes that are not workers of a WorkerPool; they pass descriptors through multiprocessing.
    lent:  regions that the owner of the pool has, by key.   free: those that it has given back, by size.
    sent:  keys of regions whose descriptors it has.
    """

    open: list[SharedBytes] | None = None
    numbers = itertools.count()
    lent: dict[Key, Region] = {}
    sent: set[Key] = set()
    free: defaultdict[int, list[Region]] = defaultdict(list)

    @classmethod
    def take_back(cls, keep: Sequence[Key], drop: Sequence[Key]) -> None:
        """Have regions that were lent for other arrays again, or give their memory back."""
        for key in drop:
            cls.lent.pop(key).key = None
            cls.sent.discard(key)
        for key in keep:
            region = cls.lent.pop(key)
            if region.view() is None:  # else this process still uses the array
                cls.free[region.nbytes].append(region)


#: Regions that arrived with an answer which has not been unpickled yet, and where they go when their arrays are dropped.
arrived: dict[Key, tuple[Region, deque[Region]]] = {}


def shared_empty(shape: Sequence[int], dtype: DTypeLike) -> NDArray:
    """Return an array of undefined values on cpu(0), which can be sent to another process without a copy."""
    layout = layout_of(tuple(shape), as_dtype(dtype), cpu())
    if layout.nbytes <= _BY_VALUE or not _HAS_MEMFD:
        return allocate(layout)
    free = Outbox.free.get(layout.nbytes)
    return _on((free.pop() if free else _new_region(layout.nbytes)).bytes(), layout.shape, layout.dtype)


def _new_region(nbytes: int) -> Region:
    fd = os.memfd_create("tritium")
    try:
        os.truncate(fd, nbytes)
        return Region(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise


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


def _map(fd: int, nbytes: int) -> int:
    address = _libc().mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _POPULATE, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OutOfMemoryError(f"DataLoader: {nbytes:,} bytes of shared memory cannot be mapped: "
                               f"{os.strerror(ctypes.get_errno())}. Use smaller batches, fewer workers or thread_pool=True.")
    return address


# ---- pickling -----------------------------------------------------------------------------------------------------------
def reduce_ndarray(data: NDArray) -> tuple[Any, tuple]:
    """Return the function and arguments that make data again in another process. Wait for its values first."""
    shape, dtype = data.shape, data.layout.dtype
    if data.nbytes <= _BY_VALUE or not _HAS_MEMFD:
        return _from_value, (data.asnumpy().tobytes(), shape, dtype.name)
    data.wait_to_read()
    memory = data.chunk.block.memory
    if not _can_be_sent(memory):
        copy = shared_empty(shape, dtype)
        copy.device_array()[...] = data.device_array() if data.layout.target == "cpu" else data.asnumpy()
        data = copy
        memory = data.chunk.block.memory
    region = memory.region
    if Outbox.open is None:
        return _from_descriptor, (DupFd(region.fd), region.nbytes, shape, dtype.name, data.offset)
    if region.key is None:
        region.key = os.getpid(), next(Outbox.numbers)
    Outbox.open.append(memory)
    return rebuild_ndarray, (region.key, shape, dtype.name, data.offset)


def _can_be_sent(memory: Any) -> bool:
    """Return True for bytes of a region of this process, unless the owner of the pool uses it for an array already."""
    region = memory.region if isinstance(memory, SharedBytes) else None
    if region is None or region.fd < 0:
        return False
    return region.key not in Outbox.lent and not any(memory is other for other in Outbox.open or ())


def rebuild_ndarray(key: Key, shape: tuple[int, ...], dtype: str, offset: int) -> NDArray:
    """Return the array on memory that arrived from a worker. It is on cpu(0)."""
    region, home = arrived.pop(key)
    return _on(region.bytes(home), shape, as_dtype(dtype), offset)


def _from_descriptor(descriptor: Any, nbytes: int, shape: tuple[int, ...], dtype: str, offset: int) -> NDArray:
    region = Region(descriptor.detach(), nbytes)
    region.close()
    return _on(region.bytes(), shape, as_dtype(dtype), offset)


def _from_value(data: bytes, shape: tuple[int, ...], dtype: str) -> NDArray:
    values = np.frombuffer(bytearray(data), as_dtype(dtype)).reshape(shape)
    layout = layout_of(shape, values.dtype, cpu())
    return NDArray(layout, values) if layout.tiny else _on(values.reshape(-1).view(np.uint8), shape, values.dtype)


ForkingPickler.register(NDArray, reduce_ndarray)
#: Bytes of an object, and the object again. Only bytes of our own processes are read.
dumps: Callable[[Any], Any] = ForkingPickler.dumps
loads: Callable[[Any], Any] = vars(ForkingPickler)["loads"]
