"""ThreadedEngine: functions run on worker threads as soon as what they use is free.

Pushing and finishing append to a queue each; whichever thread gets the lock does the bookkeeping for all. So a push
never waits, not even for the lock, and may come from a finalizer or a signal handler in the middle of another.
"""

from __future__ import annotations

import os
import weakref
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic, perf_counter_ns, sleep
from typing import Any

from ..context import Context
from ..errors import EngineError
from . import gc_pause, task_cost
from .base import Engine, number_from
from .blas_threads import limit_blas
from .completion import Completion
from .deps import Task, Var, abandon, add, behind, done, everything_behind, grant
from .failure import Failure
from .gpu import cuda, streams
from .interrupts import block, install, ki_protected, ki_unprotected
from .run_context import RunContext, ThreadTeam
from .worker_pool import Pool, current_task, enter, leave, running_here, this_pool

_SHORT = 50_000  # nanoseconds: a function known to be shorter is run by the thread that waits for it
_PATIENCE = 10  # seconds between looks whether what runs waits for threads that are held up
_SHORT_KERNEL = 5_000_000  # the same for kernels
_FAR = 4  # functions pending for each worker: not yet far ahead
_LOOK = 0.001  # seconds between looks at how far behind the engine is
_STREAMS = {"compute": "compute", "copy": "copy", "io": "copy", "priority": "priority"}  # kind of work -> GPU stream


