"""Context: the device of an array or of work. `cpu(0)`, `gpu(1)`; `with mx.gpu(0):` sets the current one."""

from __future__ import annotations

import contextvars
import importlib.util
from collections.abc import Callable

from . import environment
from .errors import ContextError

#: "interpret": gpu(0) is Triton's interpreter on host memory. "cuda": a real device, if torch finds one. "off": no GPU.
#: Read when Tritium is imported.
GPU_MODE = environment.GPU.get()

#: The host waits after every kernel on a real GPU, so that an error names the kernel that made it. No work is captured then.
GPU_SYNC = environment.GPU_SYNC.get()

#: "cpu" makes every context of a GPU one of the CPU: `tritium run --device cpu`.
GPU_CONTEXTS = environment.GPU_CONTEXTS.get()

#: MXNet has them here too. They belong to higher floors; the root's __init__.py sets them.
num_gpus: Callable[[], int]
gpu_memory_info: Callable[..., tuple[int, int]]

_entered: contextvars.ContextVar[tuple[Context, ...]] = contextvars.ContextVar("tritium_context", default=())  # by `with ctx:`

# MXNet's device type numbers in files
_TYPES = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
_NAMES = {v: k for k, v in _TYPES.items()}


class _Default:
    """The attribute `Context.default_ctx`: the current context."""

    def __get__(self, instance: object, owner: type) -> Context:
        return current_context()


class Context:
    """A device: a type ("cpu", "gpu", "cpu_pinned") and a number. Equal contexts are one key in dictionaries.

    Creating one does not use the device. Using a device that does not exist raises ContextError. Programs may set attributes.

    is_gpu: True if kernels for this context are Triton's.
    """

    devtype2str = _NAMES
    devstr2type = _TYPES
    default_ctx = _Default()

    def __init__(self, device_type: str | Context, device_id: int = 0):
        if isinstance(device_type, Context):
            device_type, device_id = device_type.device_type, device_type.device_id
        if device_type not in _TYPES:
            raise ContextError(f"Context: unknown device type {device_type!r}. Known: {', '.join(_TYPES)}.")
        if device_type == "gpu" and GPU_CONTEXTS == "cpu":
            device_type = "cpu"
        if device_id < 0:
            raise ContextError(f"Context: device_id {device_id} is negative.")
        self.device_type: str = device_type
        self.device_id = int(device_id)
        self.is_gpu = device_type == "gpu"

    @property
    def device_typeid(self) -> int:
        """MXNet's number for the device type, as in files."""
        return _TYPES[self.device_type]

    @property
    def work(self) -> Context:
        """Where operators on arrays of this context run and put their results: cpu(0) for pinned and shared host memory."""
        return _CPU0 if self.device_type in ("cpu_pinned", "cpu_shared") else self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.device_type == other.device_type and self.device_id == other.device_id

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __enter__(self) -> Context:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _entered.set(_entered.get()[:-1])

    def empty_cache(self) -> None:
        """Do nothing; for MXNet scripts. `mx.storage.release_all(ctx)` gives pooled memory back."""


def cpu(device_id: int = 0) -> Context:
    """Return a context of the host. Several CPU contexts are separate devices with their own workers."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """Return a context of a GPU. With TRITIUM_GPU=interpret, `gpu(0)` is Triton's interpreter on any machine."""
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Return a context of host memory that a GPU copies from without a staging buffer: arrays of more than 16 KB are pinned.

    Where CUDA is not there it is ordinary memory. Operators on it run, and put their results, on cpu(0).
    """
    return Context("cpu_pinned", device_id)


def current_context() -> Context:
    """Return the context of the innermost `with ctx:`, else `cpu(0)`."""
    entered = _entered.get()
    return entered[-1] if entered else _CPU0


def as_context(spelling: Context | str | None) -> Context | None:
    """Return a Context for a Context, or for text such as "gpu(0)" and "cpu"; None for None and "".

    Raises ContextError, or ValueError for a number that is none.
    """
    if isinstance(spelling, Context):
        return spelling
    if spelling is None or spelling == "":
        return None
    kind, _, number = str(spelling).partition("(")
    return Context(kind, int(number.rstrip(")") or 0))


def context_of(spelling: Context | str | None) -> Context:
    """Return the context of a spelling as in `as_context`, by default the current one."""
    return as_context(spelling) or current_context()


_CPU0 = Context("cpu", 0)


def missing_gpu(device_id: int, found: int) -> ContextError:
    """Return the error for a GPU that does not exist, with the way to get one.

    found: the number of GPUs.
    """
    if GPU_MODE == "off":
        how = "TRITIUM_GPU=off forbids GPUs: unset it."
    elif importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        how = 'Install the GPU packages with pip install "tritium[gpu]", or use cpu(0).'
    else:
        how = "Use cpu(0), or set TRITIUM_GPU=interpret to run GPU kernels in Triton's interpreter on this machine."
    have = f"{found} GPU{'s' if found != 1 else ''} here"
    return ContextError(f"gpu({device_id}): no such device: {have}. {how}")
