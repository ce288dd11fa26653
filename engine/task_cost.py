"""The run time of functions, measured only for those that a thread waited for, so that the others cost nothing.

A kernel is pushed with a `cost_key`, which says the operator and its layouts. Other functions are identified by their code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from ..cache import Cache
from .deps import Task
from .interrupts import ki_protected

_costs: Cache[Hashable, int] = Cache()  # cost key or code -> nanoseconds


def of(task: Task) -> int | None:
    """Return the nanoseconds that such a task took when last measured; None if it never was, or has no code."""
    return _costs.get(_key(task))


def measure(task: Task) -> None:
    """Put a clock around the task's function. Ctrl-C does not interrupt a kernel, and comes when it has returned."""
    fn, key = task.fn, _key(task)
    if fn is None or key is None:
        return

    def run(*args: Any) -> None:
        start = time.perf_counter_ns()
        fn(*args)
        _costs[key] = time.perf_counter_ns() - start

    task.fn = run if task.cost_key is None else partial(_uninterrupted, run)


@ki_protected
def _uninterrupted(run: Callable[..., None], *args: Any) -> None:
    run(*args)


def _key(task: Task) -> Hashable:
    return getattr(task.fn, "__code__", None) if task.cost_key is None else task.cost_key
