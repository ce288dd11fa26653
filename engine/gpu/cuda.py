"""GPU memory, streams and events; `transfer.py` copies between them. Only this file imports torch, which computes nothing here.

TRITIUM_GPU=interpret: `gpu(0)` is host memory under torch CPU tensors, which Triton's interpreter takes, and streams only
record. TRITIUM_GPU=cuda: torch.cuda, which perf/gpu_suite tests on a GPU. Tests without one use the interpreted GPU, and a
stand-in for torch to check the order of work on streams.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.util
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...context import GPU_MODE, missing_gpu
from ...dtype import bfloat16
from ...errors import EngineError
from ...fork import in_forked_child
from ...gc_pause import gc_paused

_KINDS = ("compute", "copy", "priority")  # of streams, see `stream`
_SPIN = 0.00005  # seconds in which the main thread, waiting for an event, only lets others run between its tests of it:
_POLL = 0.0001  # a sleep takes longer than most kernels. Later it sleeps a tenth of the time waited, up to so many seconds


@functools.cache
def _torch() -> Any:
    """Return torch; None if it is not installed or TRITIUM_GPU is off."""
    if GPU_MODE == "off" or importlib.util.find_spec("torch") is None:
        return None
    return importlib.import_module("torch")


@functools.cache
def num_gpus() -> int:
    """Return the number of GPU contexts: one when interpreted, else as many as CUDA finds. 0 without torch."""
    torch = _torch()
    if torch is None:
        return 0
    if GPU_MODE == "interpret":
        return 1
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def is_real() -> bool:
    """Return True if GPU contexts are CUDA devices."""
    return GPU_MODE == "cuda"


def _need(device_id: int) -> Any:
    if device_id >= num_gpus():
        raise missing_gpu(device_id, num_gpus())
    return _torch()


@in_forked_child
def _leave_device_memory_alone() -> None:
    """Keep the parent's tensors on devices for ever: to free one is to ask CUDA, which a forked child must not.

    What a child wants to do on a device, torch refuses with an error that says so.
    """
    if is_real() and _stream.cache_info().currsize:
        tensor = _torch().Tensor
        for x in gc.get_objects():
            if issubclass(type(x), tensor) and x.is_cuda:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))


# ---- memory ---------------------------------------------------------------------------------------------------------
def alloc(nbytes: int, device_id: int) -> Any:
    """Return an uninitialised uint8 tensor for the stream of the calling function.

    When the device is full, wait for all its work, give cached memory back, and try once more. Raises MemoryError after that.
    A tensor belongs to a stream. Once it is dropped, its bytes may be given out for that stream at once, while the stream
    still works on what was enqueued before. Outside of functions the first user's stream is unknown: see `share`.
    """
    torch = _need(device_id)
    if not is_real():
        return torch.empty(nbytes, dtype=torch.uint8)
    own = own_stream(device_id)
    with torch_on(own or stream(device_id)):
        try:
            tensor = torch.empty(nbytes, dtype=torch.uint8, device=_device(device_id))
        except torch.cuda.OutOfMemoryError as e:
            if torch.cuda.is_current_stream_capturing():
                raise MemoryError(str(e)) from e
            tensor = None
        if tensor is None:  # memory that streams still used is free once they are done
            with _capture_lock:
                wait_for_device(device_id)
                torch.cuda.empty_cache()
            try:
                tensor = torch.empty(nbytes, dtype=torch.uint8, device=_device(device_id))
            except torch.cuda.OutOfMemoryError as e:
                raise MemoryError(str(e)) from e
    if own is None:
        share(tensor)
    return tensor


@functools.cache
def _device(device_id: int) -> Any:
    """Return torch's name of a device, made once."""
    return _torch().device("cuda", device_id)


def share(tensor: Any) -> None:
    """Let every stream of its device use a new tensor, and keep its memory until all have passed what they enqueued."""
    if tensor.is_cuda:
        device_id = tensor.device.index
        allocated = (own_stream(device_id) or stream(device_id)).record_event()
        for kind in _KINDS:
            s = stream(device_id, kind)
            s.wait_event(allocated)
            tensor.record_stream(s)


def used_by(tensor: Any, s: Any) -> None:
    """Keep the memory of tensor, once dropped, until stream s has passed what is enqueued on it then."""
    if tensor.is_cuda:
        tensor.record_stream(s)


class Foreign:
    """Memory of a device that another library owns: bytes from an address on. torch keeps this object as long as tensors on it.

    Source of the interface's fields: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
    """

    def __init__(self, address: int, nbytes: int):
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 2}


def over(memory: Foreign, device_id: int) -> Any:
    """Return a uint8 tensor over memory of another library, which it keeps alive."""
    return _torch().as_tensor(memory, device=_device(device_id))


