"""Fork and exit: engines are drained and their threads ended before either, and start afresh when next used.

At exit, asynchronous functions whose on_complete never came are named on stderr after TRITIUM_EXIT_TIMEOUT seconds
(default 10) instead of hanging for ever; so are errors that nobody waited for.
"""

from __future__ import annotations

import atexit
import os
import sys

from ..errors import EngineError
from .base import number_from
from .pool import current_task
from .threaded import live_engines

_TIMEOUT = "TRITIUM_EXIT_TIMEOUT"


def _before_fork() -> None:
    """Threads do not live on in the child: let nothing be under way. A function that forks itself is not waited for."""
    if current_task() is not None:
        return
    for engine in live_engines():
        try:
            engine.quiet(number_from((_TIMEOUT,), 10))
            engine.end_threads()
        except EngineError as e:
            print(f"tritium: fork: {e}", file=sys.stderr)


def _in_child() -> None:
    for engine in live_engines():
        engine.forget_threads()


def _at_exit() -> None:
    for engine in live_engines():
        try:
            engine.quiet(number_from((_TIMEOUT,), 10))
            engine.end_threads()
        except EngineError as e:
            print(f"tritium: exit: {e}", file=sys.stderr)
        except BaseException as e:
            print(f"tritium: exit: {type(e).__name__}: {e}", file=sys.stderr)
        e = engine.unheard()
        if e is not None:
            print(f"tritium: exit: an error nobody waited for: {type(e).__name__}: {e}", file=sys.stderr)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
atexit.register(_at_exit)
