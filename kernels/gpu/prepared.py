"""Prepared calls: the launches of an operator at fixed layouts, found once and repeated with the addresses of other arrays.

To find the launches of a call takes longer than to enqueue them: device arrays are made, sizes and grids computed, kernels
looked up. None of that depends on where the arrays lie. So the kernel is run once on arrays without memory, which say to which
operand an address belongs, and a later call only fills the addresses in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from ...dtype import as_dtype
from ...errors import OperatorError
from ..kernel import KernelFunction, Run
from ..op import Req, Specs
from . import launch
from .body import LateScalar, RunTimeScalar
from .load import INTERPRET
from .record import FakeArray
from .source import KernelSource
from .target import compute_capability, multiprocessors, recording

_PLACE = 44  # the bit from which an address tells the operand
_ALIGNED = 16  # bytes: what kernels are compiled for
_MANY = 16  # values of run-time scalars that have launches of their own, of a kernel that computes with them on the host


class DeviceRun(Run, Protocol):
    """The run context of a prepared call. scratch: memory, with its `address`, until it is dropped."""

    def scratch(self, nbytes: int, /) -> Any: ...


class _Launches:
    """The recorder of one run. launches: (kernel, grid, arguments, constexprs, warps, stages)."""

    def __init__(self, device: int):
        self.target, self.multiprocessors, self.interpreted = compute_capability(device), multiprocessors(device), INTERPRET
        self.launches: list[tuple[KernelSource, tuple[int, ...], tuple, dict[str, Any], int, int]] = []

    def take(self, fn: KernelSource, grid: Sequence[int], args: tuple, constexprs: dict[str, Any], num_warps: int,
             num_stages: int) -> None:
        """Keep one launch."""
        if 0 not in grid:
            self.launches.append((fn, tuple(grid), args, constexprs, num_warps, num_stages))


class _RecordedRun:
    """The run context of that run. Values on the host may not be asked for.

    more: the arrays that follow the operands, by number: the bytes of scratch memory, or the values of a constant.
    """

    stream = None

    def __init__(self, operands: int):
        self.operands = operands
        self.more: list[int | np.ndarray] = []

    def add(self, what: int | np.ndarray) -> int:
        """Return the number of another array."""
        self.more.append(what)
        return self.operands + len(self.more) - 1

    def workspace(self, shape: Sequence[int], dtype: DTypeLike) -> FakeArray:
        number = self.add(math.prod(shape) * as_dtype(dtype).itemsize)
        return FakeArray(shape, dtype, number + 1 << _PLACE)

    def constant(self, values: np.ndarray) -> FakeArray:
        return FakeArray(values.shape, values.dtype, self.add(values) + 1 << _PLACE)


class PreparedCall:
    """`Kernel.at` of a kernel on a GPU: its launches are found at the first call, and repeated with other addresses.

    kernel: the function that runs it. ins, outs: the layouts of its operands. reqs: of the outputs; one that is NULL has no
    address, and 0 stands in its place.
    """

    __slots__ = ("_found", "_ins", "_kernel", "_outs", "_reqs")

    def __init__(self, kernel: KernelFunction, ins: Specs, outs: Specs, reqs: Sequence[Req]):
        self._kernel, self._ins, self._outs, self._reqs = kernel, ins, outs, reqs
        self._found: dict[Any, _Program | None] = {}  # by device; and by device and scalars

    def __call__(self, run: DeviceRun, places: Sequence[int], scalars: tuple = (), apart: bool = False) -> bool:
        """Enqueue the kernel's work on arrays at these addresses, inputs first.

        False if it cannot be prepared, as where the host reads values of the device, or the arrays are not aligned.
        """
        stream = run.stream
        device = 0 if stream is None else stream.device_index
        try:
            program = self._found[device]
        except KeyError:
            program = self._prepare(run, device, device, tuple(map(RunTimeScalar, range(len(scalars)))))
        if program is None:
            if not scalars or ((device, scalars) not in self._found and len(self._found) > _MANY):
                return False
            key = device, scalars
            program = self._found[key] if key in self._found else self._prepare(run, device, key, scalars)
            if program is None:
                return False
        low = 0
        for place in places:
            low |= place
        if low % _ALIGNED or (0 in places and places.count(0) != self._reqs.count(Req.NULL)):
            return False
        program(run, stream, places, scalars)
        return True

    def _prepare(self, run: DeviceRun, device: int, key: Any, scalars: tuple) -> _Program | None:
        """Find the program for a device; None if there is none."""
        try:
            program: _Program | None = self._record(run, device, scalars)
        except Exception:  # whatever the kernel needs beside its arrays; the ordinary call says what is wrong, if anything is
            program = None
        self._found[key] = program
        return program

    def _record(self, run: DeviceRun, device: int, scalars: tuple) -> _Program:
        n = len(self._ins)
        inputs = [FakeArray(s.shape, s.dtype, i + 1 << _PLACE) for i, s in enumerate(self._ins)]
        outputs = [None if req is Req.NULL else FakeArray(s.shape, s.dtype, n + i + 1 << _PLACE)
                   for i, (s, req) in enumerate(zip(self._outs, self._reqs))]
        here = _RecordedRun(n + len(outputs))
        launches = _Launches(device)
        previous, recording.recorder = recording.recorder, launches
        try:
            self._kernel(here, inputs, outputs, **({"scalars": scalars} if scalars else {}))
        finally:
            recording.recorder = previous
        if not launches.launches:
            raise OperatorError("nothing is launched")
        return _Program(run, device, launches.launches, here)


class _Program:
    """Launches whose arguments are addresses of operands, of scratch memory and of constants, numbers, and run-time scalars.

    scratch: bytes of each array that follows the operands; 0 for a constant. constants: (which of these arrays, its memory).
    """

    def __init__(self, run: DeviceRun, device: int, launches: Sequence[tuple], recorded: _RecordedRun):
        self.steps = [_Step(device, recorded, *each) for each in launches]
        self.scratch = [more if isinstance(more, int) else 0 for more in recorded.more]
        self.constants: list[tuple[int, Any]] = [(i, run.constant(more)) for i, more in enumerate(recorded.more)
                                                 if isinstance(more, np.ndarray)]

    def __call__(self, run: DeviceRun, stream: Any, places: Sequence[int], scalars: tuple) -> None:
        held: Any = None  # scratch memory stays taken until its last user is enqueued
        if self.scratch:
            held = [run.scratch(size) if size else None for size in self.scratch]
            more = [0 if m is None else m.address for m in held]
            for i, array in self.constants:
                more[i] = array.data_ptr()
            places = [*places, *more]
        for step in self.steps:
            step.enqueue(stream, places, scalars)


class _Step:
    """One launch. where: (operand, bytes from its start) of each array. scratch: the number of memory that it needs itself."""

    def __init__(self, device: int, recorded: _RecordedRun, fn: KernelSource, grid: tuple[int, ...], args: tuple,
                 constexprs: dict[str, Any], num_warps: int, num_stages: int):
        arrays = [a for a in args if isinstance(a, FakeArray)]
        self.where = [((a.data_ptr() >> _PLACE) - 1, a.data_ptr() & (1 << _PLACE) - 1) for a in arrays]
        self.numbers = list(args[len(arrays):])
        self.late = [(i, a) for i, a in enumerate(self.numbers) if isinstance(a, LateScalar)]
        self.fn, self.grid, self.options = fn, grid, (constexprs, num_warps, num_stages)
        self.dtypes = [a.dtype.name for a in arrays]
        if not INTERPRET:
            kinds = [a if not isinstance(a, LateScalar) else 0.0 if a.argument.is_float else 0 for a in args]
            self.start, size, self.alignment = launch.ready(fn, kinds, constexprs, num_warps, num_stages, device)
            self.scratch = recorded.add(math.prod(grid) * size + self.alignment) if size else None

    def enqueue(self, stream: Any, places: Sequence[int], scalars: tuple) -> None:
        """Enqueue it on arrays at these places."""
        numbers = self.numbers
        if self.late:
            numbers = numbers.copy()
            for i, late in self.late:
                numbers[i] = late.argument.passed(tuple([scalars[n] for n in late.numbers]))
        if INTERPRET:
            arrays = [FakeArray((), dtype, places[i] + offset) for dtype, (i, offset) in zip(self.dtypes, self.where)]
            launch.run_again(self.fn, self.grid, (*arrays, *numbers), *self.options, stream)
            return
        values = [places[i] + offset for i, offset in self.where]
        values += numbers
        if self.scratch is None:
            self.start(stream.cuda_stream, self.grid, values)
        else:
            self.start(stream.cuda_stream, self.grid, values, -(-places[self.scratch] // self.alignment) * self.alignment)
