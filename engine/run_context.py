"""RunContext: the argument of a running function. It spreads work inside one function over a team of threads."""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..context import Context
from ..dtype import as_dtype
from ..errors import OperatorError
from .gpu import cuda, transfer
from .memory import storage

POOLED = 1 << 14  # elements from which on scratch memory of the host is worth asking the pool for


class RunContext:
    """The place where a function runs, as the engine chose it.

    ctx:     the context it was pushed to.
    stream:  the GPU stream to enqueue on; None on the CPU.
    threads: the number of threads that C functions may share their work with, this one included.
    """

    __slots__ = ("_team", "ctx", "stream", "threads")

    def __init__(self, ctx: Context, stream: Any = None, team: ThreadTeam | None = None):
        self.ctx, self.stream, self._team = ctx, stream, team or ThreadTeam(0)
        self.threads = self._team.n + 1

    def parallel(self, fn: Callable[[int], Any], n: int) -> None:
        """Call fn(0) ... fn(n - 1), on idle threads too; return when all calls have ended.

        The calls must write to disjoint memory, so that the result does not depend on the number of threads.
        All n calls are made even if one raises. Of several errors that of the smallest i is raised.
        May be called inside fn.
        """
        if n == 1:
            fn(0)
        elif n:
            self._team.run(fn, n)

    def workspace(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised device array, scratch memory for the time of this function. Raises OutOfMemoryError.

        Small ones of the host come from NumPy, large ones from the pool: fresh pages cost more than what fills them.
        """
        if not self.ctx.is_gpu and math.prod(shape) < POOLED:
            return np.empty(shape, dtype)
        return storage.view(self.scratch(math.prod(shape) * as_dtype(dtype).itemsize), 0, shape, dtype)

    def scratch(self, nbytes: int) -> storage.Block:
        """Return uninitialised memory for the time of this function, by its `address`. Raises OutOfMemoryError.

        It may be dropped when its last user is enqueued.
        """
        return storage.alloc(nbytes, self.ctx)

    def to_host(self, array: Any) -> np.ndarray:
        """Return the values of a device array on the host: on the CPU itself, else after a wait for the stream's earlier work."""
        return array if isinstance(array, np.ndarray) else transfer.to_host(array)

    def from_host(self, array: Any, values: np.ndarray) -> None:
        """Write host values of the same shape and dtype into a device array."""
        if isinstance(array, np.ndarray):
            np.copyto(array, values, casting="no")
        else:
            transfer.from_host(array, values)

    def refuse(self, failed: Any, message: str) -> None:
        """Raise OperatorError if an element of a device array is not 0. Waits for the stream's earlier work."""
        if self.to_host(failed).any():
            raise OperatorError(message)

    def constant(self, values: np.ndarray) -> Any:
        """Return a device array of these values: made once for each context, and kept as long as values.

        values: must not change.
        """
        if not self.ctx.is_gpu:
            return values
        key = id(values), self.ctx
        array = _constants.get(key)
        if array is None:
            array = storage.array(values.shape, values.dtype, self.ctx)
            transfer.from_host(array, values)
            cuda.share(array)
            weakref.finalize(values, _constants.pop, key, None)
            _constants[key] = array
        return array


_constants: dict[tuple[int, Context], Any] = {}


def start_threads(to_start: list[None], start: Callable[[], Any]) -> bool:
    """Call start for each entry of to_start, and remove it. Return False if the interpreter is ending and starts no threads.

    No lock may be held: a starting thread may run a finalizer that pushes. Taking an entry is atomic.
    """
    while True:
        try:
            to_start.pop()
        except IndexError:
            return True
        try:
            start()
        except RuntimeError:
            to_start.append(None)
            return False


class ThreadTeam:
    """n threads that take part in `RunContext.parallel`. They start at the first call.

    The caller takes part and could finish alone; a thread that comes late finds no call left. So calls may nest, and many
    callers may share few threads, without waiting for a thread that is busy elsewhere.
    """

    def __init__(self, n: int):
        self.n = n
        self.reset_in_child()

    def reset_in_child(self) -> None:
        """Begin without threads, as in a forked child, where they do not exist."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._to_start = [None] * self.n  # one for each thread that may still be started

    def run(self, fn: Callable[[int], Any], n: int) -> None:
        """Call fn(i) for i below n in this thread and the team's; return when all calls have ended."""
        job = _Job(fn, n)
        if self.n:
            if self._to_start:
                start_threads(self._to_start, self._start_one)  # if that fails, the caller works alone
            for _ in range(min(len(self._threads), n - 1)):
                self._jobs.put(job)
        job.take_part()
        job.finished.acquire()
        del job.fn  # a thread that comes late finds no call left, and must not keep arrays alive until then
        if job.errors:
            raise min(job.errors, key=lambda e: e[0])[1]

    def dismiss_all(self) -> list[threading.Thread]:
        """Tell the threads to end, and return them. A later call starts new ones."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        return threads

    def stop(self) -> None:
        """End the threads. A later call starts new ones."""
        for t in self.dismiss_all():
            t.join()

    def _start_one(self) -> None:
        t = threading.Thread(target=self._work, name="tritium-helper", daemon=True)
        t.start()
        self._threads.append(t)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.take_part()
            del job  # no thread keeps the arrays of a finished job alive
        self._to_start.append(None)


class _Job:
    """n calls of fn, each made by one thread. `next` on a count is atomic, so no lock is needed."""

    __slots__ = ("ended", "errors", "finished", "fn", "n", "taken")

    def __init__(self, fn: Callable[[int], Any], n: int):
        self.fn, self.n = fn, n
        self.taken, self.ended = itertools.count(), itertools.count(1)
        self.finished = threading.Lock()
        self.finished.acquire()
        self.errors: list[tuple[int, BaseException]] = []

    def take_part(self) -> None:
        """Make calls until none is left."""
        while (i := next(self.taken)) < self.n:
            try:
                self.fn(i)
            except BaseException as e:
                self.errors.append((i, e))
            if next(self.ended) == self.n:
                self.finished.release()
