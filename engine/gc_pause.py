"""A long queue and Python's garbage collector: what waits is alive, and looking through it again and again is wasted.

Left alone, the collector visits every waiting operation several times while the queue grows, and each costs twice as
much at a million waiting as at a thousand. So from 16,384 on, whatever is alive then is kept out of its rounds
(`gc.freeze`) until the queue is short again. Garbage in cycles is found a little later. If the program freezes objects
itself, nothing is done.
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
_ours = False


def weigh(pending: int, engine: Any) -> tuple[int, int]:
    """To be called when the queue of engine leaves the bounds given last; gives the next (few, many)."""
    global _ours
    with _lock:
        if pending >= MANY:
            if not _ours and gc.get_freeze_count():
                return 0, 1 << 62
            _ours = True
            _holders.add(engine)
            gc.freeze()
            return _FEW, pending + MANY
        _holders.discard(engine)
        if _ours and not _holders:
            _ours = False
            gc.unfreeze()
        return 0, MANY
