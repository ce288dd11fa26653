"""Launch a kernel with arrays and numbers, compiled or interpreted.

A compiled launch looks its specialisation up (by kernel, dtypes, which pointers divide by 16, constexprs and device) and calls
the driver; the first launch of a specialisation takes it from the store or compiles it. A specialisation never depends on the
value of a run-time number, so their count is known in advance.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import ParameterError
from ...gc_pause import gc_paused
from ...integers import cdiv
from ..kernel import DeviceArray, Stream
from ..op import Shaped
from . import store as gpu_store
from .driver import check_grid, driver
from .job import job_of
from .load import INTERPRET
from .source import KernelSource, Name, tl
from .target import recording

_INT32 = range(-(2**31), 2**31)


def launch(fn: KernelSource, grid: Sequence[int], *args: DeviceArray | float, num_warps: int = 4, num_stages: int = 3,
           stream: Stream | None = None, workspace: Callable[..., DeviceArray] | None = None, **constexprs: Any) -> None:
    """Run fn once per point of grid; a grid with a zero in it runs nothing.

    args:       tensors, ints, floats, in the order of fn's parameters, tensors first. An int must fit int32 unless its
                parameter is annotated tl.int64.
    stream:     the engine's; None is the default stream.
    workspace:  the RunContext's, for kernels that need scratch memory of their own (tensor descriptors).
    Raises ShapeError for too many programs, ParameterError for an int that does not fit.
    """
    recorder = recording.recorder
    if recorder is not None:
        recorder.take(fn, grid, args, constexprs, num_warps, num_stages)
    else:
        _run(fn, grid, args, constexprs, num_warps, num_stages, stream, workspace)


def dtype_of(array: Shaped) -> np.dtype:
    """The dtype of a device array as NumPy's."""
    return as_dtype(str(array.dtype).removeprefix("torch."))


def wide_float(array: Shaped) -> Name:
    """The dtype that floating-point sums over an array are computed in."""
    return tl.float64 if str(array.dtype) == "torch.float64" else tl.float32


def accumulator(array: Shaped) -> Name:
    """The dtype that sums over an array are computed in: int64 for integers."""
    return wide_float(array) if array.dtype.is_floating_point else tl.int64


def placed(random: tuple[Any, int], other: DeviceArray) -> tuple[DeviceArray, int, int]:
    """Return an array with seed and offset, a seed and an offset, for a kernel that draws random numbers.

    random:  seed and offset; or a device array int64 [2] of both, and a number added to the offset.
    Returns: that array, 0 and the number; or `other`, which is not read, the seed as a signed integer and the offset.
    """
    seed, offset = random
    if hasattr(seed, "data_ptr"):
        return seed, 0, offset
    seed &= 2**64 - 1
    return other, seed - 2**64 if seed >= 2**63 else seed, offset


# ---- compiled --------------------------------------------------------------------------------------------------------
_launched: set[KernelSource] = set()  # by this process


def _run_compiled(fn: KernelSource, grid: Sequence[int], args: Sequence[Any], constexprs: dict[str, Any], num_warps: int,
                  num_stages: int, stream: Any, workspace: Any) -> None:
    device, handle = (0, 0) if stream is None else (stream.device_index, stream.cuda_stream)
    enqueue, size, alignment = ready(fn, args, constexprs, num_warps, num_stages, device)
    values = [a.data_ptr() for a in args[:fn.arrays]]
    values += args[fn.arrays:]
    if not size:
        enqueue(handle, grid, values)
        return
    if workspace is None:
        raise ParameterError(f"{fn.name}: needs {size} bytes of scratch a program. Give launch(workspace=run.workspace).")
    memory = workspace((math.prod(grid) * size + alignment,), np.dtype("uint8"))
    enqueue(handle, grid, values, cdiv(memory.data_ptr(), alignment) * alignment)


def ready(fn: KernelSource, args: Sequence[Any], constexprs: dict[str, Any], num_warps: int, num_stages: int, device: int
          ) -> tuple[Callable[..., None], int, int]:
    """The loaded specialisation for these arguments: (enqueue, bytes of scratch memory per program, their alignment)."""
    arrays = fn.arrays
    if arrays < 0:
        arrays = fn.arrays = sum(hasattr(a, "data_ptr") for a in args)
    key: list[Any] = [device, num_warps, num_stages, *constexprs.values()]
    low = 0
    for a in args[:arrays]:
        low |= a.data_ptr()
        key.append(a.dtype)
    if low & 15:
        key += [a.data_ptr() & 15 == 0 for a in args[:arrays]]
    found = fn.ready.get(specialised := tuple(key))
    if found is None:
        found = fn.ready[specialised] = _load(fn, args, constexprs, num_warps, num_stages, device)
    return found


