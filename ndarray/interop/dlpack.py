"""DLPack both ways, without copying: capsules of version 1 (`dltensor_versioned`) and of before (`dltensor`).

An exported capsule keeps the array's memory alive until the consumer releases it; an array keeps imported memory alive. The
engine cannot see the other library's reads and writes: `__dlpack__` waits for queued writes, and after that each side sees
the other's. Memory that returns, or is imported twice, keeps its variable, so that arrays on it wait for each other and
autograd notices writes through any of them.
On a GPU each side's streams follow the other's work of before the exchange: the producer of imported memory has our compute
stream wait, and memory goes back to its owner once our streams are done with it.
Capsules are made by NumPy and torch: a consumer may drop one while it raises an error, when no Python code can run.
Source: https://dmlc.github.io/dlpack (C structures).
"""

from __future__ import annotations

import ctypes as c
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import engine
from ...context import Context, cpu, gpu
from ...dtype import bfloat16
from ...engine import Var
from ...engine.gpu import cuda
from ...engine.memory import storage
from ...errors import ContextError, DTypeError, EngineError, MXNetError
from ..core.array_core import ArrayCore
from ..core.chunk import Chunk, DeviceChunk, Layout, layout_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from ..core.ndarray import NDArray

CPU_DEVICE, HOST_DEVICES = (1, 0), (1, 3, 11, 13)  # kDLCPU; and pinned and managed memory, which the host reads too
_CUDA = 2  # kDLCUDA
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

_lent: dict[int, tuple[weakref.ref[Any], Var]] = {}  # exported host memory, or the block of a GPU's, by id; its variable
_taken: dict[int, weakref.ref[Chunk]] = {}  # chunks on imported memory, by id


def device_of(a: ArrayCore) -> tuple[int, int]:
    """Return the result of `__dlpack_device__`."""
    return (_CUDA, a.ctx.device_id) if a.layout.target == "gpu" and cuda.is_real() else CPU_DEVICE


def export(a: NDArray, max_version: tuple[int, int] | None, copy: bool | None, stream: int | None,
           dl_device: tuple[int, int] | None) -> CapsuleType:
    """Return a capsule of the array a, versioned if the consumer asks for version 1 or later.

    stream: of the consumer on a GPU, as a number: 1 or None is the device's default stream. Written memory is complete when this
    returns, on whatever stream it is read.
    copy: True for a copy. dl_device: where the consumer wants it. Raises: BufferError for another device than the array's.
    """
    a.wait_to_read()
    if dl_device is not None and tuple(map(int, dl_device)) != device_of(a):
        raise BufferError(f"__dlpack__: the array lives on {a.ctx}. Copy it with as_in_context first.")
    if a.layout.target == "gpu":
        if copy:
            a = a.copyto(a.ctx)
            a.wait_to_read()
        tensor = a.device_array()
        if cuda.is_real():
            _lend(a.chunk.block, a.chunk.var)
            cuda.used_outside(tensor, stream)
        return _capsule_of(tensor, max_version, stream)
    memory = a.device_array()
    is_bfloat = memory.dtype == bfloat16
    bits = memory.view(np.uint16) if is_bfloat else memory
    try:
        capsule = bits.__dlpack__(max_version=max_version, copy=copy)
    except TypeError:  # NumPy before 2.1
        capsule = (bits.copy() if copy else bits).__dlpack__()
    if not copy:
        _lend(bits, a.chunk.var)
    if is_bfloat:  # NumPy does not know it
        name = _unused(capsule)
        assert name is not None
        _managed(capsule, name).tensor.code = _BFLOAT
    return capsule


def _lend(memory: Any, var: Var) -> None:
    """Keep in mind that exported memory, an array or a block, belongs to var."""
    key = id(memory)
    _lent[key] = weakref.ref(memory, lambda _: _lent.pop(key, None)), var


def _capsule_of(source: Any, max_version: tuple[int, int] | None, stream: int | None = None) -> Any:
    """Return source.__dlpack__() for a consumer of this version, on this stream if there is one."""
    asked = {} if stream is None else {"stream": stream}
    try:
        return source.__dlpack__(max_version=max_version, **asked)
    except TypeError:  # older than version 1
        return source.__dlpack__(**asked)


def _unused(capsule: Any) -> bytes | None:
    """Return the name of a capsule that is not consumed yet; None for anything else."""
    return next((n for n in _USED if type(capsule).__name__ == "PyCapsule" and _valid(id(capsule), n)), None)


def _managed(capsule: Any, name: bytes) -> Any:
    """Return the structure that a capsule points to."""
    return (_Versioned if name == _ANY_VERSION else _Managed).from_address(_pointer(id(capsule), name))


