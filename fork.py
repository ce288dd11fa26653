"""Locks after os.fork: the thread that held one in the parent does not exist in the child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[[], Any])


def in_forked_child(reset: _F) -> _F:
    """Decorate a function without arguments: every forked child calls it, to make its locks and threads anew."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return reset


def lock_free_in_child() -> Any:
    """Return a new RLock that a forked child finds free, unless the thread that forked holds it.

    For a lock of a module: each call registers a function that stays. A lock is reset as the standard library resets its own.
    """
    lock: Any = threading.RLock()

    @in_forked_child
    def _reset() -> None:
        if not lock._is_owned():
            lock._at_fork_reinit()

    return lock
