"""CheckedEngine: serial, and every function is held to what it declared. For finding the one that is not."""

from __future__ import annotations

from ..errors import EngineError
from . import access_check
from .deps import Task
from .interrupts import ki_unprotected
from .naive import NaiveEngine


class CheckedEngine(NaiveEngine):
    """An access to a chunk's bytes inside an engine function is checked against the vars the function declared.

    An undeclared read or write is an EngineError that names function and array; it is raised at the wait, like any
    error of a function. Choose this engine (TRITIUM_ENGINE_TYPE=CheckedEngine) before arrays are made: blocks known to
    it are those handed to `storage.guard` while it exists. Slow: every function is followed by a look at all of them.
    A function that hands its work to another thread is checked for writes only; so is memory of a real GPU for neither.
    """

    def __init__(self) -> None:
        super().__init__()
        access_check.install()

    def _collect(self, task: Task) -> None:
        """Nothing is merged: each function answers for itself."""
        self._enter(task)

    @ki_unprotected
    def _call(self, task: Task) -> None:
        before = access_check.sums(task)
        try:
            with access_check.running(task):
                super()._call(task)
        except ValueError as e:
            if "read-only" in str(e):
                raise EngineError(f"{task.name or 'a function without a name'}: writes an array that it declared only to "
                                  f"read ({e}). Move its var from const_vars to mutable_vars.") from e
            raise
        error = access_check.changed(task, before)
        if error is not None:
            raise error
