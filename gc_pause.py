"""Pauses for Python's garbage collector: for a block of code (`gc_paused`), and while many tasks wait (`adjust`).

Waiting tasks are alive, and the collector would visit each of them several times while the queue grows: a task would cost
twice as much at a million waiting as at a thousand. So from 16,384 on, the objects that are alive then are kept out of its
rounds (`gc.freeze`) until the queue is short again. Garbage in cycles is found a little later. If the program freezes
objects itself, nothing is done.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

MANY = 16384
_FEW = 4096

_holders: weakref.WeakSet[Any] = weakref.WeakSet()  # engines with a long queue
_lock = threading.RLock()
_frozen = False
_blocks = 0  # that are in `gc_paused`,
_was_enabled = False  # and whether the collector was on before the first of them


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """`with gc_paused():` no automatic round of the collector begins, in any thread, until the last such block ends."""
    global _blocks, _was_enabled
    with _lock:
        if not _blocks:
            _was_enabled = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and _was_enabled:
                gc.enable()


def adjust(pending: int, engine: Any) -> tuple[int, int]:
    """Pause or resume the collector. Return (low, high): call this again when pending is below low or at least high."""
    global _frozen
    with _lock:
        if pending >= MANY:
            if not _frozen and gc.get_freeze_count():
                return 0, 1 << 62
            _frozen = True
            _holders.add(engine)
            gc.freeze()
            return _FEW, pending + MANY
        _holders.discard(engine)
        if _frozen and not _holders:
            _frozen = False
            gc.unfreeze()
        return 0, MANY
