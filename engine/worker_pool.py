"""WorkerPool: the worker threads of one context and one kind of work, and the tasks that wait for them."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import threadpoolctl

from .. import environment
from ..context import Context
from .deps import Task, Var
from .gpu import cuda
from .interrupts import ki_protected
from .run_context import RunContext, ThreadTeam, start_threads

if TYPE_CHECKING:
    from .threaded import ThreadedEngine

_NO_TASK = object()
_CHAIN = 32  # tasks that a worker may take straight from the one it completed, before it looks at the queue again

_running: dict[int, Task | None] = {}  # thread -> the task it executes
_outer: dict[int, list[Task]] = {}  # thread -> the tasks that it executes that one inside of
_pools: dict[int, WorkerPool] = {}  # worker thread -> its pool


def current_task() -> Task | None:
    """Return the task that the calling thread executes."""
    return _running.get(threading.get_ident())


def running_here() -> Sequence[Task]:
    """Return the tasks that the calling thread is inside of, the innermost first."""
    me = threading.get_ident()
    task = _running.get(me)
    return () if task is None else [task, *reversed(_outer.get(me, ()))]


def enter(task: Task) -> Task | None:
    """Note that the calling thread executes task, outside a worker's loop or inside another task. Return that other task."""
    me = threading.get_ident()
    before = _running.get(me)
    if before is not None:
        _outer.setdefault(me, []).append(before)
    _running[me] = task
    return before


def leave(before: Task | None) -> None:
    """Undo `enter`, which returned before."""
    me = threading.get_ident()
    if before is None:
        _running.pop(me, None)
    else:
        _running[me] = before
        outer = _outer[me]
        outer.pop()
        if not outer:
            del _outer[me]


def this_pool() -> WorkerPool | None:
    """Return the pool of which the calling thread is a worker."""
    return _pools.get(threading.get_ident())


class Worker:
    """A thread of a pool.

    spare:   it replaces a worker that is blocked.
    leaves:  it ends as soon as it has completed its task.
    wakeup:  the lock it sleeps on.
    """

    __slots__ = ("leaves", "spare", "thread", "wakeup")

    def __init__(self, spare: bool):
        self.spare, self.leaves = spare, False
        self.wakeup = allocate_lock()
        self.wakeup.acquire()
        self.thread: threading.Thread


