"""The target of this thread's kernels: interpreted or compiled, for which compute capability, on how many multiprocessors."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...context import GPU_MODE
from ...errors import ContextError
from ...integers import next_power_of_2
from . import load as gpu_load
from . import store as gpu_store
from .driver import driver
from .load import INTERPRET
from .source import KernelSource


class Recorder(Protocol):
    """An object that takes launches instead of a device: take(kernel, grid, arguments, constexprs, warps, stages).

    target: the compute capability, times ten, that they are for; multiprocessors: of that device. interpreted: whether they are
    for the interpreter.
    """

    target: int
    multiprocessors: int
    interpreted: bool

    def take(self, fn: KernelSource, grid: Sequence[int], args: Any, constexprs: dict[str, Any], num_warps: int,
             num_stages: int, /) -> None: ...


class _Recording(threading.local):
    """The recorder that takes this thread's launches; None where they run."""

    recorder: Recorder | None = None


recording = _Recording()


@dataclass(frozen=True)
class CodegenTarget:
    """The reader of a kernel's text.

    interpreted:  the interpreter, whose cost is per program and hardly per element; else the compiler.
    largest:      elements that one interpreted program may take.
    multiprocessors: those of the GPU.
    """

    interpreted: bool
    largest: int = 1 << 16
    multiprocessors: int = 132

    def block(self, n: int, compiled: int = 1024) -> int:
        """Elements that one program should take of n: `compiled` on a GPU; a power of two, at least 16."""
        return max(16, min(next_power_of_2(n), self.largest)) if self.interpreted else compiled


def interpreting() -> bool:
    """Return True where this thread's launches are interpreted. Launches that are only recorded are not."""
    return INTERPRET and (recording.recorder is None or recording.recorder.interpreted)


def codegen_target() -> CodegenTarget:
    """The target of the kernels that this thread launches now."""
    return CodegenTarget(interpreting(), multiprocessors=multiprocessors())


def block_for(n: int, compiled: int = 1024) -> int:
    """Elements that one program of this thread should take of n."""
    return codegen_target().block(n, compiled)


def tile_size(n: int, compiled: int, interpreted: int = 256) -> int:
    """A block along an axis of n: a power of two, at least 16; larger in the interpreter."""
    return max(16, min(next_power_of_2(n), interpreted if interpreting() else compiled))


def check_triton() -> None:
    """Raise ContextError unless kernels can be interpreted, compiled or found in the store.

    Imports triton only in an interpreted process.
    """
    if INTERPRET:
        gpu_load.check_triton()
    elif importlib.util.find_spec("triton") is None and not gpu_store.folder().exists():
        raise ContextError('load: triton is not installed. Install it with pip install "tritium[gpu]", or use cpu(0).')


def compute_capability(device: int = 0) -> int:
    """The compute capability, times ten, that this thread's launches are compiled for; 90 without a GPU."""
    if recording.recorder is not None:
        return recording.recorder.target
    return driver().capability(device) if GPU_MODE == "cuda" else 90


def multiprocessors(device: int = 0) -> int:
    """The number of multiprocessors that this thread's launches have; 132 without a GPU."""
    if recording.recorder is not None:
        return recording.recorder.multiprocessors
    return driver().multiprocessors(device) if GPU_MODE == "cuda" else 132
