"""Dependency bookkeeping: one queue per variable, without threads, clock or device.

Two tasks run in the order they were added if one of them mutates a variable that the other uses. Any number of readers, or
one writer, hold a variable. Later tasks queue behind them in order, so none starves.
The caller makes sure that only one thread at a time is in `add` or `done`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn, TypeVar

from ..errors import EngineError
from .failure import Failure
from .interrupts import ki_protected

_H = TypeVar("_H", bound="Handle")


class Handle:
    """Base of objects that name one thing of this process: copying gives the object itself, and pickling is an error."""

    __slots__ = ()

    def __copy__(self: _H) -> _H:
        return self

    def __deepcopy__(self: _H, memo: Any) -> _H:
        return self

    def __reduce__(self) -> NoReturn:
        raise EngineError(f"pickle: {type(self).__name__} means something in this process only. Send the values instead.")


class Var(Handle):
    """A token for any resource that the engine orders work on.

    held:     readers that hold it; -1 for one writer.
    queue:    task, is_write, task, is_write ... that wait for it, in order; None if none do.
    failure:  the failure that poisoned it, until a wait raises it or a task writes it anew.
    pending_events: GPU work on it that may not have run yet, see streams.py; None for none.
    version:  how many functions that mutate it were pushed.
    """

    __slots__ = ("__weakref__", "deleted", "failure", "held", "pending_events", "queue", "version")

    def __init__(self) -> None:
        self.held = 0
        self.queue: deque[Any] | None = None
        self.failure: Failure | None = None
        self.deleted = False
        self.pending_events: Any = None
        self.version = 0

    def __repr__(self) -> str:
        held = "being written" if self.held < 0 else f"{self.held} readers" if self.held else "free"
        return f"Var(version={self.version}, {'failed' if self.failure is not None else held})"

    def is_free(self) -> bool:
        """Return True if a reader need not wait and would find no error."""
        return self.held >= 0 and self.queue is None and self.failure is None and self.pending_events is None


class Task:
    """One pushed function with its variables. `add` and `done` change `waits` and `failure` only.

    pool:    the workers that run it; None for a signal, which the thread that does the bookkeeping calls at once.
    origin:  (code, instruction) of the line that pushed it.
    cost_key: equal for functions that take equally long; None: those of the same code (task_cost.py).
    begin:   called when it may run, before a worker gets it; or None.
    waits:   how many variables it still waits for.
    times:   set by a profiler when it was pushed.
    """

    __slots__ = ("begin", "const_vars", "cost_key", "failure", "fn", "inline", "mutable_vars", "name", "origin", "pool",
                 "priority", "seq", "times", "waits", "wants_complete")

    def __init__(self, fn: Callable[..., Any] | None, const_vars: Sequence[Var], mutable_vars: Sequence[Var], pool: Any,
                 priority: int, seq: int, name: str, origin: Any, wants_complete: bool, inline: bool,
                 cost_key: Hashable = None, begin: Callable[[], None] | None = None):
        self.fn = fn
        self.const_vars = const_vars
        self.mutable_vars = mutable_vars
        self.pool = pool
        self.priority = priority
        self.seq = seq
        self.name = name
        self.origin = origin
        self.wants_complete = wants_complete
        self.inline = inline
        self.cost_key, self.begin = cost_key, begin
        self.waits = 0
        self.failure: Failure | None = None
        for v in mutable_vars:
            v.version += 1

    def inherit(self, var: Var, failure: Failure) -> None:
        """Note that a variable this task reads is poisoned, so that it is skipped. The failure pushed first counts."""
        if self.failure is None or failure.seq < self.failure.seq:
            self.failure = failure

    def failure_of(self, var: Var) -> Failure | None:
        """Return the failure that poisons a variable this task mutates; None if it was written."""
        return self.failure


@ki_protected
def add(task: Task) -> bool:
    """Put task behind everything added before that it must not overtake. Return True if it may run now."""
    waits = 0
    for v in task.const_vars:
        if v.held >= 0 and v.queue is None:
            v.held += 1
            if v.failure is not None:
                task.inherit(v, v.failure)
        else:
            waits += 1
            if v.queue is None:
                v.queue = deque()
            v.queue.extend((task, False))
    for v in task.mutable_vars:
        if v.held == 0:  # then its queue is empty
            v.held = -1
        else:
            waits += 1
            if v.queue is None:
                v.queue = deque()
            v.queue.extend((task, True))
    task.waits = waits
    return not waits


@ki_protected
def done(task: Task) -> Sequence[Task]:
    """Release task's variables, and poison those it mutates if it failed. Return the tasks that may run now, in order."""
    ready: list[Task] = []
    for v in task.const_vars:
        v.held -= 1
        if v.held == 0 and v.queue is not None:
            grant(v, v.queue, ready)
    for v in task.mutable_vars:
        v.held = 0
        if task.failure is not None or v.failure is not None:
            v.failure = task.failure_of(v)
        if v.queue is not None:
            grant(v, v.queue, ready)
    return ready


