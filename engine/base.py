"""The engine's interface, and the parts common to its two kinds: checks of a push, bulks, the gate, errors."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..context import Context, cpu
from ..errors import EngineError
from ..show import Shown
from .arguments import check_vars, integer, kind_of
from .bulk import Bulk, BulkTask, Gate
from .deps import Handle, Task, Var
from .failure import Failure, capture_call_site, first_pushed
from .interrupts import install, is_ki_protected, ki_protected
from .run_context import RunContext
from .worker_pool import current_task, limit_blas, running_here

if TYPE_CHECKING:
    from .profiler.recorder import Recorder

@dataclass(eq=False, slots=True)
class Opr(Handle):
    """A prepared operator: checked once by `new_operator`, pushed many times."""

    fn: Callable[..., Any]
    const_vars: tuple[Var, ...]
    mutable_vars: tuple[Var, ...]
    prop: str | None
    name: str
    wants_complete: bool  # False of a synchronous function
    cost_key: Hashable
    inline: bool
    deleted: bool = False

    def __repr__(self) -> str:
        return f"<opr {self.name}>"


class Engine(Shown, Handle):
    """Runs pushed functions in an order that respects what they read and mutate. Subclasses decide on which thread.

    Two functions run in push order if one mutates a variable that the other uses. Others may overlap. Any thread may push.
    A function that raises poisons the variables it mutates. Functions that read a poisoned variable are skipped and poison
    theirs. A wait raises the error, with the operator's name and the line that pushed it, and clears it from the variable.
    """

    workers = 1

    def __init__(self) -> None:
        limit_blas()
        install()
        self._seq = itertools.count()
        self._arrived: deque[Task] = deque()
        self._lock: Any  # held to do the bookkeeping
        self._worker_pools: dict[tuple[str, int, str], Any] = {}  # by device type, number and kind of work
        self._pools: dict[tuple[str, int, str | None], Any] = {}  # by device type, number and prop: a cache of `_pool_for`
        self._stopped = False
        self._profiler: Recorder | None = None
        # bulks and gate
        self._bulks: list[Bulk] = []
        self._collecting = threading.RLock()  # held to fill and empty bulks, never while a function runs
        self._nested = 0  # how often this thread holds it: a finalizer may push in the middle
        self._gate: Gate | None = None
        self._to_start: deque[Task] = deque()  # tasks of bulks that were queued and not started yet
        # errors
        self._failure_lock = threading.RLock()
        self._unseen: list[Failure] = []
        self._poisoned: weakref.WeakSet[Var] = weakref.WeakSet()
        self._forking = 0  # the thread that forks, while no other thread may do the bookkeeping
        _engines.add(self)

    # ---- variables ----------------------------------------------------------------------------------------------
    def new_variable(self) -> Var:
        """Return a token for any resource. It needs no deletion."""
        return Var()

    def delete_variable(self, var: Var, on_deleted: Callable[[], Any] | None = None) -> None:
        """Forbid further use of var, and call on_deleted() after everything pushed before that uses it."""
        if var.deleted:
            raise EngineError("delete_variable: the var was deleted before.")
        if on_deleted is not None:
            self.push_sync(lambda run: on_deleted(), cpu(), (), (var,), name="delete_variable")
        elif self._bulks:
            self.flush()
        var.deleted = True

    # ---- pushing ------------------------------------------------------------------------------------------------
    def push_sync(self, fn: Callable[[RunContext], Any], exec_ctx: Context, const_vars: Sequence[Var],
                  mutable_vars: Sequence[Var], *, prop: str | None = None, priority: int = 0, name: str = "",
                  cost_key: Hashable = None, begin: Callable[[], None] | None = None) -> None:
        """Queue fn(run) behind everything pushed before that it must not overtake; return at once.

        const_vars, mutable_vars:  the variables that fn reads, and those it changes; each stands in one of them, once.
        prop:      the kind of work, see `arguments.KINDS`.
        priority:  of the functions that are ready in one context the highest runs first.
        cost_key:  of a kernel, which computes and returns: equal keys take equally long. None: fn may block.
        begin:     called at once if nothing stands before fn, to begin what fn will end. An engine need not call it.
        Raises:    EngineError for lists that overlap, deleted variables, a priority that is not an integer, a stopped engine;
                   ContextError for a missing GPU. Nothing is queued then.
        """
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        check_vars(const, mutable, name)
        if priority:
            priority = integer(priority, name)
        pool = self._pools.get((exec_ctx.device_type, exec_ctx.device_id, prop)) or self._find_pool(exec_ctx, prop, name)
        task = Task(fn, const, mutable, pool, priority, next(self._seq), name, capture_call_site(), False, prop == "inline",
                    cost_key, begin)
        self._push(task) if self._bulks or self._profiler is not None else self._submit(task)

    def push_async(self, fn: Callable[[RunContext, Callable[..., None]], Any], exec_ctx: Context,
                   const_vars: Sequence[Var], mutable_vars: Sequence[Var], *, prop: str | None = None,
                   priority: int = 0, name: str = "") -> None:
        """Queue fn(run, on_complete) as push_sync does; it is complete when on_complete() is called.

        on_complete(error) reports a failure. Any thread may call it, once; a second call raises EngineError.
        """
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        check_vars(const, mutable, name)
        priority = integer(priority, name)
        pool = self._pools.get((exec_ctx.device_type, exec_ctx.device_id, prop)) or self._find_pool(exec_ctx, prop, name)
        self._push(Task(fn, const, mutable, pool, priority, next(self._seq), name, capture_call_site(), True, prop == "inline"))

    def new_operator(self, fn: Callable[..., Any], const_vars: Sequence[Var], mutable_vars: Sequence[Var], *,
                     prop: str | None = None, name: str = "", synchronous: bool = False, cost_key: Hashable = None) -> Opr:
        """Prepare a function to be pushed many times: its variables are checked here, once.

        fn:           fn(run, on_complete), complete when on_complete() is called, as in push_async.
        synchronous:  fn is fn(run), complete when it returns, as in push_sync. A push of it costs less than push_sync.
        cost_key:     of a synchronous function, as in push_sync.
        """
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        check_vars(const, mutable, name)
        kind_of(prop, name)
        return Opr(fn, const, mutable, prop, name, not synchronous, cost_key, prop == "inline")

    def push(self, opr: Opr, exec_ctx: Context, priority: int = 0, begin: Callable[[], None] | None = None) -> None:
        """Queue a prepared operator; it may be queued several times. Raises EngineError if it was deleted.

        begin: as in push_sync.
        """
        if opr.deleted:
            raise EngineError(f"{opr.name or 'push'}: the operator was deleted.")
        if priority:
            priority = integer(priority, opr.name)
        prop = opr.prop
        pool = self._pools.get((exec_ctx.device_type, exec_ctx.device_id, prop)) or self._find_pool(exec_ctx, prop, opr.name)
        task = Task(opr.fn, opr.const_vars, opr.mutable_vars, pool, priority, next(self._seq), opr.name, capture_call_site(),
                    opr.wants_complete, opr.inline, opr.cost_key, begin)
        self._push(task) if self._bulks or self._profiler is not None else self._submit(task)

    def delete_operator(self, opr: Opr) -> None:
        """Forbid further pushes of opr. Those queued still run."""
        opr.deleted = True

    def run_context(self, ctx: Context) -> RunContext:
        """Return the run context of functions that run in the calling thread, on a CPU."""
        pool = self._pools.get((ctx.device_type, ctx.device_id, "inline")) or self._find_pool(ctx, "inline", "run_context")
        return pool.run

    def is_idle(self) -> bool:
        """Return whether nothing is in flight: what is computed in this thread then takes no memory before its turn."""
        return True

    def try_run_inline(self, fn: Callable[..., Any], reads: Sequence[Var], writes: Sequence[Var], *args: Any) -> bool:
        """Call fn(*args) in this thread if every variable is free, and return True; else do nothing.

        For work so short that queueing it costs more. fn neither pushes nor waits. Its exceptions leave this call.
        reads, writes: as const_vars and mutable_vars of a push. Memory that no other thread knows of yet needs no variable.
        """
        return False

    def try_enqueue(self, ctx: Context, name: str, fn: Callable[..., Any], reads: Sequence[Var], writes: Sequence[Var],
                    *args: Any) -> Any:
        """Return fn(run context, *args), called in this thread for a GPU, if all that it follows is enqueued or done; else None.

        For functions that only enqueue. They return the arrays that they made and wrote, whose variables (attribute `_var`)
        nobody else knows yet. Otherwise as `try_run_inline`.
        """
        return None

    def try_call_inline(self, owners: Sequence[Any], fn: Callable[..., Any], *args: Any) -> Any:
        """Return fn(*args) if the owners are free; None if they are not, or if fn raises. The caller pushes it then.

        owners:  have an attribute `_var`, None until something that uses them is pushed. It is read while no thread can push.
        fn:      a function that takes some microseconds: no bookkeeping is done meanwhile. It neither pushes, waits nor
                 allocates memory of the engine, and has no side effects, so that it may be called again by the function that is
                 pushed, whose error is raised by the next wait.
        """
        return None

    # ---- bulk ---------------------------------------------------------------------------------------------------
    def bulk(self, n: int) -> Bulk:
        """`with engine.bulk(n)`: merge the functions that this thread pushes inside into tasks of up to n functions.

        Fewer, longer tasks cost less to order and overlap less. Results and errors are the same. The collected functions
        are queued when there are n, when the context changes, when another bulk begins, at a wait, and at the block's end.
        """
        return Bulk(self, n)

    def set_bulk_size(self, size: int) -> int:
        """Merge functions that the calling thread pushes, up to size at a time, from now on. Return the size before.

        0 and 1 end it. A `with engine.bulk(n)` block comes first.
        """
        me = get_ident()
        before = next((b for b in self._bulks if b.thread == me and b.lasting), None)
        if before is not None:
            self.end_bulk(before)
        if size > 1:
            self._bulks.insert(0, Bulk(self, size, lasting=True))
        return before.n if before is not None else 0

    @ki_protected
    def end_bulk(self, bulk: Bulk) -> None:
        """Queue the functions of bulk, and collect no more in it."""
        with self._collecting:
            self._nested += 1
            self._empty(bulk)
            self._bulks.remove(bulk)  # not earlier: a finalizer that pushes meanwhile must find it
            self._nested -= 1
        self._start_all()

    @ki_protected
    def flush(self) -> None:
        """Queue the functions of all bulks."""
        with self._collecting:
            self._nested += 1
            for bulk in list(self._bulks):
                self._empty(bulk)
            self._nested -= 1
        self._start_all()

    def _push(self, task: Task) -> None:
        self._collect(task) if self._bulks else self._submit_recorded(task, self._submit)

    def _submit_recorded(self, task: Task, submit: Callable[[Task], Any]) -> None:
        if self._profiler is not None:
            self._profiler.pushed(task, submit)
        else:
            submit(task)

    @ki_protected
    def _collect(self, task: Task) -> None:
        """Add task to this thread's innermost bulk. Empty the others first: the caller may depend on work in them."""
        gate = self._gate
        if gate is not None and gate.refuses and self._is_outside(gate):
            raise EngineError(f"{task.name or 'push'}: {gate.refuses}.")
        me = get_ident()
        with self._collecting:
            if gate is not None and self._gate is not gate and gate.moved_to is not None:  # it opened meanwhile
                heir = gate.moved_to
            else:
                heir = None
                self._nested += 1
                self._add_to_bulk(task, me)
                self._nested -= 1
        if heir is not None:
            heir._adopt(task)
            heir._push(task)
        if self._to_start:
            self._start_all()

    @ki_protected
    def _add_to_bulk(self, task: Task, me: int) -> None:
        """Lock held: see `_collect`."""
        mine = None
        bulks = self._bulks
        if len(bulks) == 1 and bulks[0].thread == me:
            mine = bulks[0]
        else:
            mine = next((bulk for bulk in reversed(bulks) if bulk.thread == me), None)
            for bulk in list(bulks):
                if bulk is not mine:
                    self._empty(bulk)
        if mine is None:
            self._enqueue(task)
            return
        if task.wants_complete or not mine.fits(task):
            self._empty(mine)
        if task.wants_complete:
            self._enqueue(task)
        else:
            mine.tasks.append(task)
            if len(mine.tasks) >= mine.n:
                self._empty(mine)

    @ki_protected
    def _empty(self, bulk: Bulk) -> None:
        """Lock held: queue the functions of bulk as one task. A finalizer may push while that is made."""
        while bulk.tasks:
            tasks, empty = bulk.tasks, []
            n = len(tasks)
            task = BulkTask(self, tasks[:]) if n > 1 else tasks[0]
            if bulk.tasks is tasks and len(tasks) == n:
                bulk.tasks = empty
                self._enqueue(task)

    @ki_protected
    def _enqueue(self, task: Task) -> None:
        """Lock held: give task its place behind everything pushed before. `_start_all` starts it."""
        gate = self._gate
        if gate is not None and not gate.refuses and self._is_outside(gate):
            gate.kept.append(task)
            return
        self._submit_recorded(task, self._arrived.append)
        self._to_start.append(task)

    @ki_protected
    def _start_all(self) -> None:
        """Start queued tasks, with the lock free: they may run in this thread, push, and wait for other threads."""
        while self._to_start and not self._nested:
            try:
                task = self._to_start.popleft()
            except IndexError:  # another thread was quicker
                return
            self._start(task)

    # ---- gate ---------------------------------------------------------------------------------------------------
    def close_gate(self, refuses: str = "") -> None:
        """Keep aside what other threads push from now on, or refuse it. Block while another thread has it closed."""
        while True:
            with self._collecting:
                gate = self._gate
                if gate is None:
                    self.flush()
                    self._gate = Gate(self, refuses)
                    self._bulks.insert(0, self._gate)
                    break
                if gate.owner == get_ident():
                    gate.depth += 1
                    gate.refuses = gate.refuses or refuses
                    break
            gate.wait()
        self._start_all()

    @ki_protected
    def open_gate(self, moved_to: Engine | None = None, then: Callable[[], Any] | None = None) -> None:
        """Queue what was kept aside: here, or on the engine that replaces this one.

        then:  called when that is queued and no thread has pushed anything after it.
        """
        gate = self._gate
        if gate is None:
            return
        gate.depth -= 1
        if gate.depth:
            return
        if moved_to is None or moved_to._stopped:
            heir = self
        else:
            heir = moved_to
            heir.flush()
        with self._collecting:
            for task in gate.kept:
                heir._adopt(task)
                heir._arrived.append(task)
            if then is not None:
                then()
            gate.moved_to = moved_to
            self._gate = None
            self._bulks.remove(gate)
        gate.open()
        for task in gate.kept:
            heir._start(task)

    def _adopt(self, task: Task) -> None:
        """Give this engine's workers to a task that another engine may have made."""
        for t in (task, *getattr(task, "members", ())):
            t.pool = self._pool_for(t.pool.ctx, t.pool.kind, t.name)

    def _is_outside(self, gate: Gate) -> bool:
        """Return True if the gate holds up pushes of the calling thread."""
        return gate.owner != get_ident() and current_task() is None

    def _refuse_inside(self, name: str) -> None:
        """Raise EngineError if the calling function was called in the middle of the engine's own work."""
        if is_ki_protected(sys._getframe(2)):
            raise EngineError(f"{name}: called by a finalizer or a signal handler in the middle of the engine's own work, which "
                              f"goes on only when that returns. Push there, and wait elsewhere.")

    def _before_wait(self, name: str) -> Engine:
        """Queue the functions of bulks. Return the engine to wait on: another one if it has replaced this one meanwhile."""
        self._refuse_inside(name)
        self.flush()
        gate = self._gate
        if gate is not None and not gate.refuses and self._is_outside(gate):
            return gate.wait() or self
        return self

    # ---- fork and exit --------------------------------------------------------------------------------------------
    def is_running_here(self) -> bool:
        """Return True if the calling thread is inside a function of this engine."""
        return any(task.pool.engine is self for task in running_here())

    def drain_and_close(self, timeout: float, refuses: str = "") -> None:
        """Wait until nothing is in flight, and close the gate; `open_gate` opens it.

        timeout:  seconds; then other threads' pushes are kept aside or refused, so that they cannot go on for ever.
        refuses:  the reason to refuse them; with one, the gate is closed only if it must be.
        Raises:   EngineError as `drain` does.
        """
        raise NotImplementedError

    def end_threads(self) -> None:
        """End the engine's threads. New ones start when they are needed."""

    def lock_for_fork(self, timeout: float) -> None:
        """Let no other thread do the bookkeeping until `unlock_after_fork` or `reset_in_child`. Give up after timeout seconds."""
        if self._lock.acquire(timeout=timeout):
            self._forking = get_ident()

    def unlock_after_fork(self) -> None:
        """In the parent of a fork: start what was pushed meanwhile."""
        if self._forking == get_ident():
            self._forking = 0
            self._lock.release()
            if self._gate is not None and self._gate.owner == get_ident():
                self.open_gate()
            self.pump()

    def reset_in_child(self) -> None:
        """In a forked child: make locks and threads anew. Tasks in flight are lost and poison the variables they mutate."""
        me = get_ident()
        self._collecting, self._nested = threading.RLock(), 0
        self._failure_lock = threading.RLock()
        lost = list(self._gate.kept) if self._gate is not None else []
        for bulk in self._bulks:
            if bulk.thread != me:
                lost += bulk.tasks
        self._bulks = [b for b in self._bulks if b.thread == me]
        self._gate = None
        self._to_start.clear()
        self._lose(lost)

    def _lose(self, tasks: Sequence[Task]) -> None:
        """Poison the variables that tasks, which will not run, mutate."""
        for t in tasks:
            t.fn = None
            failure = Failure(EngineError(f"{t.name or 'push'}: was in flight in the parent when this process was forked. Wait "
                                          f"for it before os.fork."), "", t.origin, t.seq)
            for v in t.mutable_vars:
                v.failure = failure
            self._poisoned.update(t.mutable_vars)

    # ---- errors -------------------------------------------------------------------------------------------------
    @ki_protected
    def _fail(self, task: Task, error: BaseException) -> None:
        """Record that task raised error."""
        task.failure = failure = Failure(error, task.name, task.origin, task.seq)
        with self._failure_lock:
            self._unseen = [f for f in self._unseen if not f.seen][-255:] + [failure]

    def _take_unseen(self) -> list[Failure]:
        with self._failure_lock:
            unseen, self._unseen = [f for f in self._unseen if not f.seen], []
        return unseen

    def _raise(self, var: Var, failure: Failure) -> None:
        """Raise the failure that poisoned var, and clear it unless var was written since."""
        self._clear(var, failure)
        failure.throw()

    def _take_poison(self) -> list[Failure]:
        """Clear all poisoned variables. Return their failures."""
        failures = []
        for v in list(self._poisoned):
            if v.failure is not None:
                failures.append(v.failure)
                v.failure = None
        self._poisoned.clear()
        return failures

    def _raise_first(self, failures: Sequence[Failure]) -> None:
        """Raise the failure pushed first, of failures and of those that no wait has raised yet."""
        failure = first_pushed([*self._take_unseen(), *failures])
        if failure is not None:
            failure.throw()

    def take_unreported_error(self) -> BaseException | None:
        """Return the error pushed first of those that no wait has raised, and forget them all. For the end of the process."""
        failure = first_pushed(self._take_unseen())
        return None if failure is None else failure.explained()

    # ---- what a kind of engine adds -------------------------------------------------------------------------------
    def wait_for_var(self, var: Var, *, on_device: bool = True) -> None:
        """Block until everything pushed before that mutates var is complete. Raise the failure that poisoned it, once.

        on_device: False to return when all of it is enqueued, which a GPU may still have to do.
        """
        raise NotImplementedError

    def wait_for_all(self) -> None:
        """Block until nothing is in flight. Raise the failure that was pushed first, and clear all poisoned variables."""
        raise NotImplementedError

    def drain(self, timeout: float | None) -> None:
        """Block until nothing is in flight, without raising failures.

        timeout: seconds without progress, after which EngineError names the operators that do not complete. Progress is
                 impossible when only on_complete calls are outstanding, or when the functions that run may wait for a
                 thread that the gate holds up. None waits for ever.
        """
        raise NotImplementedError

    def stop(self, timeout: float | None = None) -> None:
        """Drain, end the threads, and raise as wait_for_all does. Pushing is an EngineError until start()."""
        if self._stopped:
            return
        self.close_gate(WAS_STOPPED)
        try:
            self.drain(timeout)
            self._stopped = True
            self._pools.clear()
            self.drain(timeout)  # tasks that other threads were about to push
        finally:
            self.open_gate()
        self.end_threads()
        self.wait_for_all()

    def start(self) -> None:
        """Accept pushes again."""
        self._stopped = False

    def catch_up(self, patience: float = 0.5) -> None:
        """Hold back a thread that pushes far ahead, until half of what is in flight now is complete. It bounds memory only.

        Functions of the engine are not held back. Nor is any thread once nothing was completed for `patience` seconds:
        what is in flight may be waiting for the thread that calls this.
        """

    def set_profiler(self, profiler: Recorder | None) -> None:
        """Record pushes, runs and waits from now on. None ends it."""
        self._profiler = profiler

    def _find_pool(self, ctx: Context, prop: str | None, name: str) -> Any:
        pool = self._pools[ctx.device_type, ctx.device_id, prop] = self._pool_for(ctx, kind_of(prop, name), name)
        return pool

    def _pool_for(self, ctx: Context, kind: str, name: str) -> Any:
        """Return the workers for a context and kind of work. Raises EngineError if the engine is stopped."""
        if self._stopped:
            raise EngineError(f"{name or 'push'}: {WAS_STOPPED}.")
        return self._worker_pools.get((ctx.device_type, ctx.device_id, kind)) or self._new_pool(ctx, kind)

    def _new_pool(self, ctx: Context, kind: str) -> Any:
        """Return the workers for a context and kind of work, which are asked for the first time."""
        raise NotImplementedError

    @ki_protected
    def _submit(self, task: Task) -> None:
        """Queue task and start it."""
        self._arrived.append(task)
        self._start(task)

    @ki_protected
    def _start(self, task: Task) -> None:
        """Do the bookkeeping for a queued task."""
        self.pump()

    def pump(self) -> Any:
        """Do the bookkeeping for queued tasks until none is left or another thread does it."""
        raise NotImplementedError

    def _clear(self, var: Var, failure: Failure) -> None:
        raise NotImplementedError


WAS_STOPPED = "the engine was stopped. Call start() to use it again"
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def live_engines() -> list[Engine]:
    """Return every engine that exists."""
    return list(_engines)
