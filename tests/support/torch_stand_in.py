"""A stand-in for torch on several CUDA devices, in which time is the worst that a real device allows.

Streams are queues. What is enqueued is done as late as the host and the events allow on the streams called slow, and as
early as they allow on the others; nothing else binds. What is enqueued on a stream while that is captured is done by the graph's
replays alone; whatever a device forbids meanwhile, or would do to others who know nothing of it, is a fault. The allocator hands
dropped memory out as torch's does: at once, to the stream it belongs to, unless other streams were recorded as users: then when
these have done what they had been given when the memory was dropped. Fresh memory is full of rubbish.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
from tritium.dtype import DTYPES

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


def on_device(capsule, device, kind=2):
    """Return a DLPack capsule of host memory that says it is of a CUDA device."""
    name = _name(capsule)
    field = 8 + (32 if name == b"dltensor_versioned" else 0)  # version, context, deleter and flags come before the tensor then
    at = (ctypes.c_int32 * 2).from_address(_pointer(capsule, name) + field)
    at[0], at[1] = kind, device
    return capsule


class Event:
    """done once its stream has done the first `number` things it was given."""

    def __init__(self, on):
        self.on, self.number = on, len(on.queue) + on.ended

    @property
    def done(self):
        return self.on.ended >= self.number

    def synchronize(self):
        self.on.world.until(self)

    def query(self):
        self.on.world.until(self)
        return True


class Stream:
    def __init__(self, world, device_index, name):
        self.world, self.device_index, self.name = world, device_index, name
        self.queue, self.ended = [], 0
        self.cuda_stream = len(world.streams) + 100  # the number that other libraries know it by

    def record_event(self):
        if self in self.world.capturing:
            self.world.fault("an event of a captured stream is recorded")
        with self.world.lock:
            return Event(self)

    def wait_event(self, event):
        self.world.enqueue(self, event)


class Storage:
    """Bytes of a device (None: the host), back with the allocator when the last tensor over them is gone.

    home: the stream they belong to; None for bytes of others.
    """

    def __init__(self, world, device, home, data):
        self.world, self.device, self.home, self.data, self.users = world, device, home, data, set()

    def __del__(self):
        if self.device is not None and self.home is not None:
            self.world.dropped(self)


class Tensor:
    def __init__(self, storage, array):
        self.storage, self.array = storage, array

    is_cuda = property(lambda self: self.storage.device is not None)
    device = property(lambda self: SimpleNamespace(index=self.storage.device))
    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def numpy(self):
        assert not self.is_cuda
        return self.array

    def numel(self):
        return self.array.size

    def is_pinned(self):
        at = self.data_ptr()
        return any(start <= at < start + nbytes for start, nbytes in self.storage.world.pinned)

    def data_ptr(self):
        return self.array.ctypes.data

    def view(self, what):
        return Tensor(self.storage, self.array.view(what) if isinstance(what, np.dtype) else self.array.reshape(what))

    def reshape(self, shape):
        return Tensor(self.storage, self.array.reshape(shape))

    def __getitem__(self, key):
        return Tensor(self.storage, self.array[key])

    def __setitem__(self, key, value):
        self[key].write(lambda a: a, value)

    def copy_(self, source, non_blocking=False):
        assert non_blocking
        self.write(lambda a: a, source)

    def write(self, compute, *sources):
        """self = compute(*sources), on the current stream of the device; of two devices the source's, as torch does."""
        device = next(t.storage.device for t in (*sources, self) if isinstance(t, Tensor) and t.is_cuda)
        target, given = self.array, [t.array if isinstance(t, Tensor) else t for t in sources]  # no tensor is kept alive

        def run():
            target[...] = compute(*given)
        self.storage.world.enqueue(self.storage.world.current(device), run)

    def __dlpack__(self, *, stream=None, max_version=None):
        return on_device(self.array.__dlpack__(max_version=max_version), self.storage.device)

    def record_stream(self, stream):
        if stream is not self.storage.home:
            self.storage.users.add(stream)


class CUDAGraph:
    """Work that was enqueued in a capture; a replay enqueues it."""

    def __init__(self, world):
        self.world, self.work, self.replays, self.thread = world, [], 0, None

    def capture_begin(self, capture_error_mode):
        assert capture_error_mode == "thread_local"
        if gc.isenabled():
            self.world.fault("the garbage collector may run in a capture")
        self.thread = threading.get_ident()
        self.world.capturing[self.world.here_now()] = self
        self.world.meanwhile()

    def capture_end(self):
        for stream in [s for s, graph in self.world.capturing.items() if graph is self]:
            del self.world.capturing[stream]

    def replay(self):
        self.replays += 1
        for what in self.work:
            self.world.enqueue(self.world.here_now(), what)


