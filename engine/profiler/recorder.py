"""Recorder: what the engine tells a profiler, as it happens. Appends and nothing else; the sense is made afterwards."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from ...context import Context
from ..deps import Task, Var

LIMIT = 250_000  # of each list below: at most some 150 MB for what the engine ran

#: The scope that pushes belong to: a prefix of names, or the empty string.
scope: contextvars.ContextVar[str] = contextvars.ContextVar("tritium_profiler_scope", default="")


class Recorder:
    """Five lists, each with at most `limit` entries; what comes later is counted in `dropped`. Times: perf_counter_ns.

    ran:     task, thread, start, end, task, thread ... of functions; start -1: on_complete was called, at end.
    waits:   (thread, start, end, var) of waits that blocked; var None: for everything.
    memory:  (time, ctx, bytes in use, bytes pooled).
    marks:   (phase, category, name, thread, time, arguments) of what the user marks; chrome_trace.py knows the phases.
    """

    scoping = False  # whether `scope` was ever used: then every push asks for it

    def __init__(self, limit: int = LIMIT):
        self.limit = limit
        self.dropped = 0
        self.scoped = Recorder.scoping
        self.most = 4 * limit  # items of `ran`
        self.ran: list[Any] = []
        self.waits: list[tuple[int, int, int, Var | None]] = []
        self.memory: list[tuple[int, Context, int, int]] = []
        self.marks: list[tuple[str, str, str, int, int, dict[str, Any] | None]] = []

    def pushed(self, task: Task, submit: Callable[[Task], Any]) -> None:
        """Submit task, and leave on it who pushed it and from when to when; in a scope it gets another name."""
        if self.scoped and (prefix := scope.get()):
            task.name = f"{prefix}{task.name or 'without a name'}"
        start = perf_counter_ns()
        submit(task)
        task.times = (get_ident(), start, perf_counter_ns())

    def ended(self, task: Task, start: int) -> None:
        """The calling thread ran task, from start until now."""
        ran = self.ran
        if len(ran) < self.most:
            ran += (task, get_ident(), start, perf_counter_ns())
        else:
            self.dropped += 1

    def completed(self, task: Task) -> None:
        """An asynchronous task called on_complete."""
        if len(self.ran) < self.most:
            self.ran += (task, get_ident(), -1, perf_counter_ns())
        else:
            self.dropped += 1

    def waited(self, start: int, var: Var | None) -> None:
        """The calling thread was blocked from start until now."""
        self._keep(self.waits, (get_ident(), start, perf_counter_ns(), var))

    def memory_is(self, ctx: Context, in_use: int, pooled: int) -> None:
        """Bytes that ctx holds now."""
        self._keep(self.memory, (perf_counter_ns(), ctx, in_use, pooled))

    def mark(self, phase: str, category: str, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Something the user marks happens now, on the calling thread."""
        self._keep(self.marks, (phase, category, name, get_ident(), perf_counter_ns(), arguments))

    def _keep(self, entries: list[Any], entry: Any) -> None:
        if len(entries) < self.limit:
            entries.append(entry)
        else:
            self.dropped += 1
