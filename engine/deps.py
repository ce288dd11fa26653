"""What may run when: one queue per var, no thread, clock or device.

One rule: two tasks run in the order they were added if one of them mutates a var that the other uses. A var is held by
any number of readers or by one writer; whoever comes later queues behind, in order, so nobody starves.
The caller makes sure that only one thread at a time is in `add` or `done`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .failure import Failure
from .handle import Handle
from .interrupts import ki_protected


class Var(Handle):
    """A token for any resource the engine orders by. It knows nothing of what it stands for.

    held:     readers holding it now; -1 is one writer.
    queue:    task, is_write, task, is_write ... not yet granted, in order; None when nobody waits.
    failure:  what spoiled the resource, until it is raised or written anew.
    pending_events: work on it that was enqueued on a GPU stream, see streams.py; None: nothing.
    version:  how many functions that mutate it were pushed. It rises here and nowhere else, so no write goes unseen.
    """

    __slots__ = ("__weakref__", "deleted", "failure", "held", "pending_events", "queue", "version")

    def __init__(self) -> None:
        self.held = 0
        self.queue: deque[Any] | None = None
        self.failure: Failure | None = None
        self.deleted = False
        self.pending_events: Any = None
        self.version = 0


class Task:
    """One pushed function: what it runs, what it uses, where. `add` and `done` touch `waits` and `failure` only.

    lane:    the queue of workers it goes to; None: a signal, which whoever frees it gives at once.
    origin:  (code, instruction) of the line that pushed it.
    cost_key: what functions that take equally long have in common; None: their code (task_cost.py).
    times:   what a profiler noted when it was pushed; unset without one.
    """

    __slots__ = (
        "const_vars",
        "cost_key",
        "failure",
        "fn",
        "inline",
        "lane",
        "mutable_vars",
        "name",
        "origin",
        "priority",
        "seq",
        "times",
        "waits",
        "wants_complete",
    )

    def __init__(self, fn: Callable[..., Any] | None, const_vars: Sequence[Var], mutable_vars: Sequence[Var], lane: Any,
                 priority: int, seq: int, name: str, origin: Any, wants_complete: bool, inline: bool):
        self.fn = fn
        self.const_vars = const_vars
        self.mutable_vars = mutable_vars
        self.lane = lane
        self.priority = priority
        self.seq = seq
        self.name = name
        self.origin = origin
        self.wants_complete = wants_complete
        self.inline = inline
        self.cost_key: Hashable = None
        self.waits = 0
        self.failure: Failure | None = None
        for v in mutable_vars:
            v.version += 1

    def inherit(self, var: Var, failure: Failure) -> None:
        """A var this task reads is spoiled, so the task will be skipped. Of several, the first pushed is kept."""
        if self.failure is None or failure.seq < self.failure.seq:
            self.failure = failure

    def mark(self, var: Var) -> Failure | None:
        """What to leave on a var this task mutates: None when it was written well."""
        return self.failure


@ki_protected
def add(task: Task) -> bool:
    """Put task behind everything added before that it must not overtake; whether it may run now."""
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
            v.queue.append(task)
            v.queue.append(False)
    for v in task.mutable_vars:
        if v.held == 0:  # then nobody queues either
            v.held = -1
        else:
            waits += 1
            if v.queue is None:
                v.queue = deque()
            v.queue.append(task)
            v.queue.append(True)
    task.waits = waits
    return not waits


@ki_protected
def done(task: Task) -> Sequence[Task]:
    """Let go of task's vars, leaving its mark on those it mutates; the tasks that this set free, in order."""
    freed: list[Task] = []
    for v in task.const_vars:
        v.held -= 1
        if v.held == 0 and v.queue is not None:
            grant(v, v.queue, freed)
    for v in task.mutable_vars:
        v.held = 0
        if task.failure is not None or v.failure is not None:
            v.failure = task.mark(v)
        if v.queue is not None:
            grant(v, v.queue, freed)
    return freed


def behind(task: Task, var: Var) -> Task | None:
    """A task that mutates var and cannot begin before task, which holds its vars, has let go of them; None: there is none."""
    return next((t for t in everything_behind([task]) if t is not task and var in t.mutable_vars), None)


def everything_behind(tasks: Sequence[Task]) -> list[Task]:
    """tasks, and all that cannot begin before they are done. It looks once at each place of a queue."""
    found = dict.fromkeys(tasks)
    todo = list(found)
    lines: dict[Var, _Line] = {}
    while todo:
        task = todo.pop()
        for v in (*task.const_vars, *task.mutable_vars):
            if v.queue is None:
                continue
            line = lines.get(v)
            if line is None:
                line = lines[v] = _Line(v.queue)
            at = line.place.get(task, -1) + 1  # it stands there, or else holds v
            if v not in task.mutable_vars:
                at = line.next_write[at]  # readers do not wait for a reader
            for t in line.tasks[at:line.known]:
                if t not in found:
                    found[t] = None
                    todo.append(t)
            line.known = min(line.known, at)
    return list(found)


class _Line:
    """A var's queue, to be looked through. known: from there on, all of it was found."""

    __slots__ = ("known", "next_write", "place", "tasks")

    def __init__(self, queue: deque[Any]):
        entries = list(queue)
        self.tasks: list[Task] = entries[::2]
        self.place = {t: i for i, t in enumerate(self.tasks)}
        self.known = n = len(self.tasks)
        self.next_write = [n] * (n + 1)
        for i in range(n - 1, -1, -1):
            self.next_write[i] = i if entries[2 * i + 1] else self.next_write[i + 1]


def abandon(tasks: Sequence[Task], own: Task | None) -> None:
    """Nothing of tasks, which are all that use their vars, will ever be done; but own, if any, is running."""
    for t in (*tasks, *(() if own is None else (own,))):
        for v in (*t.const_vars, *t.mutable_vars):
            v.held, v.queue = 0, None
    if own is not None:
        for v in own.const_vars:
            v.held = 1
        for v in own.mutable_vars:
            v.held = -1


@ki_protected
def grant(v: Var, queue: deque[Any], freed: list[Task]) -> None:
    """Hand an unheld var to the writer at the head of its queue, or to all readers up to the next writer."""
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
            freed.append(task)
        if writes:
            break
    if not queue:
        v.queue = None
