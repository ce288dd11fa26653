"""ThreadedEngine: functions run on worker threads as soon as their variables are free.

A push and a completion append to a queue each. The thread that gets the bookkeeping lock does the bookkeeping for all. So a
push never waits, not even for that lock, and may come from a finalizer or a signal handler in the middle of another push.
"""

from __future__ import annotations

import weakref
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter_ns, sleep
from typing import Any

from .. import environment, gc_pause
from ..context import Context
from ..errors import EngineError
from . import task_cost
from .base import Engine
from .completion import CompletionCallback
from .deps import Task, Var, abandon, add, behind, done, everything_behind, grant
from .failure import Failure
from .gpu import cuda, streams
from .interrupts import block, ki_protected, ki_unprotected
from .run_context import RunContext, ThreadTeam
from .worker_pool import WorkerPool, current_task, enter, leave, running_here, this_pool

_SHORT = 50_000  # nanoseconds: the thread that waits for a function runs it if it is known to be shorter
_HELPED = 20_000_000  # nanoseconds that it runs kernels and such functions, one after the other, before it sleeps
_THROTTLE_FROM = 4  # tasks in flight for each worker, up to which `catch_up` does not hold a thread back
_THROTTLE_POLL = 0.001  # seconds
_STREAMS = {"compute": "compute", "copy": "copy", "io": "copy", "priority": "priority"}  # kind of work -> GPU stream


