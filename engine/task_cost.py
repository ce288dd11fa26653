"""How long functions take: asked only about those that somebody waited for, so that others pay nothing.

Functions are told apart by their code, and a kernel by the default of its keyword `made_for` too: it is made anew for every
call of an operator, and says there which one it is, at which shapes. A kernel computes and ends; other functions may block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from .interrupts import ki_protected

_KEPT = 4096
_costs: dict[tuple[int, int], tuple[int, CodeType, Any]] = {}  # ids of code and made_for, kept alive here -> nanoseconds


def of(fn: Callable[..., Any] | None) -> int | None:
    """Nanoseconds that such a function took when last measured; None: never, or it has no code."""
    code, made_for = _identity(fn)
    known = _costs.get((id(code), id(made_for)))
    return None if known is None else known[0]


def is_kernel(fn: Callable[..., Any] | None) -> bool:
    """Whether fn says which operator it is made for."""
    return _identity(fn)[1] is not None


def _identity(fn: Callable[..., Any] | None) -> tuple[CodeType | None, Any]:
    defaults = getattr(fn, "__kwdefaults__", None)
    return getattr(fn, "__code__", None), defaults.get("made_for") if defaults else None


def timed(fn: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """fn, with a clock around it. Ctrl-C does not interrupt a kernel, and comes when it has ended."""
    code, made_for = _identity(fn)
    if fn is None or code is None:
        return fn

    def run(*args: Any) -> None:
        start = time.perf_counter_ns()
        fn(*args)
        if len(_costs) >= _KEPT:
            _costs.clear()
        _costs[id(code), id(made_for)] = (time.perf_counter_ns() - start, code, made_for)

    @ki_protected
    def whole(*args: Any) -> None:
        run(*args)
    return run if made_for is None else whole
