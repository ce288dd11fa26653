"""RunContext: what a running function is given. Work inside one function may be spread over idle helper threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..context import Context
from .memory import storage


class RunContext:
    """Where a function runs, as the engine chose it.

    ctx:     the context it was pushed to.
    stream:  the GPU stream to enqueue on; None on the CPU.
    """

    __slots__ = ("_team", "ctx", "stream")

    def __init__(self, ctx: Context, stream: Any = None, helpers: ThreadTeam | None = None):
        self.ctx, self.stream, self._team = ctx, stream, helpers

    def parallel(self, fn: Callable[[int], Any], n: int) -> None:
        """Call fn(0) ... fn(n - 1), on idle threads as well; return when all are done.

        The calls must write to disjoint places: then the result does not depend on how many threads there are.
        All n calls are made even if one raises; of several errors that of the smallest i is raised.
        May be called inside fn.
        """
        if n > 1 and self._team is not None:
            self._team.run(fn, n)
            return
        failed: BaseException | None = None
        for i in range(n):
            try:
                fn(i)
            except BaseException as e:
                failed = failed or e
        if failed is not None:
            raise failed

    def workspace(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Scratch: an uninitialised device array, back in the pool when the function lets go of it.

        Raises OutOfMemoryError.
        """
        return storage.array(shape, dtype, self.ctx)


class ThreadTeam:
    """Threads that lend a hand to `RunContext.parallel`. They start at the first call and never hold a job open.

    The caller takes part and could finish alone; a helper that comes late finds nothing left. So calls may nest, and
    any number of callers may share few helpers, without anyone waiting for a thread that is not at work.
    """

    def __init__(self, n: int):
        self.n = n
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._room = [None] * n  # one for each thread that may yet be started: to take one is atomic

    def run(self, fn: Callable[[int], Any], n: int) -> None:
        """Call fn(i) for i below n here and on the helpers; return when all are done."""
        job = _Job(fn, n)
        if self.n:
            if self._room:
                self._start()
            for _ in range(min(len(self._threads), n - 1)):
                self._jobs.put(job)
        job.help()
        job.finished.acquire()
        del job.fn  # a helper that comes for it later finds no call left, and keeps no array alive until then
        if job.errors:
            raise min(job.errors, key=lambda e: e[0])[1]

    def dismiss_all(self) -> list[threading.Thread]:
        """Have the threads end; they are. A later call starts fresh ones."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        return threads

    def stop(self) -> None:
        """End the threads; a later call starts fresh ones."""
        for t in self.dismiss_all():
            t.join()

    def forget(self) -> None:
        """In a forked child: the threads are not here."""
        self.__init__(self.n)

    def _start(self) -> None:
        """No lock is held meanwhile: a thread may run a finalizer that pushes before it says that it has begun."""
        while True:
            try:
                self._room.pop()
            except IndexError:
                return
            t = threading.Thread(target=self._work, name="tritium-helper", daemon=True)
            try:
                t.start()
            except RuntimeError:  # the interpreter is ending: the caller works alone
                self._room.append(None)
                return
            self._threads.append(t)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.help()
            del job  # no thread keeps the arrays of a finished job alive
        self._room.append(None)


class _Job:
    """n calls of fn, each taken by one thread. `next` on a count is atomic, so no lock is needed."""

    __slots__ = ("ended", "errors", "finished", "fn", "n", "taken")

    def __init__(self, fn: Callable[[int], Any], n: int):
        self.fn, self.n = fn, n
        self.taken, self.ended = itertools.count(), itertools.count(1)
        self.finished = threading.Lock()
        self.finished.acquire()
        self.errors: list[tuple[int, BaseException]] = []

    def help(self) -> None:
        """Take calls until none is left."""
        while (i := next(self.taken)) < self.n:
            try:
                self.fn(i)
            except BaseException as e:
                self.errors.append((i, e))
            if next(self.ended) == self.n:
                self.finished.release()
