"""Recorded launches: the kernels that an operator would launch, without a GPU, arrays or Triton."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...dtype import as_dtype
from .job import CompileJob, job_of
from .source import KernelSource
from .target import recording


class LaunchRecorder:
    """Compile jobs instead of launches. launches: (job, grid) of each launch; arguments: those of each launch."""

    multiprocessors, interpreted = 132, False

    def __init__(self, target: int):
        self.target = target
        self.launches: list[tuple[CompileJob, tuple[int, ...]]] = []
        self.arguments: list[Sequence[Any]] = []

    def take(self, fn: KernelSource, grid: Sequence[int], args: Sequence[Any], constexprs: dict[str, Any], num_warps: int,
             num_stages: int) -> None:
        """Keep the job of one launch."""
        self.launches.append((job_of(fn, args, constexprs, num_warps, num_stages, self.target), tuple(grid)))
        self.arguments.append(args)

    @property
    def jobs(self) -> list[CompileJob]:
        """The jobs of all launches, each once."""
        return [job for i, (job, _) in enumerate(self.launches) if job not in [j for j, _ in self.launches[:i]]]


@contextlib.contextmanager
def record(target: int = 90) -> Iterator[LaunchRecorder]:
    """Record this thread's launches inside the block, for a compute capability (times ten), instead of running them.

    Triton need not be installed. Give kernels FakeRun and FakeArray.
    """
    previous, recording.recorder = recording.recorder, LaunchRecorder(target)
    try:
        yield recording.recorder
    finally:
        recording.recorder = previous


class FakeArray:
    """An array of a recorded launch: shape, dtype, and an address, by default a multiple of 256."""

    def __init__(self, shape: Sequence[int], dtype: DTypeLike, address: int = 1 << 12):
        self.shape, self.dtype, self._address = tuple(shape), FakeDtype(as_dtype(dtype)), address
        self.is_cuda, self.device = True, "recorded"

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, index: slice | int) -> FakeArray:
        """One row, or consecutive rows."""
        rest = self.shape[1:]
        first, stop, _ = (slice(index, index + 1) if isinstance(index, int) else index).indices(self.shape[0])
        address = self._address + first * self.dtype.itemsize * math.prod(rest)
        return FakeArray(rest if isinstance(index, int) else (max(0, stop - first), *rest), self.dtype.name, address)

    def reshape(self, *shape: int | Sequence[int]) -> FakeArray:
        """The same memory in another shape."""
        sizes = [n for part in shape for n in ([part] if isinstance(part, int) else part)]
        known = math.prod(n for n in sizes if n >= 0)
        return FakeArray([self.numel() // max(known, 1) if n < 0 else n for n in sizes], self.dtype.name, self._address)


class FakeDtype:
    """Looks like torch's dtype of that name."""

    def __init__(self, dtype: np.dtype):
        self.name, self.itemsize, self.is_floating_point = dtype.name, dtype.itemsize, "float" in dtype.name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class FakeRun:
    """A RunContext for recording."""

    stream = None

    def workspace(self, shape: Sequence[int], dtype: DTypeLike) -> FakeArray:
        return FakeArray(shape, dtype)

    def to_host(self, array: FakeArray) -> np.ndarray:
        return np.zeros(array.shape, as_dtype(array.dtype.name))

    def from_host(self, array: FakeArray, values: np.ndarray) -> None:
        """Do nothing: a recorded array has no values."""

    def refuse(self, failed: FakeArray, message: str) -> None:
        """Do nothing: a recorded array has no values."""

    def constant(self, values: np.ndarray) -> FakeArray:
        return FakeArray(values.shape, values.dtype)