def _load(fn: KernelSource, args: Sequence[Any], constexprs: dict[str, Any], num_warps: int, num_stages: int,
          device: int) -> tuple[Callable[..., None], int, int]:
    """Load a specialisation from the store, or compile it now: (enqueue, bytes of scratch per program, their alignment)."""
    job = job_of(fn, args, constexprs, num_warps, num_stages, driver().capability(device))
    digest = job.digest()
    artefact = gpu_store.find(digest)
    if artefact is None:
        from .compile import compile_here

        artefact = compile_here(json.loads(json.dumps(job.to_json())))
        gpu_store.keep(digest, *artefact)
    _launched.add(fn)
    return driver().function(*artefact, device).enqueue, *artefact[0].scratch


def specialisations() -> dict[str, int]:
    """The number of specialisations of each kernel that this process has launched."""
    counts: dict[str, int] = {}
    for fn in _launched:
        counts[fn.name] = counts.get(fn.name, 0) + len(fn.ready)
    return counts


# ---- interpreted -----------------------------------------------------------------------------------------------------
_WIDE = {"int64": np.int64, "float64": np.float64}
_interpreter = threading.RLock()  # it keeps its position in the grid in a global


class _Log(threading.local):
    """The log of this thread's interpreted launches; None while nothing is logged."""

    launches: list[Callable[[], None]] | None = None


_log = _Log()


@contextlib.contextmanager
def log_launches() -> Iterator[list[Callable[[], None]]]:
    """Log this thread's interpreted launches inside the block: functions that repeat them in the same memory, as a CUDA
    graph would."""
    previous, _log.launches = _log.launches, []
    try:
        yield _log.launches
    finally:
        _log.launches = previous


def launches_logged() -> int:
    """The number of launches in this thread's log; 0 while nothing is logged."""
    return len(_log.launches or ())


def _run_interpreted(fn: KernelSource, grid: Sequence[int], args: Sequence[Any], constexprs: dict[str, Any],
                     *_options: Any) -> None:
    if math.prod(grid) == 0:
        return
    check_grid(fn.name, grid)
    if _log.launches is not None:
        _log.launches.append(partial(_run_interpreted, fn, grid, args, constexprs))
    annotations = [fn.annotations[p] for p in fn.arg_names]
    for name, annotation, a in zip(fn.arg_names, annotations, args):
        if a is None:  # the interpreter would take it; a driver takes addresses
            raise ParameterError(f"{fn.name}: {name} is None. Pass another array for one that the kernel leaves alone.")
        if type(a) is int and a not in _INT32 and annotation != "int64":
            raise ParameterError(f"{fn.name}: {name}={a} does not fit int32. Annotate the parameter tl.int64.")
    values = {k: v.real() if isinstance(v, Name) else v for k, v in constexprs.items()}
    # a finalizer that parses, or lets a thread that parses go on, breaks Triton's parsing in CPython 3.11: "AST constructor
    # recursion depth mismatch"
    with _interpreter, gc_paused(), np.errstate(all="ignore"):
        fn.function()[tuple(grid)](*map(_interpreted_value, args, annotations), **values)


def _interpreted_value(a: Any, annotation: str) -> Any:
    """An argument as the interpreter takes it: a number with the width it is annotated with, an array as a pointer.

    Given a tensor, the interpreter would copy the tensor's whole storage after each launch, and with it what another worker
    has written there meanwhile.
    """
    if hasattr(a, "data_ptr"):
        address, dtype = a.data_ptr(), str(a.dtype).removeprefix("torch.")
    elif isinstance(a, np.ndarray):
        address, dtype = a.ctypes.data, a.dtype.name
    elif annotation in _WIDE and isinstance(a, (int, float)):
        return _interpreter_tensor(np.array([a], _WIDE[annotation]), annotation)
    elif type(a) is float:
        return _interpreter_tensor(np.array([a], np.float32), "float32")
    else:
        return a
    return _interpreter_tensor(np.array([address], np.uint64), "int1" if dtype == "bool" else dtype, pointer=True)


def _interpreter_tensor(value: np.ndarray, dtype: str, pointer: bool = False) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    ty = getattr(tl, dtype)
    ty = tl.pointer_type(ty) if pointer else ty
    return tl.tensor(TensorHandle(value, ty), ty)


def run_again(fn: KernelSource, grid: Sequence[int], args: Sequence[Any], constexprs: dict[str, Any], num_warps: int,
              num_stages: int, stream: Stream | None) -> None:
    """Run a launch that was recorded, with these arguments."""
    _run(fn, grid, args, constexprs, num_warps, num_stages, stream, None)


_run: Callable[..., None] = _run_interpreted if INTERPRET else _run_compiled
