"""`mx.base`: error classes, type tuples, and the C helpers that scripts import.

Tritium has no C library. Scripts may import `_LIB` and its helpers, but calling a function of `_LIB` is an error.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import environment
from ...errors import *  # noqa: F403  # every error class
from ...errors import MXNetError
from ...kernels.params import NULL as _Null  # noqa: F401  # MXNet's name

numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
string_types = (str,)
mx_real_t = np.float32
mx_uint, mx_int, mx_int64, mx_float = ctypes.c_uint, ctypes.c_int, ctypes.c_int64, ctypes.c_float
mx_float_p = ctypes.POINTER(mx_float)
(NDArrayHandle, SymbolHandle, ExecutorHandle, KVStoreHandle, RecordIOHandle, DataIterHandle, OpHandle, CachedOpHandle,
 FunctionHandle, RtcHandle, DLPackHandle) = (ctypes.c_void_p,) * 11


class _NoLibrary:
    """A replacement for MXNet's C library, without functions."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"mx.base._LIB: Tritium has no C library, so there is no {name}. Use the Python functions.")


_LIB = _NoLibrary()


def check_call(ret: int) -> None:
    """Raise MXNetError unless ret, the return value of a C function, is 0."""
    if ret != 0:
        raise MXNetError(f"mx.base.check_call: a library function returned {ret}.")


def c_str(string: str) -> ctypes.c_char_p:
    """Return a C string."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_str_array(strings: Sequence[str]) -> Any:
    """Return a C array of C strings."""
    return c_array(ctypes.c_char_p, [s.encode("utf-8") for s in strings])


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """Return a C array of ctype."""
    return (ctype * len(values))(*values)


def c_array_buf(ctype: Any, buf: Any) -> Any:
    """Return a C array of ctype on the memory of buf, an array of the module `array`."""
    return (ctype * len(buf)).from_buffer(buf)


def c_handle_array(objs: Sequence[Any]) -> Any:
    """Return a C array of the handles of objects."""
    return c_array(ctypes.c_void_p, [o.handle for o in objs])


def build_param_doc(arg_names: Sequence[str], arg_types: Sequence[str], arg_descs: Sequence[str], remove_dup: bool = True) -> str:
    """Return the section Parameters of a docstring. remove_dup: leave out repeated names."""
    lines, seen = ["Parameters", "----------"], set()
    for name, kind, text in zip(arg_names, arg_types, arg_descs):
        if name not in seen or not remove_dup:
            lines += [f"{name} : {kind}", *([f"    {text}"] if text else [])]
        seen.add(name)
    return "\n".join(lines) + "\n"


def _as_list(obj: Any) -> list[Any]:
    """Return obj as a list, or in a list of one element."""
    return list(obj) if isinstance(obj, (list, tuple)) else [obj]


class classproperty:  # MXNet's name
    """A read-only property of a class."""

    def __init__(self, fget: Any):
        self.fget = fget

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.fget(owner)


def data_dir() -> str:
    """Return the folder of data sets and models: MXNET_HOME, or `.mxnet` in the home folder."""
    return environment.HOME.get() or os.path.join(os.path.expanduser("~"), ".mxnet")


def py_str(x: bytes) -> str:
    """Decode UTF-8."""
    return x.decode("utf-8")
