"""`mx.error`: MXNetError, InternalError, and error classes by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import InternalError as InternalError
from ...errors import MXNetError as MXNetError

__all__ = ["MXNetError", "register"]

#: Error classes by name.
error_types: dict[str, type] = {}


def register_error(func_name: str | type | None = None, cls: type | None = None) -> Any:
    """Register an error class by name: `register_error("ValueError", ValueError)`, or as a decorator with or without a name."""
    if isinstance(func_name, type):
        func_name, cls = func_name.__name__, func_name

    def register(error: type) -> type:
        error_types[func_name if isinstance(func_name, str) else error.__name__] = error
        return error

    decorator: Callable[[type], type] = register
    return decorator if cls is None else register(cls)


register = register_error


for _error in (InternalError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError):
    register_error(_error)
