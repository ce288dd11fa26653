"""Fork and exit: engines are drained and their threads end before either, and start again when next used.

Other threads may go on pushing. After TRITIUM_EXIT_TIMEOUT seconds (default 10) their pushes are kept aside until the fork is
over, or refused at exit. Asynchronous functions that have not called on_complete by then are named on stderr, so that the
process does not hang. Errors that no wait has raised are printed at exit. Tasks still in flight at a fork fail in the child.
"""

from __future__ import annotations

import atexit
import os
import sys

from .. import environment
from ..errors import EngineError
from .base import live_engines
from .failure import text_of
from .interrupts import is_ki_protected
from .worker_pool import current_task


def _timeout() -> int:
    return environment.EXIT_TIMEOUT.get()


def _before_fork() -> None:
    """Drain the engines, because the child has no threads. A function that forks itself is not waited for."""
    if is_ki_protected(sys._getframe(1)):  # a finalizer in the middle of an engine's bookkeeping must not wait
        return
    for engine in live_engines():
        if current_task() is None and not engine.is_running_here():
            try:
                engine.drain_and_close(_timeout())
                engine.end_threads()
            except EngineError as e:
                print(f"tritium: fork: {e}", file=sys.stderr)
        engine.lock_for_fork(_timeout())


def _in_parent() -> None:
    for engine in live_engines():
        engine.unlock_after_fork()


def _in_child() -> None:
    for engine in live_engines():
        engine.reset_in_child()


def _at_exit() -> None:
    for engine in live_engines():
        try:
            engine.drain_and_close(_timeout(), "the interpreter is ending and accepts nothing more from other threads")
            engine.end_threads()
        except BaseException as e:
            kind = "" if isinstance(e, EngineError) else f"{type(e).__name__}: "
            print(f"tritium: exit: {kind}{text_of(e)}", file=sys.stderr)
        e = engine.take_unreported_error()
        if e is not None:
            print(f"tritium: exit: an error that no wait has raised: {type(e).__name__}: {text_of(e)}", file=sys.stderr)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
atexit.register(_at_exit)
