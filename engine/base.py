"""The engine's interface, and what its two kinds share: checks at push, prepared operators, errors at wait, bulk."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from operator import index
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..context import Context, cpu
from ..errors import EngineError
from .bulk import Bulk, Merged
from .deps import Task, Var
from .failure import Failure, first, here, in_words
from .gate import Gate
from .handle import Handle
from .interrupts import is_ki_protected, ki_protected
from .run_context import RunContext
from .worker_pool import current_task, running_here

if TYPE_CHECKING:
    from .profiler.recorder import Recorder

#: Hints for `prop`. None is an ordinary function; "inline": so short that it may run in the thread that pushes or frees it;
#: "copy": moves data to or from a device; "io": waits for files or the network; "priority": must not queue behind work.
PROPS = (None, "normal", "inline", "copy", "io", "priority")
_LANES = {None: "compute", "normal": "compute", "inline": "compute", "copy": "copy", "io": "io", "priority": "priority"}


class Opr(Handle):
    """A prepared operator: checked once by `new_operator`, pushed many times."""

    __slots__ = ("const_vars", "deleted", "fn", "inline", "kind", "lane", "lane_ctx", "lane_of",
                 "mutable_vars", "name")

    def __init__(self, fn: Callable[..., Any], const_vars: tuple[Var, ...], mutable_vars: tuple[Var, ...], name: str,
                 inline: bool, kind: str):
        self.fn, self.const_vars, self.mutable_vars = fn, const_vars, mutable_vars
        self.name, self.inline, self.kind = name, inline, kind
        self.deleted = False
        self.lane: Any = None
        self.lane_ctx: Context | None = None
        self.lane_of: Any = None

    def __repr__(self) -> str:
        return f"<opr {self.name}>"


class Engine(Handle):
    """Runs pushed functions in an order that respects what they read and mutate. Subclasses decide on which thread.

    Two functions run in push order if one mutates a var that the other uses; all else may overlap. Any thread may push.
    A function that raises marks the vars it mutates; functions that read a marked var are skipped and mark theirs;
    waiting raises the error, with the operator's name and the line that pushed it, and clears the mark.
    """

    workers = 1

    def __init__(self) -> None:
        self._seq = itertools.count()
        self._bulks: list[Bulk] = []
        self._collecting = threading.RLock()  # held to fill and empty bulks, never while a function runs
        self._nested = 0  # how often it is held: a finalizer may push in the middle
        self._gate: Gate | None = None
        self._entered: deque[Task] = deque()  # left bulks, have their place in the queue, and are yet to be looked at
        self._unseen: list[Failure] = []
        self._stopped = False
        self._lanes: dict[tuple[str, int, str | None], Any] = {}  # (device type, number, prop) -> its queue of workers
        self._profiler: Recorder | None = None
        self._failure_lock = threading.RLock()
        self._spoiled: weakref.WeakSet[Var] = weakref.WeakSet()
        self._still = 0  # the thread that forks, while no other may keep books
        _engines.add(self)

    # ---- vars ---------------------------------------------------------------------------------------------------
    def new_variable(self) -> Var:
        """A token for any resource. Dropping it needs no call."""
        return Var()

    def delete_variable(self, var: Var, on_deleted: Callable[[], Any] | None = None) -> None:
        """Forbid further use of var; call on_deleted() after everything pushed before that uses it."""
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
                  cost_key: Hashable = None) -> None:
        """Queue fn(run) behind everything pushed before that it must not overtake; return at once.

        const_vars, mutable_vars:  what fn reads, and what it changes. A var stands in one of them, once.
        prop:      a hint, see PROPS.
        priority:  of functions that are ready in one context the highest runs first.
        cost_key:  of a kernel, which computes and returns: equal keys take equally long. None: fn may block.
        Raises:    EngineError for lists that overlap, deleted vars, a priority that is no whole number, a stopped engine;
                   ContextError for a missing GPU. Nothing is queued then.
        """
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        _check(const, mutable, name)
        if priority:
            priority = _whole(priority, name)
        lane = self._lanes.get((exec_ctx.device_type, exec_ctx.device_id, prop)) or self._lane(exec_ctx, prop, name)
        task = Task(fn, const, mutable, lane, priority, next(self._seq), name, here(), False, prop == "inline")
        task.cost_key = cost_key
        profiler = self._profiler
        if self._bulks:
            self._push(task)
        elif profiler is None:
            self._submit(task)
        elif profiler.scoped:
            profiler.pushed(task, self._submit)
        else:  # `pushed` without a scope, written out: a third of what profiling a push costs
            start = perf_counter_ns()
            self._submit(task)
            task.times = (get_ident(), start, perf_counter_ns())

    def push_async(self, fn: Callable[[RunContext, Callable[..., None]], Any], exec_ctx: Context,
                   const_vars: Sequence[Var], mutable_vars: Sequence[Var], *, prop: str | None = None,
                   priority: int = 0, name: str = "") -> None:
        """As push_sync, for fn(run, on_complete) that hands the work on: done when on_complete() is called.

        on_complete(error) reports a failure. Any thread may call it, once; a second call raises EngineError.
        """
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        _check(const, mutable, name)
        priority = _whole(priority, name)
        lane = self._lanes.get((exec_ctx.device_type, exec_ctx.device_id, prop)) or self._lane(exec_ctx, prop, name)
        self._push(Task(fn, const, mutable, lane, priority, next(self._seq), name, here(), True, prop == "inline"))

    def new_operator(self, fn: Callable[[RunContext, Callable[..., None]], Any], const_vars: Sequence[Var],
                     mutable_vars: Sequence[Var], *, prop: str | None = None, name: str = "") -> Opr:
        """Prepare fn(run, on_complete) to be pushed many times: lists are built and checked here, once."""
        const, mutable = tuple(const_vars), tuple(mutable_vars)
        _check(const, mutable, name)
        return Opr(fn, const, mutable, name, prop == "inline", _kind(prop, name))

    def push(self, opr: Opr, exec_ctx: Context, priority: int = 0, inline: bool | None = None) -> None:
        """Queue a prepared operator. It may be queued several times at once. Raises EngineError if it was deleted.

        inline: whether it may run in the thread that pushes or frees it, this time; None: as it was prepared.
        """
        if opr.deleted:
            raise EngineError(f"{opr.name or 'push'}: the operator was deleted.")
        if priority:
            priority = _whole(priority, opr.name)
        if opr.lane_ctx is not exec_ctx or opr.lane_of is not self._lanes or self._stopped:
            opr.lane = self._lane_of_kind(exec_ctx, opr.kind, opr.name)
            opr.lane_ctx, opr.lane_of = exec_ctx, self._lanes
        self._push(Task(opr.fn, opr.const_vars, opr.mutable_vars, opr.lane, priority, next(self._seq), opr.name, here(),
                        True, opr.inline if inline is None else inline))

    def run_now(self, fn: Callable[..., Any], const_vars: Sequence[Var], *args: Any) -> bool:
        """Call fn(*args) here, if what it reads is free this moment; else do nothing. Whether it was called and returned.

        For work so short that even queueing it costs more: fn reads const_vars (each once) and writes only what nobody
        else knows of yet, and neither pushes nor waits. If it raises, the answer is False: push it, to have the error
        told where errors are told.
        """
        return False

    def call_now(self, a: Any, b: Any, call: Callable[..., Any], *args: Any) -> Any:
        """call(*args) if what a and b stand for is free this moment; else, or if it raises, None: push it then.

        a, b:  have an attribute `_var`, None as long as nothing was pushed that uses what they stand for. It is looked
               at when nobody can push any more, so that a var may be made as late as with the first push.
        call:  reads a and b. A few hundred nanoseconds at most: all bookkeeping stands still meanwhile.
        """
        return None

    def delete_operator(self, opr: Opr) -> None:
        """Forbid further pushes of opr; those queued still run."""
        opr.deleted = True

    # ---- bulk ---------------------------------------------------------------------------------------------------
    def bulk(self, n: int) -> Bulk:
        """`with engine.bulk(n)`: functions that this thread pushes inside are merged into operations of up to n functions.

        Fewer, longer operations cost less to order and overlap less. Results and errors are the same. What was
        collected is queued when n is reached, the context changes, another bulk begins, anyone waits, or the block ends.
        """
        return Bulk(self, n)

    def set_bulk_size(self, size: int) -> int:
        """Merge what the calling thread pushes, up to size functions at a time, until told otherwise; the size before.

        0 and 1 end it. Inside `with engine.bulk(n)` that bulk comes first.
        """
        me = get_ident()
        before = next((b for b in self._bulks if b.thread == me and b.lasting), None)
        if before is not None:
            self.end_bulk(before)
        if size > 1:
            self._bulks.insert(0, Bulk(self, size, lasting=True))
        return before.n if before is not None else 0

    def begin_bulk(self, bulk: Bulk) -> None:
        """The calling thread collects in bulk from now on."""
        self._bulks.append(bulk)

    @ki_protected
    def end_bulk(self, bulk: Bulk) -> None:
        """Queue what bulk has collected; it collects nothing more."""
        with self._collecting:
            self._nested += 1
            self._let_out(bulk)
            self._bulks.remove(bulk)  # not earlier: a finalizer that pushes meanwhile must find it
            self._nested -= 1
        self._proceed_all()

    @ki_protected
    def flush(self) -> None:
        """Queue what bulks have collected."""
        with self._collecting:
            self._nested += 1
            for bulk in list(self._bulks):
                self._let_out(bulk)
            self._nested -= 1
        self._proceed_all()

    def _push(self, task: Task) -> None:
        if self._bulks:
            self._collect(task)
        else:
            self._enter(task)

    def _enter(self, task: Task) -> None:
        profiler = self._profiler
        if profiler is not None:
            profiler.pushed(task, self._submit)
        else:
            self._submit(task)

    @ki_protected
    def _collect(self, task: Task) -> None:
        """Give task to this thread's innermost bulk. What is in others goes first: it was pushed before, or told of."""
        gate = self._gate
        if gate is not None and gate.refuses and self._is_outside(gate):
            raise EngineError(f"{task.name or 'push'}: {gate.refuses}.")
        me = get_ident()
        with self._collecting:
            if gate is not None and self._gate is not gate and gate.moved_to is not None:  # it opened meanwhile
                heir = gate.moved_to
            else:
                heir = None
                self._give(task, me)
        if heir is not None:
            for t in (task, *getattr(task, "tasks", ())):
                t.lane = heir._lane_of_kind(t.lane.ctx, t.lane.kind, t.name)
            heir._push(task)
        if self._entered:
            self._proceed_all()

    @ki_protected
    def _give(self, task: Task, me: int) -> None:
        """Lock held: see `_collect`."""
        self._nested += 1
        mine = None
        bulks = self._bulks
        if len(bulks) == 1 and bulks[0].thread == me:
            mine = bulks[0]
        else:
            for bulk in reversed(bulks):
                if bulk.thread == me:
                    mine = bulk
                    break
            for bulk in list(bulks):
                if bulk is not mine:
                    self._let_out(bulk)
        if mine is None:
            self._arrive(task)
        else:
            if task.wants_complete or not mine.fits(task):
                self._let_out(mine)
            if task.wants_complete:
                self._arrive(task)
            else:
                mine.tasks.append(task)
                if len(mine.tasks) >= mine.n:
                    self._let_out(mine)
        self._nested -= 1

    @ki_protected
    def _let_out(self, bulk: Bulk) -> None:
        """Lock held: queue what bulk has collected, as one operation. A finalizer may push while that is made."""
        while bulk.tasks:
            tasks, fresh = bulk.tasks, []
            n = len(tasks)
            operation = Merged(self, tasks[:]) if n > 1 else tasks[0]
            if bulk.tasks is tasks and len(tasks) == n:
                bulk.tasks = fresh
                self._arrive(operation)

    @ki_protected
    def _arrive(self, task: Task) -> None:
        """Lock held: give task its place behind all that was pushed before; `_proceed_all` has it run."""
        gate = self._gate
        if gate is not None and not gate.refuses and self._is_outside(gate):
            gate.kept.append(task)
            return
        profiler = self._profiler
        if profiler is not None:
            profiler.pushed(task, self._append)
        else:
            self._append(task)
        self._entered.append(task)

    @ki_protected
    def _proceed_all(self) -> None:
        """Have run what arrived, with the lock free: it may be run here, push, and wait for other threads."""
        while self._entered and not self._nested:
            try:
                task = self._entered.popleft()
            except IndexError:  # another thread was quicker
                return
            self._proceed(task)

    # ---- gate ---------------------------------------------------------------------------------------------------
    def close_gate(self, refuses: str = "") -> None:
        """Keep aside what other threads push from now on, or refuse it. Blocks while another thread has it closed."""
        while True:
            with self._collecting:
                gate = self._gate
                if gate is None:
                    self.flush()
                    gate = self._gate = Gate(self)
                    gate.refuses = refuses
                    self._bulks.insert(0, gate)
                    break
                if gate.owner == get_ident():
                    gate.depth += 1
                    gate.refuses = gate.refuses or refuses
                    break
            gate.wait()
        self._proceed_all()

    @ki_protected
    def open_gate(self, moved_to: Engine | None = None, then: Callable[[], Any] | None = None) -> None:
        """Queue what was kept aside: here, or on the engine that takes the place of this one.

        then:  called when that has its place in the queue and nobody has pushed anything after it.
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
                heir.take_over(task)
            if then is not None:
                then()
            gate.moved_to = moved_to
            self._gate = None
            self._bulks.remove(gate)
        gate.open()
        for task in gate.kept:
            heir._proceed(task)

    def take_over(self, task: Task) -> None:
        """Give a task that another engine may have made its place in the queue."""
        for t in (task, *getattr(task, "tasks", ())):
            t.lane = self._lane_of_kind(t.lane.ctx, t.lane.kind, t.name)
        self._append(task)

    def _close_for_stop(self) -> None:
        """Refuse what other threads push from now on, so that there is an end."""
        self.close_gate(_WAS_STOPPED)

    def _is_outside(self, gate: Gate) -> bool:
        """Whether the calling thread is one that the gate holds up."""
        return gate.owner != get_ident() and current_task() is None

    def _refuse_inside(self, name: str) -> None:
        """Raise EngineError if the calling function was called in the middle of the engine's own work."""
        if is_ki_protected(sys._getframe(2)):
            raise EngineError(f"{name}: called by a finalizer or a signal handler in the middle of the engine's own work, which "
                              f"goes on only when that returns. Push there, and wait elsewhere.")

    def _before_wait(self, name: str) -> Engine:
        """Queue what bulks hold; the engine to wait on, which may be another by now."""
        self._refuse_inside(name)
        self.flush()
        gate = self._gate
        if gate is not None and not gate.refuses and self._is_outside(gate):
            return gate.wait() or self
        return self

    # ---- fork and exit --------------------------------------------------------------------------------------------
    def is_running_here(self) -> bool:
        """Whether the calling thread is in the middle of a function of this engine."""
        return any(task.lane.engine is self for task in running_here())

    def be_quiet(self, limit: float, refuses: str = "") -> None:
        """Wait until nothing is under way, also if other threads never stop pushing: that is kept aside, or refused.

        The gate is closed afterwards; `open_gate` opens it. With `refuses`, a reason, it closes only if it must.
        limit: seconds; what EngineError is raised for, and when, says `stop`.
        """
        raise NotImplementedError

    def end_threads(self) -> None:
        """End what threads there are; fresh ones start when they are needed."""

    def hold_still(self, limit: float) -> None:
        """Nobody keeps books until `go_on` or `forget_threads`: a fork finds them whole. Gives up after limit seconds."""
        raise NotImplementedError

    def go_on(self) -> None:
        """In the parent of a fork: do what came meanwhile."""
        raise NotImplementedError

    def forget_threads(self) -> None:
        """In a forked child: no other thread is here, and no lock may be trusted. What was under way is lost: that is told."""
        me = get_ident()
        self._collecting, self._nested = threading.RLock(), 0
        self._failure_lock = threading.RLock()
        lost = list(self._gate.kept) if self._gate is not None else []
        for bulk in self._bulks:
            if bulk.thread != me:
                lost += bulk.tasks
        self._bulks = [b for b in self._bulks if b.thread == me]
        self._gate = None
        self._entered.clear()
        self._lose(lost)

    def _lose(self, tasks: Sequence[Task]) -> None:
        """What tasks, which will not run, were to write is spoiled."""
        for t in tasks:
            t.fn = None
            failure = Failure(EngineError(f"{t.name or 'push'}: was under way in the parent when this process was forked. Wait "
                                          f"for it before os.fork."), "", t.origin, t.seq)
            for v in t.mutable_vars:
                v.failure = failure
            self._spoiled.update(t.mutable_vars)

    # ---- failures -----------------------------------------------------------------------------------------------
    @ki_protected
    def _fail(self, task: Task, error: BaseException) -> Failure:
        """Record that task raised error."""
        failure = Failure(error, task.name, task.origin, task.seq)
        with self._failure_lock:
            self._unseen = [f for f in self._unseen if not f.seen][-255:] + [failure]
        task.failure = failure
        return failure

    def _raise_marked(self, var: Var, failure: Failure) -> None:
        """Raise what spoiled var, and clear its mark unless it was written since."""
        self._clear(var, failure)
        failure.throw()

    def _raise_first(self, marked: Sequence[Failure]) -> None:
        """Everything is done: raise the failure pushed first of those unseen or still marking a var."""
        with self._failure_lock:
            unseen, self._unseen = [f for f in self._unseen if not f.seen], []
        worst = first([*unseen, *marked])
        if worst is not None:
            worst.throw()

    def take_unreported_error(self) -> BaseException | None:
        """Of the errors that no wait has raised yet, the one that was pushed first; nobody will hear of them any more."""
        with self._failure_lock:
            unseen, self._unseen = [f for f in self._unseen if not f.seen], []
        worst = first(unseen)
        return None if worst is None else worst.explained()

    def catch_up(self, patience: float = 0.5) -> None:
        """Hold a thread back that pushes far ahead: until half of what is pending now is done.

        For the sake of memory alone, nothing depends on it. So no engine function is held back, and nobody any longer once
        nothing was done for `patience` seconds: what is under way may be waiting for the thread that calls this.
        """

    # ---- what a kind of engine adds -------------------------------------------------------------------------------
    def wait_for_var(self, var: Var) -> None:
        """Block until everything pushed before that mutates var is done; raise what spoiled it, once."""
        raise NotImplementedError

    def wait_for_all(self) -> None:
        """Block until nothing is queued or running; raise the failure that was pushed first, and clear all marks."""
        raise NotImplementedError

    def drain(self) -> None:
        """`wait_for_all` for who has closed the gate: EngineError if what runs waits for threads that wait at the gate."""
        self.wait_for_all()

    def stop(self, timeout: float | None = None) -> None:
        """Drain, end the threads, raise as wait_for_all does. Pushing is an EngineError until start().

        timeout: seconds to wait when nothing but on_complete calls is outstanding; then EngineError names the operators.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Accept pushes again."""
        self._stopped = False

    def set_profiler(self, profiler: Recorder | None) -> None:
        """Tell a recorder what is pushed, run and waited for, from now on. None ends it."""
        self._profiler = profiler

    def _lane(self, ctx: Context, prop: str | None, name: str) -> Any:
        lane = self._lane_of_kind(ctx, _kind(prop, name), name)
        self._lanes[ctx.device_type, ctx.device_id, prop] = lane
        return lane

    def _lane_of_kind(self, ctx: Context, kind: str, name: str) -> Any:
        raise NotImplementedError

    def _submit(self, task: Task) -> None:
        """Queue task, and have it run as soon as may be: `_append` and `_proceed`."""
        raise NotImplementedError

    def _append(self, task: Task) -> None:
        raise NotImplementedError

    def _proceed(self, task: Task) -> None:
        raise NotImplementedError

    def _clear(self, var: Var, failure: Failure) -> None:
        raise NotImplementedError

    def _refuse(self, name: str) -> EngineError:
        return EngineError(f"{name or 'push'}: {_WAS_STOPPED}.")


