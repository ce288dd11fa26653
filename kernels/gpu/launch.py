"""A launch: of a kernel with arrays and numbers, compiled or interpreted.

Compiled, it is a look-up (kernel, dtypes, which pointers divide by 16, constexprs, target), at most once the store or
the compiler, and a call of the driver. A specialisation never depends on the value of a run-time number, so how many
there are is ours to choose and to count.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...context import GPU_MODE
from ...dtype import as_dtype
from ...errors import ContextError, ParameterError
from . import launch_log
from . import load as gpu_load
from . import store as gpu_store
from .driver import MAX_PROGRAMS, check_grid, driver
from .job import Job
from .load import HEADER, INTERPRET, cache_dir, load, write_source
from .source import Kernel, Name

__all__ = ["HEADER", "INTERPRET", "MAX_PROGRAMS", "Flavour", "block_for", "bound", "cache_dir", "cdiv", "check_triton", "here",
           "interpreting", "launch", "load", "name_of", "next_power_of_2", "record", "specialisations", "target",
           "write_source"]

_INT32 = range(-(2**31), 2**31)
_lock = threading.RLock()  # the interpreter keeps its grid position in one global
_launched: set[Kernel] = set()  # in this process, compiled
_recording = threading.local()
_recorders: list[Any] = []  # those at work, in any thread


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Flavour:
    """What a kernel's text is printed for.

    interpreted:  for the interpreter, whose cost is per program and hardly per element.
    largest:      elements one interpreted program may take.
    """

    interpreted: bool
    largest: int = 1 << 16

    def block(self, n: int, compiled: int = 1024) -> int:
        """Elements one program should take of n: `compiled` on a GPU; a power of two, at least 16."""
        return max(16, min(next_power_of_2(n), self.largest)) if self.interpreted else compiled


def interpreting() -> bool:
    """Whether the launches that are made now are interpreted (those that are only recorded are not)."""
    return INTERPRET and getattr(_recording, "to", None) is None


def here() -> Flavour:
    """What is printed for now."""
    return Flavour(interpreting())


def block_for(n: int, compiled: int = 1024) -> int:
    """Elements one program should take of n, here."""
    return here().block(n, compiled)


def check_triton() -> None:
    """Raise ContextError where kernels can neither be interpreted nor compiled nor found in the store.

    Imports triton only in an interpreted process.
    """
    if INTERPRET:
        gpu_load.check_triton()
    elif importlib.util.find_spec("triton") is None and not gpu_store.folder().exists():
        raise ContextError('load: triton is not installed. Install it with pip install "tritium[gpu]", or use cpu(0).')


def target(device: int = 0) -> int:
    """The compute capability, times ten, that launches here are compiled for; 90 where no GPU says otherwise."""
    recorder = getattr(_recording, "to", None)
    if recorder is not None:
        return recorder.target
    return driver().capability(device) if GPU_MODE == "cuda" else 90


def multiprocessors(device: int = 0) -> int:
    """How many multiprocessors launches here have; 132 where no GPU says otherwise."""
    known = GPU_MODE == "cuda" and getattr(_recording, "to", None) is None
    return driver().multiprocessors(device) if known else 132


def launch(fn: Any, grid: Sequence[int], *args: Any, num_warps: int = 4, num_stages: int = 3, stream: Any = None,
           workspace: Any = None, **constexprs: Any) -> None:
    """Run fn once per point of grid.

    fn:      a Kernel (source.py), or a function of Triton's own.
    args:    tensors, ints, floats, in the order of fn's parameters, tensors first. An int must fit int32 unless its
             parameter is annotated tl.int64.
    stream:  what the engine runs on; None is the default stream.
    workspace:  the RunContext's, for kernels that need scratch memory of their own (tensor descriptors).
    A grid with a zero in it runs nothing. Raises ShapeError for too many programs, ParameterError for an int that
    does not fit.
    """
    if type(fn) is Kernel and not INTERPRET and (not _recorders or getattr(_recording, "to", None) is None):
        device, handle = (0, 0) if stream is None else (stream.device_index, stream.cuda_stream)
        arrays = fn.arrays
        if arrays < 0:
            arrays = fn.arrays = sum(hasattr(a, "data_ptr") for a in args)
        key: list[Any] = [device, num_warps, num_stages, *constexprs.values()]
        values: list[Any] = []
        low = 0
        for a in args[:arrays]:
            address = a.data_ptr()
            low |= address
            values.append(address)
            key.append(a.dtype)
        if low & 15:
            key += [address & 15 == 0 for address in values]
        values += args[arrays:]
        found = fn.ready.get(specialised := tuple(key))
        if found is None:
            found = fn.ready[specialised] = _resolve(fn, args, constexprs, num_warps, num_stages, device)
        enqueue, size, alignment = found
        if not size:
            enqueue(handle, grid, values)
            return
        if workspace is None:
            raise ParameterError(f"{fn.name}: needs {size} bytes of scratch a program. Give launch(workspace=run.workspace).")
        memory = workspace((math.prod(grid) * size + alignment,), np.dtype("uint8"))
        enqueue(handle, grid, values, cdiv(memory.data_ptr(), alignment) * alignment)
        return
    if _recorded(fn, grid, args, constexprs, num_warps, num_stages):
        return
    if math.prod(grid) == 0:
        return
    check_grid(name_of(fn), grid)
    if (noted := launch_log.running()) is not None:
        noted.append(partial(launch, fn, grid, *args, num_warps=num_warps, num_stages=num_stages, stream=stream, **constexprs))
    if isinstance(fn, Kernel):
        fn = fn.function()
        constexprs = {k: v.real() if isinstance(v, Name) else v for k, v in constexprs.items()}
    _check_ints(fn, args)
    if INTERPRET:
        with _lock, np.errstate(all="ignore"):
            fn[tuple(grid)](*map(_host_value, args, _annotations(fn)), **constexprs)
    else:
        with stream.enter() if hasattr(stream, "enter") else nullcontext():
            fn[tuple(grid)](*args, num_warps=num_warps, num_stages=num_stages, **constexprs)


# ---- compiled: from arguments to a job, from a job to a function -------------------------------------------------------
_SIGNATURE = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "bool": "i1", "int8": "i8",
              "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32",
              "uint64": "u64"}
_WIDE_TYPES = {"int64": "i64", "float64": "fp64"}


def job_of(fn: Any, args: Sequence[Any], constexprs: dict[str, Any], num_warps: int, num_stages: int,
           target: int) -> Job:
    """What must be compiled for a launch. Of run-time numbers only the kind matters, never the value."""
    signature, aligned = {}, []
    for name, a in zip(fn.arg_names, args):
        if hasattr(a, "data_ptr"):
            signature[name] = "*" + _SIGNATURE[str(a.dtype).removeprefix("torch.")]
            if a.data_ptr() % 16 == 0:
                aligned.append(name)
        else:
            usual = "fp32" if isinstance(a, float) else "i32"
            signature[name] = _WIDE_TYPES.get(fn.annotations[name], usual)
    return Job(fn.source, fn.name, signature, dict(constexprs), target, tuple(aligned), num_warps, num_stages)


def _resolve(fn: Kernel, args: Sequence[Any], constexprs: dict[str, Any], num_warps: int, num_stages: int,
             device: int) -> tuple[Callable[..., None], int, int]:
    """What launches (stream handle, grid, values), and the scratch each program needs: bytes, alignment.

    From the store, else compiled here and now.
    """
    job = job_of(fn, args, constexprs, num_warps, num_stages, driver().capability(device))
    digest = job.digest()
    found = gpu_store.find(digest)
    if found is None:
        from .compile import compile_here

        found = compile_here(json.loads(json.dumps(job.to_json())))
        gpu_store.keep(digest, *found)
    _launched.add(fn)
    return driver().function(*found, device).enqueue, *found[0].scratch


def bound(fn: Kernel, arrays: Sequence[Any], constexprs: dict[str, Any], numbers: Sequence[float] = (), *, num_warps: int = 4,
          num_stages: int = 3, device: int = 0) -> Callable[..., None]:
    """The function (stream handle, grid, *addresses, *numbers) of a specialisation, for callers that launch it often.

    arrays: any with the dtypes and the alignment to launch with; numbers: any of their kinds.
    """
    enqueue, scratch, _ = _resolve(fn, [*arrays, *numbers], constexprs, num_warps, num_stages, device)
    assert not scratch, fn
    return lambda stream, grid, *values: enqueue(stream, grid, values)


def specialisations() -> dict[str, int]:
    """How many specialisations of each kernel this process has launched."""
    counts: dict[str, int] = {}
    for fn in _launched:
        counts[fn.name] = counts.get(fn.name, 0) + len(fn.ready)
    return counts


# ---- recording: which kernels an operator would launch ------------------------------------------------------------------
class Recorder:
    """Jobs instead of launches, each once. launches: per launch (job, grid)."""

    def __init__(self, target: int):
        self.target = target
        self.launches: list[tuple[Job, tuple[int, ...]]] = []

    @property
    def jobs(self) -> list[Job]:
        return [job for i, (job, _) in enumerate(self.launches) if job not in [j for j, _ in self.launches[:i]]]


class FakeArray:
    """An array of a launch that is only recorded: shape and dtype, and an address that divides by 256 (or not)."""

    def __init__(self, shape: Sequence[int], dtype: Any, address: int = 1 << 12):
        self.shape, self.dtype, self._address = tuple(shape), FakeDtype(as_dtype(dtype)), address
        self.is_cuda, self.device = True, "recorded"

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, place: slice | int) -> FakeArray:
        """One row, or a run of rows."""
        rest = self.shape[1:]
        first, stop, _ = (slice(place, place + 1) if isinstance(place, int) else place).indices(self.shape[0])
        address = self._address + first * self.dtype.itemsize * math.prod(rest)
        return FakeArray(rest if isinstance(place, int) else (max(0, stop - first), *rest), self.dtype.name, address)

    def reshape(self, *shape: Any) -> FakeArray:
        """The same memory in another shape."""
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        known = math.prod(n for n in shape if n >= 0)
        return FakeArray([self.numel() // max(known, 1) if n < 0 else n for n in shape], self.dtype.name, self._address)


class FakeDtype:
    """Looks like torch's dtype of that name."""

    def __init__(self, dtype: np.dtype):
        self.name, self.itemsize, self.is_floating_point = dtype.name, dtype.itemsize, "float" in dtype.name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class FakeRun:
    """A RunContext for recording."""

    stream = None

    def workspace(self, shape: Sequence[int], dtype: Any) -> FakeArray:
        return FakeArray(shape, dtype)


