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
from .c_moving import MovingKernel, Places, Ready
from .c_row_function import RowFunction
from .c_rows import row_function
from .c_team import Phases, Scratch, Short, Step, int64s, step_of_elements
from .c_template import doubles

LEAST = 256  # elements from which C computes: one call takes the place of several of NumPy, each slow after a larger kernel
SHORT = 20_000  # nanoseconds a function may run while other Python threads wait: they would make it wait for longer
NOTHING_SUMMED = "nothing is summed"
TOO_SMALL = "it is too small to be worth compiling"
JOINED = 1 << 13  # elements of a piece of the second function


def select_row_function(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, finishes: Sequence[Expr | None] = ()
                        ) -> RowFunction | str:
    """Return the C function that computes the kernel, or the reason why NumPy does."""
    mode = c_compile.mode()
    if mode == "numpy":
        return "TRITIUM_CPU_CODE is numpy"
    if e.kind == "elementwise" and all(s.shape == full for full in [full_shape([s.shape for s in (*ins, *outs)])] for s in outs):
        return NOTHING_SUMMED
    if mode == "auto" and max((s.size for s in (*ins, *outs)), default=0) < LEAST:
        return TOO_SMALL
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
    _request(f)
    return _RowKernel(f, ins, outs, plain).kernel


def _request(f: RowFunction) -> None:
    c_compile.request(f.function)
    for j in f.joins:
        c_compile.request(j.function)


class _RowKernel:
    """The kernel of a C function."""

    def __init__(self, f: RowFunction, ins: Specs, outs: Specs, plain: Callable[[], Kernel]):
        self.f, self.n_in, self._plain = f, len(ins), plain
        self._other: Kernel | None = None
        stored = [ins[f.states[t]] if t in f.states else outs[t] for t in f.targets]
        n = len(ins)
        self._places = Places([*ins, *stored], range(n + len(stored)), range(n, n + len(stored)))
        order = [*range(n), *(f.states[t] if t in f.states else n + t for t in f.targets)]
        self.kernel = MovingKernel(self._ready, self.bind, self._run_numpys, ins, outs, order, order[n:])

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        arrays = [*inputs[:self.n_in], *(inputs[self.f.states[t]] if t in self.f.states else outputs[t] for t in self.f.targets)]
        places = [a.ctypes.data for a in arrays]
        dense = self._places.fit(places) and all(a.flags.c_contiguous for a in arrays)
        ready = self._ready(arrays) if dense else None
        if ready is None:
            return self._numpys().bind(inputs, outputs)
        ready.place(places)
        return ready.call

    def _numpys(self) -> Kernel:
        if self._other is None:
            self._other = self._plain()
        return self._other

    def _run_numpys(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], **more: Any) -> None:
        self._numpys().run(run, inputs, outputs, **more)

    def _ready(self, held: Any = None) -> Ready | None:
        """Return a call without arrays; None if the function could not be compiled."""
        f = self.f
        code, joins = c_compile.function(f.function), [c_compile.function(j.function) for j in f.joins]
        if code is None or any(j is None for j in joins):
            return None
        n = self.n_in + len(f.targets)
        numbers, sizes = doubles(*([0.0] * f.scalars), *f.numbers), int64s(*f.sizes)
        more = [*([None] * len(f.folds)), ctypes.addressof(sizes), ctypes.addressof(numbers)]
        given = (ctypes.c_void_p * (n + len(more)))(*([None] * n), *more)
        held, scalars = (held, sizes, numbers), (ctypes.c_double * f.scalars).from_buffer(numbers) if f.scalars else None
        if f.work <= SHORT and f.pieces == 1:
            return Ready(Short(code, given, 1, 1, held, scalars), given, n)
        steps: list[Step] = []
        further: list[tuple[Any, int, int]] = []  # the address of an output that parts are added up to
        scratch: list[Scratch] = []
        for j, found in zip(f.joins, joins):
            ends, constants = int64s(f.parts, j.size), doubles(*j.numbers)
            addresses = (ctypes.c_void_p * 4)(None, None, ctypes.addressof(ends), ctypes.addressof(constants))
            assert found is not None
            steps.append(step_of_elements(found, addresses, j.size, JOINED, (ends, constants)))
            further.append((addresses, 1, self.n_in + j.target))
            scratch.append(Scratch(2 * f.parts * j.size, [(given, n + j.fold), (addresses, 0)]))
        phases = Phases([[Step(code, given, f.pieces, held=held)], steps], scratch=scratch, numbers=scalars)
        return Ready(phases, given, n, further)
