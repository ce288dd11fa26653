"""Outputs that nobody sees: arrays an operator leaves for its own backward."""

from __future__ import annotations

from typing import Any

from ...engine import Var
from ..core.array_core import ArrayCore
from ..core.chunk import Chunk, Layout


class ReportOnceVar(Var):
    """A variable nobody waits for. What spoils it spoils its readers; once the user was told, it says nothing more."""

    __slots__ = ("_failure",)

    @property
    def failure(self) -> Any:  # type: ignore[override]
        found = self._failure
        return None if found is None or found.seen else found

    @failure.setter
    def failure(self, value: Any) -> None:
        self._failure = value


def allocate_hidden(layout: Layout) -> Any:
    """A fresh array for a hidden output."""
    return ArrayCore.array_class(layout, chunk=Chunk.new(layout.nbytes, layout.ctx, ReportOnceVar()))
