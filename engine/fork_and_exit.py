"""Fork and exit: engines are drained and their threads ended before either, and start afresh when next used.

Other threads may go on pushing: after TRITIUM_EXIT_TIMEOUT seconds (default 10) that is kept aside until the fork is over,
or refused at exit. Asynchronous functions whose on_complete has not come by then are named on stderr instead of hanging for
ever; so are, at exit, errors that nobody waited for. What is still under way at a fork fails in the child, and says so.
"""

from __future__ import annotations

import atexit
import os
import sys

from ..errors import EngineError
from .base import live_engines, number_from
from .failure import in_words
from .interrupts import is_ki_protected
from .worker_pool import current_task

_TIMEOUT = "TRITIUM_EXIT_TIMEOUT"


def _before_fork() -> None:
    """Threads do not live on in the child: let nothing be under way. A function that forks itself is not waited for."""
    if is_ki_protected(sys._getframe(1)):  # a finalizer in the middle of an engine's work, which waits for nobody
        return
    limit = number_from((_TIMEOUT,), 10)
    for engine in live_engines():
        if current_task() is None and not engine.is_running_here():
            try:
                engine.be_quiet(limit)
                engine.end_threads()
            except EngineError as e:
                print(f"tritium: fork: {e}", file=sys.stderr)
        engine.hold_still(limit)


def _in_parent() -> None:
    for engine in live_engines():
        engine.go_on()


def _in_child() -> None:
    for engine in live_engines():
        engine.forget_threads()


def _at_exit() -> None:
    for engine in live_engines():
        try:
            engine.be_quiet(number_from((_TIMEOUT,), 10), "the interpreter is ending and takes nothing more from other threads")
            engine.end_threads()
        except EngineError as e:
            print(f"tritium: exit: {e}", file=sys.stderr)
        except BaseException as e:
            print(f"tritium: exit: {type(e).__name__}: {in_words(e)}", file=sys.stderr)
        e = engine.take_unreported_error()
        if e is not None:
            print(f"tritium: exit: an error nobody waited for: {type(e).__name__}: {in_words(e)}", file=sys.stderr)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
atexit.register(_at_exit)