def used_outside(tensor: Any, number: int | None) -> None:
    """Keep the memory of a tensor for the default stream of its device too, if that is whose number another library gives.

    number: as in DLPack; 1 or None for the default stream. Other streams may be gone when the memory is dropped.
    """
    if number in (None, 1):
        tensor.record_stream(_torch().cuda.default_stream(tensor.device))


def ends_of_streams(device_id: int) -> list[Any]:
    """Return an event of each stream of a real device that functions enqueue on: when it has done what it was given."""
    return [stream(device_id, kind).record_event() for kind in _KINDS]


def wait_for_device(device_id: int) -> None:
    """Block until all work of a real device is done, also that of other libraries."""
    with _capture_lock:  # a device with a capture in progress refuses to be waited for
        _torch().cuda.synchronize(_device(device_id))


def pinned(shape: Any, dtype: Any) -> Any:
    """Return an uninitialised tensor of a torch dtype in pinned memory of the host. torch keeps the memory for the next one."""
    return _torch().empty(shape, dtype=dtype, pin_memory=True)


def pinned_bytes(nbytes: int) -> np.ndarray:
    """Return uninitialised bytes of the host in pinned memory. Raises MemoryError."""
    try:
        return pinned(nbytes, _torch().uint8).numpy()
    except RuntimeError as e:  # torch's class of the driver's errors
        raise MemoryError(str(e)) from e


def wrap(memory: np.ndarray) -> Any:
    """Return a tensor over host memory, which it keeps alive."""
    return _torch().from_numpy(memory)


@functools.cache
def torch_dtypes() -> dict[np.dtype, Any]:
    """Return the table from numpy dtypes to torch dtypes."""
    torch = _torch()
    names = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
    return {np.dtype(n): getattr(torch, n) for n in names} | {bfloat16: torch.bfloat16}


