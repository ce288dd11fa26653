"""`mx.util`: GPUs, environment variables, and the NumPy switches, of which Tritium has np_shape.

Of MXNet's environment variables, MXNET_ENGINE_TYPE, MXNET_CPU_WORKER_NTHREADS, MXNET_EXEC_BULK_EXEC_*, MXNET_KVSTORE_*,
MXNET_UPDATE_ON_KVSTORE and MXNET_OPTIMIZER_AGGREGATION_SIZE have the same meaning here. All others (MXNET_CUDNN_*,
MXNET_MKLDNN_*, MXNET_SUBGRAPH_BACKEND, ...) concern parts of MXNet that do not exist here, and are ignored.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from ... import engine
from ...context import Context, missing_gpu
from ...errors import MXNetError
from ...np_shape import state


def makedirs(d: str) -> None:
    """Create a folder and its parents. An existing folder is not an error."""
    os.makedirs(os.path.expanduser(d), exist_ok=True)


def getenv(name: str) -> str | None:
    """Return an environment variable, or None."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = str(value)


def get_gpu_count() -> int:
    """Return the number of GPUs."""
    return engine.num_gpus()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """Return (free, total) bytes of a GPU. Raises ContextError for a number without a GPU."""
    return gpu_memory_info(gpu_dev_id)


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Return (free, total) bytes of a GPU; also `mx.context.gpu_memory_info`. Raises ContextError for a number without a GPU."""
    if not 0 <= device_id < engine.num_gpus():
        raise missing_gpu(device_id, engine.num_gpus())
    if engine.cuda.is_real():
        free, total = engine.cuda._need(device_id).cuda.mem_get_info(device_id)
        return int(free), int(total)
    page = os.sysconf("SC_PAGE_SIZE")  # an interpreted GPU uses the memory of the host
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def is_np_array() -> bool:
    """Return False: arrays are `mx.nd` arrays."""
    return False


def is_np_shape() -> bool:
    """Return True in a thread in which 0 in a shape is a size and -1 is unknown; by default 0 is unknown."""
    return state.active


def set_np_shape(active: bool) -> bool:
    """Set is_np_shape() for this thread, and return the value before."""
    before, state.active = state.active, bool(active)
    return before


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Raise MXNetError: the NumPy interface of MXNet 1.6 and later is not available."""
    raise MXNetError("set_np: mx.np is not available. Use mx.nd; NumPy's functions accept its arrays.")


def reset_np() -> None:
    """Switch np_shape off."""
    set_np_shape(False)


@contextlib.contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """Set is_np_shape() in a `with` block."""
    before = set_np_shape(active)
    try:
        yield
    finally:
        set_np_shape(before)


def use_np_shape(func: Any) -> Any:
    """Return a function that runs with is_np_shape(); of a class, wrap each of its methods so. A decorator."""
    if isinstance(func, type):
        for name, method in list(vars(func).items()):
            if callable(method) and not isinstance(method, type):
                setattr(func, name, use_np_shape(method))
        return func

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with np_shape():
            return func(*args, **kwargs)

    return wrapped


@contextlib.contextmanager
def np_array(active: bool = True) -> Iterator[None]:
    """Accept False. Raises MXNetError for True."""
    if active:
        set_np()
    yield


def use_np(func: Callable[..., Any]) -> Callable[..., Any]:
    """Raise MXNetError: the NumPy interface is not available."""
    set_np()
    return func


use_np_array = use_np


def get_cuda_compute_capability(ctx: Context) -> int:
    """Return the compute capability of a GPU, such as 90 for 9.0. Raises ContextError for a context without a GPU."""
    if ctx.device_type != "gpu" or not 0 <= ctx.device_id < engine.num_gpus() or not engine.cuda.is_real():
        raise missing_gpu(ctx.device_id, engine.num_gpus() if engine.cuda.is_real() else 0)
    major, minor = engine.cuda._need(ctx.device_id).cuda.get_device_capability(ctx.device_id)
    return 10 * major + minor


def set_module(module: str) -> Callable[[Any], Any]:
    """Return a decorator that sets __module__ of a function or class."""

    def decorator(func: Any) -> Any:
        func.__module__ = module
        return func

    return decorator
