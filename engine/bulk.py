"""Bulk: several pushes merged into one task. Gate: pushes of other threads kept aside while an engine drains."""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from .deps import Task, Var
from .failure import Failure
from .interrupts import block

if TYPE_CHECKING:
    from .base import Engine


class Bulk:
    """`with engine.bulk(n)`: holds what one thread has pushed inside and the engine has not queued yet.

    lasting:  set by `set_bulk_size`, not by a `with` block.
    It is not a generator, so that an exception raised inside leaves unchanged, even if its attributes cannot be set.
    """

    def __init__(self, engine: Engine, n: int, lasting: bool = False):
        if n < 1:
            raise EngineError(f"bulk: n is {n}. Give a positive number of functions.")
        self.n, self.lasting = n, lasting
        self.thread = get_ident()
        self.tasks: list[Task] = []
        self._engine = engine

    def __enter__(self) -> None:
        self.thread = get_ident()
        self._engine._bulks.append(self)

    def __exit__(self, *exc: object) -> None:
        self._engine.end_bulk(self)

    def fits(self, task: Task) -> bool:
        """Return True if task can be merged with those collected: same workers, same priority."""
        tasks = self.tasks
        return not tasks or (task.pool is tasks[0].pool and task.priority == tasks[0].priority)


class BulkTask(Task):
    """Several tasks as one: mutates what any of them mutates, reads what they only read, and runs them in order.

    A member that reads a poisoned variable is skipped, as it would be alone, and the others run.
    """

    __slots__ = ("failures", "members", "poisoned")

    def __init__(self, engine: Engine, members: list[Task]):
        mutable = dict.fromkeys(v for t in members for v in t.mutable_vars)
        const = dict.fromkeys(v for t in members for v in t.const_vars if v not in mutable)
        head = members[0]
        super().__init__(self._run, tuple(const), (), head.pool, head.priority, head.seq, f"bulk of {len(members)}", head.origin,
                         False, all(t.inline for t in members))
        self.mutable_vars = tuple(mutable)  # not passed above: each member counted as a write when it was pushed
        self.members = members
        self.poisoned: dict[Var, Failure] = {}  # among the variables it only reads
        self.failures: dict[Var, Failure | None] = {}  # of the variables it mutates, so far

    def inherit(self, var: Var, failure: Failure) -> None:
        """Note the failure for the members that read var."""
        self.poisoned[var] = failure

    def failure_of(self, var: Var) -> Failure | None:
        return self.failures.get(var)

    def _run(self, run: Any) -> None:
        engine = self.members[0].pool.engine
        failures = self.failures
        for v in self.mutable_vars:
            failures[v] = v.failure
        for t in self.members:
            for v in t.const_vars:
                failure = failures[v] if v in failures else self.poisoned.get(v)
                if failure is not None:
                    t.inherit(v, failure)
            if t.failure is None:
                try:
                    t.fn(run)  # type: ignore[misc]
                except BaseException as e:
                    engine._fail(t, e)
            t.fn = None
            for v in t.mutable_vars:
                failures[v] = t.failure
        # `done` calls failure_of only for a task that failed
        self.failure = next((f for f in failures.values() if f is not None), None)


class Gate(Bulk):
    """Closed before a fork, at exit, and when another engine replaces this one. Otherwise an engine would never be idle
    while any thread pushes. Pushes of running functions are let in, because those may wait for them.

    It stands among the bulks of its engine, so that an ordinary push has one test only.

    owner:    the thread that closed it, `depth` times, and that may push.
    kept:     what others pushed meanwhile, in order.
    refuses:  the reason why they may not push any more; if empty, what they push is kept.
    waiting:  how many threads wait until it opens.
    moved_to: the engine that replaced this one and has what was kept.
    """

    def __init__(self, engine: Engine, refuses: str):
        super().__init__(engine, 1)
        self.thread = 0  # no thread's pushes are collected in it
        self.owner, self.depth, self.refuses, self.waiting = get_ident(), 1, refuses, 0
        self.kept: deque[Task] = deque()
        self.moved_to: Engine | None = None
        self._closed = allocate_lock()
        self._closed.acquire()

    def open(self) -> None:
        """Let the waiting threads go on."""
        self._closed.release()

    def wait(self) -> Engine | None:
        """Block until it opens. Return the engine that replaced this one, if any."""
        self.waiting += 1
        try:
            block(self._closed)
            self._closed.release()
        finally:
            self.waiting -= 1
        return self.moved_to
