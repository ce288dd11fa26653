"""Pooled memory of contexts: a dropped block waits in its size class for the next request.

The memory of results is allocated when the function that writes them runs (`alloc_lazily`), not when it is pushed. So a program
that pushes far ahead of the workers needs no more memory than one that waits after each call.

A block returns to the pool when it *and every view of it* are gone, so a queued function that holds an array is safe even if
the block was dropped. Blocks are dropped on any thread, also by the garbage collector in the middle of `alloc`. Returning
one only appends to a queue. The thread that holds the pool's lock updates the pool.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict, deque
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ... import environment
from ...context import Context, missing_gpu
from ...dtype import as_dtype
from ...errors import EngineError, OutOfMemoryError
from ...fork import lock_free_in_child
from ..gpu import cuda
from ..interrupts import ki_protected
from .allowance import allowed

CPU_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
GPU_ALIGNMENT = 256  # bytes: what cudaMalloc promises
_LARGE, _WAITING = 1 << 20, 16  # bytes of a block, and blocks, up to which returned memory is not sorted at once
_SMALL, _STEP, _KEPT = 1 << 20, 512, 1 << 27  # bytes of a GPU's small block, its multiple, and of all that wait


class Stats(NamedTuple):
    """Bytes of one context: held by blocks, waiting in the pool, and the most that blocks ever held at once."""

    in_use: int
    pooled: int
    peak: int


#: The profiler's functions: called with (ctx, bytes in use, bytes pooled) after every change, while the pool's lock is held.
observers: list[Callable[[Context, int, int], None]] = []
#: Of CheckedEngine, once there is one: it learns of blocks and of views on them, see access_check.py.
access_checker: Any = None


class Block:
    """Bytes on a context. `memory` is a uint8 array: numpy on the CPU, a torch tensor on a GPU, real or interpreted.

    memory:   None to allocate it when it is first used, see `alloc_lazily`.
    address:  the place of the first byte. A block of the pool that is only used by its address never makes its array.
    var:      the variable that orders work on the bytes; CheckedEngine catches functions that use them without declaring it.
    """

    __slots__ = ("__weakref__", "address", "ctx", "lease", "memory", "nbytes", "waiting")

    def __init__(self, memory: Any, nbytes: int, ctx: Context, var: Any = None):
        if memory is not None:
            self.memory = memory
        self.nbytes, self.ctx, self.waiting = nbytes, ctx, memory is None
        self.lease: Any = None  # of the pool, _Raw or _DeviceRaw; the array on it takes it over
        if access_checker is not None and var is not None:
            access_checker.register(self, var)

    def __getattr__(self, name: str) -> Any:
        if name == "memory":
            return _memory_of(self)
        if name == "address":
            return _address_of(self)
        raise AttributeError(f"Block has no attribute {name!r}.")

    @ki_protected
    def __del__(self) -> None:
        lease = self.lease
        if lease is not None:
            lease.pool.give(lease)

    def taken(self) -> Any:
        """Return the memory if it was allocated and not freed; else None."""
        return None if self.waiting else self.memory

    def __repr__(self) -> str:
        return f"Block({self.nbytes:,} bytes@{self.ctx})"


def alloc(nbytes: int, ctx: Context, var: Any = None) -> Block:
    """Return uninitialised bytes on ctx, aligned to 64 bytes on the CPU and 256 on a GPU.

    var: the variable that orders work on them.
    Raises OutOfMemoryError, ContextError for a missing GPU, EngineError for a negative size.
    """
    if nbytes < 0:
        raise EngineError(f"storage.alloc: nbytes is negative: {nbytes:,}.")
    block = Block(None, nbytes, ctx, var)
    (_pools.get((ctx.device_type, ctx.device_id)) or _pool_of(ctx)).fill(block)
    return block


def alloc_lazily(nbytes: int, ctx: Context, var: Any = None) -> Block:
    """Return a block as `alloc` does, whose memory is allocated when it is first used. OutOfMemoryError is raised then.

    A request for more than the process may have raises at once.
    """
    pool = _pools.get((ctx.device_type, ctx.device_id)) or _pool_of(ctx)
    if nbytes > pool.most:
        return alloc(nbytes, ctx, var)
    return Block(None, nbytes, ctx, var)


def _fill(block: Block) -> None:
    """Allocate the bytes of a block, if no thread has done so."""
    if block.waiting:
        other = alloc(block.nbytes, block.ctx)
        with _lock:  # of two threads that use an unwritten block, one drops its bytes
            if block.waiting:
                block.lease, other.lease = other.lease, None
                if block.lease is not None:
                    block.address = other.address
                else:
                    block.memory = other.memory
                block.waiting = False


@ki_protected
def _memory_of(block: Block) -> Any:
    _fill(block)
    with _lock:  # of two threads that read it for the first time, one makes the array
        lease = block.lease
        if lease is not None:
            block.memory, block.lease = lease.array(block.nbytes, block.ctx), None
    return block.memory


@ki_protected
def _address_of(block: Block) -> int:
    _fill(block)
    if block.lease is None:  # an array from elsewhere; one of the pool set the address
        memory = block.memory
        block.address = memory.data_ptr() if block.ctx.is_gpu else memory.ctypes.data
    return block.address


def free(block: Block) -> None:
    """Release a block's memory now. Views of it keep its bytes."""
    lease, block.lease = block.lease, None
    block.memory, block.address, block.waiting = None, 0, False
    if lease is not None:
        lease.pool.give(lease)


