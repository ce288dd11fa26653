"""on_complete: how an asynchronous function says that it is done, from any thread, once."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import EngineError
from .deps import Task
from .failure import in_words
from .handle import Handle
from .interrupts import ki_protected


class Completion(Handle):
    """Called with nothing, or with the error that spoiled the work. A second call raises EngineError.

    If it is dropped without having been called, nobody can call it any more: the operator then fails, saying so.
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
            error = EngineError(f"{self._task.name or 'push_async'}: failed: {in_words(error)}")
        self._then(self._task, error)

    @ki_protected
    def close(self) -> bool:
        """Whether it was open; it is not any more. Atomic."""
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
