"""`on_complete`: the handle by which an asynchronous function ends its task."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import EngineError
from .deps import Handle, Task
from .failure import text_of
from .interrupts import ki_protected


class CompletionCallback(Handle):
    """`on_complete` of an asynchronous function: ends its task once, from any thread.

    It is called with nothing, or with the error that the work met. A second call raises EngineError. If it is dropped
    without a call, the task fails, because no thread can call it any more.
    """

    __slots__ = ("__weakref__", "_open", "_task", "_then")

    def __init__(self, task: Task, then: Callable[[Task, BaseException | None], None]):
        self._task, self._then = task, then
        self._open = [True]

    @ki_protected
    def __call__(self, error: BaseException | None = None) -> None:
        if not self.close():
            raise EngineError(f"{self._task.name or 'push_async'}: on_complete was called after the operator had ended. "
                              f"Call it once, and not after raising.")
        if error is not None and not isinstance(error, BaseException):
            error = EngineError(f"{self._task.name or 'push_async'}: failed: {text_of(error)}")
        self._then(self._task, error)

    @ki_protected
    def close(self) -> bool:
        """Close it, atomically. Return False if it was closed before."""
        try:
            self._open.pop()
        except IndexError:
            return False
        return True

    @ki_protected
    def __del__(self) -> None:
        if self._open and self.close():
            self._then(self._task, EngineError(f"{self._task.name or 'push_async'}: on_complete was dropped without "
                                               f"being called."))
