"""GPU memory and streams: the only file that imports torch, which computes nothing here.

TRITIUM_GPU=interpret: `gpu(0)` is host memory under torch CPU tensors (what Triton's interpreter takes), and streams
that only record. TRITIUM_GPU=cuda: torch.cuda. The second half runs only where there is a GPU
(perf/gpu_suite); the tests without one see the first, and of the second the order, on a stand-in for torch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...context import GPU_MODE, missing_gpu
from ...dtype import bfloat16
from ...errors import EngineError

_KINDS = ("compute", "copy", "priority")  # of streams, see `stream`
_LOOK = 0.0001  # seconds between looks of a main thread that waits for a device


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
    """An uninitialised uint8 tensor, for the stream of the calling function. Raises MemoryError when the device is full.

    A tensor belongs to a stream: once it is dropped, its bytes are given out for that stream again at once, while it still
    works on what it was given before. Outside of functions nobody knows which stream will use it first: see `share`.
    """
    torch = _need(device_id)
    if not is_real():
        return torch.empty(nbytes, dtype=torch.uint8)
    own = _own_stream(device_id)
    try:
        with torch.cuda.stream(own or stream(device_id)):
            made = torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{device_id}")
    except torch.cuda.OutOfMemoryError as e:
        raise MemoryError(str(e)) from e
    if own is None:
        share(made)
    return made


def share(tensor: Any) -> None:
    """Let any stream of its device use a tensor just made: from now on, and until all have done what they had in hand."""
    if tensor.is_cuda:
        device_id = tensor.device.index
        taken = (_own_stream(device_id) or stream(device_id)).record_event()
        for kind in _KINDS:
            s = stream(device_id, kind)
            s.wait_event(taken)
            tensor.record_stream(s)


def used_by(tensor: Any, s: Any) -> None:
    """When tensor is dropped, its bytes are not to be used again before stream s has done what it has in hand then."""
    if tensor.is_cuda:
        tensor.record_stream(s)


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
    """The values on the host: a copy from a device, through pinned memory; the memory itself when interpreted.

    Waits for the copy and what the calling function's stream did before, without the GIL.
    """
    if not tensor.is_cuda:
        return _numpy(tensor)
    torch = _torch()
    with on_device(tensor.device.index) as s:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        tensor.record_stream(s)  # its memory may be dropped meanwhile: not to be used again before this copy is done
        wait(s.record_event())
    return np.array(_numpy(host))


def from_host(tensor: Any, values: np.ndarray) -> None:
    """Write host values into tensor: same shape and dtype. A real copy is enqueued from pinned memory: values are free."""
    if tuple(values.shape) != tuple(tensor.shape):
        raise EngineError(f"cuda.from_host: shapes differ: tensor {tuple(tensor.shape)}, values {values.shape}.")
    if not tensor.is_cuda:
        np.copyto(_numpy(tensor), values, casting="no")
        return
    torch = _torch()
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    np.copyto(_numpy(pinned), values, casting="no")
    with on_device(tensor.device.index) as s:
        tensor.copy_(pinned, non_blocking=True)  # torch keeps the pinned memory until the copy is done
        tensor.record_stream(s)


def free_bytes(device_id: int) -> int | None:
    """Bytes the device still has, if it says."""
    return _need(device_id).cuda.mem_get_info(device_id)[0] if is_real() else None


def total_bytes(device_id: int) -> int:
    """Bytes a real device has in all."""
    return _need(device_id).cuda.mem_get_info(device_id)[1]


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
#: What the streams of the interpreted GPU were told, the last ten thousand: ("run", stream, name), ("record", stream,
#: event), ("wait", stream, event), ("host waits", thread, event), ("replay", stream, name).
log: deque[tuple[str, Any, Any]] = deque(maxlen=10_000)


class FakeEvent:
    """A moment of a FakeStream."""

    def __init__(self, on: FakeStream):
        self.on = on


class FakeStream:
    """Stands for a stream when the GPU is interpreted: everything is done when it is called, and recorded.

    calls: the last thousand names given to `record`.
    """

    def __init__(self, device_id: int, kind: str = "compute"):
        self.device_index, self.kind = device_id, kind
        self.calls: deque[str] = deque(maxlen=1000)

    def record(self, name: str) -> None:
        """Note that work called name was enqueued."""
        self.calls.append(name)

    def synchronize(self) -> None:
        """Nothing is outstanding, ever."""

    def __repr__(self) -> str:
        return f"FakeStream(gpu({self.device_index}), {self.kind})"


def stream(device_id: int, kind: str = "compute") -> Any:
    """The stream that functions for a GPU context enqueue on. Raises ContextError for a GPU that is not there.

    kind: "compute", "copy", or "priority", whose kernels overtake others on the device.
    """
    return _stream(device_id, kind)


@functools.cache
def _stream(device_id: int, kind: str) -> Any:
    torch = _need(device_id)
    return torch.cuda.Stream(device_id, priority=-1 if kind == "priority" else 0) if is_real() else \
        FakeStream(device_id, kind)


class run_on:
    """`with run_on(s)`: work inside is enqueued on stream s. Does nothing for None.

    No generator: what a function raises inside comes out as it is, also an exception whose attributes cannot be set.
    """

    __slots__ = ("_before", "_stream", "_torch")

    def __init__(self, s: Any):
        self._stream = s
        self._torch: Any = None

    def __enter__(self) -> None:
        self._before = getattr(_here, "stream", None)
        if self._stream is not None:
            _here.stream = self._stream
            if not isinstance(self._stream, FakeStream):
                self._torch = _torch().cuda.stream(self._stream)
                self._torch.__enter__()

    def __exit__(self, *exc: Any) -> None:
        try:
            if self._torch is not None:
                self._torch.__exit__(*exc)
        finally:
            _here.stream = self._before


_here = threading.local()


def _own_stream(device_id: int) -> Any:
    """The stream that the calling function was given, if it is one of this device."""
    s = getattr(_here, "stream", None)
    return s if s is not None and s.device_index == device_id else None


@contextlib.contextmanager
def on_device(device_id: int) -> Iterator[Any]:
    """Work inside is enqueued on a stream of the device, which this gives: the calling function's, if it is one.

    Else the copy stream. A function of another device comes between: the work is done after what it has enqueued, and
    before what it enqueues afterwards. Outside of functions the work is done when the block ends, since nobody who
    comes later would know of the stream.
    """
    own = _own_stream(device_id)
    if own is not None or not is_real():
        yield own
        return
    caller, s = getattr(_here, "stream", None), stream(device_id, "copy")
    if caller is not None:
        s.wait_event(caller.record_event())
    try:
        with run_on(s):
            yield s
    finally:
        if caller is not None:
            caller.wait_event(s.record_event())
        else:
            wait(s.record_event())


def record(s: Any, name: str) -> Any:
    """An event: the moment when all that was enqueued on s, lastly work called name, is done."""
    if isinstance(s, FakeStream):
        event = FakeEvent(s)
        log.append(("run", s, name))
        log.append(("record", s, event))
        return event
    return s.record_event()


def stream_waits(s: Any, event: Any) -> None:
    """What is enqueued on s from now on starts after event. Returns at once."""
    if isinstance(s, FakeStream):
        log.append(("wait", s, event))
    else:
        s.wait_event(event)


def wait(event: Any) -> None:
    """Block until event, without the GIL; the main thread looks for Ctrl-C meanwhile."""
    if isinstance(event, FakeEvent):
        log.append(("host waits", threading.get_ident(), event))
    elif threading.current_thread() is threading.main_thread():
        while not event.query():
            time.sleep(_LOOK)
    else:
        event.synchronize()


def synchronize(s: Any) -> None:
    """Block until s has nothing left to do."""
    if isinstance(s, FakeStream):
        s.synchronize()
    else:
        wait(s.record_event())


class Graph:
    """Work enqueued once and replayed with one call: a CUDA graph; when interpreted, the function called again.

    What is captured keeps its addresses: arrays it uses must stay where they are, and no memory may be allocated in it.
    """

    def __init__(self, device_id: int, name: str = "graph"):
        self.device_id, self.name = device_id, name
        self._fn: Callable[[], Any] | None = None
        self._graph: Any = None

    def capture(self, fn: Callable[[], Any]) -> None:
        """Record what fn() enqueues on the compute stream. A real device records only: replay does it the first time."""
        torch = _need(self.device_id)
        self._fn = fn
        if is_real():
            self._graph = torch.cuda.CUDAGraph()
            # other threads may go on allocating and waiting meanwhile
            with torch.cuda.graph(self._graph, stream=stream(self.device_id), capture_error_mode="thread_local"):
                fn()

    def replay(self) -> None:
        """Enqueue it on the calling function's stream. Raises EngineError before capture."""
        if self._fn is None:
            raise EngineError(f"cuda.Graph: {self.name} was replayed before it was captured. Call capture(fn) first.")
        s = _own_stream(self.device_id) or stream(self.device_id)
        if self._graph is not None:
            with _torch().cuda.stream(s):
                self._graph.replay()
        else:
            log.append(("replay", s, self.name))
            self._fn()
