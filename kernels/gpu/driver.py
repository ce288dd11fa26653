"""The CUDA driver by ctypes: load machine code, pack its parameters, launch it on a given stream.

It works beside torch: both use the device's primary context, and memory and streams belong to torch.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ... import environment
from ...context import GPU_SYNC
from ...errors import ContextError, OperatorError, ParameterError, ShapeError
from ..cache_dir import cache_dir
from .store import CompiledKernel

MAX_PROGRAMS = 2**31 - 1  # along x, and of the whole grid: above it, Triton's own launcher silently starts nothing
MAX_YZ = 65535
_DYNAMIC_SHARED, _USUAL_SHARED = 8, 48 << 10
_COOPERATIVE = 2
_FORMATS = {"i1": "i", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "I", "u8": "B", "u16": "H", "u32": "I",
            "u64": "Q", "fp32": "f", "fp64": "d"}
_CONFIG = struct.Struct("@7IPPI")  # CUlaunchConfig
_INVALID_VALUE = 1
_INVALID_CONTEXT = (201, 400, 709)  # another context is current, or the handle belongs to another one


class Driver:
    """libcuda. path: the library; default $TRITIUM_LIBCUDA, else libcuda.so.1. Raises ContextError without one."""

    def __init__(self, path: str | None = None):
        path = path or environment.LIBCUDA.get()
        try:
            self.lib = ctypes.CDLL(path)
            self.short = ctypes.PyDLL(path)  # for calls that never wait: to let another thread run takes longer than they do
        except OSError as e:
            raise ContextError(f"gpu: the CUDA driver does not load: {e}. Install the NVIDIA driver, or use cpu(0).") from None
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        self.call("cuInit", 0)

    def call(self, function: str, *args: object) -> None:
        """Call a driver function. Raises OperatorError with the driver's message."""
        code = getattr(self.lib, function)(*args)
        if code:
            raise OperatorError(f"{function}: {self.message(code)}.")

    def message(self, code: int) -> str:
        """The meaning of an error code."""
        text = ctypes.c_char_p()
        self.lib.cuGetErrorString(code, ctypes.byref(text))
        return f"CUDA error {code}: {(text.value or b'unknown').decode()}"

    def enter(self, device: int) -> None:
        """Make the primary context of a device this thread's current one."""
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                handle, context = ctypes.c_int(), ctypes.c_void_p()
                self.call("cuDeviceGet", ctypes.byref(handle), device)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
                self._contexts[device] = context
        self.call("cuCtxSetCurrent", context)

    @functools.cache  # noqa: B019  (one driver a process)
    def capability(self, device: int) -> int:
        """Compute capability times ten."""
        return 10 * self.attribute(75, device) + self.attribute(76, device)

    @functools.cache  # noqa: B019
    def multiprocessors(self, device: int) -> int:
        """The device's number of multiprocessors."""
        return self.attribute(16, device)

    def attribute(self, number: int, device: int) -> int:
        """A device attribute by its number in cuda.h."""
        handle, value = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
        return value.value

    def function(self, kernel: CompiledKernel, cubin: bytes, device: int = 0) -> LoadedKernel:
        """Load machine code into the device's context."""
        self.enter(device)
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(handle), module, kernel.name.encode())
        if kernel.shared > _USUAL_SHARED:
            self.call("cuFuncSetAttribute", handle, _DYNAMIC_SHARED, kernel.shared)
        loaded = LoadedKernel(self, handle, kernel, device)
        taken = self._parameters(handle, len(loaded.sizes) + 1)
        if taken is not None and taken != loaded.sizes:
            raise OperatorError(f"{kernel.name}: its machine code takes parameters of {_listed(taken)} bytes, and the launcher "
                                f"packs {_listed(loaded.sizes)}. Delete {cache_dir()}, which another version may have written.")
        return loaded

    def _parameters(self, handle: ctypes.c_void_p, most: int) -> list[int] | None:
        """Return the bytes of each parameter of a function, of the first `most`; None where the driver does not tell.

        Drivers tell it from CUDA 12.4 on.
        """
        info: Any = getattr(self.lib, "cuFuncGetParamInfo", None)
        offset, size, found = ctypes.c_size_t(), ctypes.c_size_t(), []
        while info is not None and len(found) < most:
            code = info(handle, ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size))
            if code == _INVALID_VALUE:  # there is no further one
                return found
            if code:
                return None
            found.append(size.value)
        return None if info is None else found


@functools.cache
def driver() -> Driver:
    """The driver of this process."""
    return Driver()


