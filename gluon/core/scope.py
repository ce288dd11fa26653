"""Names of blocks and their parameters: `net0_dense0_` and so on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...graph.symbol.naming import NameManager, Prefix
from .parameter_dict import ParameterDict

if TYPE_CHECKING:
    from .block import Block


class _Current(threading.local):
    """The scopes that each thread has entered."""

    def __init__(self) -> None:
        self.entered: list[_BlockScope] = []


_current = _Current()


class _BlockScope:
    """The scope of a block's children: numbers those without a prefix, and puts the block's prefix before all names."""

    def __init__(self, block: Block):
        self._block = block
        self._counter: dict[str, int] = {}
        self._prefixes: list[Prefix] = []

    @staticmethod
    def create(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
        """Return the prefix and the parameters of a new block. hint: the name of a block without a prefix, before its number."""
        scope = _current.entered[-1] if _current.entered else None
        if prefix is None:
            prefix = (NameManager.current().get(None, hint) if scope is None else scope._numbered(hint)) + "_"
        if params is not None:
            params = ParameterDict(params.prefix, params)
        elif scope is None:
            params = ParameterDict(prefix)
        else:
            parent = scope._block.params
            params = ParameterDict(parent.prefix + prefix, parent._shared)
        return (prefix if scope is None else scope._block.prefix + prefix), params

    def _numbered(self, hint: str) -> str:
        number = self._counter.get(hint, 0)
        self._counter[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> _BlockScope:
        if not self._block._empty_prefix:
            _current.entered.append(self)
            self._prefixes.append(Prefix(self._block.prefix))
            self._prefixes[-1].__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._block._empty_prefix:
            self._prefixes.pop().__exit__(*exc)
            _current.entered.pop()
