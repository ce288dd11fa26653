"""GPU memory and streams: the only file that imports torch, which computes nothing here.

TRITIUM_GPU=interpret: `gpu(0)` is host memory under torch CPU tensors (what Triton's interpreter takes), and streams
that only record. TRITIUM_GPU=cuda: torch.cuda. The second half is exercised only where there is a GPU
(perf/gpu_suite); the tests without one see the first.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections import deque
from typing import Any

import numpy as np

from ..context import GPU_MODE, missing_gpu
from ..dtype import bfloat16
from ..errors import EngineError


@functools.cache
def _torch() -> Any:
    """torch, or None where it is not installed."""
    if GPU_MODE == "off" or importlib.util.find_spec("torch") is None:
        return None
    return importlib.import_module("torch")


@functools.cache
def num_gpus() -> int:
    """How many GPU contexts exist: one when interpreted, else what CUDA finds. 0 without torch."""
    torch = _torch()
    if torch is None:
        return 0
    if GPU_MODE == "interpret":
        return 1
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def is_real() -> bool:
    """Whether GPU contexts are CUDA devices."""
    return GPU_MODE == "cuda"


def _need(device_id: int) -> Any:
    if device_id >= num_gpus():
        raise missing_gpu(device_id, num_gpus())
    return _torch()


# ---- memory ---------------------------------------------------------------------------------------------------------
def alloc(nbytes: int, device_id: int) -> Any:
    """An uninitialised uint8 tensor. Raises MemoryError when the device is full."""
    torch = _need(device_id)
    if not is_real():
        return torch.empty(nbytes, dtype=torch.uint8)
    try:
        with torch.cuda.stream(stream(device_id)):
            return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{device_id}")
    except torch.cuda.OutOfMemoryError as e:
        raise MemoryError(str(e)) from e


def wrap(memory: np.ndarray) -> Any:
    """The tensor over host memory; keeps it alive."""
    return _torch().from_numpy(memory)


@functools.cache
def _dtypes() -> dict[np.dtype, Any]:
    """numpy dtype -> torch dtype."""
    torch = _torch()
    names = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
             "bool")
    return {np.dtype(n): getattr(torch, n) for n in names} | {bfloat16: torch.bfloat16}


def view(tensor: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """The part of a uint8 tensor that begins offset bytes in, as shape and dtype; shares its bytes.

    offset: a multiple of the item size. Raises EngineError if it is not.
    """
    if offset % dtype.itemsize:
        raise EngineError(f"cuda.view: offset {offset} is not a multiple of {dtype.name}'s {dtype.itemsize} bytes.")
    n = dtype.itemsize
    for d in shape:
        n *= d
    return tensor[offset:offset + n].view(_dtypes()[dtype]).view(shape)


def _numpy(tensor: Any) -> np.ndarray:
    """The numpy array over a CPU tensor's memory."""
    torch = _torch()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()


def to_host(tensor: Any) -> np.ndarray:
    """The values on the host: a copy from a device (waits for its stream), the memory itself when interpreted."""
    if tensor.is_cuda:
        torch = _torch()
        with torch.cuda.stream(stream(tensor.device.index)):
            tensor = tensor.cpu()
    return _numpy(tensor)


def from_host(tensor: Any, values: np.ndarray) -> None:
    """Write host values into tensor: same shape and dtype."""
    if tuple(values.shape) != tuple(tensor.shape):
        raise EngineError(f"cuda.from_host: shapes differ: tensor {tuple(tensor.shape)}, values {values.shape}.")
    if not tensor.is_cuda:
        np.copyto(_numpy(tensor), values, casting="no")
        return
    torch = _torch()
    values = np.ascontiguousarray(values)
    host = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16) if values.dtype == bfloat16 else \
        torch.from_numpy(values)
    with torch.cuda.stream(stream(tensor.device.index)):
        tensor.copy_(host)


def free_bytes(device_id: int) -> int | None:
    """Bytes the device still has, if it says."""
    return _need(device_id).cuda.mem_get_info(device_id)[0] if is_real() else None


def memory(device_id: int) -> tuple[int, int, int]:
    """(in use, pooled, peak) of a real device, bytes, as torch's caching allocator counts them."""
    t = _need(device_id).cuda
    used = t.memory_allocated(device_id)
    return used, t.memory_reserved(device_id) - used, t.max_memory_allocated(device_id)


def empty_cache(device_id: int) -> int:
    """Give a real device's cached memory back; how many bytes."""
    before = memory(device_id)[1]
    _torch().cuda.empty_cache()
    return before - memory(device_id)[1]


# ---- streams --------------------------------------------------------------------------------------------------------
class FakeStream:
    """Stands for a stream when the GPU is interpreted: everything is done when it is called, and recorded.

    calls: the last thousand names given to `record`.
    """

    def __init__(self, device_id: int):
        self.device_id = device_id
        self.calls: deque[str] = deque(maxlen=1000)

    def record(self, name: str) -> None:
        """Note that work called name was enqueued."""
        self.calls.append(name)

    def synchronize(self) -> None:
        """Nothing is outstanding, ever."""

    def __repr__(self) -> str:
        return f"FakeStream(gpu({self.device_id}))"


@functools.cache
def stream(device_id: int) -> Any:
    """The stream that functions for a GPU context enqueue on. Raises ContextError for a GPU that is not there."""
    torch = _need(device_id)
    return torch.cuda.Stream(device_id) if is_real() else FakeStream(device_id)


def run_on(s: Any) -> Any:
    """A context manager in which work is enqueued on stream s; does nothing for None and for a FakeStream."""
    return contextlib.nullcontext() if s is None or isinstance(s, FakeStream) else _torch().cuda.stream(s)
