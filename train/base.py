"""`mx.base`: the error, and the words for kinds of Python values that scripts import from there.

There is no C library behind Tritium: `_LIB` and what goes with it are an error that says so.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..errors import *  # noqa: F403  # every error class
from ..errors import MXNetError

numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
string_types = (str,)
mx_real_t = np.float32
mx_uint, mx_int, mx_int64, mx_float = ctypes.c_uint, ctypes.c_int, ctypes.c_int64, ctypes.c_float
_NO_LIBRARY = frozenset({
    "_LIB", "check_call", "c_array", "c_array_buf", "c_str", "c_str_array", "c_handle_array", "ctypes2buffer",
    "ctypes2numpy_shared", "NDArrayHandle", "SymbolHandle", "ExecutorHandle", "KVStoreHandle", "RecordIOHandle",
    "DataIterHandle", "OpHandle", "CachedOpHandle", "FunctionHandle", "RtcHandle", "DLPackHandle",
})


class NotImplementedForSymbol(MXNetError):
    """A function of NDArray that a Symbol does not have."""

    def __init__(self, function: Any, alias: Any, *args: Any):
        name = getattr(function, "__name__", function)
        super().__init__(f"{name}: a Symbol has no values, so this is for NDArray only."
                         f"{f' Use {alias} on the array.' if alias else ''}")


class classproperty:  # as MXNet calls it
    """A property of a class."""

    def __init__(self, fget: Any):
        self.fget = fget

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.fget(owner)


def py_str(x: bytes) -> str:
    """The text of bytes."""
    return x.decode("utf-8")


def __getattr__(name: str) -> Any:
    if name in _NO_LIBRARY:
        raise AttributeError(f"mx.base.{name}: Tritium has no C library to call. Use the Python functions instead.")
    raise AttributeError(f"module 'tritium.base' has no attribute {name!r}")
