"""Ctrl-C may land between any two instructions of the main thread; in the middle of the engine's bookkeeping it waits.

Python runs the SIGINT handler with the frame it interrupted. Ours looks whether that frame is inside a function marked
`@ki_protected`; then a thread knocks again a moment later, else KeyboardInterrupt is raised at once, as always. Marking
costs nothing when the function is called. A handler that somebody else has set is left alone.
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

_SHIELDED, _OPENS = 1, 2
_marks: dict[int, int] = {}  # by the id of a code object: its hash is made anew each time, from all it holds
_kept: list[CodeType] = []  # so that no other gets its id
_AGAIN = 0.0005  # seconds until a postponed interrupt is tried again
_SLICE = 0.1  # seconds that the main thread sleeps without looking for signals


def ki_protected(fn: _F) -> _F:
    """Mark fn: nothing below it is interrupted, except below a function that `ki_unprotected`."""
    _mark(fn.__code__, _SHIELDED)
    return fn


def ki_unprotected(fn: _F) -> _F:
    """Mark fn: it calls user functions or waits, and what it calls may be interrupted again."""
    _mark(fn.__code__, _OPENS)
    return fn


def _mark(code: CodeType, mark: int) -> None:
    _kept.append(code)
    _marks[id(code)] = _marks.get(id(code), 0) | mark


def install() -> None:
    """Postpone interrupts from now on, if nobody else handles them. Does nothing outside the main thread."""
    if threading.current_thread() is threading.main_thread() and \
            signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle)


def is_ki_protected(frame: FrameType | None) -> bool:
    """Whether an interrupt at frame has to wait."""
    innermost, marks = True, _marks
    while frame is not None:
        mark = marks.get(id(frame.f_code))
        if mark is not None:
            return mark == _SHIELDED or (innermost and mark != _OPENS)
        innermost = False
        frame = frame.f_back
    return False


def _handle(signum: int, frame: FrameType | None) -> None:
    if is_ki_protected(frame):
        _thread.start_new_thread(_deliver_later, ())
    else:
        signal.default_int_handler(signum, frame)


def _deliver_later() -> None:
    time.sleep(_AGAIN)
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # a real signal: it also wakes a main thread that blocks in a lock
    else:
        _thread.interrupt_main()


def block(lock: LockType, timeout: float | None = None) -> bool:
    """Acquire lock, as lock.acquire(timeout) does; in the main thread in slices.

    A signal that comes after Python last looked and before the thread sleeps does not wake it (and on Windows none
    does); so nobody sleeps for longer than a slice before looking again.
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
