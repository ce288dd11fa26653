"""Shown: the base of classes that show themselves as their name and some facts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from .html import facts_table

_MOST = 70  # characters of a value in a line
_PLAIN = (bool, int, float, str, type(None), np.number, np.dtype)


class Shown:
    """`repr` gives an object's name and facts on one line, and a notebook shows them as a table.

    The facts are those by which a user recognizes the object: settings, sizes, where it stands. Nothing is computed for them. By
    default they are the arguments of the constructor that the object keeps under their names, if they are plain values.
    """

    __slots__ = ()

    def _facts(self) -> Mapping[str, Any]:
        """Return names and values, in the order in which they are shown."""
        return settings(self)

    def __repr__(self) -> str:
        return one_line(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        return facts_table(type(self).__name__, self._facts())


def settings(shown: object) -> dict[str, Any]:
    """Return the arguments of a constructor that its object keeps as attributes, `name` or `_name`, and that are plain values."""
    found: dict[str, Any] = {}
    held = getattr(shown, "__dict__", {})
    for name in _arguments(type(shown)):
        for attribute in (name, f"_{name}"):
            if attribute in held:
                if held[attribute] is not None and _is_plain(held[attribute]):
                    found[name] = held[attribute]
                break
    return found


@functools.cache
def _arguments(kind: type) -> tuple[str, ...]:
    """Return the names of the arguments of a class's constructor, and of those it inherits and takes further ones for."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        if "__init__" not in vars(base) or base is object:
            continue
        try:
            parameters = inspect.signature(base.__init__).parameters.values()
        except (TypeError, ValueError):
            continue
        names |= dict.fromkeys(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    names.pop("self", None)
    return tuple(names)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(isinstance(v, _PLAIN) for v in value[:20])
    return isinstance(value, _PLAIN)


def one_line(name: str, facts: Mapping[str, Any]) -> str:
    """Return `Name(fact=value, ...)`, with long values cut short."""
    return f"{name}({', '.join(f'{k}={_short(v)}' for k, v in facts.items())})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST - 1]}…"