def view(tensor: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return a view of a uint8 tensor from byte offset on, with shape and dtype.

    offset: a multiple of the item size. Raises EngineError if it is not.
    """
    if offset % dtype.itemsize:
        raise EngineError(f"cuda.view: offset {offset} is not a multiple of {dtype.name}'s {dtype.itemsize} bytes.")
    return tensor[offset:offset + math.prod(shape) * dtype.itemsize].view(torch_dtypes()[dtype]).view(shape)


def as_numpy(tensor: Any) -> np.ndarray:
    """Return a numpy array over a CPU tensor's memory."""
    torch = _torch()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()


def free_and_total(device_id: int) -> tuple[int, int]:
    """Return the bytes that a real device has left, and all of its memory."""
    return _need(device_id).cuda.mem_get_info(device_id)


def memory(device_id: int) -> tuple[int, int, int]:
    """Return (in use, pooled, peak) of a real device in bytes, as torch's caching allocator counts them."""
    t = _need(device_id).cuda
    used = t.memory_allocated(device_id)
    return used, t.memory_reserved(device_id) - used, t.max_memory_allocated(device_id)


def empty_cache(device_id: int) -> int:
    """Give a real device's cached memory back. Return its bytes."""
    before = memory(device_id)[1]
    _torch().cuda.empty_cache()
    return before - memory(device_id)[1]


# ---- streams --------------------------------------------------------------------------------------------------------
#: The last ten thousand calls of streams of the interpreted GPU: ("run", stream, name), ("record", stream, event),
#: ("wait", stream, event), ("host waits", thread, event), ("replay", stream, name).
log: deque[tuple[str, Any, Any]] = deque(maxlen=10_000)


class FakeEvent:
    """A moment of a FakeStream."""

    def __init__(self, on: FakeStream):
        self.on = on


class FakeStream:
    """A stream of the interpreted GPU: work is done when it is called, and recorded.

    calls: the last thousand names passed to `record`.
    """

    def __init__(self, device_id: int, kind: str = "compute"):
        self.device_index, self.kind, self.computes = device_id, kind, kind == "compute"
        self.calls: deque[str] = deque(maxlen=1000)

    def record(self, name: str) -> None:
        """Record that work called name was enqueued."""
        self.calls.append(name)

    def synchronize(self) -> None:
        """Return at once: work is done when it is called."""

    def __repr__(self) -> str:
        return f"FakeStream(gpu({self.device_index}), {self.kind})"


def stream(device_id: int, kind: str = "compute") -> Any:
    """Return the stream that functions for a GPU context enqueue on. Raises ContextError for a missing GPU.

    kind: "compute", "copy", "capture", on which graphs are captured, or "priority", whose kernels overtake others on the device.
    """
    return _stream(device_id, kind)


@functools.cache
def _stream(device_id: int, kind: str) -> Any:
    torch = _need(device_id)
    if not is_real():
        return FakeStream(device_id, kind)
    s = torch.cuda.Stream(device_id, priority=-1 if kind == "priority" else 0)
    s.computes = kind == "compute"
    return s


class run_on:
    """`with run_on(s)`: enqueue the work inside on stream s. Does nothing for None.

    It is not a generator, so that an exception raised inside leaves unchanged, even if its attributes cannot be set.
    """

    __slots__ = ("_before", "_current", "_set", "_stream")

    def __init__(self, s: Any):
        self._stream = s
        self._set: Any = None
        self._current: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._before = getattr(_calling, "stream", None), getattr(_calling, "torch_on", None)
        s = self._stream
        if s is not None:
            _calling.stream = _calling.torch_on = s
            if not isinstance(s, FakeStream):  # torch.cuda.stream looks devices up: a third of an eager call
                cuda = _torch().cuda
                device = cuda.current_device()
                there = () if device == s.device_index else (cuda.current_stream(s.device_index),)
                self._current = (*there, cuda.current_stream(device))
                self._set = cuda.set_stream
                self._set(s)

    def __exit__(self, *exc: Any) -> None:
        for s in self._current:
            self._set(s)
        _calling.stream, _calling.torch_on = self._before


class launch_on:
    """`with launch_on(s)`: as `run_on`, for work that is launched by addresses. torch learns of the stream when it is used."""

    __slots__ = ("_before", "_stream")

    def __init__(self, s: Any):
        self._stream = s

    def __enter__(self) -> None:
        self._before = getattr(_calling, "stream", None)
        _calling.stream = self._stream

    def __exit__(self, *exc: Any) -> None:
        _calling.stream = self._before


def torch_on(s: Any) -> Any:
    """Return a context in which torch's own work goes to stream s of this thread's function; None: to torch's current one."""
    return contextlib.nullcontext() if s is None or s is getattr(_calling, "torch_on", None) else run_on(s)


#: Of this thread: stream, that of the function it runs; torch_on, the one `run_on` told torch.
_calling = threading.local()

#: Held by a thread other than the compute stream's worker while it enqueues on that.
enqueue_lock = threading.RLock()
_capture_lock = threading.RLock()  # held during a capture


def calling_stream() -> Any:
    """Return the stream of the function that this thread runs; None outside of functions."""
    return getattr(_calling, "stream", None)


def on_compute_stream(device_id: int) -> bool:
    """Return True if the calling function enqueues on this device's compute stream."""
    s = calling_stream()
    return s is not None and s.computes and s.device_index == device_id


def own_stream(device_id: int) -> Any:
    """Return the stream of the calling function, if it is one of this device."""
    s = calling_stream()
    return s if s is not None and s.device_index == device_id else None


@contextlib.contextmanager
def on_device(device_id: int) -> Iterator[Any]:
    """`with on_device(i) as s`: enqueue the work inside on stream s: the calling function's if it is one of device i.

    Otherwise s is the copy stream. In a function of another device the work is ordered after what it has enqueued, and
    before what it enqueues later. Outside of functions the work is done when the block ends, because later users would not
    know its stream.
    """
    own = own_stream(device_id)
    if own is not None or not is_real():
        with torch_on(own):
            yield own
        return
    caller, s = calling_stream(), stream(device_id, "copy")
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
    """Return an event that occurs when all work enqueued on s is done. name: of the last work."""
    if isinstance(s, FakeStream):
        event = FakeEvent(s)
        log.append(("run", s, name))
        log.append(("record", s, event))
        return event
    event = s.record_event()
    event.name, event.device_id = name, s.device_index  # for `wait`, where errors of the device appear
    return event


class Tail:
    """The end of a stream, from the last event on: what small pieces of work share instead of an event of each.

    moment: (stream, this). It becomes an event when somebody waits for it, or after `_TOGETHER` pieces of work, so that who
    waits for the first of them does not wait for many that came later.
    """

    __slots__ = ("count", "event", "moment", "name")

    def __init__(self, s: Any):
        self.moment = (s, self)
        self.event: Any = None
        self.count, self.name = 0, ""

    def recorded(self) -> Any:
        """Return the event behind all that shares this tail."""
        if self.event is None:
            with enqueue_lock:
                if self.event is None:
                    s = self.moment[0]
                    if s.tail is self:
                        s.tail = Tail(s)  # first: what is enqueued from now on may come after the event
                    self.event = record(s, self.name)
        return self.event


_TOGETHER = 32  # pieces of work


def tail(s: Any, name: str) -> Tail:
    """Return the tail of stream s, behind small work called name that was just enqueued there."""
    try:
        found = s.tail
    except AttributeError:
        found = s.tail = Tail(s)
    found.name = name
    found.count += 1
    if found.count == _TOGETHER:
        found.recorded()
    return found


def end_tail(s: Any) -> None:
    """Record the event of the small work on stream s, so that who waits for it does not wait for what is enqueued next."""
    found = getattr(s, "tail", None)
    if found is not None and found.count:
        found.recorded()


def mark(s: Any) -> Any:
    """Return the moment when all work enqueued on s is done, for `elapsed`. Interpreted work is done when it is called."""
    if isinstance(s, FakeStream):
        return time.perf_counter_ns()
    event = _torch().cuda.Event(enable_timing=True)
    event.record(s)
    return event


def elapsed(before: Any, after: Any) -> int:
    """Return the nanoseconds between two marks of one stream. Waits until they have passed."""
    if isinstance(after, int):
        return after - before
    wait(after)
    return round(before.elapsed_time(after) * 1e6)


def stream_waits(s: Any, event: Any) -> None:
    """Have work that is enqueued on s from now on start after event. Returns at once."""
    if isinstance(s, FakeStream):
        log.append(("wait", s, event))
    else:
        s.wait_event(event.recorded() if isinstance(event, Tail) else event)


def is_done(event: Any) -> bool:
    """Return True if an event or tail is known to have occurred. Does not wait, or record what is not recorded."""
    if isinstance(event, Tail):
        event = event.event
    return isinstance(event, FakeEvent) or (event is not None and event.query())


def wait(event: Any) -> None:
    """Block until event, without the GIL. In the main thread Ctrl-C ends the wait.

    Raises EngineError for a fault of the device, such as an access outside of its memory. It may have happened in any work
    before the event; with TRITIUM_GPU_SYNC=1 each kernel's own launch raises it.
    """
    if isinstance(event, FakeEvent):
        log.append(("host waits", threading.get_ident(), event))
        return
    if isinstance(event, Tail):
        event = event.recorded()
    try:
        if threading.current_thread() is threading.main_thread():
            began = time.perf_counter()
            while not event.query():  # with the GIL, which the threads that enqueue need more
                waited = time.perf_counter() - began
                time.sleep(0 if waited < _SPIN else min(_POLL, waited / 10))
        else:
            event.synchronize()
    except RuntimeError as e:  # torch's class of the driver's errors
        raise _fault(e, getattr(event, "name", ""), getattr(event, "device_id", None)) from e


def _fault(error: RuntimeError, name: str, device_id: int | None) -> EngineError:
    """Return the error of a device that failed while the host waited for the work called name."""
    reason = (str(error).splitlines() or [type(error).__name__])[0].removeprefix("CUDA error: ")
    device = "a GPU" if device_id is None else f"gpu({device_id})"
    return EngineError(f"{device}: {reason}, found after {name or 'a copy'}: there, or in a kernel before it. Run again with "
                       f"TRITIUM_GPU_SYNC=1, which waits after each kernel and names the one that fails. The GPU is lost to this "
                       f"process: start another.")


def synchronize(s: Any) -> None:
    """Block until all work enqueued on s is done."""
    if isinstance(s, FakeStream):
        s.synchronize()
    else:
        wait(s.record_event())


class Graph:
    """Work enqueued once and replayed with one call: a CUDA graph. When interpreted, replay calls the function again.

    Captured work keeps its addresses: its arrays must stay where they are, and it must not allocate memory.
    """

    def __init__(self, device_id: int, name: str = "graph"):
        self.device_id, self.name = device_id, name
        self._fn: Callable[[], Any] | None = None
        self._graph: Any = None

    def capture(self, fn: Callable[[], Any]) -> None:
        """Capture the work that fn() enqueues, on a real device on its stream "capture".

        No other thread enqueues on that stream, or asks for memory or an event of it, so that they may go on meanwhile: on a
        stream that others use, all these would become part of the graph. The collector is paused, as what it finalizes may
        wait for the device, which a capture forbids.
        """
        torch = _need(self.device_id)
        self._fn = fn
        if is_real():
            self._graph = torch.cuda.CUDAGraph()
            with _capture_lock, gc_paused(), run_on(stream(self.device_id, "capture")):
                self._graph.capture_begin(capture_error_mode="thread_local")
                try:
                    fn()
                finally:
                    self._graph.capture_end()

    def replay(self) -> None:
        """Enqueue the work on the calling function's stream. Raises EngineError before capture."""
        if self._fn is None:
            raise EngineError(f"cuda.Graph: {self.name} was replayed before it was captured. Call capture(fn) first.")
        s = own_stream(self.device_id) or stream(self.device_id)
        if self._graph is not None:
            with run_on(s):
                self._graph.replay()
        else:
            log.append(("replay", s, self.name))
            self._fn()