class LoadedKernel:
    """A loaded kernel: enqueue(stream, grid, values, scratch=address), with the values in the order of its parameters.

    sizes: bytes of each parameter, the two scratch addresses included.
    """

    def __init__(self, driver: Driver, handle: ctypes.c_void_p, kernel: CompiledKernel, device: int):
        self.kernel, self.device, self._driver = kernel, device, driver
        self.names = [name for name, _ in kernel.parameters]
        codes = ["P" if t.startswith("*") else _FORMATS[t] for _, t in kernel.parameters]
        codes += ["P", "P"]  # scratch in global memory, and for profiling
        self.sizes = [struct.calcsize(c) for c in codes]
        packer = struct.Struct("@" + "".join(codes))
        offsets = [struct.calcsize("@" + "".join(codes[:i]) + "0" + c) for i, c in enumerate(codes)]
        self._buffer = ctypes.create_string_buffer(max(1, packer.size))
        base = ctypes.addressof(self._buffer)
        self._places = (ctypes.c_void_p * len(codes))(*(base + o for o in offsets))
        self._count = len(codes) - 2
        self._attributes = ctypes.create_string_buffer(struct.pack("@IIiI56x", _COOPERATIVE, 0, 1, 0))
        self._config = ctypes.create_string_buffer(_CONFIG.size + 8)
        without = struct.Struct("@" + "".join(codes[:-2]))  # the scratch addresses stay 0
        self.enqueue = self._launcher(packer.pack_into, without.pack_into, handle)

    def _launcher(self, pack_all: Any, pack: Any, handle: ctypes.c_void_p) -> Callable[..., None]:
        buffer, lock, last = self._buffer, threading.Lock(), None
        threads, shared, block, configure = 32 * self.kernel.num_warps, self.kernel.shared, self._config, _CONFIG.pack_into
        count = int(self.kernel.cooperative)
        attributes = ctypes.addressof(self._attributes) if count else 0
        start: Any = self._driver.short.cuLaunchKernelEx
        wait: Any = self._driver.lib.cuStreamSynchronize if GPU_SYNC else None
        config, places = ctypes.c_void_p(ctypes.addressof(self._config)), ctypes.c_void_p(ctypes.addressof(self._places))

        def enqueue(stream: int, grid: tuple[int, ...], values: Sequence[Any], scratch: int = 0) -> None:
            """Enqueue one launch; nothing if the grid has a zero.

            stream:  the driver's handle; 0 for the default stream. Pointers are addresses.
            Raises: ShapeError for a grid that is too large, ParameterError for a number that its parameter cannot hold,
                OperatorError with the driver's message.
            """
            nonlocal last
            with lock:  # the buffers are shared; the driver has copied them when it returns
                try:
                    if scratch:
                        pack_all(buffer, 0, *values, scratch, 0)
                    else:
                        pack(buffer, 0, *values)
                except (struct.error, OverflowError, TypeError):
                    raise self._misfit(values) from None
                if last != (stream, grid):
                    last = None
                    if len(grid) == 1 and 0 < grid[0] <= MAX_PROGRAMS:
                        configure(block, 0, grid[0], 1, 1, threads, 1, 1, shared, stream, attributes, count)
                    elif 0 in grid:
                        return
                    else:
                        check_grid(self.kernel.name, grid)
                        x, y, z = (*grid, 1, 1)[:3]
                        configure(block, 0, x, y, z, threads, 1, 1, shared, stream, attributes, count)
                    last = stream, grid
                code = start(config, handle, places, None)
                if code:
                    if code in _INVALID_CONTEXT:  # this thread's first launch, or torch used another device
                        self._driver.enter(self.device)
                        code = start(config, handle, places, None)
                    if code:
                        raise OperatorError(f"{self.kernel.name}: the launch failed: {self._driver.message(code)}.")
                if wait is not None:
                    code = wait(ctypes.c_void_p(stream))
                    if code:
                        raise OperatorError(f"{self.kernel.name}: the kernel failed on gpu({self.device}): "
                                            f"{self._driver.message(code)}. The GPU is lost to this process: start another.")

        return enqueue

    def _misfit(self, values: Sequence[Any]) -> Exception:
        if len(values) != self._count:
            return ParameterError(f"{self.kernel.name}: {len(values)} values for {self._count} parameters: "
                                  f"{', '.join(self.names)}.")
        for (name, kind), value in zip(self.kernel.parameters, values):
            try:
                struct.pack("P" if kind.startswith("*") else _FORMATS[kind], value)
            except (struct.error, OverflowError, TypeError):
                wide = {"i32": "int32", "i64": "int64", "fp32": "float32"}.get(kind, kind)
                hint = " Annotate the parameter tl.int64." if kind == "i32" and isinstance(value, int) else ""
                return ParameterError(f"{self.kernel.name}: {name}={value} does not fit {wide}.{hint}")
        raise AssertionError(values)


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "no"


def check_grid(name: str, grid: Sequence[int]) -> None:
    """Raise ShapeError for a grid that cannot be launched: the driver and Triton's launcher would start nothing."""
    programs = math.prod(grid)
    if programs > MAX_PROGRAMS or min(grid) < 0:
        raise ShapeError(f"{name}: a grid of {' x '.join(map(str, grid))} is {programs} programs, the limit is "
                         f"{MAX_PROGRAMS}. Use larger blocks.")
    if len(grid) > 1 and max(grid[1:]) > MAX_YZ:
        raise ShapeError(f"{name}: a grid of {' x '.join(map(str, grid))} has more than {MAX_YZ} programs along y or z. "
                         f"Put them along x.")
