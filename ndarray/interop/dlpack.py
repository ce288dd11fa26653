"""DLPack both ways, without copying: capsules of version 1 (`dltensor_versioned`) and of before (`dltensor`).

An exported capsule keeps the array's memory alive until the consumer releases it; an array keeps imported memory alive. The
engine cannot see the other library's reads and writes: `__dlpack__` waits for queued writes, and after that each side sees
the other's. Memory that returns, or is imported twice, keeps its variable, so that arrays on it wait for each other and
autograd notices writes through any of them.
Capsules are made by NumPy and torch: a consumer may drop one while it raises an error, when no Python code can run.
Source: https://dmlc.github.io/dlpack (C structures).
"""

from __future__ import annotations

import ctypes as c
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ...context import cpu
from ...dtype import bfloat16
from ...engine import Var
from ...engine.memory import storage
from ...errors import ContextError, DTypeError, MXNetError
from ..core.array_core import ArrayCore
from ..core.chunk import Chunk, layout_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from ..core.ndarray import NDArray

CPU_DEVICE, HOST_DEVICES = (1, 0), (1, 3, 11, 13)  # kDLCPU; and pinned and managed memory, which the host reads too
_VERSION = (1, 0)
_READ_ONLY = 1
_CODE = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
_ANY_VERSION, _OLD_NAME = b"dltensor_versioned", b"dltensor"
_USED = {_ANY_VERSION: b"used_dltensor_versioned", _OLD_NAME: b"used_dltensor"}  # capsules point at these bytes


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


_Deleter = c.CFUNCTYPE(None, c.c_void_p)


class _Managed(c.Structure):
    _fields_ = [("tensor", _Tensor), ("manager_ctx", c.c_void_p), ("deleter", _Deleter)]


class _Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager_ctx", c.c_void_p), ("deleter", _Deleter),
                ("flags", c.c_uint64), ("tensor", _Tensor)]


_valid = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p)(("PyCapsule_IsValid", c.pythonapi))
_pointer = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)(("PyCapsule_GetPointer", c.pythonapi))
_rename = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p)(("PyCapsule_SetName", c.pythonapi))

_lent: dict[int, tuple[weakref.ref[np.ndarray], Var]] = {}  # exported memory by id, and its variable
_taken: dict[int, weakref.ref[Chunk]] = {}  # chunks on imported memory, by id


def device_of(a: ArrayCore) -> tuple[int, int]:
    """Return the result of `__dlpack_device__`."""
    if a.layout.target == "cpu":
        return CPU_DEVICE
    return tuple(map(int, a.device_array().__dlpack_device__()))  # type: ignore[return-value]


def export(a: NDArray, max_version: tuple[int, int] | None, copy: bool | None, stream: int | None,
           dl_device: tuple[int, int] | None) -> CapsuleType:
    """Return a capsule of the array a, versioned if the consumer asks for version 1 or later.

    copy: True for a copy.
    """
    a.wait_to_read()
    if dl_device is not None and tuple(map(int, dl_device)) != device_of(a):
        raise BufferError(f"__dlpack__: the array lives on {a.ctx}. Copy it with as_in_context first.")
    if a.layout.target == "gpu":
        if copy:
            a = a.copyto(a.ctx)
            a.wait_to_read()
        return a.device_array().__dlpack__() if stream is None else a.device_array().__dlpack__(stream=stream)
    memory = a.device_array()
    is_bfloat = memory.dtype == bfloat16
    bits = memory.view(np.uint16) if is_bfloat else memory
    try:
        capsule = bits.__dlpack__(max_version=max_version, copy=copy)
    except TypeError:  # NumPy before 2.1
        capsule = (bits.copy() if copy else bits).__dlpack__()
    if not copy:
        key = id(bits)
        _lent[key] = weakref.ref(bits, lambda _: _lent.pop(key, None)), a.chunk.var
    if is_bfloat:  # NumPy does not know it
        name = _unused(capsule)
        assert name is not None
        _managed(capsule, name).tensor.code = _BFLOAT
    return capsule


def _unused(capsule: Any) -> bytes | None:
    """Return the name of a capsule that is not consumed yet; None for anything else."""
    return next((n for n in _USED if type(capsule).__name__ == "PyCapsule" and _valid(id(capsule), n)), None)


def _managed(capsule: Any, name: bytes) -> Any:
    """Return the structure that a capsule points to."""
    return (_Versioned if name == _ANY_VERSION else _Managed).from_address(_pointer(id(capsule), name))


