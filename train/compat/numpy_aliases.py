"""Names of NumPy that scripts of MXNet's time use and that newer versions do not have any more."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np


def _fromstring(string: Any, dtype: Any = float, count: int = -1, *, sep: str = "", **more: Any) -> np.ndarray:
    """Return an array of bytes that hold numbers (sep=""), or of the numbers in a text."""
    if sep != "":
        return _parse(string, dtype, count, sep=sep, **more)
    return np.frombuffer(string.encode("latin-1") if isinstance(string, str) else string, dtype, count).copy()


_parse = np.fromstring

#: Removed in NumPy 1.24 and in NumPy 2: what each name stood for.
REMOVED: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "object": object, "str": str, "complex": complex, "long": int, "unicode": str,
    "float_": np.float64, "complex_": np.complex128, "string_": np.bytes_, "unicode_": np.str_, "int0": np.int64,
    "Inf": np.inf, "Infinity": np.inf, "infty": np.inf, "PINF": np.inf, "NINF": -np.inf, "NaN": np.nan, "NAN": np.nan,
    "product": np.prod, "cumproduct": np.cumprod, "sometrue": np.any, "alltrue": np.all, "round_": np.round,
    "row_stack": np.vstack, "asscalar": lambda a: a.item(), "asfarray": lambda a, dtype=np.float64: np.asarray(a, dtype),
    "in1d": lambda a, b, **more: np.isin(np.ravel(a), b, **more), "msort": lambda a: np.sort(a, axis=0),
}


#: Of these, the names that NumPy 2 has again. It prints the dtype of truth values as "bool8" when np.bool is another class.
KEPT = frozenset(REMOVED) & vars(np).keys()


class _NumPy(ModuleType):
    """NumPy, in which `np.bool = bool`, a line that scripts have for versions of NumPy without it, changes nothing."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in KEPT:
            super().__setattr__(name, value)


def put_back() -> None:
    """Give NumPy the removed names again, and keep those that it has. The first use of one is noted once, on stderr."""
    sys.modules["numpy"].__class__ = _NumPy
    before = getattr(np, "__getattr__", None)
    noted = False

    def find(name: str) -> Any:
        nonlocal noted
        if name not in REMOVED:
            if before is None:
                raise AttributeError(f"module 'numpy' has no attribute {name!r}")
            return before(name)
        if not noted:
            noted = True
            print(f"tritium run: np.{name} is used, which NumPy {np.__version__} does not have any more. It and other removed "
                  f"names have their old meaning.", file=sys.stderr)
        return REMOVED[name]

    np.__getattr__ = find  # type: ignore[attr-defined]
    np.fromstring = _fromstring  # type: ignore[assignment]
