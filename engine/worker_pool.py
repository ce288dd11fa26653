"""Pool: the worker threads of one context and one kind of work, and the tasks that wait for them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ..context import Context
from .deps import Task, Var
from .gpu import cuda
from .interrupts import ki_protected
from .run_context import RunContext, ThreadTeam

if TYPE_CHECKING:
    from .threaded import ThreadedEngine

_NOTHING = object()
_CHAIN = 32  # tasks a worker may take straight from the one it finished, before others get their turn

_running: dict[int, Task | None] = {}  # thread -> the task it executes
_outer: dict[int, list[Task]] = {}  # thread -> the tasks in whose middle it executes that
_pools: dict[int, Pool] = {}  # worker thread -> its pool


def current_task() -> Task | None:
    """The engine function that the calling thread is executing."""
    return _running.get(threading.get_ident())


def enter(task: Task) -> Task | None:
    """The calling thread, no worker or one in the middle of a task, executes task; what it executed before."""
    me = threading.get_ident()
    before = _running.get(me)
    if before is not None:
        _outer.setdefault(me, []).append(before)
    _running[me] = task
    return before


def running_here() -> Sequence[Task]:
    """The functions that the calling thread is in the middle of, the innermost first."""
    me = threading.get_ident()
    task = _running.get(me)
    return () if task is None else [task, *reversed(_outer.get(me, ()))]


def leave(before: Task | None) -> None:
    """Undo `enter`."""
    me = threading.get_ident()
    if before is None:
        _running.pop(me, None)
    else:
        _running[me] = before
        outer = _outer[me]
        outer.pop()
        if not outer:
            del _outer[me]


def this_pool() -> Pool | None:
    """The pool whose worker the calling thread is."""
    return _pools.get(threading.get_ident())


class Worker:
    """A thread of a pool, with the lock it sleeps in front of.

    lent:    it stands in for one that waits.
    leaves:  it is to end as soon as it is between two tasks.
    """

    __slots__ = ("bed", "leaves", "lent", "thread")

    def __init__(self, lent: bool):
        self.lent, self.leaves = lent, False
        self.bed = allocate_lock()
        self.bed.acquire()
        self.thread: threading.Thread


class Pool:
    """`put` hands a ready task to the workers: the highest priority first, among equals in order.

    Tasks of priority 0 wait in a deque, others in a heap. Workers without work sleep, each in front of its own lock.
    One is woken at a time, and wakes the next if it finds more than it can take: so a thread that pushes many tasks
    pays for one call to the operating system and not for one each. No task is overlooked: `put` appends before it
    looks at `_waking`, a woken worker clears that before it looks for tasks, and none sleeps without a second look.

    No lock is held while a thread starts: it may run a finalizer that pushes before it says that it has begun.
    A sleeping worker holds no engine, so that one nobody holds any more goes, and its threads with it. While tasks
    wait, `_held` holds it: `put` sets that after it appends, and who clears it looks once more.
    """

    def __init__(self, engine: ThreadedEngine, ctx: Context, kind: str, size: int, stream: Any, helpers: ThreadTeam):
        self.ctx, self.kind, self.size, self.stream = ctx, kind, size, stream
        self._engine = weakref.ref(engine)
        self.run = RunContext(ctx, stream, helpers)
        self._reset()

    def _reset(self) -> None:
        self._plain: deque[Task] = deque()
        self._ranked: list[tuple[int, int, Task]] = []
        self._sleepers: list[LockType] = []
        self._waking = False
        self._workers: list[Worker] = []
        self._room = [None] * self.size  # one for each thread that may yet be started: to take one is atomic
        self._held: ThreadedEngine | None = None

    @property
    def engine(self) -> ThreadedEngine | None:
        """Whose pool it is; None when nobody holds that any more, and no task of it is left."""
        return self._engine()

    @ki_protected
    def put(self, task: Task) -> None:
        """Have task run by a worker."""
        if task.priority:
            heappush(self._ranked, (-task.priority, task.seq, task))
        else:
            self._plain.append(task)
        if self._held is None:
            self._held = self._engine()
        if not self._waking and self._sleepers:
            self._wake()
        elif self._room:
            self._start()

    @ki_protected
    def reclaim(self, var: Var) -> Task | None:
        """Take back the task that became ready last, if it mutates var and no worker has begun it."""
        plain = self._plain
        try:
            task = plain[-1]
            if task.wants_complete or var not in task.mutable_vars:
                return None
            taken = plain.pop()
        except IndexError:
            return None
        if taken is task:
            return task
        plain.append(taken)
        self._wake()
        return None

    @ki_protected
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
        return bool(self._plain or self._ranked) or \
            any(_running.get(w.thread.ident or 0) is not None for w in list(self._workers))

    def running(self) -> list[Task]:
        """What the workers execute."""
        tasks = [_running.get(w.thread.ident or 0) for w in list(self._workers)]
        return [t for t in tasks if t is not None]

    def unfinished(self) -> list[Task]:
        """What the workers execute, and what waits for them."""
        return [*self.running(), *self._plain, *(t for _, _, t in self._ranked)]

    @ki_protected
    def lend(self) -> Worker | None:
        """A worker is about to block: start another in its place, if there can be one."""
        try:
            return self._add_worker(lent=True)
        except RuntimeError:  # the interpreter is ending
            return None

    @ki_protected
    def dismiss(self, worker: Worker) -> None:
        """Have a worker end, once it is done with its task."""
        worker.leaves = True
        try:
            self._sleepers.remove(worker.bed)
        except ValueError:  # it is awake, or being woken, and looks before it sleeps
            return
        worker.bed.release()

    def dismiss_all(self) -> list[Worker]:
        """Have every worker end; they are. What is put later starts fresh ones."""
        workers, self._workers = self._workers, []
        for w in workers:
            self.dismiss(w)
        return workers

    def stop(self) -> None:
        """End the threads. What is still queued, or put meanwhile, is for fresh ones."""
        me = threading.get_ident()
        for w in self.dismiss_all():
            if w.thread.ident != me:
                w.thread.join()

    def forget(self) -> None:
        """In a forked child: the threads are not here."""
        me = threading.get_ident()
        for w in self._workers:
            w.leaves = True
            if w.thread.ident != me:
                _running.pop(w.thread.ident or 0, None)
                _pools.pop(w.thread.ident or 0, None)
        self._reset()

    @ki_protected
    def _start(self) -> None:
        while True:
            try:
                self._room.pop()
            except IndexError:
                return
            try:
                self._add_worker(lent=False)
            except RuntimeError:  # the interpreter is ending and starts no threads any more
                self._room.append(None)
                if not self._workers:
                    self._serve_here()
                return

    def _serve_here(self) -> None:
        """Do what waits in the calling thread."""
        engine = self._engine()
        while engine is not None and (task := self._take()) is not _NOTHING:
            before = enter(task)
            engine.execute(task, self.run)
            leave(before)

    @ki_protected
    def _add_worker(self, lent: bool) -> Worker:
        worker = Worker(lent)
        worker.thread = threading.Thread(target=self._work, args=(worker,), name=f"tritium-{self.ctx}-{self.kind}", daemon=True)
        worker.thread.start()
        self._workers.append(worker)
        return worker

    def _take(self) -> Any:
        """The next task; _NOTHING: there is none."""
        plain, ranked = self._plain, self._ranked
        while True:  # another worker may be quicker between the look and the pop
            try:
                if ranked and (ranked[0][0] < 0 or not plain):
                    return heappop(ranked)[2]
                return plain.popleft()
            except IndexError:
                if not plain and not ranked:
                    return _NOTHING

    def _sleep(self, worker: Worker) -> bool:
        """Sleep until there may be something to do; False: the worker is to end."""
        sleepers, bed = self._sleepers, worker.bed
        while not worker.leaves:
            if self._plain or self._ranked:
                return True
            sleepers.append(bed)
            if self._plain or self._ranked or worker.leaves:
                try:
                    sleepers.remove(bed)
                    continue
                except ValueError:  # somebody is waking us
                    pass
            bed.acquire()
            self._waking = False
        return False

    def _work(self, worker: Worker) -> None:
        me = threading.get_ident()
        _pools[me] = self
        try:
            with cuda.run_on(self.stream):
                while self._sleep(worker):
                    engine = self._engine()
                    if engine is None:
                        return
                    task = self._take()
                    if task is not _NOTHING:  # else who waits for it was quicker
                        self._serve(engine, me, worker, task)
                        task = None
                    self._held = None
                    if self._plain or self._ranked:
                        self._held = engine
                    engine = None
        finally:
            _pools.pop(me, None)
            _running.pop(me, None)
            with contextlib.suppress(ValueError):  # who ended it may have forgotten it
                self._workers.remove(worker)
            if not worker.lent:
                self._room.append(None)
            if self._plain or self._ranked:  # it was woken for them, perhaps
                self._wake() if self._sleepers else self._start()

    def _serve(self, engine: ThreadedEngine, me: int, worker: Worker, task: Any) -> None:
        """Do task, and what waits, until nothing does or the worker is to end."""
        run, running, ranked, execute, pump_for = self.run, _running, self._ranked, engine.execute, engine.pump_for
        plain, sleepers = self._plain, self._sleepers
        while task is not _NOTHING:
            if sleepers and not self._waking and (plain or ranked):
                self._wake()
            for left in range(_CHAIN, -1, -1):
                running[me] = task
                execute(task, run)
                running[me] = None
                task = pump_for(self, left > 0 and not ranked)  # a task that this one set free needs no other thread
                if task is None:
                    break
            if worker.leaves:
                return
            task = self._take()