@contextlib.contextmanager
def record(target: int = 90) -> Iterator[Recorder]:
    """Within, this thread's launches are written down for a compute capability (times ten) and not made.

    Triton need not be here. Give kernels FakeRun and FakeArray.
    """
    previous = getattr(_recording, "to", None)
    _recording.to = recorder = Recorder(target)
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)
        _recording.to = previous


def _recorded(fn: Any, grid: Sequence[int], args: Sequence[Any], constexprs: dict[str, Any], num_warps: int,
              num_stages: int) -> bool:
    recorder = getattr(_recording, "to", None)
    if recorder is None:
        return False
    recorder.launches.append((job_of(fn, args, constexprs, num_warps, num_stages, recorder.target), tuple(grid)))
    return True


# ---- interpreted -----------------------------------------------------------------------------------------------------
def name_of(fn: Any) -> str:
    """The name a kernel was defined with."""
    return getattr(fn, "name", None) or getattr(fn, "__name__", None) or getattr(getattr(fn, "fn", None), "__name__", "kernel")


def _annotations(fn: Any) -> list[str]:
    """Per parameter, the name of the type it is annotated with, or "" ."""
    known = fn.fn.__annotations__
    return [getattr(a, "name", str(a).removeprefix("tl.")) for a in (known.get(p, "") for p in fn.arg_names)]


