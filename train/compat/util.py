"""`mx.util`: questions about the machine, the environment, and the NumPy switches that are always off here.

Environment variables of MXNet: MXNET_ENGINE_TYPE, MXNET_CPU_WORKER_NTHREADS, MXNET_EXEC_BULK_EXEC_*, MXNET_KVSTORE_*,
MXNET_UPDATE_ON_KVSTORE and MXNET_OPTIMIZER_AGGREGATION_SIZE mean what they mean there; all others (MXNET_CUDNN_*,
MXNET_MKLDNN_*, MXNET_SUBGRAPH_BACKEND, ...) are about parts that are not here, and are passed over in silence.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from ... import engine
from ...context import missing_gpu
from ...errors import MXNetError


def makedirs(d: str) -> None:
    """Make a folder and those above it; one that is there already is fine."""
    os.makedirs(os.path.expanduser(d), exist_ok=True)


def getenv(name: str) -> str | None:
    """An environment variable, or None."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable; None takes it away."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = str(value)


def get_gpu_count() -> int:
    """How many GPUs there are."""
    return engine.num_gpus()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """(free, total) bytes of a GPU. Raises ContextError when there is none of that number."""
    return gpu_memory_info(gpu_dev_id)


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of a GPU; as `mx.context.gpu_memory_info`. Raises ContextError when there is none of that number."""
    if not 0 <= device_id < engine.num_gpus():
        raise missing_gpu(device_id, engine.num_gpus())
    if engine.cuda.is_real():
        free, total = engine.cuda._need(device_id).cuda.mem_get_info(device_id)
        return int(free), int(total)
    page = os.sysconf("SC_PAGE_SIZE")  # interpreted: the memory is the host's
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def is_np_array() -> bool:
    """False: arrays are `mx.nd` arrays."""
    return False


def is_np_shape() -> bool:
    """False: 0 in a shape given by the user means unknown, where inference takes partial shapes."""
    return False


def set_np_shape(active: bool) -> bool:
    """Accepts False. Returns what it was: False."""
    if active:
        raise MXNetError("set_np_shape: NumPy semantics are not built. Scalars and arrays of no elements work without them.")
    return False


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """NumPy's interface of MXNet 1.6 and later is not built: an error."""
    raise MXNetError("set_np: mx.np is not built. Use mx.nd, which NumPy's own functions take as well.")


def reset_np() -> None:
    """Nothing to do: the switches are off."""


@contextlib.contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """Accepts False."""
    set_np_shape(active)
    yield


@contextlib.contextmanager
def np_array(active: bool = True) -> Iterator[None]:
    """Accepts False."""
    if active:
        set_np()
    yield


def use_np(func: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's interface is not built: an error where the decorator stands."""
    set_np()
    return func


def set_module(module: str) -> Callable[[Any], Any]:
    """Decorator: let a function or class say that it belongs to module."""

    def decorator(func: Any) -> Any:
        func.__module__ = module
        return func

    return decorator