def view(block: Block, offset: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the device array of shape and dtype that begins offset bytes into block, sharing its bytes.

    Raises EngineError if it would reach outside the block.
    """
    dtype = as_dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if block.memory is None:
        raise EngineError(f"storage.view: {block} was freed.")
    if offset < 0 or offset + nbytes > block.nbytes:
        raise EngineError(f"storage.view: {nbytes:,} bytes at offset {offset:,} do not fit in {block}.")
    if block.ctx.is_gpu:
        array = cuda.view(block.memory, offset, shape, dtype)
    else:
        array = np.ndarray(shape, dtype, block.memory, offset)
    return array if access_checker is None else access_checker.view(block, array)


def array(shape: tuple[int, ...], dtype: Any, ctx: Context) -> Any:
    """Return an uninitialised device array with a block of its own. Raises as `alloc` does."""
    return view(alloc(math.prod(shape) * as_dtype(dtype).itemsize, ctx), 0, shape, dtype)


def stats(ctx: Context) -> Stats:
    """Return the bytes that ctx holds now."""
    return _pool_of(ctx).stats()


def release_all(ctx: Context) -> int:
    """Give the pooled memory of ctx back to the system. Return its bytes."""
    return _pool_of(ctx).release()


@lru_cache(4096)
def size_class(nbytes: int) -> int:
    """Return the bytes allocated for a request: a multiple of 64, and at most a quarter more than requested from 256 up."""
    if nbytes <= 256:
        return max(64, -(-nbytes // 64) * 64)
    step = 1 << (nbytes - 1).bit_length() - 3  # four steps to every power of two
    return -(-nbytes // step) * step


class _Raw(np.ndarray):
    """Aligned bytes of one size class, which a pool holds or lends to a block."""

    pool: _HostPool
    address: int

    def array(self, nbytes: int, ctx: Context) -> Any:
        """The first bytes as a device array. They return to the pool when the last view of it is gone."""
        owned = self[:nbytes].view(_Owned)
        owned.lease = self
        memory = owned.view(np.ndarray)
        return cuda.wrap(memory) if ctx.is_gpu else memory


class _Owned(np.ndarray):
    """A block's bytes, and the base of every view of them. When the last view is gone, the bytes return to the pool.

    The base of a view is the first array below it whose own base is of another type. For this to be the `_Owned` one, its
    base is a `_Raw` and not a plain array.
    """

    lease: _Raw | None = None

    @ki_protected
    def __del__(self) -> None:
        if self.lease is not None:
            self.lease.pool.give(self.lease)


class _HostPool:
    """Size classes of host memory. Used for CPU contexts, and for the interpreted GPU through torch tensors over it.

    All pools of the process share one lock and keep no more than `limit` bytes together. A thread may acquire the lock
    again, because the garbage collector may run a finalizer in the middle.
    """

    def __init__(self, ctx: Context, limit: int, most: int):
        self.ctx, self.limit, self.most = ctx, limit, most
        self.all, self.lock = _all, _lock  # attributes, because memory returns even when this module's names are gone
        self.alignment = GPU_ALIGNMENT if ctx.is_gpu else CPU_ALIGNMENT
        self._free: defaultdict[int, list[_Raw]] = defaultdict(list)
        self.wanted: set[int] = set()  # classes that were requested since the limit was last reached
        self._returned: deque[_Raw] = deque()
        self._in_use = self._peak = 0

    @ki_protected
    def fill(self, block: Block) -> None:
        """Give a new block its bytes: those that were returned last if they have its size, which changes no sum."""
        size = size_class(block.nbytes)
        try:
            raw = self._returned.pop()
            if raw.nbytes != size:
                self._returned.append(raw)
                raw = self._take(size)
        except IndexError:
            raw = self._take(size)
        block.lease, block.address, block.waiting = raw, raw.address, False

    @ki_protected
    def _take(self, size: int) -> _Raw:
        with self.lock:
            if self._returned:
                self._sort()
            waiting = self._free.get(size)
            self.wanted.add(size)
            if waiting:
                raw = waiting.pop()
                self.all.kept -= size
            else:
                raw = self._allocate(size)
            self._in_use += size
            if self._in_use > self._peak:
                self._peak = self._in_use
            if observers:
                self._notify()
        if self._returned:
            self._settle()
        return raw

    @ki_protected
    def give(self, raw: _Raw) -> None:
        """Take bytes back. What is small waits for the next request, unless much waits already."""
        self._returned.append(raw)
        if _WAITING and (raw.nbytes > _LARGE or len(self._returned) > _WAITING or observers):  # None: the interpreter is ending
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
        """Lock held: put returned memory into its class, or drop it if that would exceed the limit."""
        if not self._returned:
            return
        while self._returned:
            raw = self._returned.popleft()
            size = raw.nbytes
            self._in_use -= size
            if self.all.kept + size > self.limit:
                _make_room()
            if self.all.kept + size <= self.limit:
                self._free[size].append(raw)
                self.all.kept += size
        if observers:
            self._notify()

    @property
    def _pooled(self) -> int:
        return sum(size * len(waiting) for size, waiting in list(self._free.items()))

    def _notify(self) -> None:
        for observe in observers:
            observe(self.ctx, self._in_use, self._pooled)

    def drop_unwanted(self) -> None:
        """Lock held: drop the classes that were not requested since the limit was last reached."""
        for size in list(self._free):
            if size not in self.wanted:
                self.all.kept -= size * len(self._free.pop(size, ()))
        self.wanted.clear()

    def _release(self) -> int:
        free, self._free = self._free, defaultdict(list)
        released = sum(size * len(waiting) for size, waiting in free.items())
        self.all.kept -= released
        return released

    def _bytes(self, size: int) -> np.ndarray:
        return np.empty(size, np.uint8)

    def _allocate(self, size: int) -> _Raw:
        for attempt in range(2):
            try:
                memory = self._bytes(size + self.alignment)
            except (MemoryError, ValueError, OverflowError):
                if not attempt:
                    for pool in _host_pools():
                        pool._release()
                    continue
                raise out_of_memory(self.ctx, size, Stats(self._in_use, self._pooled, self._peak), _available()) from None
            at = memory.ctypes.data
            start = -at % self.alignment
            raw = memory[start:start + size].view(_Raw)
            raw.pool, raw.address = self, at + start
            return raw
        raise AssertionError("unreachable")


class _PinnedPool(_HostPool):
    """Host memory that stays where it is, so that a GPU copies from it by itself."""

    def _bytes(self, size: int) -> np.ndarray:
        return cuda.pinned_bytes(size)


class _DevicePool:
    """A real GPU: torch's caching allocator is the pool. Small blocks of the compute stream wait here for the next request.

    A small block that was only used by its address, on that stream, can be given out again at once, as work on a stream is done
    in order; and torch takes longer to make a tensor than to enqueue what computes it.
    """

    def __init__(self, ctx: Context):
        self.ctx, self.most = ctx, cuda.free_and_total(ctx.device_id)[1]
        self._free: defaultdict[int, list[_DeviceRaw]] = defaultdict(list)
        self._kept = 0  # bytes, about: threads that add at the same time may lose some

    def fill(self, block: Block) -> None:
        """Give a block its bytes."""
        nbytes = block.nbytes
        if nbytes <= _SMALL and cuda.on_compute_stream(self.ctx.device_id):
            size = -(-nbytes // _STEP) * _STEP
            try:
                raw = self._free[size].pop()
                self._kept -= size
            except IndexError:
                raw = _DeviceRaw(self, size, self._allocate(size))
            block.lease, block.address, block.waiting = raw, raw.address, False
        else:
            block.memory, block.waiting = self._allocate(nbytes), False

    def give(self, raw: _DeviceRaw) -> None:
        """Take back bytes that only the compute stream has used."""
        if self._kept + raw.nbytes <= _KEPT:
            self._kept += raw.nbytes
            self._free[raw.nbytes].append(raw)

    def _allocate(self, nbytes: int) -> Any:
        try:
            try:
                return cuda.alloc(nbytes, self.ctx.device_id)
            except MemoryError:
                if not self._kept:
                    raise
                self.release()
                return cuda.alloc(nbytes, self.ctx.device_id)
        except MemoryError as e:
            raise out_of_memory(self.ctx, nbytes, self.stats(), cuda.free_and_total(self.ctx.device_id)[0]) from e

    def stats(self) -> Stats:
        in_use, pooled, peak = cuda.memory(self.ctx.device_id)
        return Stats(in_use - self._kept, pooled + self._kept, peak)

    def release(self) -> int:
        self._free.clear()
        self._kept = 0
        return cuda.empty_cache(self.ctx.device_id)


class _DeviceRaw:
    """Bytes of a real GPU: a tensor that nobody has seen, and where it lies."""

    __slots__ = ("address", "nbytes", "pool", "tensor")

    def __init__(self, pool: _DevicePool, nbytes: int, tensor: Any):
        self.pool, self.nbytes, self.tensor, self.address = pool, nbytes, tensor, tensor.data_ptr()

    def array(self, nbytes: int, ctx: Context) -> Any:
        """The first bytes as a tensor. From now on torch counts who uses it."""
        return self.tensor[:nbytes]


def out_of_memory(ctx: Context, asked: int, held: Stats, available: int | None) -> OutOfMemoryError:
    """Return the error for a request that failed, with the bytes requested and held, and how to need fewer."""
    short = f" Shrink the request by {asked - available:,} bytes" if available is not None and asked > available else \
        " Make the request smaller"
    return OutOfMemoryError(
        f"storage.alloc: {ctx} cannot supply {asked:,} bytes: {held.in_use:,} are in use, {held.pooled:,} pooled"
        f"{f', {available:,} available' if available is not None else ''}.{short} (a smaller batch), drop arrays, "
        f"or give pooled memory back with storage.release_all({ctx}).")


def _available() -> int | None:
    """Return the bytes of free host memory; None if the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _limit(most: int) -> int:
    """Return the most bytes that host pools keep. Default: a gigabyte, or an eighth of the process's memory if that is less."""
    given = environment.POOL_LIMIT_MB.get()
    return min(1 << 30, most // 8) if given is None else given << 20


def _host_pools() -> list[_HostPool]:
    return [pool for pool in list(_pools.values()) if isinstance(pool, _HostPool)]


def _make_room() -> None:
    """Lock held: the limit is reached. Drop the classes that were not requested since it was last reached."""
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
    pinned = ctx.device_type == "cpu_pinned" and cuda.is_real() and cuda.num_gpus()
    return (_PinnedPool if pinned else _HostPool)(ctx, _limit(most), most)


_pools: dict[tuple[str, int], Any] = {}
_all = SimpleNamespace(kept=0)  # bytes that wait in all host pools; as an attribute of their class it would be slow to change
_lock = lock_free_in_child()