@ki_protected
def grant(v: Var, queue: deque[Any], ready: list[Task]) -> None:
    """Give a variable that no task holds to the writer at the head of its queue, or to all readers up to the next writer.

    ready: gets the tasks that wait for nothing more.
    """
    while queue:
        task: Task = queue[0]
        writes: bool = queue[1]
        if writes:
            if v.held:
                return
            v.held = -1
        else:
            v.held += 1
            if v.failure is not None:
                task.inherit(v, v.failure)
        queue.popleft()
        queue.popleft()
        task.waits -= 1
        if not task.waits:
            ready.append(task)
        if writes:
            break
    if not queue:
        v.queue = None


def behind(task: Task, var: Var) -> Task | None:
    """Return a task that mutates var and cannot begin before task, which holds its variables, is done; None if none does."""
    return next((t for t in everything_behind([task]) if t is not task and var in t.mutable_vars), None)


def everything_behind(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks and all that cannot begin before they are done. Looks once at each entry of a queue."""
    reached = dict.fromkeys(tasks)
    todo = list(reached)
    queues: dict[Var, _QueueIndex] = {}
    while todo:
        task = todo.pop()
        for v in (*task.const_vars, *task.mutable_vars):
            if v.queue is None:
                continue
            queue = queues.get(v)
            if queue is None:
                queue = queues[v] = _QueueIndex(v.queue)
            first = queue.place.get(task, -1) + 1  # a task that does not stand in the queue holds v
            if v not in task.mutable_vars:
                first = queue.next_write[first]  # readers do not wait for a reader
            for t in queue.tasks[first:queue.known]:
                if t not in reached:
                    reached[t] = None
                    todo.append(t)
            queue.known = min(queue.known, first)
    return list(reached)


class _QueueIndex:
    """A variable's queue for `everything_behind`.

    next_write:  for each place, the place of the first writer from there on.
    known:       from this place on, all tasks were reached.
    """

    __slots__ = ("known", "next_write", "place", "tasks")

    def __init__(self, queue: deque[Any]):
        entries = list(queue)
        self.tasks: list[Task] = entries[::2]
        self.place = {t: i for i, t in enumerate(self.tasks)}
        self.known = n = len(self.tasks)
        self.next_write = [n] * (n + 1)
        for i in range(n - 1, -1, -1):
            self.next_write[i] = i if entries[2 * i + 1] else self.next_write[i + 1]


def abandon(tasks: Sequence[Task], running: Task | None) -> None:
    """Release the variables of tasks, which will never be done. All but running, which goes on, must be among them."""
    for t in (*tasks, *(() if running is None else (running,))):
        for v in (*t.const_vars, *t.mutable_vars):
            v.held, v.queue = 0, None
    if running is not None:
        for v in running.const_vars:
            v.held = 1
        for v in running.mutable_vars:
            v.held = -1