def adopt(source: Any) -> NDArray:
    """Return an array on the memory of a capsule, or of any object with `__dlpack__`.

    Strided or read-only memory of the host is copied. On a GPU this counts as a write of the array, behind the work of the
    producer's stream; a bare capsule names no stream, so all work of its device is waited for.

    Raises: MXNetError for a consumed capsule, and for strided or read-only memory of a GPU; DTypeError, ContextError for element
    types and devices that arrays lack.
    """
    if hasattr(source, "__dlpack_device__"):
        kind, number = map(int, source.__dlpack_device__())
        _context(kind, number)
        capsule = _capsule_of(source, _VERSION, cuda.stream(number).cuda_stream if kind == _CUDA else None)
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
    ctx = _context(t.device_type, t.device_id)
    read_only = name == _ANY_VERSION and bool(managed.flags & _READ_ONLY)
    strides = tuple(t.strides[i] * dtype.itemsize for i in range(t.ndim)) if t.strides else None
    size = int(np.prod(shape, dtype=np.int64))
    if strides is not None and size and any(n > 1 and s < 0 for n, s in zip(shape, strides)):
        raise MXNetError("from_dlpack: negative strides. Copy the array first.")
    if ctx.is_gpu:
        if read_only:
            raise MXNetError(f"from_dlpack: the array on {ctx} is read-only. Copy it first, where it was made.")
        if strides is not None and not _row_major(shape, strides, dtype.itemsize):
            raise MXNetError(f"from_dlpack: the array on {ctx}, of shape {shape}, has strides of {strides} bytes; rows must "
                             f"follow one another. Make it contiguous first, where it was made.")
        if capsule is source:
            cuda.wait_for_device(ctx.device_id)
    _rename(id(capsule), _USED[name])
    if ctx.is_gpu:
        return _on_device(managed, layout_of(shape, dtype, ctx))
    reach = size * dtype.itemsize if strides is None or not size else \
        dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides))
    memory: Any = (c.c_uint8 * max(reach, 1)).from_address(t.data + t.byte_offset) if size else (c.c_uint8 * 1)()
    weakref.finalize(memory, _release, managed)
    values = np.ndarray(shape, dtype, memory, 0, strides)
    return over(values if values.flags.c_contiguous and not read_only else values.copy())


def _context(kind: int, number: int) -> Context:
    """Return the context of a DLPack device. Raises ContextError for one that has none here."""
    if kind in HOST_DEVICES:
        return cpu()
    if kind != _CUDA:
        raise ContextError(f"from_dlpack: the array lives on DLPack device ({kind}, {number}). Bring it to the host first.")
    if not cuda.is_real() or number >= cuda.num_gpus():
        raise ContextError(f"from_dlpack: the array lives on DLPack device ({kind}, {number}), a GPU that is not among the "
                           f"contexts of this process. Bring it to the host first.")
    return gpu(number)


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Return True if elements follow one another in memory. strides: bytes."""
    expected = itemsize
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n > 1 and stride != expected:
            return 0 in shape
        expected *= n
    return True


def _on_device(managed: Any, layout: Layout) -> NDArray:
    """Return an array on a tensor of a GPU, whose compute stream has been told to wait for its producer."""
    t, ctx = managed.tensor, layout.ctx
    memory = cuda.Foreign(t.data + t.byte_offset if layout.nbytes else 0, layout.nbytes)
    weakref.finalize(memory, _release_behind_streams, managed, ctx.device_id)
    block = storage.Block(cuda.over(memory, ctx.device_id), layout.nbytes, ctx)
    array = _on(block, layout, None)
    engine.current().push_sync(lambda run: None, ctx, (), (array.chunk.var,), name="from_dlpack")
    return array


def _release_behind_streams(managed: Any, device_id: int) -> None:
    """Give memory back once what our streams have been given is done, which may use it. Finalizers do not wait."""
    events = cuda.ends_of_streams(device_id)

    def release(run: Any = None) -> None:
        for event in events:
            cuda.wait(event)
        _release(managed)

    if all(event.query() for event in events):
        _release(managed)
        return
    try:
        engine.current().push_sync(release, cpu(), (), (), name="memory from_dlpack")
    except EngineError:  # it was stopped
        release()


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
    flat, ctx = values.reshape(-1).view(np.uint8), cpu()
    return _on(storage.Block(flat, flat.nbytes, ctx), layout_of(values.shape, values.dtype, ctx), values)


def _on(block: storage.Block, layout: Layout, view: np.ndarray | None) -> NDArray:
    """Return an array that is all of a block of imported memory. view: its values, of the host."""
    var = _var_of(*_range(block)) or Var()
    chunk = (DeviceChunk if layout.ctx.is_gpu else Chunk)(block, var, layout.ctx)
    key = id(chunk)
    _taken[key] = weakref.ref(chunk, lambda _: _taken.pop(key, None))
    return ArrayCore.array_class(layout, view, chunk)


def _range(memory: Any) -> tuple[int, int]:
    """Return the addresses of the first byte of a block or host array and of the byte behind it. A GPU's differ from a host's."""
    start = memory.address if isinstance(memory, storage.Block) else memory.ctypes.data
    return start, start + memory.nbytes


def _var_of(start: int, end: int) -> Var | None:
    """Return the variable of arrays that use some of this memory already; None if there are no such arrays."""
    chunks = [c for c in (ref() for ref in list(_taken.values())) if c is not None]
    known = [(var, memory) for ref, var in list(_lent.values()) if (memory := ref()) is not None]
    known += [(c.var, c.block) for c in chunks if c.block.memory is not None]
    return next((var for var, m in known for low, high in (_range(m),) if low < end and start < high), None)
