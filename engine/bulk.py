"""Bulk: several pushed functions merged into one operation, with the results and errors they would have had alone."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..errors import EngineError
from .deps import Task, Var
from .failure import Failure

if TYPE_CHECKING:
    from .base import Engine


class Bulk:
    """What one thread has pushed inside `with engine.bulk(n)` and not yet queued: the engine sees to that.

    No generator: what one raises inside must come out as it is, also an exception whose attributes cannot be set.
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
        self._engine.begin_bulk(self)

    def __exit__(self, *exc: object) -> None:
        self._engine.end_bulk(self)

    def fits(self, task: Task) -> bool:
        """Whether task can be merged with what was collected."""
        tasks = self.tasks
        return not tasks or (task.lane is tasks[0].lane and task.priority == tasks[0].priority)


class Merged(Task):
    """Several tasks as one: it mutates what any of them mutates and reads what they only read; run in order.

    A part that reads a var spoiled before, or by an earlier part, is skipped as it would have been alone.
    """

    __slots__ = ("marks", "spoiled", "tasks")

    def __init__(self, engine: Engine, tasks: list[Task]):
        mutable = dict.fromkeys(v for t in tasks for v in t.mutable_vars)
        const = dict.fromkeys(v for t in tasks for v in t.const_vars if v not in mutable)
        head = tasks[0]
        super().__init__(self._run, tuple(const), (), head.lane, head.priority, head.seq, f"bulk of {len(tasks)}", head.origin,
                         False, all(t.inline for t in tasks))
        self.mutable_vars = tuple(mutable)  # not given above: each part has counted as a write, when it was pushed
        self.tasks = tasks
        self.spoiled: dict[Var, Failure] = {}
        self.marks: dict[Var, Failure | None] = {}

    def inherit(self, var: Var, failure: Failure) -> None:
        """Remember it for the parts that read var; the others run."""
        self.spoiled[var] = failure

    def mark(self, var: Var) -> Failure | None:
        return self.marks.get(var)

    def _run(self, run: Any) -> None:
        engine = self.tasks[0].lane.engine
        marks = self.marks
        for v in self.mutable_vars:
            marks[v] = v.failure
        for t in self.tasks:
            for v in t.const_vars:
                failure = marks[v] if v in marks else self.spoiled.get(v)
                if failure is not None:
                    t.inherit(v, failure)
            if t.failure is None:
                try:
                    t.fn(run)  # type: ignore[misc]
                except BaseException as e:
                    engine._fail(t, e)
            t.fn = None
            for v in t.mutable_vars:
                marks[v] = t.failure
        # `done` asks for the marks only of a task that failed
        self.failure = next((f for f in marks.values() if f is not None), None)