def adopt(source: Any) -> NDArray:
    """Return an array on the memory of a capsule, or of any object with `__dlpack__`; a copy if it is strided or read-only.

    Raises: MXNetError for a consumed capsule; DTypeError, ContextError for element types and devices that arrays lack.
    """
    if hasattr(source, "__dlpack_device__"):
        kind, number = map(int, source.__dlpack_device__())
        if kind not in HOST_DEVICES:
            raise ContextError(f"from_dlpack: the array lives on DLPack device ({kind}, {number}). "
                               f"Bring it to the host first, and back with as_in_context(mx.gpu({number})).")
        try:
            capsule = source.__dlpack__(max_version=_VERSION)
        except TypeError:  # older than version 1
            capsule = source.__dlpack__()
    else:
        capsule = source
    name = _unused(capsule)
    if name is None:
        raise MXNetError(f"from_dlpack: a {type(source).__name__} is not a DLPack tensor, or it was consumed already.")
    managed = _managed(capsule, name)
    if name == _ANY_VERSION and managed.major > _VERSION[0]:
        raise MXNetError(f"from_dlpack: the tensor has DLPack version {managed.major}.{managed.minor}, not {_VERSION[0]}.x.")
    t = managed.tensor
    dtype, shape = _dtype(t), tuple(t.shape[i] for i in range(t.ndim))
    if t.device_type not in HOST_DEVICES:
        raise ContextError(f"from_dlpack: the tensor lives on DLPack device ({t.device_type}, {t.device_id}), not the host.")
    read_only = name == _ANY_VERSION and bool(managed.flags & _READ_ONLY)
    strides = tuple(t.strides[i] * dtype.itemsize for i in range(t.ndim)) if t.strides else None
    _rename(id(capsule), _USED[name])
    size = int(np.prod(shape, dtype=np.int64))
    reach = size * dtype.itemsize
    if strides is not None and size:
        reach = dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides))
        low = sum((n - 1) * s for n, s in zip(shape, strides) if s < 0)
        if low < 0:
            _release(managed)
            raise MXNetError("from_dlpack: negative strides. Copy the array first.")
    memory: Any = (c.c_uint8 * max(reach, 1)).from_address(t.data + t.byte_offset) if size else (c.c_uint8 * 1)()
    weakref.finalize(memory, _release, managed)
    values = np.ndarray(shape, dtype, memory, 0, strides)
    return over(values if values.flags.c_contiguous and not read_only else values.copy())


def _release(managed: Any) -> None:
    if managed.deleter:
        managed.deleter(c.addressof(managed))


def _dtype(t: _Tensor) -> np.dtype:
    if t.lanes == 1:
        if t.code == _BFLOAT and t.bits == 16:
            return bfloat16
        for kind, code in _CODE.items():
            if code == t.code and t.bits % 8 == 0 and t.bits in (8, 16, 32, 64) and (kind, t.bits) not in (("f", 8), ("b", 16)):
                return np.dtype(f"{kind}{t.bits // 8}")
    raise DTypeError(f"from_dlpack: element type {t.code} with {t.bits} bits and {t.lanes} lanes is not supported.")


def over(values: np.ndarray) -> NDArray:
    """Return an NDArray on the memory of a contiguous NumPy array, which it keeps alive."""
    ctx = cpu()
    flat = values.reshape(-1).view(np.uint8)
    chunk = Chunk(storage.Block(flat, flat.nbytes, ctx), _var_of(flat) or Var(), ctx)
    key = id(chunk)
    _taken[key] = weakref.ref(chunk, lambda _: _taken.pop(key, None))
    return ArrayCore.array_class(layout_of(values.shape, values.dtype, ctx), values, chunk)


def _var_of(flat: np.ndarray) -> Var | None:
    """Return the variable of arrays that use some of this memory already; None if there are no such arrays."""
    start, end = flat.ctypes.data, flat.ctypes.data + flat.nbytes
    chunks = [c for c in (ref() for ref in list(_taken.values())) if c is not None]
    known = [(var, memory) for ref, var in list(_lent.values()) if (memory := ref()) is not None]
    known += [(c.var, c.block.memory) for c in chunks if c.block.memory is not None]
    return next((var for var, m in known if m.ctypes.data < end and start < m.ctypes.data + m.nbytes), None)