def _check_ints(fn: Any, args: Sequence[Any]) -> None:
    for i, a in enumerate(args):
        if type(a) is int and a not in _INT32 and _annotations(fn)[i] not in ("int64", "i64"):
            raise ParameterError(
                f"{name_of(fn)}: {fn.arg_names[i]}={a} does not fit int32. Annotate the parameter tl.int64."
            )


_TL_NAMES = {"bool": "int1"}
_WIDE = {"int64": np.int64, "fp64": np.float64, "float64": np.float64}


def _host_value(a: Any, annotation: str) -> Any:
    """What the interpreter takes for an argument: numbers with the width they are annotated with, and for an array a
    pointer to its memory. Given a tensor, the interpreter would copy the tensor's whole storage after each launch, and
    with it what another worker wrote there meanwhile."""
    if hasattr(a, "data_ptr"):
        address, dtype = a.data_ptr(), str(a.dtype).removeprefix("torch.")
    elif isinstance(a, np.ndarray):
        address, dtype = a.ctypes.data, a.dtype.name
    elif annotation in _WIDE and isinstance(a, (int, float)):
        return _scalar(np.array([a], _WIDE[annotation]), "int64" if annotation == "int64" else "float64")
    elif type(a) is float:
        return _scalar(np.array([a], np.float32), "float32")
    else:
        return a
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    ty = tl.pointer_type(getattr(tl, _TL_NAMES.get(dtype, dtype)))
    return tl.tensor(TensorHandle(np.array([address], dtype=np.uint64), ty), ty)


def _scalar(value: np.ndarray, dtype: str) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    ty = getattr(tl, dtype)
    return tl.tensor(TensorHandle(value, ty), ty)
