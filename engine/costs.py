"""How long functions take, by their code: asked only about those that somebody waited for, so that others pay nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CodeType
from typing import Any

_KEPT = 4096
_costs: dict[int, tuple[int, CodeType]] = {}  # id of the code, which the entry keeps alive -> nanoseconds


def of(fn: Callable[..., Any] | None) -> int | None:
    """Nanoseconds that a function with this code took when last measured; None: never, or it has no code."""
    known = _costs.get(id(getattr(fn, "__code__", None)))
    return None if known is None else known[0]


def timed(fn: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """fn, with a clock around it."""
    code = getattr(fn, "__code__", None)
    if fn is None or code is None:
        return fn

    def run(*args: Any) -> None:
        start = time.perf_counter_ns()
        fn(*args)
        if len(_costs) >= _KEPT:
            _costs.clear()
        _costs[id(code)] = (time.perf_counter_ns() - start, code)
    return run
