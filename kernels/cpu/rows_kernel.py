"""The CPU kernel of a reduction, or of a formula with sums of rows inside: C where that is possible and pays.

The choice depends only on the formula, its shapes and the machine.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.coalesce import full_shape
from ..ir.expr import Expr
from ..kernel import BoundKernel, Kernel
from ..op import Expression, Reqs, Specs
from . import c_compile
from .c_row_function import RowFunction
from .c_rows import row_function
from .c_team import Phases, Scratch, Short, Step, int64s, step_of_elements
from .c_template import doubles
from .numpy_printer import numpy_kernel

LEAST = 1024  # elements from which C computes: a call of it takes as long as one of NumPy, and there are several of these
SHORT = 20_000  # nanoseconds a function may run while other Python threads wait: they would make it wait for longer
NOTHING_SUMMED = "nothing is summed"
JOINED = 1 << 13  # elements of a piece of the second function


def select_row_function(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, finishes: Sequence[Expr | None] = ()
                        ) -> RowFunction | str:
    """Return the C function that computes the kernel, or the reason why NumPy does."""
    mode = c_compile.mode()
    if mode == "numpy":
        return "TRITIUM_CPU_CODE is numpy"
    if mode == "auto" and max((s.size for s in (*ins, *outs)), default=0) < LEAST:
        return "it is too small to be worth compiling"
    if e.kind == "elementwise" and all(s.shape == full for full in [full_shape([s.shape for s in (*ins, *outs)])] for s in outs):
        return NOTHING_SUMMED
    f = row_function(e, ins, outs, reqs, finishes)
    if isinstance(f, str):
        return f
    return f if c_compile.available() else "no C compiler is available"


def rows_in_c(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, plain: Callable[[], Kernel],
              finishes: Sequence[Expr | None] = ()) -> Kernel | None:
    """Return a kernel in C; None where NumPy must compute. The function is compiled when it is bound or first run.

    plain: returns the kernel that computes arrays which C cannot: those that overlap, or lie at odd addresses.
    """
    f = select_row_function(e, ins, outs, reqs, finishes)
    if isinstance(f, str):
        return None
    c_compile.request(f.function)
    for j in f.joins:
        c_compile.request(j.function)
    return _RowKernel(f, ins, outs, plain).kernel()


def cpu_rows_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """Return a kernel like `numpy_kernel`, in C where that pays and something is summed."""

    def plain() -> Kernel:
        return numpy_kernel(e, ins, outs, reqs, name=name)

    return rows_in_c(e, ins, outs, reqs, plain) or plain()


class _RowKernel:
    """The kernel of a C function. Calls that are ready, which hold addresses, are kept for the next run."""

    def __init__(self, f: RowFunction, ins: Specs, outs: Specs, plain: Callable[[], Kernel]):
        self.f, self.n_in, self._plain = f, len(ins), plain
        self._other: Kernel | None = None
        self._ready: list[_Call] = []
        self._code: c_compile.Loaded | None = None
        self._failed = False
        stored = [ins[f.states[t]] if t in f.states else outs[t] for t in f.targets]
        sizes = [(s.nbytes, s.dtype.itemsize) for s in (*ins, *stored)]
        self._plainly = not f.states and f.targets == tuple(range(len(outs)))
        self._items = [item for _, item in sizes]
        self._pairs = [(k, i, sizes[k][0], sizes[i][0], i < self.n_in and sizes[i] == sizes[k])
                       for k in range(self.n_in, len(sizes)) for i in range(k)]

    def kernel(self) -> Kernel:
        return Kernel(self.run, self.bind)

    def run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        places = [_address(a) for a in self._arrays(inputs, outputs)]
        call = (self._ready.pop() if self._ready else self._call()) if self._may_compute(places) else None
        if call is None:
            self._numpys().run(run, inputs, outputs, **({"scalars": scalars} if scalars else {}))
            return
        call.place(places)
        call(run, scalars)
        self._ready.append(call)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        arrays = self._arrays(inputs, outputs)
        places = [a.ctypes.data for a in arrays]
        dense = self._may_compute(places) and all(a.flags.c_contiguous for a in arrays)
        call = self._call() if dense else None
        if call is None:
            return self._numpys().bind(inputs, outputs)
        call.place(places)
        if not self.f.scalars:
            return call.phases(arrays)

        def bound(run: Any, scalars: Sequence[float] = (), held: Any = arrays) -> None:
            call(run, scalars)

        return bound

    def _numpys(self) -> Kernel:
        if self._other is None:
            self._other = self._plain()
        return self._other

    def _call(self) -> _Call | None:
        """Return a call without arrays; None if the function could not be compiled."""
        if self._code is None and not self._failed:
            joins = [c_compile.function(j.function) for j in self.f.joins]
            self._code = c_compile.function(self.f.function)
            self._failed = self._code is None or any(j is None for j in joins)
        return None if self._failed or self._code is None else _Call(self.f, self._code, len(self._items))

    def _arrays(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        if self._plainly and len(inputs) == self.n_in:
            return [*inputs, *outputs]
        return [*inputs[:self.n_in], *(inputs[self.f.states[t]] if t in self.f.states else outputs[t] for t in self.f.targets)]

    def _may_compute(self, places: Sequence[int]) -> bool:
        """Return whether each array lies where C may read it, and each output apart from the others or exactly on an input."""
        bits = 0
        for at in places:
            bits |= at
        if bits & 7 and any(at % item for at, item in zip(places, self._items)):
            return False
        for k, i, size, other, may_share in self._pairs:
            at, there = places[k], places[i]
            if there < at + size and at < there + other and not (may_share and at == there):
                return False
        return True


class _Call:
    """A C function with its arguments, for so many arrays, whose addresses are given later."""

    def __init__(self, f: RowFunction, code: c_compile.Loaded, arrays: int):
        self._f, self._code, self._pack = f, code, struct.Struct(f"{arrays}P").pack_into
        self._numbers, sizes = doubles(*([0.0] * f.scalars), *f.numbers), int64s(*f.sizes)
        more = [*([None] * len(f.folds)), ctypes.addressof(sizes), ctypes.addressof(self._numbers)]
        self._addresses = (ctypes.c_void_p * (arrays + len(more)))(*([None] * arrays), *more)
        self._held: Any = sizes, self._numbers
        self._joins: list[Step] = []
        self._outputs: list[tuple[Any, int]] = []  # where the address of an output is wanted as well, and its number
        self._scratch: list[Scratch] = []
        for j in f.joins:
            ends, numbers = int64s(f.parts, j.size), doubles(*j.numbers)
            addresses = (ctypes.c_void_p * 4)(None, None, ctypes.addressof(ends), ctypes.addressof(numbers))
            found = c_compile.function(j.function)
            assert found is not None
            self._joins.append(step_of_elements(found, addresses, j.size, JOINED, (ends, numbers)))
            self._outputs.append((addresses, arrays - len(f.targets) + j.target))
            self._scratch.append(Scratch(2 * f.parts * j.size, [(self._addresses, arrays + j.fold), (addresses, 0)]))
        self._phases: Phases | None = None

    def place(self, places: list[int]) -> None:
        """Set the addresses of the arrays."""
        self._pack(self._addresses, 0, *places)
        for addresses, k in self._outputs:
            addresses[1] = places[k]

    def phases(self, arrays: Sequence[Any]) -> Phases:
        """Return what computes these arrays, whose addresses are set, and keeps them alive."""
        held = arrays, self._held
        if self._f.work <= SHORT and self._f.pieces == 1:
            return Short(self._code, self._addresses, 1, held, None)
        step = Step(self._code, self._addresses, self._f.pieces, held=held)
        return Phases([[step], self._joins], scratch=self._scratch)

    def __call__(self, run: Any, scalars: Sequence[float] = ()) -> None:
        """Compute the arrays whose addresses are set."""
        if scalars:
            self._numbers[:len(scalars)] = scalars
        if self._f.pieces > 1:
            if self._phases is None:
                self._phases = self.phases(())
            self._phases(run)
        elif self._f.work <= SHORT:
            self._code.short(self._addresses, 0, 1)
        else:
            self._code.free(self._addresses, 0, 1)


def _address(a: Any) -> int:
    """Return where the elements of a NumPy array begin."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(a))  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, or empty
        return a.ctypes.data
