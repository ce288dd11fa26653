"""Tape: the launches one thread makes on the interpreted GPU, so that they can be made again, as a CUDA graph would."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_here = threading.local()


@contextlib.contextmanager
def taped() -> Iterator[list[Callable[[], None]]]:
    """Within, each launch of this thread is also noted: a function that makes it again, to the same memory."""
    before = running()
    _here.tape = tape = []
    try:
        yield tape
    finally:
        _here.tape = before


def running() -> list[Callable[[], None]] | None:
    """This thread's tape; None where nothing is noted."""
    return getattr(_here, "tape", None)
