"""The setting of how GPUs multiply float32 matrices, in products and convolutions, and the keys that keep its kernels apart.

"ieee": as float32. "tf32": operands with 10 bits, on the tensor cores. "tf32x3": three such products, about 21 bits.
A kernel belongs to the setting that it was made under, wherever it runs; so do plans, programs and bound graphs.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ... import environment
from ...errors import ParameterError, nearest

_scope: contextvars.ContextVar[str] = contextvars.ContextVar("tritium_float32_matmul", default="")


class Chosen:
    """assigned: the setting of the process, "" for that of the environment. ever: True once a program has set anything."""

    assigned = ""
    ever = False


class _Running(threading.local):
    """The setting of the kernel that a thread runs; "" of one that was made under the environment's."""

    how = ""


_running = _Running()


def checked(name: str, how: str) -> str:
    """Return how. Raises ParameterError, which begins with name, if it is no setting."""
    choices = environment.FLOAT32_MATMUL.choices
    if how not in choices:
        raise ParameterError(f"{name}: {how!r} is not one of {', '.join(choices)}.{nearest(str(how), choices)}")
    return how


def assign(how: str) -> None:
    """Give the whole process a setting."""
    Chosen.assigned, Chosen.ever = how, True


@contextlib.contextmanager
def scope(how: str) -> Iterator[None]:
    """`with scope(how):` gives the calling thread a setting inside the block."""
    Chosen.ever = True
    token = _scope.set(how)
    try:
        yield
    finally:
        _scope.reset(token)


def current() -> str:
    """Return the setting of the calling thread: that of the kernel it runs, of the innermost scope, of the process."""
    return _running.how or _scope.get() or Chosen.assigned or environment.FLOAT32_MATMUL.get()


def other() -> str:
    """Return `current()`, or "" where that is the environment's: the part of a key that keeps what is made under it apart."""
    if not Chosen.ever:
        return ""
    how = current()
    return "" if how == environment.FLOAT32_MATMUL.get() else how


def restored(how: str) -> contextlib.AbstractContextManager[None]:
    """`with restored(how):` gives the calling thread the setting under which `other()` returned how."""
    return scope(how or environment.FLOAT32_MATMUL.get()) if Chosen.ever else contextlib.nullcontext()


def of_launch() -> str:
    """Return the setting of the kernel that the calling thread runs. Raises ParameterError for an unknown one in the
    environment."""
    return _running.how or environment.FLOAT32_MATMUL.get()


def made_under(how: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return function, a kernel's, so that its products are those of the setting how, wherever it is called."""

    def run(*args: Any, **more: Any) -> None:
        before, _running.how = _running.how, how
        try:
            function(*args, **more)
        finally:
            _running.how = before

    return run


def bind_under(how: str, bind: Callable[..., Callable[..., None]]) -> Callable[..., Callable[..., None]]:
    """Return bind, a kernel's, so that what it returns is `made_under` how."""
    return lambda inputs, outputs: made_under(how, bind(inputs, outputs))
