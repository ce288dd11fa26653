"""The package `onnx`, which is imported at its first use; and the error that lists what cannot be converted."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import MissingLibraryError, NotAvailableError


def onnx() -> Any:
    """Return the package `onnx`. Raises MissingLibraryError if it is not installed."""
    try:
        return importlib.import_module("onnx")
    except ImportError:
        raise MissingLibraryError("mx.contrib.onnx: the package onnx is not installed. Install it with "
                                  'pip install "tritium[onnx]".') from None


Converter = TypeVar("Converter", bound=Callable[..., Any])


def converts_into(converters: dict[str, Converter]) -> Callable[..., Callable[[Converter], Converter]]:
    """Return `converts(*names)`: a decorator that enters a function under the names of operators in a table of converters."""

    def converts(*names: str) -> Callable[[Converter], Converter]:
        def enter(function: Converter) -> Converter:
            converters.update(dict.fromkeys(names, function))
            return function

        return enter

    return converts


class Unsupported(Exception):
    """An operator, or a parameter of one, that cannot be converted. Its text is the reason."""


def refuse(what: str, problems: Sequence[tuple[str, str, str]]) -> NotAvailableError:
    """Return the error with a table of what cannot be converted. problems: (node, operator, reason)."""
    rows = [("node", "operator", "reason"), *problems]
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    lines = [f"  {node:<{widths[0]}}  {op:<{widths[1]}}  {reason}" for node, op, reason in rows]
    return NotAvailableError(f"{what}: {len(problems)} node{'s' * (len(problems) != 1)} cannot be converted. Nothing was "
                             f"written.\n" + "\n".join(lines))
