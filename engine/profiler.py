"""Where an observer of the engine plugs in. The profiler that writes a trace comes later."""

from __future__ import annotations

from typing import Protocol

from ..context import Context
from .deps import Task


class Profiler(Protocol):
    """What `Engine.set_profiler` takes."""

    def ran(self, task: Task, ctx: Context, start_ns: int, end_ns: int) -> None:
        """task ran on the calling thread, from start to end by time.perf_counter_ns."""
