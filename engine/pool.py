"""Pool: the worker threads of one context and one kind of work, and the tasks that wait for them."""

from __future__ import annotations

import threading
from _thread import LockType, allocate_lock
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ..context import Context
from . import cuda
from .deps import Task, Var
from .interrupt import shielded
from .run import Helpers, RunContext

if TYPE_CHECKING:
    from .threaded import ThreadedEngine

_NOTHING = object()
_CHAIN = 32  # tasks a worker may take straight from the one it finished, before others get their turn

_running: dict[int, Task | None] = {}  # thread -> the task it executes
_pools: dict[int, Pool] = {}  # worker thread -> its pool


def current_task() -> Task | None:
    """The engine function that the calling thread is executing."""
    return _running.get(threading.get_ident())


def enter(task: Task) -> Task | None:
    """The calling thread, no worker or one in the middle of a task, executes task; what it executed before."""
    me = threading.get_ident()
    before = _running.get(me)
    _running[me] = task
    return before


def leave(before: Task | None) -> None:
    """Undo `enter`."""
    me = threading.get_ident()
    if before is None:
        _running.pop(me, None)
    else:
        _running[me] = before


def this_pool() -> Pool | None:
    """The pool whose worker the calling thread is."""
    return _pools.get(threading.get_ident())


class Pool:
    """`put` hands a ready task to the workers: the highest priority first, among equals in order.

    Tasks of priority 0 wait in a deque, others in a heap. Workers without work sleep, each in front of its own lock.
    One is woken at a time, and wakes the next if it finds more than it can take: so a thread that pushes many tasks
    pays for one call to the operating system and not for one each. No task is overlooked: `put` appends before it
    looks at `_waking`, a woken worker clears that before it looks for tasks, and none sleeps without a second look.
    """

    def __init__(self, engine: ThreadedEngine, ctx: Context, kind: str, size: int, stream: Any, helpers: Helpers):
        self.engine, self.ctx, self.kind, self.size, self.stream = engine, ctx, kind, size, stream
        self.run = RunContext(ctx, stream, helpers)
        self._reset()

    def _reset(self) -> None:
        self._plain: deque[Task | None] = deque()
        self._ranked: list[tuple[int, int, Task]] = []
        self._sleepers: list[LockType] = []
        self._waking = False
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()

    @shielded
    def put(self, task: Task) -> None:
        """Have task run by a worker."""
        if task.priority:
            heappush(self._ranked, (-task.priority, task.seq, task))
        else:
            self._plain.append(task)
        if not self._waking and self._sleepers:
            self._wake()
        elif not self._threads:
            self._start()

    @shielded
    def reclaim(self, var: Var) -> Task | None:
        """Take back the task that became ready last, if it mutates var and no worker has begun it."""
        plain = self._plain
        try:
            task = plain[-1]
            if task is None or task.wants_complete or var not in task.mutable_vars:
                return None
            taken = plain.pop()
        except IndexError:
            return None
        if taken is task:
            return task
        plain.append(taken)
        self._wake()
        return None

    @shielded
    def _wake(self) -> None:
        self._waking = True
        try:
            lock = self._sleepers.pop()
        except IndexError:  # everybody is awake, and looks before sleeping
            self._waking = False
        else:
            lock.release()

    def busy(self) -> bool:
        """Whether a worker executes something, or has yet to begin what is ready."""
        return bool(self._plain or self._ranked) or any(_running.get(t.ident or 0) is not None for t in self._threads)

    @shielded
    def lend(self) -> None:
        """A worker is about to block: start another in its place."""
        with self._lock:
            self._add_thread()

    @shielded
    def give_back(self) -> None:
        """A worker goes on: end one."""
        self._plain.append(None)
        self._wake()

    def stop(self) -> None:
        """End the threads, after what is queued; `put` starts fresh ones."""
        with self._lock:
            threads, self._threads = self._threads, []
            alive = [t for t in threads if t.is_alive()]
            for _ in alive:
                self.give_back()
        for t in alive:
            t.join()
        self._reset()

    def forget(self) -> None:
        """In a forked child: the threads are not here."""
        for t in self._threads:
            _running.pop(t.ident or 0, None)
            _pools.pop(t.ident or 0, None)
        self._reset()

    @shielded
    def _start(self) -> None:
        try:
            with self._lock:
                while len(self._threads) < self.size:
                    self._add_thread()
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            if not self._threads:
                self._serve_here()

    def _serve_here(self) -> None:
        """Do what waits in the calling thread."""
        run = self.run
        while (task := self._take()) is not _NOTHING:
            if task is not None:
                before = enter(task)
                self.engine.execute(task, run)
                leave(before)

    @shielded
    def _add_thread(self) -> None:
        self._threads = [t for t in self._threads if t.is_alive()]
        t = threading.Thread(target=self._work, name=f"tritium-{self.ctx}-{self.kind}", daemon=True)
        t.start()
        self._threads.append(t)

    def _take(self) -> Any:
        """The next task; None tells the worker to end, _NOTHING that there is none."""
        plain, ranked = self._plain, self._ranked
        while True:  # another worker may be quicker between the look and the pop
            try:
                if ranked and (ranked[0][0] < 0 or not plain):
                    return heappop(ranked)[2]
                return plain.popleft()
            except IndexError:
                if not plain and not ranked:
                    return _NOTHING

    def _next(self, bed: LockType) -> Task | None:
        """The next task, slept for if need be; None tells the worker to end."""
        sleepers = self._sleepers
        while (task := self._take()) is _NOTHING:
            sleepers.append(bed)
            if self._plain or self._ranked:
                try:
                    sleepers.remove(bed)
                    continue
                except ValueError:  # somebody is waking us
                    pass
            bed.acquire()
            self._waking = False
        if sleepers and not self._waking and (self._plain or self._ranked):
            self._wake()
        return task

    def _work(self) -> None:
        me = threading.get_ident()
        _pools[me] = self
        try:
            with cuda.run_on(self.stream):
                self._serve(me)
        finally:
            _pools.pop(me, None)
            _running.pop(me, None)

    def _serve(self, me: int) -> None:
        engine, run = self.engine, self.run
        running, ranked, execute, pump_for = _running, self._ranked, engine.execute, engine.pump_for
        bed = allocate_lock()
        bed.acquire()
        while (task := self._next(bed)) is not None:
            for left in range(_CHAIN, -1, -1):
                running[me] = task
                execute(task, run)
                running[me] = None
                task = pump_for(self, left > 0 and not ranked)  # a task that this one set free needs no other thread
                if task is None:
                    break
