"""The CPU kernel of a fused group: C where that is possible and pays, otherwise NumPy's tile program.

The choice depends only on the graph, its shapes and the machine; after many runs also on whether C gives the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...dtype import float32, float64, is_float
from ..ir.expr import CAST, topological, typed
from ..kernel import Bind, BoundKernel, Kernel, KernelFunction
from ..op import Expression, Reqs, Spec, Specs
from . import c_compile
from .c_moving import MovingKernel, Places, Ready
from .c_printer import CFunction, c_function
from .c_team import Phases, Short, Step, step_of_elements
from .numpy_printer import numpy_kernel
from .rows_kernel import rows_in_c

#: C pays where a run saves so many nanoseconds: compiling takes as long as some ten thousand such runs save, once.
SAVED = 10_000
OFTEN = 200  # runs after which it is compiled all the same, where nobody has to wait for that
_OFTEN_TAKEN = (float32, float64, np.dtype(np.uint8), np.dtype(np.uint32))
SAVED_BOUND = 400  # the same in a bound graph, where it stands between kernels that run in one call, from so many elements on:
LEAST_BOUND = 32
CALL = 400  # nanoseconds that each call of a NumPy function takes, of any size
ELEMENT = 0.15  # nanoseconds an element of one node takes NumPy longer than C
HALF = 2.0  # nanoseconds NumPy takes longer to convert an element from or to half precision
SHORT = 20_000  # nanoseconds a function may run while other Python threads wait: they would make it wait for longer
ADDITION = 0.03  # nanoseconds of one element's addition in C, or of copying it in or out
PIECE = 1 << 15  # elements; pieces are cut by size alone
LEAST, PIECE_NS = 1 << 8, 4_000  # elements of a piece at least; nanoseconds that it takes


def cpu_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, name: str, least: float = SAVED) -> Kernel:
    """Return a kernel like `numpy_kernel`, in C where that pays. The C function is compiled at bind, or when first run.

    least:  nanoseconds that a run in C must save; where the kernel is bound see `least_bound`.
    """
    rows = rows_in_c(e, ins, outs, reqs, lambda: numpy_kernel(e, ins, outs, reqs, name=name))
    if rows is not None:
        return rows
    plain, bound = numpy_kernel(e, ins, outs, reqs, name=name), least_bound(least, (*ins, *outs))

    @cache
    def decide(mode: str, least: float) -> CFunction | str:  # a cached kernel may outlive a change of TRITIUM_CPU_CODE
        f = select_c_function(e, ins, outs, reqs, least)
        if not isinstance(f, str):
            c_compile.request(f)
        return f

    def ahead() -> None:
        decide(c_compile.mode(), bound)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        f = decide(c_compile.mode(), bound)
        return (None if isinstance(f, str) else bind_in_c(f, inputs, outputs)) or plain.bind(inputs, outputs)

    def in_c(f: CFunction) -> MovingKernel:
        def other(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
            bound = bind(inputs, outputs)
            bound(run, scalars) if scalars else bound(run)

        def make() -> Ready | None:
            found = c_compile.function(f)
            if found is None:
                return None
            n, size, piece = len(ins) + len(f.targets), f.layout.size, piece_of(f)
            numbers = (ctypes.c_double * f.scalars)() if f.scalars else None
            addresses = addresses_of(f, [None] * n, numbers)
            if size <= piece:
                return Ready(Short(found, addresses, size, piece, addresses, numbers), addresses, n)
            return Ready(Phases([[step_of_elements(found, addresses, size, piece, addresses)]], numbers=numbers), addresses, n)

        order = order_of(f, range(len(ins)), len(ins))
        return MovingKernel(make, bind, other, ins, outs, order, order[len(ins):])

    first = decide(c_compile.mode(), least)
    if not isinstance(first, str):
        return in_c(first)
    if e.draws or not _takes_often(e, ins, outs):
        return Kernel(plain.run, bind, ahead=ahead)
    return SmallKernel(plain.run, bind, ahead, lambda: select_c_function(e, ins, outs, reqs, 0), in_c)


def _takes_often(e: Expression, ins: Specs, outs: Specs) -> bool:
    """Return whether C may have NumPy's bits: of float32, float64, bytes and random words, where no fraction is cut."""
    stored = zip(e.outputs, outs)
    return (all(s.dtype in _OFTEN_TAKEN for s in (*ins, *outs))
            and all(is_float(o.dtype) or (r.dtype is not None and not is_float(r.dtype)) for r, o in stored)
            and not any(x.op == CAST and not is_float(typed(x)) and is_float(typed(x.args[0])) for x in topological(e.outputs)))


