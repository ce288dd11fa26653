"""Nested lists of arrays or symbols, flattened and put together again; and small helpers of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import BlockError
from ...graph.symbol.symbol import Symbol
from ...ndarray import NDArray

#: The form of a nested list: 0 is one array, -1 None, n > 1 a symbol of n outputs, and a list its elements' forms.
Format = int | list[Any]


def _flatten(args: Any, inout_str: str) -> tuple[list[Any], Format]:
    """Return the arrays, symbols and Nones in args as a list, and their form. inout_str: "input" or "output", for messages."""
    if isinstance(args, NDArray):
        return [args], 0
    if isinstance(args, Symbol):
        return [args], len(args) if len(args) > 1 else 0
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        raise BlockError(f"HybridBlock: when hybridized, each {inout_str} is an array or a list of them, which may nest: "
                         f"{args!r} is a {type(args).__name__}.")
    flat: list[Any] = []
    formats: list[Format] = []
    for arg in args:
        if isinstance(arg, NDArray):
            flat.append(arg)
            formats.append(0)
            continue
        arrays, form = _flatten(arg, inout_str)
        flat += arrays
        formats.append(form)
    return flat, formats


def _regroup(args: Sequence[Any], fmt: Format) -> Any:
    """Reverse `_flatten`."""
    return _take(list(args), fmt)[0]


def _take(args: list[Any], fmt: Format) -> tuple[Any, list[Any]]:
    """Return one thing of the form fmt from the beginning of args, and the rest."""
    if isinstance(fmt, int):
        if fmt > 0:
            return args[:fmt], args[fmt:]
        return args[0], args[1:]
    found = []
    for inner in fmt:
        one, args = _take(args, inner)
        found.append(one)
    return found, args


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Return True if no size of shape is unknown (0 or -1). () is a scalar's shape, None is unknown."""
    return shape is not None and all(d > 0 for d in shape)


def _indent(text: str, spaces: int) -> str:
    """Indent all lines of text but the first."""
    return text.replace("\n", "\n" + " " * spaces)


def _brief_print_list(names: Sequence[str], limit: int = 7) -> str:
    """Return the names, quoted, with ... for those in the middle of a long list."""
    names = list(names)
    if len(names) > limit:
        return f"{_brief_print_list(names[:limit // 2], limit)}, ..., {_brief_print_list(names[-limit // 2:], limit)}"
    return ", ".join(f"'{n}'" for n in names)
