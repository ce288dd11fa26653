"""`mx.base`: the error, and the words for kinds of Python values that scripts import from there.

There is no C library behind Tritium: old scripts may import `_LIB` and what goes with it, but calling it is an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import *  # noqa: F403  # every error class
from ...errors import MXNetError

numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
string_types = (str,)
mx_real_t = np.float32
mx_uint, mx_int, mx_int64, mx_float = ctypes.c_uint, ctypes.c_int, ctypes.c_int64, ctypes.c_float
mx_float_p = ctypes.POINTER(mx_float)
(NDArrayHandle, SymbolHandle, ExecutorHandle, KVStoreHandle, RecordIOHandle, DataIterHandle, OpHandle, CachedOpHandle,
 FunctionHandle, RtcHandle, DLPackHandle) = (ctypes.c_void_p,) * 11


class _NoLibrary:
    """What stands where MXNet has its C library: importing it is fine, calling it is not."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"mx.base._LIB: Tritium has no C library to call, so no {name}. Use the Python functions instead.")


_LIB = _NoLibrary()


def check_call(ret: int) -> None:
    """Raise MXNetError unless ret, what a function of the C library returned, is 0."""
    if ret != 0:
        raise MXNetError(f"mx.base.check_call: a library function returned {ret}.")


def c_str(string: str) -> ctypes.c_char_p:
    """A C string."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_str_array(strings: Sequence[str]) -> Any:
    """A C array of C strings."""
    return c_array(ctypes.c_char_p, [s.encode("utf-8") for s in strings])


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """A C array of ctype."""
    return (ctype * len(values))(*values)


def _as_list(obj: Any) -> list[Any]:
    """obj as a list: itself, or in one."""
    return list(obj) if isinstance(obj, (list, tuple)) else [obj]


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

