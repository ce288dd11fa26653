"""The CPU kernel of an index formula: C where that is possible and pays, otherwise NumPy's program.

The choice depends only on the formula, its shapes and the machine.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.expr import Expr, topological
from ..ir.indexed import FOLD, GATHER, INDEX, TRUE, IndexedProgram
from ..kernel import BoundKernel, Kernel
from ..op import Reqs, Shape, Spec, Specs
from . import c_compile
from .c_kernel import SAVED, SHORT, least_bound
from .c_moving import MovingKernel, Ready
from .c_team import Phases, Short, step_of_elements
from .c_template import address
from .indexed_c import IndexedFunction, indexed_function, scatter_function
from .indexed_printer import indexed_kernel as numpy_kernel

CALL = 600  # nanoseconds that each call of a NumPy function takes, of any size
ELEMENT = 0.5  # nanoseconds that one element of one step takes NumPy longer than C; plain reads and copies take as long
ROW = 15  # nanoseconds that C takes to begin a row
STEP = 0.5  # nanoseconds of one element of one step in C
LEAST = 512  # elements of a row that are worth a piece of their own
TOO_SMALL = "it is too small to be worth compiling"
PUT_CALLS = 12  # of NumPy functions that put elements where they belong
PUT_ELEMENT = 5.0  # nanoseconds that NumPy takes longer to put one element where it belongs
PIECE = 50_000  # nanoseconds of a piece; pieces are cut by size alone


def cpu_kernel(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """Return a kernel like `indexed_printer.indexed_kernel`, in C where that pays."""
    f = select_function(p, ins, outs, reqs)
    found = None if isinstance(f, str) else c_compile.function(f, quick=f.quick)
    if isinstance(f, str) or found is None:
        return numpy_kernel(p, ins, outs, reqs, name=name)
    return _c_kernel(f, found, p.shape, ins, outs)


def select_function(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs) -> IndexedFunction | str:
    """Return the C function that computes the formula, or the reason why NumPy computes it."""
    mode = c_compile.mode()
    if mode == "numpy":
        return "TRITIUM_CPU_CODE is numpy"
    size, order, least = math.prod(p.shape), topological(p.roots), least_bound(SAVED, (*ins, *outs))
    if mode == "auto" and len(order) * (CALL + ELEMENT * size) < least and not any(x.op == FOLD for x in order):
        return TOO_SMALL
    f = indexed_function(p, ins, outs, reqs)
    if isinstance(f, str):
        return f
    if mode == "auto" and CALL * f.calls + ELEMENT * f.work * f.size - ROW * f.rows < least:
        return TOO_SMALL
    return f if c_compile.available() else "no C compiler is available"


def c_scatter(p: IndexedProgram, ins: Specs, out: Spec, combine: str) -> Kernel | None:
    """Return the kernel that puts the elements of a program into what its one output holds, in C; None where NumPy does that."""
    mode = c_compile.mode()
    f = "" if mode == "numpy" else scatter_function(p, ins, out, combine)
    if isinstance(f, str) or not f.size:
        return None
    last = p.roots[0].args[-1]
    by_rows = combine == "put" and last.op == INDEX and last.value == len(p.shape) - 1 and p.shape[-1] > 1  # NumPy copies them
    if mode == "auto" and by_rows and p.shape[-1] >= LEAST and is_input(p.roots[0].args[1], p.shape):
        return None  # C took 1.17 times as long for rows of 2,048
    saved = CALL * (f.calls + PUT_CALLS) + (ELEMENT * f.work + (0 if by_rows else PUT_ELEMENT)) * f.size
    if (mode == "auto" and saved < least_bound(SAVED, (*ins, out))) or not c_compile.available():
        return None
    found = c_compile.function(f, quick=f.quick)
    return None if found is None else _c_kernel(f, found, p.shape, ins, [out])


def is_input(x: Expr, shape: Shape) -> bool:
    """Return whether x is an input's element at the index itself."""
    return x.op == GATHER and x.args[0] is TRUE and x.value[1] == shape and all(
        a.op == INDEX and a.value == i for i, a in enumerate(x.args[1:]))


def _c_kernel(f: IndexedFunction, code: c_compile.Loaded, shape: tuple[int, ...], ins: Specs, outs: Specs) -> Kernel:
    """Return the kernel that calls f. shape: of the output, or of the index space."""
    sizes = (ctypes.c_int64 * max(1, len(f.sizes)))(*f.sizes)
    at_sizes, addresses = ctypes.addressof(sizes), ctypes.c_void_p * (len(f.inputs) + len(f.targets) + 2)
    span, nanoseconds = f.span, STEP * max(1.0, f.steps) * f.size
    row = shape[-1] if shape else 1
    piece = span if f.whole else max(1, int(PIECE * span / nanoseconds))
    if span == f.size:
        piece = piece if piece < row else piece // row * row
    if span == row != f.size:  # parts of the last axis, each across all others
        piece = max(piece, LEAST)
    short = span <= piece and nanoseconds <= SHORT and not f.from_data
    n = len(f.inputs) + len(f.targets)

    def bound(places: Sequence[int | None], *held: Any) -> tuple[Phases, Any]:
        numbers = (ctypes.c_double * f.scalars)() if f.scalars else None
        given = addresses(*places, at_sizes, 0 if numbers is None else ctypes.addressof(numbers))
        held = (*held, sizes, numbers)
        if short:
            return Short(code, given, span, piece, held, numbers), given
        return Phases([[step_of_elements(code, given, span, piece, held)]], numbers=numbers), given

    def bind(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundKernel:
        places = [*[address(inputs[i]) for i in f.inputs], *[address(outputs[t]) for t in f.targets]]
        return bound(places, *inputs, *outputs)[0]

    def other(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
        bind(inputs, outputs)(run, scalars)

    order, written = [*f.inputs, *[len(ins) + t for t in f.targets]], [len(ins) + t for t in f.targets]
    return MovingKernel(lambda: Ready(*bound([None] * n), n), bind, other, ins, outs, order, written)