class World:
    """The devices: what is imported as torch. slow(stream): whether it lags behind."""

    Tensor = Tensor

    def __init__(self, slow, devices=2):
        self.slow, self.devices, self.lock = slow, devices, threading.RLock()
        self.here = threading.local()
        self.streams = []
        self.defaults = [self.made(d, "default") for d in range(devices)]
        self.free, self.leaving = {}, []
        self.capturing = {}  # stream -> graph
        self.faults = []  # what went wrong in captures
        self.meanwhile = lambda: None  # is called in each capture, before the work
        self.pinned, self.pins = [], 0  # (address, bytes) of pinned memory that is alive; how often some was allocated
        self.most = 1 << 34  # bytes that a request may have
        self.reused = 0  # requests that were met with memory used before
        for name, dtype in DTYPES.items():
            setattr(self, name, np.dtype(dtype))
        self.cuda = SimpleNamespace(
            is_available=lambda: True, device_count=lambda: devices, set_stream=self.set_stream, current_stream=self.current,
            default_stream=lambda device: self.defaults[device.index],
            current_device=lambda: getattr(self.here, "device", 0), OutOfMemoryError=MemoryError,
            Stream=lambda d, priority=0: self.made(d, "priority" if priority else ""), mem_get_info=lambda d: (1 << 34, 1 << 34),
            is_current_stream_capturing=lambda: self.here_now() in self.capturing, synchronize=self.synchronize,
            empty_cache=lambda: None, CUDAGraph=lambda: CUDAGraph(self), memory_allocated=lambda d: 0,
            memory_reserved=lambda d: 0, max_memory_allocated=lambda d: 0)

    def made(self, device, name):
        s = Stream(self, device, name)
        self.streams.append(s)
        return s

    def set_stream(self, s):
        self.here.now, self.here.device = {**getattr(self.here, "now", {}), s.device_index: s}, s.device_index

    def device(self, kind, index):
        return f"{kind}:{index}"

    def current(self, device):
        return getattr(self.here, "now", {}).get(device, self.defaults[device])

    def launch(self, interpret):
        """Return what kernels/gpu/launch.py calls for a kernel: it is enqueued, and interpreted when its turn comes."""
        def run(fn, grid, args, constexprs, *options):
            stream = options[2]
            given = [a.array if isinstance(a, Tensor) else a for a in args]  # no tensor is kept alive
            self.enqueue(stream, lambda: interpret(fn, grid, given, constexprs))
        return run

    def here_now(self):
        """The current stream of the current device."""
        return self.current(self.cuda.current_device())

    def fault(self, text):
        self.faults.append(text)
        raise AssertionError(text)

    # ---- time ----
    def enqueue(self, stream, what):
        graph = self.capturing.get(stream)
        if graph is not None:
            if isinstance(what, Event):
                self.fault("a captured stream waits for an event of another")
            if graph.thread != threading.get_ident():
                self.fault("another thread's work is captured")
            graph.work.append(what)
            return
        with self.lock:
            stream.queue.append(what)
            self.pass_time()

    def pass_time(self):
        """Streams that are not slow do what they can."""
        moved = True
        while moved:
            moved = False
            for s in self.streams:
                while s.queue and not self.slow(s) and (not isinstance(s.queue[0], Event) or s.queue[0].done):
                    self.step(s)
                    moved = True

    def step(self, stream):
        what = stream.queue[0]
        if isinstance(what, Event):
            self.finish(what)
        else:
            what()
        stream.queue.pop(0)
        stream.ended += 1

    def finish(self, event):
        """Run steps until event is done, and no further."""
        while not event.done:
            self.step(event.on)

    def until(self, event):
        """The host waits for event."""
        if any(graph.thread == threading.get_ident() for graph in self.capturing.values()):
            self.fault("the host waits in a capture")
        with self.lock:
            self.finish(event)
            self.pass_time()

    def synchronize(self, device):
        """The host waits for all work of a device."""
        if any(f"cuda:{s.device_index}" == device for s in self.capturing):
            self.fault("the host waits for a device with a captured stream")
        with self.lock:
            for s in self.streams:
                if f"cuda:{s.device_index}" == device:
                    self.finish(Event(s))

    # ---- memory ----
    def empty(self, shape, dtype, device=None, pin_memory=False):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        if device is not None and self.current(int(device.removeprefix("cuda:"))) in self.capturing:
            self.fault("memory comes from a graph's pool")
        with self.lock:
            if device is not None and nbytes > self.most:
                raise self.cuda.OutOfMemoryError(f"CUDA out of memory: {nbytes} bytes")
            if device is None:
                storage = Storage(self, None, None, np.full(nbytes, 0x55, np.uint8))
                if pin_memory:
                    place = storage.data.ctypes.data, nbytes
                    self.pinned.append(place)
                    self.pins += 1
                    weakref.finalize(storage.data, self.pinned.remove, place)  # its place may become other memory's
            else:
                storage = self.alloc(int(device.removeprefix("cuda:")), nbytes)
        return Tensor(storage, storage.data[:nbytes].view(dtype).reshape(shape))

    def alloc(self, device, nbytes):
        leaving, self.leaving = self.leaving, []
        for storage, events in leaving:
            self.put(storage, events)
        home = self.current(device)
        fits = [data for data in self.free.get(home, ()) if len(data) >= nbytes]
        self.reused += bool(fits)
        data = min(reversed(fits), key=len) if fits else np.full(nbytes, 0xAA, np.uint8)
        if fits:
            self.free[home] = [other for other in self.free[home] if other is not data]
        return Storage(self, device, home, data)

    def dropped(self, storage):
        with self.lock:
            self.put((storage.home, storage.data), [Event(s) for s in storage.users])

    def put(self, memory, events):
        """Memory is free once events are done."""
        if all(e.done for e in events):
            home, data = memory
            self.free.setdefault(home, []).append(data)
        else:
            self.leaving.append((memory, events))

    def as_tensor(self, owner, device):
        """A tensor over another library's memory, as wide as its interface says."""
        about = owner.__cuda_array_interface__
        (nbytes,), (address, _) = about["shape"], about["data"]
        storage = Storage(self, int(device.removeprefix("cuda:")), None, owner)
        memory = (ctypes.c_uint8 * nbytes).from_address(address) if nbytes else (ctypes.c_uint8 * 0)()
        return Tensor(storage, np.frombuffer(memory, np.uint8))

    def from_numpy(self, array):
        return Tensor(Storage(self, None, None, array), array)