class ThreadedEngine(Engine):
    """workers: threads of each CPU context, and helpers of `RunContext.parallel` besides the caller, plus one.

    Default: TRITIUM_NUM_WORKERS or MXNET_CPU_WORKER_NTHREADS, else the number of cores, at most 4. A GPU context has
    one worker, which enqueues. Threads start when they are first needed.
    """

    def __init__(self, workers: int | None = None):
        super().__init__()
        limit_blas()
        install()
        if workers is None:
            workers = number_from(("TRITIUM_NUM_WORKERS", "MXNET_CPU_WORKER_NTHREADS"), min(4, os.cpu_count() or 1))
        if workers < 1:
            raise EngineError(f"ThreadedEngine: workers is {workers}. Give at least 1.")
        self.workers = workers
        self._arrived: deque[Task] = deque()
        self._finished: deque[Task] = deque()
        self._lock = allocate_lock()
        self._pending = 0
        self._on_gpu = False  # whether anything was ever pushed to a GPU
        self._few, self._many = 0, gc_pause.MANY
        self._idlers: list[LockType] = []
        self._pools: dict[tuple[str, int, str], Pool] = {}
        self._team = ThreadTeam(workers - 1)
        self._handed_on: dict[Task, None] = {}  # asynchronous tasks whose function returned
        weakref.finalize(self, _end, self._pools, self._team).atexit = False

    # ---- bookkeeping ----------------------------------------------------------------------------------------------
    @ki_protected
    def _submit(self, task: Task) -> None:
        self._arrived.append(task)
        if not task.inline:
            self._pump()
        else:
            self._run_inline(task)

    @ki_protected
    def _append(self, task: Task) -> None:
        self._arrived.append(task)

    @ki_protected
    def _proceed(self, task: Task) -> None:
        self._run_inline(task) if task.inline else self._pump()

    @ki_protected
    def _run_inline(self, task: Task) -> None:
        """Run task here, if it is ready and nobody else does the bookkeeping."""
        for t in self._turn():
            if t is task:
                self._execute_inline(t)
            else:
                t.lane.put(t)
        self._pump()

    @ki_protected
    def _finish(self, task: Task) -> None:
        task.fn = None
        self._finished.append(task)

    @ki_protected
    def _pump(self) -> None:
        """Do the bookkeeping until nothing is left or another thread does it; hand out what became ready."""
        while self._arrived or self._finished:
            if not self._lock.acquire(False):
                return
            try:
                ready = self._drain()
            finally:
                self._lock.release()
            for t in ready:
                t.lane.put(t)

    @ki_protected
    def pump_for(self, pool: Pool, keep: bool) -> Task | None:
        """As _pump, for a worker of pool; if keep, one task of those that became ready is returned for it to run."""
        kept: Task | None = None
        while self._arrived or self._finished:
            if not self._lock.acquire(False):
                break
            try:
                ready = self._drain()
            finally:
                self._lock.release()
            for t in ready:
                if keep and kept is None and t.lane is pool and t.priority == 0:
                    kept = t
                else:
                    t.lane.put(t)
        return kept

    @ki_protected
    def _turn(self) -> Sequence[Task]:
        """One round of bookkeeping, if no other thread does it."""
        if not self._lock.acquire(False):
            return ()
        try:
            return self._drain()
        finally:
            self._lock.release()

    @ki_protected
    def _drain(self) -> list[Task]:
        """Lock held: enter what arrived, let go what finished; the tasks to run."""
        arrived, finished = self._arrived, self._finished
        ready: list[Task] = []
        while True:
            if finished:
                task = finished.popleft()
                if task.failure is not None:
                    self._spoiled.update(task.mutable_vars)
                freed: Sequence[Task] = done(task)
                self._pending -= 1
            elif arrived:
                task = arrived.popleft()
                self._pending += 1
                if not add(task):
                    continue
                freed = (task,)
            else:
                break
            if freed:
                self._route(freed, ready)
        pending = self._pending
        if not self._few <= pending < self._many:
            self._few, self._many = gc_pause.weigh(pending, self)
        if not pending and self._idlers:
            self._wake_idlers()
        return ready

    @ki_protected
    def _wake_idlers(self) -> None:
        """Lock held: nothing is pending."""
        for idler in self._idlers:
            idler.release()
        self._idlers.clear()

    @ki_protected
    def run_now(self, fn: Callable[..., Any], const_vars: Sequence[Var], *args: Any) -> bool:
        lock = self._lock
        if self._bulks or self._arrived or self._finished or self._stopped or self._profiler is not None or \
                not lock.acquire(False):
            return False
        for v in const_vars:
            if v.held < 0 or v.queue is not None or v.failure is not None or v.pending_events is not None:
                lock.release()
                self._pump()
                return False
        for v in const_vars:  # as a reader that `add` let in
            v.held += 1
        self._pending += 1
        lock.release()
        try:
            fn(*args)
            return True
        except Exception:
            return False
        finally:
            lock.acquire()
            freed: list[Task] = []
            ready: list[Task] = []
            for v in const_vars:
                v.held -= 1
                if v.queue is not None and not v.held:
                    grant(v, v.queue, freed)
            if freed:
                self._route(freed, ready)
            self._pending -= 1
            if self._idlers and not self._pending:
                self._wake_idlers()
            lock.release()
            for t in ready:
                t.lane.put(t)
            if self._arrived or self._finished:
                self._pump()

    @ki_protected
    def call_now(self, a: Any, b: Any, call: Callable[..., Any], *args: Any) -> Any:
        if self._bulks or self._stopped or self._profiler is not None or not self._lock.acquire(False):
            return None
        try:
            u, v = a._var, b._var
            if (not self._arrived
                    and (u is None or (u.held >= 0 and u.queue is None and u.failure is None and u.pending_events is None))
                    and (v is None or (v.held >= 0 and v.queue is None and v.failure is None and v.pending_events is None))):
                return call(*args)
            return None
        except Exception:
            return None
        finally:
            self._lock.release()
            if self._arrived or self._finished:
                self._pump()

    @ki_protected
    def _route(self, freed: Sequence[Task], ready: list[Task]) -> None:
        """Lock held: give signals, pass over what reads a spoiled var, and put the rest among ready."""
        for t in freed:
            if t.lane is None:  # a waiter
                t.fn()  # type: ignore[misc]
                self._finished.append(t)
            elif t.failure is not None:  # reads a spoiled var
                t.fn = None
                self._finished.append(t)
            else:
                ready.append(t)

    # ---- running --------------------------------------------------------------------------------------------------
    @ki_unprotected
    @ki_protected
    def execute(self, task: Task, run: RunContext, inline: bool = False) -> None:
        """Run task here and let go of it. Nothing it raises gets out, but a KeyboardInterrupt of an inline function."""
        profiler = self._profiler
        start = perf_counter_ns() if profiler is not None else 0
        try:
            if self._on_gpu:
                streams.before(task, run.stream)
            if task.wants_complete:
                self._begin(task, run)
                if profiler is not None:
                    profiler.ended(task, start)
            else:
                task.fn(run)  # type: ignore[misc]
                if run.stream is not None:
                    streams.after(task, run.stream)
                if profiler is not None and len(ran := profiler.ran) < profiler.most:
                    ran += (task, get_ident(), start, perf_counter_ns())  # `ended`, written out
                elif profiler is not None:
                    profiler.dropped += 1
                self._finish(task)
        except BaseException as e:
            self._fail(task, e)
            if profiler is not None:
                profiler.ended(task, start)
            self._finish(task)
            if inline and isinstance(e, KeyboardInterrupt):
                self._pump()
                raise

    def _execute_inline(self, task: Task) -> None:
        before, lane = enter(task), task.lane
        try:
            if lane.stream is None:
                self.execute(task, lane.run, inline=True)
            else:
                with cuda.run_on(lane.stream):
                    self.execute(task, lane.run, inline=True)
        finally:
            leave(before)

    @ki_unprotected
    def _begin(self, task: Task, run: RunContext) -> None:
        on_complete = Completion(task, self._complete)
        fn = task.fn
        self._handed_on[task] = None
        try:
            fn(run, on_complete)  # type: ignore[misc]
        except BaseException as e:
            if on_complete.close():
                self._handed_on.pop(task, None)
                raise
            failed = Failure(e, task.name, task.origin, task.seq)  # after on_complete(): only wait_for_all can tell
            with self._failure_lock:
                self._unseen.append(failed)

    @ki_protected
    def _complete(self, task: Task, error: BaseException | None) -> None:
        self._handed_on.pop(task, None)
        if error is not None:
            self._fail(task, error)
        if task.lane.stream is not None:
            streams.after(task, task.lane.stream)
        if self._profiler is not None:
            self._profiler.completed(task)
        self._finish(task)
        if error is None and current_task() is None:  # neither a finalizer, which tells an error, nor a function in its middle
            self._run_short(self._turn())
        self._pump()

    def _run_short(self, ready: Sequence[Task]) -> None:
        """Run here what is inline, as when it is pushed: to wake a worker would take longer."""
        short: list[Task] = []
        for t in ready:
            short.append(t) if t.inline and t.lane.stream is None else t.lane.put(t)
        for t in short:
            before = enter(t)
            try:
                self.execute(t, t.lane.run)
            finally:
                leave(before)

    def _lane_of_kind(self, ctx: Context, kind: str, name: str) -> Pool:
        if self._stopped:
            raise self._refuse(name)
        pool = self._pools.get((ctx.device_type, ctx.device_id, kind))
        return pool if pool is not None else self._new_pool(ctx, kind)

    @ki_protected
    def _new_pool(self, ctx: Context, kind: str) -> Pool:
        stream = None
        if ctx.is_gpu:
            stream = cuda.stream(ctx.device_id, _STREAMS[kind])  # raises ContextError if there is no such GPU
            self._on_gpu = True
        size = self.workers if kind == "compute" and not ctx.is_gpu else 1
        pool = Pool(self, ctx, kind, size, stream, self._team)
        return self._pools.setdefault((ctx.device_type, ctx.device_id, kind), pool)

    # ---- waiting --------------------------------------------------------------------------------------------------
    def wait_for_var(self, var: Var) -> None:
        if self._bulks and (engine := self._before_wait("wait_for_var")) is not self:
            return engine.wait_for_var(var)
        if self._is_settled(var):
            if self._on_gpu:
                streams.settle(var)
            if var.failure is not None:
                self._raise_marked(var, var.failure)
            return
        self._refuse_inside("wait_for_var")
        self._refuse_own(var)
        woken = allocate_lock()
        woken.acquire()
        task = Task(woken.release, (var,), (), None, 0, next(self._seq), "wait_for_var", None, False, False)
        profiler = self._profiler
        start = perf_counter_ns() if profiler is not None else 0
        self._arrived.append(task)
        self._pump()
        if not woken.acquire(False) and not self._help(var, woken):
            _sleep(woken)
        if self._on_gpu:
            streams.settle(var)
        if profiler is not None:
            profiler.waited(start, var)
        if task.failure is not None:
            self._raise_marked(var, task.failure)

    def _help(self, var: Var, woken: LockType) -> bool:
        """While the task that var waits for is ready and known to be short, do it here; whether the wait is over.

        A thread that sleeps and is woken costs 20 to 50 us, and there would be two of them: the worker and this one. How long
        a function takes is measured here: the first time a worker runs it, with a clock around it. Ctrl-C must end a wait
        soon, so what takes long, or might block, is left to the worker.
        """
        pools = list(self._pools.values())
        while True:
            for pool in pools:
                task = pool.reclaim(var) if pool.stream is None else None
                if task is not None:
                    break
            else:
                return False
            cost = task_cost.of(task)
            task_cost.measure(task)
            if cost is None or cost > (_SHORT if task.cost_key is None else _SHORT_KERNEL):
                pool.put(task)
                return False
            self._execute_inline(task)
            self._pump()
            if woken.acquire(False):
                return True

    @ki_protected
    def _is_settled(self, var: Var) -> bool:
        """Whether nothing pushed before mutates var; False also if another thread is just finding out."""
        if self._arrived or self._finished:
            self._pump()
        if not self._lock.acquire(False):
            return False
        settled = not self._arrived and var.held >= 0 and var.queue is None
        self._lock.release()
        self._pump()
        return settled

    def wait_for_all(self) -> None:
        if self._bulks and (engine := self._before_wait("wait_for_all")) is not self:
            return engine.wait_for_all()
        self._wait_idle(None)
        self._raise_first(self._take_marks())

    @ki_protected
    def _take_marks(self) -> list[Failure]:
        """What marks vars, which it does no more."""
        marked = []
        with self._lock:
            for v in list(self._spoiled):
                if v.failure is not None:
                    marked.append(v.failure)
                    v.failure = None
            self._spoiled.clear()
        self._pump()
        return marked

    @ki_protected
    def _signal_idle(self, woken: LockType) -> None:
        """Have woken released when nothing is pending."""
        with self._lock:
            self._idlers.append(woken)
        # a task that nobody else needs: its round of bookkeeping finds out whether all is idle
        self._arrived.append(Task(_nothing, (), (), None, 0, 0, "wait_for_all", None, False, False))
        self._pump()

    def _wait_idle(self, timeout: float | None) -> bool:
        """Block until nothing is pending; False if that took longer than timeout seconds."""
        self._refuse_inside("wait_for_all")
        if self._bulks:
            self.flush()
        if any(task.lane.engine is self for task in running_here()):
            task = current_task()
            assert task is not None
            raise EngineError(f"{task.name or 'wait_for_all'}: a running function waits for everything, itself included."
                              f" Wait for a var instead.")
        woken = allocate_lock()
        woken.acquire()
        self._signal_idle(woken)
        profiler = self._profiler
        start = perf_counter_ns() if profiler is not None else 0
        idle = block(woken, timeout)
        if self._on_gpu and idle:
            for stream in {pool.stream for pool in list(self._pools.values()) if pool.stream is not None}:
                cuda.synchronize(stream)
        if profiler is not None:
            profiler.waited(start, None)
        return idle

    def catch_up(self, patience: float = 0.5) -> None:
        if current_task() is not None or this_pool() is not None:
            return
        last = self._pending
        left, moved = last // 2, monotonic()  # of what is pending, so much is waited for
        if last <= _FAR * self.workers:
            return
        while left > 0 and monotonic() - moved < patience:
            sleep(_LOOK)
            now, before = self._pending, last
            last = now
            if now < before:
                left, moved = left - (before - now), monotonic()

    def _refuse_own(self, var: Var) -> None:
        for task in running_here():
            if var in task.mutable_vars:
                raise EngineError(f"{task.name or 'wait_for_var'}: a running function waits for a var that it mutates "
                                  f"itself.")
            if not task.wants_complete and (behind := self._behind(task, var)) is not None:
                raise EngineError(f"{task.name or 'wait_for_var'}: a running function waits for a var that "
                                  f"{behind.name or 'another'} mutates, which waits for that function itself.")

    @ki_protected
    def _behind(self, task: Task, var: Var) -> Task | None:
        """A task that mutates var and cannot begin before task, which is running, has ended."""
        with self._lock:
            found = behind(task, var)
        self._pump()
        return found

    @ki_protected
    def _clear(self, var: Var, failure: Failure) -> None:
        with self._lock:
            if var.failure is failure:
                var.failure = None
        self._pump()

    # ---- life and death ---------------------------------------------------------------------------------------------
    def stop(self, timeout: float | None = None) -> None:
        if self._stopped:
            return
        self._close_for_stop()
        try:
            self.quiet(timeout)
            self._stopped = True
            self._lanes.clear()
            self.quiet(timeout)  # what other threads were about to push
        finally:
            self.open_gate()
        self.end_threads()
        self.wait_for_all()

    def drain(self) -> None:
        self.quiet(_PATIENCE)
        self.wait_for_all()

    def start(self) -> None:
        self._stopped = False

    def unfinished(self) -> list[str]:
        """Names of asynchronous operators whose on_complete was not called yet, in the order they began."""
        return [t.name or "without a name" for t in list(self._handed_on)]

    def quiet(self, limit: float | None) -> None:
        """Wait until idle. If only on_complete calls are outstanding for limit seconds, raise EngineError with names.

        So, too, if the same functions ran all the while and somebody waits at the gate, who may be what they wait for.
        """
        before: list[Task] = []
        while not self._wait_idle(limit):
            names = ", ".join(self.unfinished())
            if names and not any(pool.busy() for pool in list(self._pools.values())):
                raise EngineError(f"stop: on_complete was not called within {limit:g} s by: {names}.")
            running = [t for pool in list(self._pools.values()) for t in pool.running()]
            if running and running == before and self._gate is not None and self._gate.waiting:
                names = ", ".join(t.name or "without a name" for t in running)
                raise EngineError(f"stop: these functions did not end within {limit:g} s: {names}. Other threads, which wait "
                                  f"for the engine, may have to do something first.")
            before = running

    def be_quiet(self, limit: float, refuses: str = "") -> None:
        idle = self._wait_idle(limit)
        if not idle or not refuses:
            self.close_gate(refuses)
            self.quiet(limit)

    def end_threads(self) -> None:
        for pool in list(self._pools.values()):
            pool.stop()
        self._team.stop()

    def hold_still(self, limit: float) -> None:
        if self._lock.acquire(timeout=limit):
            self._still = get_ident()

    def go_on(self) -> None:
        if self._still == get_ident():
            self._still = 0
            self._lock.release()
            if self._gate is not None and self._gate.owner == get_ident():
                self.open_gate()
            self._pump()

    def forget_threads(self) -> None:
        self._lock, self._still = allocate_lock(), 0
        super().forget_threads()
        self._idlers.clear()
        own = current_task()
        under_way = [*self._arrived, *self._finished, *self._handed_on]
        for pool in self._pools.values():
            under_way += pool.unfinished()
        lost = [t for t in everything_behind(under_way) if t is not own and t.lane is not None and t not in self._finished]
        finished = list(self._finished)
        self._arrived.clear()
        self._finished.clear()
        self._handed_on.clear()
        abandon([*lost, *finished], own)
        self._pending = 0 if own is None else 1
        self._lose(lost)
        streams.forget()
        for pool in self._pools.values():
            pool.forget()
        self._team.forget()


def _nothing() -> None:
    """A signal nobody waits for."""


def _sleep(woken: LockType) -> None:
    """Block. While a worker does, another thread does its work, so that waiting functions cannot fill a pool."""
    pool = this_pool()
    lent = pool.lend() if pool is not None else None
    try:
        block(woken)
    finally:
        if pool is not None and lent is not None:
            pool.dismiss(lent)


def _end(pools: dict[Any, Pool], helpers: ThreadTeam) -> None:
    """Nobody holds the engine any more: its threads go too. No waiting for them, in a finalizer."""
    for pool in list(pools.values()):
        pool.dismiss_all()
    helpers.dismiss_all()
