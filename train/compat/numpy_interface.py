"""`mx.np`: MXNet's arrays with NumPy's semantics, which are not available. The module can be imported; using it is an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import NoSuchNameError, NotAvailableError


def _error(name: str) -> NotAvailableError:
    kind = NotAvailableError if hasattr(np, name) else NoSuchNameError
    return kind(f"mx.np.{name}: the NumPy interface of MXNet 1.6 and later is not available. Use mx.nd, whose "
                f"arrays NumPy's own functions accept: np.{name} of an mx.nd array.")


class ndarray:
    """A class without instances, so that `isinstance(a, mx.np.ndarray)` is False for every array."""

    def __new__(cls, *args: Any, **kwargs: Any) -> ndarray:
        raise _error("ndarray")


class symbol:
    """A class without instances, likewise, for symbols."""

    def __new__(cls, *args: Any, **kwargs: Any) -> symbol:
        raise _error("symbol")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise _error(name)
