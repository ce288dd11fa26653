"""The CPU kernel of a reduction, or of a formula with sums of rows inside: C where that is possible and pays.

The choice depends only on the formula, its shapes and the machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.coalesce import full_shape
from ..ir.expr import Expr
from ..kernel import BoundKernel, Kernel
from ..op import Expression, Reqs, Specs
from . import c_compile
from .c_rows import RowFunction, row_function
from .c_team import Phases, Scratch, Step, int64s, step_of_elements
from .c_template import doubles
from .numpy_printer import numpy_kernel

LEAST = 1024  # elements from which C computes: a call of it takes as long as one of NumPy, and there are several of these
SHORT = 20_000  # nanoseconds a function may run while other Python threads wait: they would make it wait for longer
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
        return "nothing is summed"
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
    return _RowKernel(f, len(ins), plain).kernel()


def cpu_rows_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """Return a kernel like `numpy_kernel`, in C where that pays and something is summed."""

    def plain() -> Kernel:
        return numpy_kernel(e, ins, outs, reqs, name=name)

    return rows_in_c(e, ins, outs, reqs, plain) or plain()


class _RowKernel:
    """The kernel of a C function. Calls that are ready, which hold addresses, are kept for the next run."""

    def __init__(self, f: RowFunction, n_in: int, plain: Callable[[], Kernel]):
        self.f, self.n_in, self._plain = f, n_in, plain
        self._other: Kernel | None = None
        self.ready: list[_Call] = []
        self.code: c_compile.Loaded | None = None
        self.failed = False

    def other(self) -> Kernel:
        """Return NumPy's kernel."""
        if self._other is None:
            self._other = self._plain()
        return self._other

    def _call(self) -> _Call | None:
        """Return a call without arrays; None if the function could not be compiled."""
        if self.code is None and not self.failed:
            joins = [c_compile.function(j.function) for j in self.f.joins]
            self.code = c_compile.function(self.f.function)
            self.failed = self.code is None or any(j is None for j in joins)
        if self.failed or self.code is None:
            return None
        return _Call(self.f, self.code)

    def arrays(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        return [*inputs[:self.n_in], *(inputs[self.f.states[t]] if t in self.f.states else outputs[t] for t in self.f.targets)]

    def run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        arrays = self.arrays(inputs, outputs)
        try:
            call = self.ready.pop()
        except IndexError:
            call = self._call()
        if call is None or not call.take(arrays, self.n_in):
            self.other().run(run, inputs, outputs, **({"scalars": scalars} if scalars else {}))
            return
        call(run, scalars)
        call.held = None
        self.ready.append(call)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        call = self._call()
        if call is None or not call.take(self.arrays(inputs, outputs), self.n_in):
            return self.other().bind(inputs, outputs)
        return call

    def kernel(self) -> Kernel:
        return Kernel(self.run, self.bind)


class _Call:
    """A C function with its arguments."""

    __slots__ = ("addresses", "code", "f", "held", "joins", "numbers", "phases", "places", "sizes")

    def __init__(self, f: RowFunction, code: c_compile.Loaded):
        self.f, self.code = f, code
        self.sizes, self.numbers = int64s(*f.sizes), doubles(*([0.0] * f.scalars), *f.numbers)
        self.held: Any = None
        self.phases: Phases | None = None
        self.joins: list[tuple[int, Any]] = []
        self.places = 0
        self.addresses: Any = None

    def take(self, arrays: list[Any], n_in: int) -> bool:
        """Set the addresses of the arrays; return whether C can compute them."""
        places = [_address(a) for a in arrays]
        for place, a in zip(places, arrays):
            if place % a.itemsize or not a.flags.c_contiguous:
                return False
        for k in range(n_in, len(arrays)):
            o, at = arrays[k], places[k]
            for i in range(k):
                there, other = places[i], arrays[i]
                if there < at + o.nbytes and at < there + other.nbytes and not (
                        i < n_in and there == at and other.nbytes == o.nbytes and other.itemsize == o.itemsize):
                    return False
        if self.addresses is None:
            self._prepare(places)
        else:
            self.addresses[:len(places)] = places
        for target, addresses in self.joins:
            addresses[1] = places[n_in + target]
        self.held = arrays
        return True

    def _prepare(self, places: list[int]) -> None:
        f, n = self.f, len(places)
        more = [*([None] * len(f.folds)), ctypes.addressof(self.sizes), ctypes.addressof(self.numbers)]
        self.addresses = (ctypes.c_void_p * (n + len(more)))(*places, *more)
        if f.pieces == 1:
            return
        step = Step(self.code, self.addresses, f.pieces, held=(self.sizes, self.numbers))
        scratch, joins = [], []
        for j in f.joins:
            sizes, numbers = int64s(f.parts, j.size), doubles(*j.numbers)
            addresses = (ctypes.c_void_p * 4)(None, None, ctypes.addressof(sizes), ctypes.addressof(numbers))
            scratch.append(Scratch(2 * f.parts * j.size, [(self.addresses, n + j.fold), (addresses, 0)]))
            code = c_compile.function(j.function)
            assert code is not None
            joins.append(step_of_elements(code, addresses, j.size, JOINED, (sizes, numbers)))
            self.joins.append((j.target, addresses))
        self.phases = Phases([[step], joins], scratch=scratch)

    def __call__(self, run: Any, scalars: Sequence[float] = ()) -> None:
        if scalars:
            self.numbers[:len(scalars)] = scalars
        if self.phases is not None:
            self.phases(run)
        elif self.f.work <= SHORT:
            self.code.short(self.addresses, 0, 1)
        else:
            self.code.free(self.addresses, 0, 1)


def _address(a: Any) -> int:
    """Return where the elements of a NumPy array begin."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(a))  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, or empty
        return a.ctypes.data
