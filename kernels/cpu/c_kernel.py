"""The CPU kernel of a fused group: C where that is possible and pays, otherwise NumPy's tile program.

The choice depends only on the graph, its shapes and the machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..kernel import Bind, BoundKernel, Kernel, KernelFunction
from ..op import Expression, Reqs, Specs
from . import c_compile
from .c_printer import CFunction, c_function
from .c_team import Phases, Pieces, Short, step_of_elements
from .numpy_printer import numpy_kernel
from .rows_kernel import rows_in_c

#: C pays where a run saves so many nanoseconds: compiling takes as long as some ten thousand such runs save, once.
SAVED = 10_000
CALL = 400  # nanoseconds that each call of a NumPy function takes, of any size
ELEMENT = 0.15  # nanoseconds an element of one node takes NumPy longer than C
HALF = 2.0  # nanoseconds NumPy takes longer to convert an element from or to half precision
SHORT = 20_000  # nanoseconds a function may run while other Python threads wait: they would make it wait for longer
ADDITION = 0.03  # nanoseconds of one element's addition in C, or of copying it in or out
PIECE = 1 << 15  # elements; pieces are cut by size alone
LEAST, PIECE_NS = 1 << 12, 4_000  # elements of a piece at least, where it takes that many nanoseconds


def cpu_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, name: str, least: float = SAVED) -> Kernel:
    """Return a kernel like `numpy_kernel`, in C where that pays. The C function is compiled at bind, or when first run.

    least:  nanoseconds that a run in C must save.
    """
    rows = rows_in_c(e, ins, outs, reqs, lambda: numpy_kernel(e, ins, outs, reqs, name=name))
    if rows is not None:
        return rows
    plain = numpy_kernel(e, ins, outs, reqs, name=name)
    decided: dict[str, CFunction | str] = {}  # by TRITIUM_CPU_CODE: a cached kernel may outlive a change of it

    def decide() -> CFunction | str:
        mode = c_compile.mode()
        if mode not in decided:
            decided[mode] = select_c_function(e, ins, outs, reqs, least)
        return decided[mode]

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        f = decide()
        return (None if isinstance(f, str) else bind_in_c(f, inputs, outputs)) or plain.bind(inputs, outputs)

    first = decide()
    if isinstance(first, str):
        return Kernel(plain.run, bind)
    c_compile.request(first)
    return Kernel(_caller(first, ins, outs, bind), bind)


def _caller(f: CFunction, ins: Specs, outs: Specs, bind: Bind) -> KernelFunction:
    """Return the kernel function of f, for arrays that differ from call to call.

    bind: of the kernel, for arrays that f does not take.
    """
    stored: list[tuple[int, bool]] = [(f.states.get(t, t), t in f.states) for t in f.targets]
    specs = [*ins, *(ins[i] if is_state else outs[i] for i, is_state in stored)]
    n_in, nbytes, itemsizes = len(ins), [s.nbytes for s in specs], [s.dtype.itemsize for s in specs]
    others = [(k, i, i < n_in and (nbytes[k], itemsizes[k]) == (nbytes[i], itemsizes[i]))
              for k in range(n_in, len(specs)) for i in range(k)]
    sizes, size, align = (ctypes.c_int64 * len(f.sizes))(*f.sizes), f.layout.size, max(itemsizes) - 1
    after, n_scalars, piece = [ctypes.addressof(sizes)] * f.broadcasts, f.scalars, piece_of(f)
    addresses, doubles = ctypes.c_void_p * (len(specs) + bool(n_scalars) + len(after)), ctypes.c_double * n_scalars
    made: list[Callable[[Any, Any], None]] = []

    def taken(places: Sequence[int]) -> bool:
        together = 0
        for place in places:
            together |= place
        if together & align:
            return False
        for k, i, may_share in others:
            at, there = places[k], places[i]
            if there < at + nbytes[k] and at < there + nbytes[i] and not (may_share and at == there):
                return False
        return True

    def make() -> None:
        found = c_compile.function(f)
        if found is not None:
            code = found.short
            made.append((lambda run, given: code(given, 0, size)) if size <= piece else Pieces(found, size, piece))

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: Sequence[float] = (), held: Any = sizes) -> None:
        if not made:
            make()
        places = _places([*inputs, *(inputs[i] if is_state else outputs[i] for i, is_state in stored)])
        if not made or places is None or not taken(places):
            bound = bind(inputs, outputs)
            bound(run, scalars) if scalars else bound(run)
        elif n_scalars:
            numbers = doubles(*scalars)
            made[0](run, addresses(*places, ctypes.addressof(numbers), *after))
        else:
            made[0](run, addresses(*places, *after))

    return kernel


def _places(arrays: Sequence[Any]) -> list[int] | None:
    """Return where dense arrays lie; None if one is not dense."""
    try:
        return [_addressof(_from_buffer(a)) for a in arrays]  # four times as fast as a.ctypes.data
    except (TypeError, ValueError):  # read-only, bfloat16, or not dense
        return [a.ctypes.data for a in arrays] if all(a.flags.c_contiguous for a in arrays) else None


_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


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
    return f.nodes * (CALL + ELEMENT * f.layout.size) + HALF * f.halves * f.layout.size


def bind_in_c(f: CFunction, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Phases | None:
    """Bind f to these arrays; None where NumPy must compute. Runs of one bound kernel must not overlap."""
    arrays = [*inputs, *(inputs[f.states[t]] if t in f.states else outputs[t] for t in f.targets)]
    places = [a.ctypes.data for a in arrays]
    if not all(a.flags.c_contiguous and a.flags.aligned for a in arrays) or not _apart(arrays, places, len(inputs)):
        return None
    found = c_compile.function(f)
    if found is None:
        return None
    numbers, size = (ctypes.c_double * f.scalars)(), f.layout.size
    addresses = addresses_of(f, places, numbers)

    held = arrays, numbers  # addresses alone keep nothing alive
    if size * (f.cost + len(arrays)) * ADDITION <= SHORT:
        return Short(found, addresses, size, held, numbers)
    return Phases([[step_of_elements(found, addresses, size, PIECE, held)]], numbers=numbers)


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


def _apart(arrays: Sequence[np.ndarray], places: Sequence[int], n_in: int) -> bool:
    """Return whether each output lies apart from every other array, or exactly where an input of its size lies."""
    for k in range(n_in, len(arrays)):
        o, at = arrays[k], places[k]
        for i in range(k):
            other, there = arrays[i], places[i]
            same = i < n_in and there == at and other.size == o.size and other.itemsize == o.itemsize
            if there < at + o.nbytes and at < there + other.nbytes and not same:
                return False
    return True
