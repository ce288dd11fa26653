"""HookHandle: the registration of a function that a Block calls before or after its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HookHandle:
    """Detaches a hook. Also usable as `with block.register_forward_hook(f): ...`."""

    def __init__(self) -> None:
        self._hooks: dict[int, Callable[..., Any]] | None = None
        self._id: int | None = None

    def attach(self, hooks_dict: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        """Add hook to hooks_dict, whose hooks are called in the order of attachment."""
        self._id = id(self)
        hooks_dict[self._id] = hook
        self._hooks = hooks_dict

    def detach(self) -> None:
        """Remove the hook; nothing happens if it is removed already."""
        if self._hooks is not None and self._id is not None:
            self._hooks.pop(self._id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.detach()
