"""The engine that arrays use: chosen by TRITIUM_ENGINE_TYPE (or MXNET_ENGINE_TYPE) on first use, or in code."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from ..errors import EngineError, nearest
from . import access_check
from .base import Engine
from .checked import CheckedEngine
from .naive import NaiveEngine
from .threaded import ThreadedEngine

_KINDS: dict[str, Callable[[], Engine]] = {
    "NaiveEngine": NaiveEngine,
    "CheckedEngine": CheckedEngine,
    "ThreadedEngine": ThreadedEngine,
    "ThreadedEnginePooled": ThreadedEngine,
    "ThreadedEnginePerDevice": ThreadedEngine,
}
_current: Engine | None = None
_lock = threading.RLock()


def current() -> Engine:
    """The engine that arrays use. Raises EngineError if the environment names one that does not exist."""
    return _current if _current is not None else _make()


def set_current(engine: Engine) -> Engine:
    """Have arrays use engine from now on; the one they used before, drained, with unraised errors raised.

    What other threads push meanwhile is kept aside, and queued on the new one before anything else.
    """
    before = current()
    if engine is not before:
        before.close_gate()
        try:
            before.drain()
        except BaseException:
            before.open_gate()
            raise
        before.open_gate(engine, lambda: _put_in_place(engine, before))
    return before


def _put_in_place(engine: Engine, before: Engine) -> None:
    global _current
    engine.set_profiler(before._profiler)
    before.set_profiler(None)
    _current = engine


def bulk(size: int) -> contextlib.AbstractContextManager[None]:
    """`with bulk(size):` functions pushed inside are merged into operations of up to size functions."""
    return current().bulk(size)


def set_bulk_size(size: int) -> int:
    """Merge functions that the calling thread pushes, up to size at a time, until told otherwise; the size before.

    0 and 1 end it. What was collected is queued when anyone waits.
    """
    return current().set_bulk_size(size)


def _wanted() -> str:
    return os.environ.get("TRITIUM_ENGINE_TYPE") or os.environ.get("MXNET_ENGINE_TYPE") or "ThreadedEngine"


if _wanted() == "CheckedEngine":
    access_check.install()  # arrays made before the engine is first used are guarded too


def _make() -> Engine:
    global _current
    with _lock:
        if _current is None:
            kind = _wanted()
            if kind not in _KINDS:
                raise EngineError(f"TRITIUM_ENGINE_TYPE: no engine {kind!r}. Known: {', '.join(_KINDS)}."
                                  f"{nearest(kind, _KINDS)}")
            _current = _KINDS[kind]()
        return _current
