"""Recorder: notes pushes, runs, waits and memory as they happen. It only appends; timeline.py evaluates afterwards."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from ...context import Context
from ..deps import Task, Var
from ..gpu import cuda

LIMIT = 250_000  # entries of each list below; `ran` then takes some 150 MB

GPU_THREAD = -1000  # the number of the thread in whose place gpu(0) stands

#: The scope that pushes belong to: a prefix of names, or the empty string.
scope: contextvars.ContextVar[str] = contextvars.ContextVar("tritium_profiler_scope", default="")
#: The layer that pushes belong to, such as the innermost Block that was called; or the empty string. Set while a profile is made.
layer: contextvars.ContextVar[str] = contextvars.ContextVar("tritium_profiler_layer", default="")


class Recorder:
    """Five lists, each with at most `limit` entries. Later entries are counted in `dropped`. Times are of perf_counter_ns.

    ran:     task, thread, start, end, task, thread ... of functions. start is -1 where on_complete was called, at end.
    waits:   (thread, start, end, var) of waits that blocked; var is None for wait_for_all.
    memory:  (time, ctx, bytes in use, bytes pooled).
    parts:   (name, thread, start, end, pieces, run) of the kernels inside of an operation. Threads in C are -1, -2 ...
             run: (thread, time), of the operation's run.
    device:  (name, run, device, mark before, mark after) of kernels of a graph on a GPU; see cuda.mark. `settle` makes parts of
             them. Their thread is -1000 for gpu(0), -1001 for gpu(1) ...
    marks:   (phase, category, name, thread, time, arguments) of user-made objects; for the phases see chrome_trace.py.
    """

    scoping = False  # True once `scope` was used: then every push reads it

    def __init__(self, limit: int = LIMIT):
        self.limit = limit
        self.dropped = 0
        self.scoped = Recorder.scoping
        self.most = 4 * limit  # items in `ran`
        self.ran: list[Any] = []
        self.waits: list[tuple[int, int, int, Var | None]] = []
        self.memory: list[tuple[int, Context, int, int]] = []
        self.parts: list[tuple[str, int, int, int, int, tuple[int, int]]] = []
        self.device: list[tuple[str, tuple[int, int], int, Any, Any]] = []
        self._origins: dict[int, tuple[Any, int]] = {}  # of a device: its first mark, and the time when that was made
        self.marks: list[tuple[str, str, str, int, int, dict[str, Any]]] = []

    def pushed(self, task: Task, submit: Callable[[Task], Any]) -> None:
        """Submit task, and note on it the pushing thread, the time and the layer. In a scope its name gets the scope's prefix."""
        if self.scoped and (prefix := scope.get()):
            task.name = f"{prefix}{task.name or 'without a name'}"
        start = perf_counter_ns()
        submit(task)
        task.times = (get_ident(), start, perf_counter_ns(), layer.get())

    def ended(self, task: Task, start: int) -> None:
        """Note that the calling thread ran task from start until now. start: -1 if it called on_complete now."""
        ran = self.ran
        if len(ran) < self.most:
            ran += (task, get_ident(), start, perf_counter_ns())
        else:
            self.dropped += 1

    def waited(self, start: int, var: Var | None) -> None:
        """Note that the calling thread was blocked from start until now."""
        self._keep(self.waits, (get_ident(), start, perf_counter_ns(), var))

    def part(self, name: str, run: tuple[int, int], thread: int, start: int, end: int, pieces: int = 1) -> None:
        """Note that a thread computed so many pieces of a kernel from start until end. run: the operation's thread and start."""
        self._keep(self.parts, (name, thread, start, end, pieces, run))

    def device_part(self, name: str, run: tuple[int, int], device: int, before: Any, after: Any) -> None:
        """Note that a GPU computed a kernel between two marks."""
        self._origins.setdefault(device, (before, perf_counter_ns()))
        self._keep(self.device, (name, run, device, before, after))

    def settle(self) -> None:
        """Make parts of the kernels on GPUs, and wait until they are done. Times are aligned at the device's first mark."""
        device, self.device = self.device, []
        for name, run, number, before, after in device:
            first, at = self._origins[number]
            start = at + cuda.elapsed(first, before)
            self.part(name, run, GPU_THREAD - number, start, start + cuda.elapsed(before, after))

    def memory_is(self, ctx: Context, in_use: int, pooled: int) -> None:
        """Note the bytes that ctx holds now."""
        self._keep(self.memory, (perf_counter_ns(), ctx, in_use, pooled))

    def mark(self, phase: str, category: str, name: str, arguments: dict[str, Any]) -> None:
        """Note an event of a user-made object, now, on the calling thread."""
        self._keep(self.marks, (phase, category, name, get_ident(), perf_counter_ns(), arguments))

    def _keep(self, entries: list[Any], entry: Any) -> None:
        if len(entries) < self.limit:
            entries.append(entry)
        else:
            self.dropped += 1