class SmallKernel(Kernel):
    """A kernel for which C does not pay. After many runs it does: then a thread compiles it, if C gives the same bits.

    So results do not depend on how often it ran. `clip` of 1,024 elements took 7.1 us before, and 3.3 us then.
    """

    __slots__ = ("_find", "_in_c", "_plain", "_runs")

    def __init__(self, plain: KernelFunction, bind: Bind, ahead: Callable[[], Any], find: Callable[[], CFunction | str],
                 in_c: Callable[[CFunction], MovingKernel]):
        super().__init__(self._run, bind, ahead=ahead)
        self._plain, self._find, self._in_c, self._runs = plain, find, in_c, 0

    def _run(self, run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = ()) -> None:
        self._runs += 1
        if self._runs % OFTEN or (better := self._better()) is None:
            if scalars:
                self._plain(run, inputs, outputs, scalars=scalars)
            else:
                self._plain(run, inputs, outputs)
            return
        self._plain = better.run
        better.run(run, inputs, outputs, scalars)
        self.at, self.into = better.at, better.into

    def _better(self) -> MovingKernel | None:
        """Return the kernel in C; None until it is compiled, and where it gives other bits."""
        f = None if c_compile.mode() != "auto" or self.at is not None else self._find()
        if not isinstance(f, CFunction) or not f.exact:
            self.run = self._plain
            return None
        file = c_compile.program([f]), [f.name]
        if not c_compile.is_compiled(*file):
            c_compile.begin([file])
        elif c_compile.function(f) is None:
            self.run = self._plain
        else:
            return self._in_c(f)
        return None


def least_bound(least: float, specs: Specs) -> float:
    """Return the nanoseconds that C must save where arrays of these specs are bound, given those of a call."""
    return min(least, SAVED_BOUND) if max((s.size for s in specs), default=0) >= LEAST_BOUND else least


def order_of(f: CFunction, inputs: Sequence[int], output: int) -> list[int]:
    """Return the numbers of the arrays that f gets, given those of its inputs and of its first output."""
    return [*inputs, *(inputs[f.states[t]] if t in f.states else output + t for t in f.targets)]


def functions_together(functions: Sequence[CFunction], orders: Sequence[Sequence[int]], ins: Specs, outs: Specs,
                       other: KernelFunction, scalars_of: Callable[[Sequence[float]], Sequence[Sequence[float]]]
                       ) -> MovingKernel | None:
    """Return the kernel that runs functions in one call, independent of each other; None if together they are not worth it.

    orders:      for each function the numbers of its arrays; outputs count from len(ins) on.
    other:       computes arrays that C does not take.
    scalars_of:  returns the run-time scalars of each function, given those of a run.
    """
    if not worth_compiling(functions):
        return None

    def make() -> Ready | None:
        steps, numbers, further, k = [], [], [], 0
        for f, order in zip(functions, orders):
            found = c_compile.function(f)
            if found is None:
                return None
            own = (ctypes.c_double * f.scalars)()
            addresses = addresses_of(f, [None] * len(order), own)
            steps.append(step_of_elements(found, addresses, f.layout.size, piece_of(f), addresses))
            numbers.append(own)
            further += [(addresses, i, k + i) for i in range(len(order))]
            k += len(order)
        return Ready(_Together(steps, numbers, scalars_of, 1 if work <= SHORT else 0), (ctypes.c_void_p * k)(), k, further)

    order = [i for one in orders for i in one]
    written = [i for f, one in zip(functions, orders) for i in one[len(one) - len(f.targets):]]
    work = sum(f.layout.size * (f.cost + len(one)) * ADDITION for f, one in zip(functions, orders))
    return MovingKernel(make, None, other, ins, outs, order, written)