class WorkerPool:
    """`put` gives a ready task to the workers. The highest priority runs first, equal priorities in order.

    Tasks of priority 0 wait in a deque, others in a heap. Idle workers sleep, each on its own lock. One is woken at a time,
    and wakes the next if it finds more than it can take. So a thread that pushes many tasks makes one system call, not one
    each. No task is overlooked: `put` appends before it reads `_waking`, a woken worker clears that before it looks for
    tasks, and a worker looks a second time before it sleeps.

    A sleeping worker holds no reference to the engine, so that an engine without other references ends with its threads.
    While tasks wait, `_engine_in_use` holds it: `put` sets it after it appends, and a worker that clears it looks once more.
    """

    def __init__(self, engine: ThreadedEngine, ctx: Context, kind: str, size: int, stream: Any, team: ThreadTeam):
        self.ctx, self.kind, self.size, self.stream = ctx, kind, size, stream
        self._engine = weakref.ref(engine)
        self.run = RunContext(ctx, stream, team)
        self._reset()

    def _reset(self) -> None:
        self._plain: deque[Task] = deque()
        self._ranked: list[tuple[int, int, Task]] = []
        self._sleepers: list[LockType] = []
        self._waking = False
        self._workers: list[Worker] = []
        self._to_start = [None] * self.size  # one for each thread that may still be started
        self._engine_in_use: ThreadedEngine | None = None

    @property
    def engine(self) -> ThreadedEngine | None:
        """The engine of this pool; None if it has no references and no tasks any more."""
        return self._engine()

    @ki_protected
    def put(self, task: Task, first: bool = False) -> None:
        """Queue task for the workers. first: before all others of priority 0, as one that `reclaim_first` took."""
        if task.priority:
            heappush(self._ranked, (-task.priority, task.seq, task))
        elif first:
            self._plain.appendleft(task)
        else:
            self._plain.append(task)
        if self._engine_in_use is None:
            self._engine_in_use = self._engine()
        if not self._waking and self._sleepers:
            self._wake()
        elif self._to_start:
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
    def reclaim_first(self) -> Task | None:
        """Take back the kernel that waits longest, if no task has a priority and no worker has begun one."""
        if self._ranked or not self._plain or self.running():
            return None
        try:
            task = self._plain.popleft()
        except IndexError:
            return None
        if task.cost_key is not None:
            return task
        self.put(task, first=True)
        return None

    @ki_protected
    def _wake(self) -> None:
        self._waking = True
        try:
            lock = self._sleepers.pop()
        except IndexError:  # all are awake, and look before they sleep
            self._waking = False
        else:
            lock.release()

    def busy(self) -> bool:
        """Return True if a worker executes a task or one waits."""
        return bool(self._plain or self._ranked or self.running())

    def running(self) -> list[Task]:
        """Return the tasks that the workers execute."""
        tasks = [_running.get(w.thread.ident or 0) for w in list(self._workers)]
        return [t for t in tasks if t is not None]

    def unfinished(self) -> list[Task]:
        """Return the tasks that the workers execute and those that wait."""
        return [*self.running(), *self._plain, *(t for _, _, t in self._ranked)]

    @ki_protected
    def add_spare(self) -> Worker | None:
        """Start a worker in place of one that is about to block; None when the interpreter is ending."""
        try:
            return self._add_worker(spare=True)
        except RuntimeError:
            return None

    @ki_protected
    def dismiss(self, worker: Worker) -> None:
        """Tell a worker to end after its task."""
        worker.leaves = True
        try:
            self._sleepers.remove(worker.wakeup)
        except ValueError:  # it is awake, or being woken, and looks before it sleeps
            return
        worker.wakeup.release()

    def dismiss_all(self) -> list[Worker]:
        """Tell all workers to end, and return them. Tasks put later start new ones."""
        workers, self._workers = self._workers, []
        for w in workers:
            self.dismiss(w)
        return workers

    def stop(self) -> None:
        """End the threads. Tasks that are still queued, or put meanwhile, are for new ones."""
        me = threading.get_ident()
        for w in self.dismiss_all():
            if w.thread.ident != me:
                w.thread.join()

    def reset_in_child(self) -> None:
        """In a forked child: begin without the threads, which do not exist here, and without tasks."""
        me = threading.get_ident()
        for w in self._workers:
            w.leaves = True
            if w.thread.ident != me:
                _running.pop(w.thread.ident or 0, None)
                _pools.pop(w.thread.ident or 0, None)
        self._reset()

    @ki_protected
    def _start(self) -> None:
        if not start_threads(self._to_start, lambda: self._add_worker(spare=False)) and not self._workers:
            self._run_queued_here()

    def _run_queued_here(self) -> None:
        """Run the queued tasks in the calling thread."""
        engine = self._engine()
        while engine is not None and (task := self._take()) is not _NO_TASK:
            before = enter(task)
            engine.execute(task, self.run)
            leave(before)

    @ki_protected
    def _add_worker(self, spare: bool) -> Worker:
        worker = Worker(spare)
        worker.thread = threading.Thread(target=self._work, args=(worker,), name=f"tritium-{self.ctx}-{self.kind}", daemon=True)
        worker.thread.start()
        self._workers.append(worker)
        return worker

    def _take(self) -> Any:
        """Return the next task, or _NO_TASK."""
        plain, ranked = self._plain, self._ranked
        while True:  # another worker may be quicker between the look and the pop
            try:
                if ranked and (ranked[0][0] < 0 or not plain):
                    return heappop(ranked)[2]
                return plain.popleft()
            except IndexError:
                if not plain and not ranked:
                    return _NO_TASK

    def _sleep(self, worker: Worker) -> bool:
        """Sleep until a task may be waiting. Return False if the worker has to end."""
        sleepers, wakeup = self._sleepers, worker.wakeup
        while not worker.leaves:
            if self._plain or self._ranked:
                return True
            sleepers.append(wakeup)
            if self._plain or self._ranked or worker.leaves:
                try:
                    sleepers.remove(wakeup)
                    continue
                except ValueError:  # another thread is waking this one
                    pass
            wakeup.acquire()
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
                    if task is not _NO_TASK:  # a thread that waits for it may have reclaimed it
                        self._execute_chain(engine, me, worker, task)
                        task = None
                    self._engine_in_use = None
                    if self._plain or self._ranked:
                        self._engine_in_use = engine
                    engine = None
        finally:
            _pools.pop(me, None)
            _running.pop(me, None)
            with contextlib.suppress(ValueError):  # dismiss_all may have removed it
                self._workers.remove(worker)
            if not worker.spare:
                self._to_start.append(None)
            if self._plain or self._ranked:  # this worker may have been woken for them
                self._wake() if self._sleepers else self._start()

    def _execute_chain(self, engine: ThreadedEngine, me: int, worker: Worker, task: Any) -> None:
        """Execute task, then waiting ones, until none waits or the worker has to end."""
        run, running, ranked, execute, pump = self.run, _running, self._ranked, engine.execute, engine.pump
        plain, sleepers = self._plain, self._sleepers
        while task is not _NO_TASK:
            if sleepers and not self._waking and (plain or ranked):
                self._wake()
            for left in range(_CHAIN, -1, -1):
                running[me] = task
                execute(task, run)
                running[me] = None
                task = pump(self if left > 0 and not ranked else None)  # a task that this one made ready needs no other thread
                if task is None:
                    break
            if worker.leaves:
                return
            task = self._take()


@functools.cache
def limit_blas() -> int:
    """Set the number of BLAS threads of the process: TRITIUM_BLAS_THREADS, default 1. Return it.

    A matrix product that is split over another number of threads adds up in another order. Kernels split their work
    themselves (`RunContext.parallel`), so results do not depend on the number of workers. It also holds for the user's own
    NumPy calls.
    """
    n = environment.BLAS_THREADS.get()
    threadpoolctl.threadpool_limits(limits=n, user_api="blas")
    return n
