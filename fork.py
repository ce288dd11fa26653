"""Locks after os.fork: the thread that held one in the parent does not exist in the child."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[[], Any])


def in_forked_child(reset: _F) -> _F:
    """Decorate a function without arguments: every forked child calls it, to make its locks and threads anew."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return reset


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def lock_free_in_child() -> Any:
    """Return a new RLock that a forked child finds free, unless the thread that forked holds it."""
    lock: Any = threading.RLock()
    _locks.add(lock)
    return lock


@in_forked_child
def _free_locks() -> None:
    """Reset the locks that the forking thread does not hold, as the standard library resets its own."""
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()
