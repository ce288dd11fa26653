"""Names for unnamed nodes, and attributes for all nodes of a scope: NameManager, Prefix, AttrScope."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ...errors import GraphError
from ...show import Shown
from .node import hidden_form


class NameManager(Shown):
    """`with NameManager():` restarts the numbers of names: convolution0, convolution1, activation0 ..."""

    def __init__(self):
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """Return name if the user gave one, else hint and the next number."""
        if name:
            return name
        number = self._counter.get(hint, 0)
        self._counter[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        _entered.names.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _entered.names.pop()

    @staticmethod
    def current() -> NameManager:
        """The innermost manager of this thread."""
        return _entered.names[-1]


class Prefix(NameManager):
    """`with Prefix("net_"):` puts the prefix before the name of every node, given or numbered."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


class AttrScope(Shown):
    """`with AttrScope(ctx_group="dev1"):` gives every node created inside the attribute `__ctx_group__`.

    Names that MXNet does not hide stay as they are. Values are strings. Inner scopes override outer ones.
    """

    def __init__(self, **attrs: str):
        for key, value in attrs.items():
            if not isinstance(value, str):
                raise GraphError(f"AttrScope: {key}={value!r} is not a string. Write {key}={str(value)!r}.")
        self._own = {hidden_form(k): v for k, v in attrs.items()}
        self._attrs = dict(self._own)

    def _facts(self) -> Mapping[str, Any]:
        return self._attrs

    def get(self, attrs: dict[str, str] | None) -> dict[str, str]:
        """Return attrs and the scope's; attrs win."""
        return {**self._attrs, **(attrs or {})}

    def __enter__(self) -> AttrScope:
        self._attrs = {**AttrScope.current()._attrs, **self._own}
        _entered.attrs.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _entered.attrs.pop()

    @staticmethod
    def current() -> AttrScope:
        """The innermost scope of this thread."""
        return _entered.attrs[-1]


class _Entered(threading.local):
    """The managers and scopes that each thread has entered, below them the ones it starts with."""

    def __init__(self) -> None:
        self.names, self.attrs = [NameManager()], [AttrScope()]


_entered = _Entered()