_WAS_STOPPED = "the engine was stopped. Call start() to use it again"
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def live_engines() -> list[Engine]:
    """Every engine that exists."""
    return list(_engines)


def _kind(prop: str | None, name: str) -> str:
    try:
        return _LANES[prop]
    except KeyError:
        raise EngineError(f"{name or 'push'}: unknown prop {prop!r}. Known: {', '.join(map(str, PROPS))}.") from None


def _whole(priority: Any, name: str) -> int:
    """priority, if workers can be told by it which function to take first: nothing may go wrong once a function is queued."""
    try:
        return index(priority)
    except TypeError:
        raise EngineError(f"{name or 'push'}: priority is {in_words(priority)!r}. Give a whole number.") from None


def _check(const: tuple[Var, ...], mutable: tuple[Var, ...], name: str) -> None:
    """Raise EngineError unless both hold live vars, each once."""
    try:
        for v in const:
            if v.deleted:
                raise EngineError(f"{name or 'push'}: const_vars[{const.index(v)}] was deleted.")
        for v in mutable:
            if v.deleted:
                raise EngineError(f"{name or 'push'}: mutable_vars[{mutable.index(v)}] was deleted.")
    except AttributeError:
        bad = next(v for v in (*const, *mutable) if not isinstance(v, Var))
        raise EngineError(f"{name or 'push'}: {type(bad).__name__} is not a var. Use new_variable().") from None
    n = len(const) + len(mutable)
    if n > 1 and len({*const, *mutable}) != n:
        raise EngineError(_duplicate(const, mutable, name))


def _duplicate(const: tuple[Var, ...], mutable: tuple[Var, ...], name: str) -> str:
    for i, v in enumerate(mutable):
        if v in const:
            return (f"{name or 'push'}: a var is both read and mutated: mutable_vars[{i}] is const_vars"
                    f"[{const.index(v)}]. Leave it out of const_vars.")
    for label, vs in (("const_vars", const), ("mutable_vars", mutable)):
        for i, v in enumerate(vs):
            if v in vs[:i]:
                return f"{name or 'push'}: a var is listed twice: {label}[{vs.index(v)}] is {label}[{i}]."
    raise AssertionError((const, mutable))


def number_from(names: Sequence[str], default: int) -> int:
    """A positive whole number from the first of these environment variables that is set."""
    for name in names:
        text = os.environ.get(name)
        if text:
            if not text.isascii() or not text.isdigit() or int(text) < 1:
                raise EngineError(f"{name}: {text!r} is not a positive whole number.")
            return int(text)
    return default
