"""Ctrl-C, which Python may raise between any two instructions of the main thread, is postponed during bookkeeping.

Python calls the SIGINT handler with the frame that it interrupted. Ours looks at the functions on the stack. If the engine's
bookkeeping is among them (`@ki_protected`), a thread sends the signal again a moment later. Otherwise KeyboardInterrupt is
raised at once. The marks cost nothing when a function is called. A handler set by the program is left alone.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from _thread import LockType
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_PROTECTED, _UNPROTECTED = 1, 2
_protection: dict[int, int] = {}  # by id of a code object, because its hash is computed each time from all it holds
_codes: list[CodeType] = []  # kept alive, so that no other gets its id
_RETRY = 0.0005  # seconds until a postponed interrupt is sent again
_SLICE = 0.1  # seconds that the main thread sleeps without looking for signals


def ki_protected(fn: _F) -> _F:
    """Postpone KeyboardInterrupt in fn and all it calls, except below a function that is `ki_unprotected`."""
    _protect(fn.__code__, _PROTECTED)
    return fn


def ki_unprotected(fn: _F) -> _F:
    """Allow KeyboardInterrupt below fn again, which calls user functions or waits."""
    _protect(fn.__code__, _UNPROTECTED)
    return fn


def _protect(code: CodeType, flag: int) -> None:
    _codes.append(code)
    _protection[id(code)] = _protection.get(id(code), 0) | flag


def install() -> None:
    """Set the handler, if the program has not set one. Does nothing outside the main thread."""
    if threading.current_thread() is threading.main_thread() and \
            signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle)


def is_ki_protected(frame: FrameType | None) -> bool:
    """Return True if an interrupt at frame has to wait."""
    innermost, protection = True, _protection
    while frame is not None:
        flags = protection.get(id(frame.f_code))
        if flags is not None:
            return flags == _PROTECTED or (innermost and flags != _UNPROTECTED)
        innermost = False
        frame = frame.f_back
    return False


def _handle(signum: int, frame: FrameType | None) -> None:
    if is_ki_protected(frame):
        _thread.start_new_thread(_deliver_later, ())
    else:
        signal.default_int_handler(signum, frame)


def _deliver_later() -> None:
    time.sleep(_RETRY)
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # a real signal also wakes a main thread that blocks in a lock
    else:
        _thread.interrupt_main()


def block(lock: LockType, timeout: float | None = None) -> bool:
    """Acquire lock, as lock.acquire(timeout) does, but in the main thread in slices.

    A signal that arrives after Python last looked and before the thread sleeps does not wake it, and on Windows none does.
    So the main thread looks for signals after each slice.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return lock.acquire() if timeout is None else lock.acquire(timeout=timeout)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        slice_ = _SLICE if end is None else min(_SLICE, end - time.monotonic())
        if lock.acquire(timeout=max(slice_, 0)):
            return True
        if end is not None and time.monotonic() >= end:
            return False