class ThreadedEngine(Engine):
    """workers: threads of each CPU context; as many take part in `RunContext.parallel`, the caller among them.

    Default: TRITIUM_NUM_WORKERS or MXNET_CPU_WORKER_NTHREADS, else the number of cores, at most 4. A GPU context has
    one worker, which enqueues. Threads start when they are first needed.
    """

    def __init__(self, workers: int | None = None):
        super().__init__()
        if workers is None:
            workers = environment.NUM_WORKERS.get()
        if workers < 1:
            raise EngineError(f"ThreadedEngine: workers is {workers}. Give at least 1.")
        self.workers = workers
        self._finished: deque[Task] = deque()
        self._lock = allocate_lock()
        self._pending = 0  # tasks in flight
        self._uses_gpu = False
        self._low_water, self._high_water = 0, gc_pause.MANY
        self._idle_signals: list[LockType] = []  # released when nothing is in flight
        self._team = ThreadTeam(workers - 1)
        self._in_flight: dict[Task, None] = {}  # asynchronous tasks whose function returned
        weakref.finalize(self, _dismiss, self._worker_pools, self._team).atexit = False

    # ---- bookkeeping ----------------------------------------------------------------------------------------------
    @ki_protected
    def _submit(self, task: Task) -> None:
        self._arrived.append(task)
        if not task.inline:
            self.pump(pushed=task)
        else:
            self._run_inline(task)

    @ki_protected
    def _start(self, task: Task) -> None:
        self._run_inline(task) if task.inline else self.pump()

    @ki_protected
    def _run_inline(self, task: Task) -> None:
        """Run task here, if it is ready and no other thread does the bookkeeping."""
        is_ready = False
        for t in self._bookkeep() or ():
            if t is task:
                is_ready = True
            else:
                t.pool.put(t)
        if is_ready:
            self._execute_inline(task)
        self.pump()

    @ki_protected
    def _finish(self, task: Task) -> None:
        task.fn = None
        self._finished.append(task)

    @ki_protected
    def pump(self, pool: WorkerPool | None = None, pushed: Task | None = None) -> Task | None:
        """Do the bookkeeping until nothing is left or another thread does it, and give ready tasks to their workers.

        pool:    of the calling worker. One task for it, if any became ready, is returned for the worker to run.
        pushed:  what this thread pushed just now: it is begun if it is ready, because this thread goes on.
        """
        kept: Task | None = None
        while self._arrived or self._finished:
            ready = self._bookkeep()
            if ready is None:
                break
            for t in ready:
                if t.pool is pool and kept is None and t.priority == 0:
                    kept = t
                else:
                    if t is pushed and t.begin is not None:
                        t.begin()
                    t.pool.put(t)
        return kept

    @ki_protected
    def _bookkeep(self) -> list[Task] | None:
        """Add tasks that arrived, release those that finished, and return those to run; None if another thread does it."""
        lock = self._lock
        if not lock.acquire(False):
            return None
        try:
            arrived, finished = self._arrived, self._finished
            ready: list[Task] = []
            while True:
                if finished:
                    task = finished.popleft()
                    if task.failure is not None:
                        self._poisoned.update(task.mutable_vars)
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
            if not self._low_water <= pending < self._high_water:
                self._low_water, self._high_water = gc_pause.adjust(pending, self)
            if not pending and self._idle_signals:
                self._signal_idle()
            return ready
        finally:
            lock.release()

    @ki_protected
    def _route(self, freed: Sequence[Task], ready: list[Task]) -> None:
        """Lock held: give signals, skip tasks that read a poisoned variable, and append the others to ready."""
        for t in freed:
            if t.pool is None:  # a wait
                t.fn()  # type: ignore[misc]
                self._finished.append(t)
            elif t.failure is not None:
                t.fn = None
                self._finished.append(t)
            else:
                ready.append(t)

    @ki_protected
    def _signal_idle(self) -> None:
        """Lock held: nothing is in flight."""
        for signal in self._idle_signals:
            signal.release()
        self._idle_signals.clear()

    # ---- running --------------------------------------------------------------------------------------------------
    def is_idle(self) -> bool:
        return not (self._pending or self._arrived)

    @ki_protected
    def try_run_inline(self, fn: Callable[..., Any], reads: Sequence[Var], writes: Sequence[Var], *args: Any) -> bool:
        if not self._hold(reads, writes, False):
            return False
        try:
            fn(*args)
            return True
        finally:
            self._give_back(reads, writes)

    @ki_protected
    def try_enqueue(self, ctx: Context, name: str, fn: Callable[..., Any], reads: Sequence[Var], writes: Sequence[Var],
                    *args: Any) -> Any:
        pool = self._pools.get((ctx.device_type, ctx.device_id, None)) or self._find_pool(ctx, None, name)
        if not self._hold(reads, writes, True):
            return None
        stream = pool.stream
        try:
            with cuda.enqueue_lock, cuda.launch_on(stream):
                streams.before(reads, writes, stream)
                made = fn(pool.run, *args)
                streams.after_small(reads, (*writes, *[a._var for a in made]) if made else writes, stream, name)
            return made
        finally:
            self._give_back(reads, writes)

    @ki_protected
    def _hold(self, reads: Sequence[Var], writes: Sequence[Var], on_device: bool) -> bool:
        """Take the variables of a function that this thread calls now, if all are free; False if it must be pushed.

        on_device: GPU work on them need not have run, because what the function enqueues follows it.
        """
        lock = self._lock
        if self._bulks or self._arrived or self._finished or self._stopped or self._profiler is not None or \
                not lock.acquire(False):
            return False
        for v in reads:  # Var.is_free, written out as in `try_call_inline`
            if v.held < 0 or v.queue is not None or v.failure is not None or not (v.pending_events is None or on_device):
                break
        else:
            for v in writes:
                if v.held or v.queue is not None or v.failure is not None or not (v.pending_events is None or on_device):
                    break
            else:
                for v in reads:  # as `add` does
                    v.held += 1
                for v in writes:
                    v.held = -1
                    v.version += 1
                self._pending += 1
                lock.release()
                return True
        lock.release()
        self.pump()
        return False

    @ki_protected
    def _give_back(self, reads: Sequence[Var], writes: Sequence[Var]) -> None:
        """Release what `_hold` took, and start what waited for it."""
        self._lock.acquire()
        freed: list[Task] = []
        for v in reads:
            v.held -= 1
            if v.queue is not None and not v.held:
                grant(v, v.queue, freed)
        for v in writes:
            v.held = 0
            if v.queue is not None:
                grant(v, v.queue, freed)
        self._pending -= 1
        if self._idle_signals and not self._pending:
            self._signal_idle()
        if freed:
            self._start_freed(freed)
        else:
            self._lock.release()
        if self._arrived or self._finished:
            self.pump()

    @ki_protected
    def _start_freed(self, freed: list[Task]) -> None:
        """Lock held: give tasks that may run now to their workers. Release the lock."""
        ready: list[Task] = []
        self._route(freed, ready)
        self._lock.release()
        for t in ready:
            t.pool.put(t)

    @ki_protected
    def try_call_inline(self, owners: Sequence[Any], fn: Callable[..., Any], *args: Any) -> Any:
        if self._bulks or self._stopped or self._profiler is not None or not self._lock.acquire(False):
            return None
        try:
            if self._arrived:
                return None
            for a in owners:
                v = a._var
                # Var.is_free, written out: to call it twice takes 67 ns, which are 5 % of `a + b` (perf/bench_dispatch.py)
                if v is not None and (v.held < 0 or v.queue is not None or v.failure is not None or v.pending_events is not None):
                    return None
            return fn(*args)
        except Exception:
            return None
        finally:
            self._lock.release()
            if self._arrived or self._finished:
                self.pump()

    @ki_unprotected
    @ki_protected
    def execute(self, task: Task, run: RunContext, inline: bool = False) -> None:
        """Run task in this thread and release it. Only a KeyboardInterrupt of an inline function leaves this call."""
        profiler = self._profiler
        start = perf_counter_ns() if profiler is not None else 0
        try:
            if self._uses_gpu:
                streams.before(task.const_vars, task.mutable_vars, run.stream)
                if run.stream is not None:
                    cuda.end_tail(run.stream)
            if task.wants_complete:
                self._begin(task, run)
                if profiler is not None:
                    profiler.ended(task, start)
            else:
                task.fn(run)  # type: ignore[misc]
                if run.stream is not None:
                    streams.after(task.const_vars, task.mutable_vars, run.stream, task.name)
                if profiler is not None:
                    profiler.ended(task, start)
                self._finish(task)
        except BaseException as e:
            self._fail(task, e)
            if profiler is not None:
                profiler.ended(task, start)
            self._finish(task)
            if inline and isinstance(e, KeyboardInterrupt):
                self.pump()
                raise

    def _execute_inline(self, task: Task, inline: bool = True) -> None:
        before, pool = enter(task), task.pool
        try:
            if pool.stream is None:
                self.execute(task, pool.run, inline)
            else:
                with cuda.enqueue_lock, cuda.run_on(pool.stream):
                    self.execute(task, pool.run, inline)
        finally:
            leave(before)

    @ki_unprotected
    def _begin(self, task: Task, run: RunContext) -> None:
        on_complete = CompletionCallback(task, self._complete)
        fn = task.fn
        self._in_flight[task] = None
        try:
            fn(run, on_complete)  # type: ignore[misc]
        except BaseException as e:
            if on_complete.close():
                self._in_flight.pop(task, None)
                raise
            failed = Failure(e, task.name, task.origin, task.seq)  # after on_complete(): only wait_for_all can raise it
            with self._failure_lock:
                self._unseen.append(failed)

    @ki_protected
    def _complete(self, task: Task, error: BaseException | None) -> None:
        self._in_flight.pop(task, None)
        if error is not None:
            self._fail(task, error)
        if task.pool.stream is not None:
            streams.after(task.const_vars, task.mutable_vars, task.pool.stream, task.name)
        if self._profiler is not None:
            self._profiler.ended(task, -1)
        self._finish(task)
        if error is None and current_task() is None:  # neither a finalizer, which reports an error, nor inside a function
            self._run_all_inline()
        self.pump()

    def _run_all_inline(self) -> None:
        """Run here the inline tasks that became ready: waking a worker would take longer."""
        inline: list[Task] = []
        for t in self._bookkeep() or ():
            inline.append(t) if t.inline and t.pool.stream is None else t.pool.put(t)
        for t in inline:
            self._execute_inline(t, inline=False)

    @ki_protected
    def _new_pool(self, ctx: Context, kind: str) -> WorkerPool:
        stream = None
        if ctx.is_gpu:
            stream = cuda.stream(ctx.device_id, _STREAMS[kind])  # raises ContextError for a missing GPU
            self._uses_gpu = True
        size = self.workers if kind == "compute" and not ctx.is_gpu else 1
        pool = WorkerPool(self, ctx, kind, size, stream, self._team)
        return self._worker_pools.setdefault((ctx.device_type, ctx.device_id, kind), pool)

    # ---- waiting --------------------------------------------------------------------------------------------------
    def wait_for_var(self, var: Var, *, on_device: bool = True) -> None:
        if self._bulks and (engine := self._before_wait("wait_for_var")) is not self:
            return engine.wait_for_var(var, on_device=on_device)
        if self._is_written(var):
            if self._uses_gpu and on_device:
                streams.wait_for_writer(var)
            if var.failure is not None:
                self._raise(var, var.failure)
            return
        self._refuse_inside("wait_for_var")
        self._refuse_own(var)
        woken = allocate_lock()
        woken.acquire()
        task = Task(woken.release, (var,), (), None, 0, next(self._seq), "wait_for_var", None, False, False)
        profiler = self._profiler
        start = perf_counter_ns() if profiler is not None else 0
        self._arrived.append(task)
        self.pump()
        if not woken.acquire(False) and not self._run_awaited(var, woken):
            _sleep(woken)
        if self._uses_gpu and on_device:
            streams.wait_for_writer(var)
        if profiler is not None:
            profiler.waited(start, var)
        if task.failure is not None:
            self._raise(var, task.failure)

    @ki_protected
    def _run_awaited(self, var: Var, woken: LockType) -> bool:
        """Run what var waits for in this thread, while it is ready and known to be short. Return True if the wait ended.

        Putting a thread to sleep and waking it costs 20 to 50 us, here for two threads: the worker and this one. A function's
        time is measured the first time that a worker runs it. Long functions, and those that might block, are left to the
        worker, because Ctrl-C must end a wait soon; those that wait for a GPU too: a worker does that without the GIL, which the
        threads that enqueue need.
        """
        pools = [pool for pool in list(self._worker_pools.values()) if pool.stream is None]
        task, left = None, _HELPED
        while True:
            first = False
            if task is None:
                task = next((t for pool in pools if (t := pool.reclaim(var)) is not None), None)
            if task is None:
                first, task = True, next((t for pool in pools if (t := pool.reclaim_first()) is not None), None)
            if task is None:
                return False
            is_kernel = task.cost_key is not None
            cost = task_cost.of(task) if is_kernel or var in task.mutable_vars else None  # another may wait for this thread
            task_cost.measure(task)
            if cost is None or cost > (left if is_kernel else min(left, _SHORT)) or task.wants_complete or \
                    (self._uses_gpu and streams.would_block(task.const_vars, task.mutable_vars)):
                task.pool.put(task, first)
                return False
            left -= cost
            self._execute_inline(task)
            task = self.pump(task.pool)  # one that became ready, for which no worker needs to be woken
            if woken.acquire(False):
                if task is not None:
                    task.pool.put(task)
                return True

    @ki_protected
    def _is_written(self, var: Var) -> bool:
        """Return True if nothing pushed before mutates var; False also if another thread does the bookkeeping."""
        if self._arrived or self._finished:
            self.pump()
        if not self._lock.acquire(False):
            return False
        written = not self._arrived and var.held >= 0 and var.queue is None
        self._lock.release()
        self.pump()
        return written

    def wait_for_all(self) -> None:
        if self._bulks and (engine := self._before_wait("wait_for_all")) is not self:
            return engine.wait_for_all()
        self._refuse_inside("wait_for_all")
        if not (self._uses_gpu or self._pending or self._arrived or self._finished or self._bulks or self._poisoned
                or self._unseen or self._profiler is not None):
            return  # in a fifth of the 4 us that it takes to find that out below
        self._wait_idle(None)
        self._raise_first(self._take_poison())

    @ki_protected
    def _take_poison(self) -> list[Failure]:
        with self._lock:
            failures = super()._take_poison()
        self.pump()
        return failures

    @ki_protected
    def _signal_when_idle(self, woken: LockType) -> None:
        """Have woken released when nothing is in flight."""
        with self._lock:
            if self._pending or self._arrived:
                self._idle_signals.append(woken)
                # the bookkeeping of this task, which does nothing, finds out whether another is in flight
                self._arrived.append(Task(lambda: None, (), (), None, 0, 0, "wait_for_all", None, False, False))
            else:
                woken.release()
        self.pump()

    def _wait_idle(self, timeout: float | None) -> bool:
        """Block until nothing is in flight; False if that took longer than timeout seconds."""
        self._refuse_inside("wait_for_all")
        if self._bulks:
            self.flush()
        if self.is_running_here():
            task = current_task()
            assert task is not None
            raise EngineError(f"{task.name or 'wait_for_all'}: a running function waits for everything, itself included."
                              f" Wait for a var instead.")
        woken = allocate_lock()
        woken.acquire()
        self._signal_when_idle(woken)
        profiler = self._profiler
        start = perf_counter_ns() if profiler is not None else 0
        idle = block(woken, timeout)
        if self._uses_gpu and idle:
            for stream in {pool.stream for pool in list(self._worker_pools.values()) if pool.stream is not None}:
                cuda.synchronize(stream)
        if profiler is not None:
            profiler.waited(start, None)
        return idle

    def catch_up(self, patience: float = 0.5) -> None:
        if current_task() is not None or this_pool() is not None:
            return
        last = self._pending
        left, progress = last // 2, monotonic()  # tasks to wait for; the time of the last completion
        if last <= _THROTTLE_FROM * self.workers:
            return
        while left > 0 and monotonic() - progress < patience:
            sleep(_THROTTLE_POLL)
            now, before = self._pending, last
            last = now
            if now < before:
                left, progress = left - (before - now), monotonic()

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
        with self._lock:
            found = behind(task, var)
        self.pump()
        return found

    @ki_protected
    def _clear(self, var: Var, failure: Failure) -> None:
        with self._lock:
            if var.failure is failure:
                var.failure = None
        self.pump()

    # ---- stop and fork ----------------------------------------------------------------------------------------------
    def unfinished(self) -> list[str]:
        """Return the names of asynchronous operators that have not called on_complete, in the order they began."""
        return [t.name or "without a name" for t in list(self._in_flight)]

    def drain(self, timeout: float | None) -> None:
        before: list[Task] = []
        while not self._wait_idle(timeout):
            pools = list(self._worker_pools.values())
            names = ", ".join(self.unfinished())
            if names and not any(pool.busy() for pool in pools):
                raise EngineError(f"stop: on_complete was not called within {timeout:g} s by: {names}.")
            running = [t for pool in pools for t in pool.running()]
            if running and running == before and self._gate is not None and self._gate.waiting:
                names = ", ".join(t.name or "without a name" for t in running)
                raise EngineError(f"stop: these functions did not end within {timeout:g} s: {names}. Other threads, which wait "
                                  f"for the engine, may have to do something first.")
            before = running

    def drain_and_close(self, timeout: float, refuses: str = "") -> None:
        idle = self._wait_idle(timeout)
        if not idle or not refuses:
            self.close_gate(refuses)
            self.drain(timeout)

    def end_threads(self) -> None:
        for pool in list(self._worker_pools.values()):
            pool.stop()
        self._team.stop()

    def reset_in_child(self) -> None:
        self._lock, self._forking = allocate_lock(), 0
        super().reset_in_child()
        self._idle_signals.clear()
        own = current_task()
        in_flight = [*self._arrived, *self._finished, *self._in_flight]
        for pool in self._worker_pools.values():
            in_flight += pool.unfinished()
        lost = [t for t in everything_behind(in_flight) if t is not own and t.pool is not None and t not in self._finished]
        finished = list(self._finished)
        self._arrived.clear()
        self._finished.clear()
        self._in_flight.clear()
        abandon([*lost, *finished], own)
        self._pending = 0 if own is None else 1
        self._lose(lost)
        for pool in self._worker_pools.values():
            pool.reset_in_child()
        self._team.reset_in_child()


def _sleep(woken: LockType) -> None:
    """Block. In a worker, another thread takes its place meanwhile, so that waiting functions cannot fill a pool."""
    pool = this_pool()
    spare = pool.add_spare() if pool is not None else None
    try:
        block(woken)
    finally:
        if pool is not None and spare is not None:
            pool.dismiss(spare)


def _dismiss(pools: dict[Any, WorkerPool], team: ThreadTeam) -> None:
    """End the threads of an engine without references, from its finalizer, which must not wait for them."""
    for pool in list(pools.values()):
        pool.dismiss_all()
    team.dismiss_all()
