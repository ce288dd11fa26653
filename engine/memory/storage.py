"""Memory of a context, pooled: a block that is dropped waits in its size class for the next request.

The memory of results is taken when the function that writes them runs (`alloc_lazily`), and not when it is pushed: a program that
pushes far ahead of the workers needs no more than one that waits after each call, and nobody has to be held back.

A block is given back when it *and every view of it* are gone, so a queued function that holds an array is safe even if
the block was dropped. Blocks are dropped on any thread, also by the garbage collector in the middle of `alloc`:
giving back only appends to a queue, and whoever holds the pool's lock does the sums.
"""

from __future__ import annotations

import math
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...context import Context, missing_gpu
from ...dtype import as_dtype
from ...errors import EngineError, OutOfMemoryError
from ...fork import in_forked_child
from ..gpu import cuda
from ..interrupts import ki_protected
from .allowance import allowed

CPU_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
GPU_ALIGNMENT = 256  # bytes: what cudaMalloc promises
_LIMIT = "TRITIUM_POOL_LIMIT_MB"


class Stats(NamedTuple):
    """Bytes of one context: held by blocks, waiting in the pool, and the most that were ever held at once."""

    in_use: int
    pooled: int
    peak: int


#: Called with (ctx, bytes in use, bytes pooled) after every change, the pool's lock held: the profiler's.
observers: list[Callable[[Context, int, int], None]] = []
#: Of CheckedEngine, once there is one: it learns of blocks and of views on them, see access_check.py.
access_checker: Any = None


class Block:
    """Bytes on a context. `memory` is a uint8 array: numpy on the CPU, a torch tensor on a GPU, real or interpreted.

    memory:  None to take it when it is first asked for, see `alloc_lazily`.
    var:     the variable that orders work on the bytes; CheckedEngine catches functions that use them without declaring it.
    """

    __slots__ = ("__weakref__", "ctx", "memory", "nbytes", "waiting")

    def __init__(self, memory: Any, nbytes: int, ctx: Context, var: Any = None):
        if memory is not None:
            self.memory = memory
        self.nbytes, self.ctx, self.waiting = nbytes, ctx, memory is None
        if access_checker is not None and var is not None:
            access_checker.register(self, var)

    def __getattr__(self, name: str) -> Any:
        if name != "memory":
            raise AttributeError(f"Block has no attribute {name!r}.")
        return _take_for(self)

    def taken(self) -> Any:
        """The memory, if it was taken already and not let go of; else None."""
        return None if self.waiting else self.memory

    def __repr__(self) -> str:
        return f"Block({self.nbytes:,} bytes@{self.ctx})"


def alloc(nbytes: int, ctx: Context, var: Any = None) -> Block:
    """Uninitialised bytes on ctx, aligned to 64 on the CPU and 256 on a GPU. var: the variable that orders work on them.

    Raises OutOfMemoryError, ContextError for a GPU that is not there, EngineError for a negative size.
    """
    if nbytes < 0:
        raise EngineError(f"storage.alloc: nbytes is negative: {nbytes:,}.")
    pool = _pools.get((ctx.device_type, ctx.device_id)) or _pool_of(ctx)
    return Block(pool.take(nbytes), nbytes, ctx, var)


def alloc_lazily(nbytes: int, ctx: Context, var: Any = None) -> Block:
    """As `alloc`, but the memory is taken when `memory` is first asked for, and OutOfMemoryError is raised there.

    A request for more than there is at all is refused at once.
    """
    pool = _pools.get((ctx.device_type, ctx.device_id)) or _pool_of(ctx)
    if nbytes > pool.most:
        return alloc(nbytes, ctx, var)
    return Block(None, nbytes, ctx, var)


@ki_protected
def _take_for(block: Block) -> Any:
    ctx = block.ctx
    memory = (_pools.get((ctx.device_type, ctx.device_id)) or _pool_of(ctx)).take(block.nbytes)
    with _lock:  # two readers of what nobody wrote: one of them is too late, and drops its bytes
        if block.waiting:
            block.memory = memory
            block.waiting = False
    return block.memory


def free(block: Block) -> None:
    """Let go of a block before Python does. Views that are still about keep its bytes."""
    block.memory, block.waiting = None, False


