"""A pause for Python's garbage collector while many tasks wait.

Waiting tasks are alive, and the collector would visit each of them several times while the queue grows: a task would cost
twice as much at a million waiting as at a thousand. So from 16,384 on, the objects that are alive then are kept out of its
rounds (`gc.freeze`) until the queue is short again. Garbage in cycles is found a little later. If the program freezes
objects itself, nothing is done.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

MANY = 16384
_FEW = 4096

_holders: weakref.WeakSet[Any] = weakref.WeakSet()  # engines with a long queue
_lock = threading.RLock()
_frozen = False


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
