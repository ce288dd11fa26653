"""The engine that arrays use: chosen by TRITIUM_ENGINE_TYPE (or MXNET_ENGINE_TYPE) on first use, or by the program."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from .. import environment
from . import checked
from .base import Engine
from .checked import CheckedEngine
from .naive import NaiveEngine
from .threaded import ThreadedEngine

_TYPES: dict[str, Callable[[], Engine]] = {
    "NaiveEngine": NaiveEngine,
    "CheckedEngine": CheckedEngine,
    "ThreadedEngine": ThreadedEngine,
    "ThreadedEnginePooled": ThreadedEngine,
    "ThreadedEnginePerDevice": ThreadedEngine,
}
_PATIENCE = 10  # seconds between checks whether the functions that run wait for threads that are held up
_current: Engine | None = None
_lock = threading.RLock()


def current() -> Engine:
    """Return the engine that arrays use. Raises ParameterError if the environment names one that does not exist."""
    return _current if _current is not None else _make()


def set_current(engine: Engine) -> Engine:
    """Have arrays use engine from now on. Return the one before, drained; its errors that no wait has raised are raised here.

    What other threads push meanwhile is kept aside, and queued on the new engine before anything else.
    """
    before = current()
    if engine is not before:
        before.close_gate()
        try:
            before.drain(_PATIENCE)
            before.wait_for_all()
        except BaseException:
            before.open_gate()
            raise
        before.open_gate(engine, lambda: _replace(before, engine))
    return before


def _replace(before: Engine, engine: Engine) -> None:
    global _current
    engine.set_profiler(before._profiler)
    before.set_profiler(None)
    _current = engine


def bulk(size: int) -> contextlib.AbstractContextManager[None]:
    """`with bulk(size):` merge functions pushed inside into tasks of up to size functions."""
    return current().bulk(size)


def set_bulk_size(size: int) -> int:
    """Merge functions that the calling thread pushes, up to size at a time, from now on. Return the size before.

    0 and 1 end it. A wait queues what was collected.
    """
    return current().set_bulk_size(size)


def connect() -> None:
    """If the environment chooses CheckedEngine, have it check arrays that are made before the engine is first used, too."""
    if environment.ENGINE_TYPE.get() == "CheckedEngine":
        checked.install()


def _make() -> Engine:
    global _current
    with _lock:
        if _current is None:
            _current = _TYPES[environment.ENGINE_TYPE.get()]()
        return _current