def view(block: Block, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """The device array of shape and dtype that begins offset bytes into block; shares its bytes.

    Raises EngineError if it would reach outside the block.
    """
    dtype = as_dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if block.memory is None:
        raise EngineError(f"storage.view: {block} was freed.")
    if offset < 0 or offset + nbytes > block.nbytes:
        raise EngineError(f"storage.view: {nbytes:,} bytes at offset {offset:,} do not fit in {block}.")
    if block.ctx.is_gpu:
        made = cuda.view(block.memory, offset, shape, dtype)
    else:
        made = np.ndarray(shape, dtype, block.memory, offset)
    return made if access_checker is None else access_checker.view(block, made)


def array(shape: tuple[int, ...], dtype: Any, ctx: Context) -> Any:
    """A fresh, uninitialised device array with a block of its own. Raises as `alloc` does."""
    return view(alloc(math.prod(shape) * as_dtype(dtype).itemsize, ctx), 0, shape, dtype)


def stats(ctx: Context) -> Stats:
    """What ctx holds now."""
    return _pool_of(ctx).stats()


def release_all(ctx: Context) -> int:
    """Give the pooled memory of ctx back to the system; how many bytes that were."""
    return _pool_of(ctx).release()


def size_class(nbytes: int) -> int:
    """The bytes really taken for a request: a multiple of 64, at most a quarter more than asked (from 256 up)."""
    if nbytes <= 256:
        return max(64, -(-nbytes // 64) * 64)
    step = 1 << (nbytes - 1).bit_length() - 3  # four steps to every power of two
    return -(-nbytes // step) * step


class _Raw(np.ndarray):
    """Bytes of one size class, aligned: what a pool holds."""


class _Owned(np.ndarray):
    """A block's bytes. Every view has it as its base; when the last is gone, the bytes return to the pool.

    NumPy takes as base of a view the first array, going down, that stands on another type than the view's own. That
    this be the one is why it stands on a `_Raw` and not on a plain array.
    """

    home: tuple[_HostPool, _Raw, int] | None = None

    @ki_protected
    def __del__(self) -> None:
        if self.home is not None:
            pool, raw, size = self.home
            pool.give(raw, size)


class _All:
    """kept: bytes that wait in all host pools. No attribute of their class, which would be slow to change."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = 0


class _HostPool:
    """Size classes of host memory. Used for CPU contexts, and for the interpreted GPU through torch tensors over it.

    All pools of the process share one lock and keep no more than `limit` bytes together. The lock may be taken again by
    the thread that has it: the garbage collector may run a finalizer in the middle.
    """

    def __init__(self, ctx: Context, limit: int, most: int):
        self.ctx, self.limit, self.most = ctx, limit, most
        self.all, self.lock = _all, _lock  # here too: memory still comes back when this module's names are gone
        self.alignment = GPU_ALIGNMENT if ctx.is_gpu else CPU_ALIGNMENT
        self._free: defaultdict[int, list[_Raw]] = defaultdict(list)
        self.wanted: set[int] = set()  # classes that were asked for since the limit was last reached
        self._returned: deque[tuple[_Raw, int]] = deque()
        self._in_use = self._peak = 0

    @ki_protected
    def take(self, nbytes: int) -> Any:
        size = size_class(nbytes)
        with self.lock:
            if self._returned:
                self._sort()
            waiting = self._free.get(size)
            self.wanted.add(size)
            if waiting:
                raw = waiting.pop()
                self.all.kept -= size
            else:
                raw = self._fresh(size)
            self._in_use += size
            if self._in_use > self._peak:
                self._peak = self._in_use
            if observers:
                self._tell()
        if self._returned:
            self._settle()
        owned = raw[:nbytes].view(_Owned)
        owned.home = (self, raw, size)
        memory = owned.view(np.ndarray)
        return cuda.wrap(memory) if self.ctx.is_gpu else memory

    def give(self, raw: _Raw, size: int) -> None:
        self._returned.append((raw, size))
        self._settle()

    def stats(self) -> Stats:
        with self.lock:
            self._sort()
            return Stats(self._in_use, self._pooled, self._peak)

    def release(self) -> int:
        with self.lock:
            self._sort()
            return self._release()

    @ki_protected
    def _settle(self) -> None:
        while self._returned and self.lock.acquire(False):
            try:
                self._sort()
            finally:
                self.lock.release()

    @ki_protected
    def _sort(self) -> None:
        """Lock held: put returned memory into its class, or let it go where that would exceed the cap."""
        if not self._returned:
            return
        while self._returned:
            raw, size = self._returned.popleft()
            self._in_use -= size
            if self.all.kept + size > self.limit:
                _make_room()
            if self.all.kept + size <= self.limit:
                self._free[size].append(raw)
                self.all.kept += size
        if observers:
            self._tell()

    @property
    def _pooled(self) -> int:
        return sum(size * len(waiting) for size, waiting in list(self._free.items()))

    def _tell(self) -> None:
        for observe in observers:
            observe(self.ctx, self._in_use, self._pooled)

    def drop_unwanted(self) -> None:
        """Lock held: let go of the classes that nobody asked for lately."""
        for size in list(self._free):
            if size not in self.wanted:
                self.all.kept -= size * len(self._free.pop(size, ()))
        self.wanted.clear()

    def _release(self) -> int:
        free, self._free = self._free, defaultdict(list)
        gone = sum(size * len(waiting) for size, waiting in free.items())
        self.all.kept -= gone
        return gone

    def _fresh(self, size: int) -> _Raw:
        for attempt in range(2):
            try:
                whole = np.empty(size + self.alignment, np.uint8)
            except (MemoryError, ValueError, OverflowError):
                if not attempt:
                    for pool in _host_pools():
                        pool._release()
                    continue
                raise self._no_memory(size) from None
            start = -whole.ctypes.data % self.alignment
            return whole[start:start + size].view(_Raw)
        raise AssertionError("unreachable")

    def _no_memory(self, size: int) -> OutOfMemoryError:
        return out_of_memory(self.ctx, size, Stats(self._in_use, self._pooled, self._peak), _available())


class _DevicePool:
    """A real GPU: torch's caching allocator is the pool."""

    def __init__(self, ctx: Context):
        self.ctx, self.most = ctx, cuda.total_bytes(ctx.device_id)

    def take(self, nbytes: int) -> Any:
        try:
            return cuda.alloc(nbytes, self.ctx.device_id)
        except MemoryError as e:
            total = cuda.free_bytes(self.ctx.device_id)
            raise out_of_memory(self.ctx, nbytes, self.stats(), total) from e

    def stats(self) -> Stats:
        return Stats(*cuda.memory(self.ctx.device_id))

    def release(self) -> int:
        return cuda.empty_cache(self.ctx.device_id)


def out_of_memory(ctx: Context, asked: int, held: Stats, available: int | None) -> OutOfMemoryError:
    """The error for a request that could not be met: what was asked, what is held, how to shrink."""
    short = f" Shrink the request by {asked - available:,} bytes" if available is not None and asked > available else \
        " Make the request smaller"
    return OutOfMemoryError(
        f"storage.alloc: {ctx} cannot supply {asked:,} bytes: {held.in_use:,} are in use, {held.pooled:,} pooled"
        f"{f', {available:,} available' if available is not None else ''}.{short} (a smaller batch), drop arrays, "
        f"or give pooled memory back with storage.release_all({ctx}).")


def _available() -> int | None:
    """Bytes of host memory that are free or can be freed, where the system says."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _limit(most: int) -> int:
    """The most bytes that host pools keep. Default: a gigabyte, or an eighth of what the process may have if that is less."""
    text = os.environ.get(_LIMIT)
    if text is None:
        return min(1 << 30, most // 8)
    if not text.isascii() or not text.isdigit():
        raise EngineError(f"{_LIMIT}: {text!r} is not a number of mebibytes.")
    return int(text) << 20


def _host_pools() -> list[_HostPool]:
    return [pool for pool in list(_pools.values()) if isinstance(pool, _HostPool)]


def _make_room() -> None:
    """Lock held: the limit is reached. What nobody asked for since it was reached last has waited for long."""
    pools = _host_pools()
    if any(pool.wanted for pool in pools):
        for pool in pools:
            pool.drop_unwanted()


def _pool_of(ctx: Context) -> Any:
    key = (ctx.device_type, ctx.device_id)
    pool = _pools.get(key)
    if pool is None:
        if ctx.is_gpu and ctx.device_id >= cuda.num_gpus():
            raise missing_gpu(ctx.device_id, cuda.num_gpus())
        with _lock:
            pool = _pools.get(key)
            if pool is None:
                pool = _pools[key] = _new_pool(ctx)
    return pool


def _new_pool(ctx: Context) -> Any:
    if ctx.is_gpu and cuda.is_real():
        return _DevicePool(ctx)
    most = allowed()
    return _HostPool(ctx, _limit(most), most)


@in_forked_child
def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()
    for pool in _host_pools():
        pool.lock = _lock


_pools: dict[tuple[str, int], Any] = {}
_all = _All()
_lock = threading.RLock()