class _Together(Phases):
    """Functions with run-time scalars of their own, in one phase."""

    __slots__ = ("_of_each", "_scalars_of")

    def __init__(self, steps: Sequence[Step], numbers: Sequence[Any],
                 scalars_of: Callable[[Sequence[float]], Sequence[Sequence[float]]], threads: int):
        super().__init__([steps], threads)
        self._of_each, self._scalars_of = numbers, scalars_of

    def hold(self, scalars: Sequence[float]) -> None:
        """Set the run-time scalars of each function."""
        if scalars != self._given:
            self._given = scalars
            for own, values in zip(self._of_each, self._scalars_of(scalars)):
                own[:] = values


def select_c_function(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, least: float = SAVED) -> CFunction | str:
    """Return the C function that computes the group, or the reason why NumPy computes it.

    least:  nanoseconds that it has to save.
    """
    mode = c_compile.mode()
    if mode == "numpy":
        return "TRITIUM_CPU_CODE is numpy"
    f = c_function(e, ins, outs, reqs)
    if isinstance(f, str):
        return f
    if mode == "auto" and _saved(f) < least:
        return "it is too small to be worth compiling"
    return f if c_compile.available() else "no C compiler is available"


def worth_compiling(functions: Sequence[CFunction]) -> bool:
    """Return whether these functions, run one after the other, are worth compiling. If so, request that."""
    mode = c_compile.mode()
    if not functions or mode == "numpy" or (mode == "auto" and sum(map(_saved, functions)) < SAVED) or not c_compile.available():
        return False
    for f in functions:
        c_compile.request(f)
    return True


def _saved(f: CFunction) -> float:
    """Return the nanoseconds that a run in C saves."""
    return max(1, f.nodes) * (CALL + ELEMENT * f.layout.size) + HALF * f.halves * f.layout.size


def bind_in_c(f: CFunction, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Phases | None:
    """Bind f to these arrays; None where NumPy must compute. Runs of one bound kernel must not overlap."""
    stored = [inputs[f.states[t]] if t in f.states else outputs[t] for t in f.targets]
    arrays = [*inputs, *stored]
    places = [a.ctypes.data for a in arrays]
    specs, written = [Spec(a.shape, a.dtype) for a in arrays], range(len(inputs), len(arrays))
    if not (all(a.flags.c_contiguous for a in arrays) and Places(specs, range(len(arrays)), written).fit(places)):
        return None
    found = c_compile.function(f)
    if found is None:
        return None
    numbers, size = (ctypes.c_double * f.scalars)(), f.layout.size
    addresses = addresses_of(f, places, numbers)

    held = arrays, addresses.held  # addresses alone keep nothing alive
    if size * (f.cost + len(arrays)) * ADDITION <= SHORT:
        return Short(found, addresses, size, piece_of(f), held, numbers)
    return Phases([[step_of_elements(found, addresses, size, piece_of(f), held)]], numbers=numbers)


def piece_of(f: CFunction) -> int:
    """Return how many elements one thread computes at a time."""
    return max(LEAST, min(PIECE, 1 << int(PIECE_NS / ((f.cost + len(f.layout.present)) * ADDITION)).bit_length()))


def addresses_of(f: CFunction, places: Sequence[int | None], numbers: Any = None) -> Any:
    """Return the addresses that f is given: those of its arrays, then of its run-time scalars and its sizes."""
    sizes = (ctypes.c_int64 * len(f.sizes))(*f.sizes)
    after = [ctypes.addressof(held) for held, wanted in ((numbers, f.scalars), (sizes, f.broadcasts)) if wanted]
    addresses = (ctypes.c_void_p * (len(places) + len(after)))(*places, *after)
    addresses.held = sizes, numbers  # type: ignore[attr-defined]  # addresses alone keep nothing alive
    return addresses
