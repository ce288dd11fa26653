"""Gate: while an engine drains before a fork, at exit or when another takes its place, what other threads push is kept aside.

Without it an engine is never idle while anybody pushes. What running functions push is let in: they may wait for it.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING

from .bulk import Bulk
from .deps import Task
from .interrupts import block

if TYPE_CHECKING:
    from .base import Engine


class Gate(Bulk):
    """Stands among the bulks of its engine, so that a push looks for nothing more while there is none.

    owner:    the thread that closed it, which it does not hold up; `depth` times.
    kept:     what others pushed meanwhile, in order.
    refuses:  why they are to push no more; empty: what they push is kept.
    waiting:  how many threads wait until it opens.
    moved_to: the engine that has taken the place of this one, with what was kept.
    """

    def __init__(self, engine: Engine):
        super().__init__(engine, 1)
        self.thread = 0  # collects for nobody
        self.owner, self.depth, self.refuses, self.waiting = get_ident(), 1, "", 0
        self.kept: deque[Task] = deque()
        self.moved_to: Engine | None = None
        self._shut = allocate_lock()
        self._shut.acquire()

    def open(self) -> None:
        """Let go on who waits here."""
        self._shut.release()

    def wait(self) -> Engine | None:
        """Block until it opens: the engine that has what was kept, if another."""
        self.waiting += 1
        try:
            block(self._shut)
            self._shut.release()
        finally:
            self.waiting -= 1
        return self.moved_to
