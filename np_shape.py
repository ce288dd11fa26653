"""MXNet's switch `np_shape`, for each thread: 0 in a shape is a size, -1 is unknown, and `a[0]` of a vector has no axes."""

from __future__ import annotations

import threading


class _State(threading.local):
    active = False


state = _State()


def no_axes() -> tuple[int, ...]:
    """Return the shape of an element that was taken out of an array: (1,), or () with the switch on."""
    return () if state.active else (1,)
