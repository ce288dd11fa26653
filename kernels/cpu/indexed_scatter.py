"""Elements put into an output at computed indices, where they add up: what a NumPy program makes of `put` nodes.

The elements and their places are computed like any index formula, by tiles. Then they are added one after the other in the order
of the index space, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import cast_into, is_float, to_integer
from ..ir.expr import CONST, PARAM, Expr, cast, const, prim, topological
from ..ir.indexed import GATHER, INDEX, INT64, TRUE, IndexedProgram, accumulated_in, axes_of, simplify
from ..kernel import BoundKernel, InTurn, Kernel, KernelFunction
from ..op import Req, Shape, Spec, Specs
from .c_move import filling, fills
from .c_moving import ReboundKernel
from .c_team import Phases
from .errstate import no_fp_warnings
from .indexed_kernel import c_scatter, is_input
from .indexed_kernel import cpu_kernel as indexed_kernel
from .indexed_printer import STATIC
from .numpy_printer import scratch_arrays


def scatter_kernel(programs: Sequence[IndexedProgram], ins: Specs, out: Spec, req: Req, *, combine: str, start: Expr,
                   distinct: bool, name: str, base: int | None = None) -> Kernel:
    """Return the kernel of programs that each put elements into the one output: kernel(run, inputs, [output], scalars=()).

    combine:   "add", "maximum", or "put": an element replaces what is there; of several at one place the last stays.
    start:     the number, or the run-time scalar, that the output starts with; with "add" and the request ADD, what is there.
    base:      the number of an input, of the output's layout, that it starts with instead.
    distinct:  no two elements are put at the same place, of all programs.
    """
    wide = out.dtype if combine == "put" else accumulated_in(out.dtype)
    direct = wide == out.dtype and (combine == "add" or req != Req.ADD)
    names = programs[0].scalars if programs else ()
    programs = [p for p in programs if math.prod(p.shape)]
    in_c = [c_scatter(p, ins, Spec(out.shape, wide), combine) for p in programs]
    ready = [k for k in in_c if k is not None]
    if direct and ready and len(ready) == len(in_c) and not names and fills(wide, out.nbytes):
        first = np.full(1, start.value if is_float(wide) else to_integer(start.value, wide), wide)
        first = first.view(np.uint8)  # integers of eight bytes might be addresses: a call that holds them is bound anew each time

        def bind(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundKernel:
            target, source = outputs[0].reshape(out.shape), first if base is None else inputs[base]
            clear = [] if req == Req.ADD else [Phases([[filling(out.size, wide, base is not None).prepare(source, target)]])]
            return InTurn([*clear, *[k.bind(inputs, [target]) for k in ready]])

        return ReboundKernel(bind)
    parts = [k or _Part(p, ins, wide, name, combine, distinct).put for k, p in zip(in_c, programs)]

    def kernel(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
        y = outputs[0].reshape(out.shape)
        target = y if direct else scratch_arrays(run, [(wide, out.shape)])[0]
        if base is not None:
            np.copyto(target, inputs[base].reshape(out.shape))
        elif not direct or req != Req.ADD:
            first = scalars[names.index(start.value)] if start.op == PARAM else start.value
            target.fill(first if is_float(wide) else to_integer(first, wide))
        for part in parts:
            part(run, inputs, [target], scalars=scalars)
        if not direct:
            with np.errstate(all="ignore"):
                cast_into(y, np.add(y, target) if req == Req.ADD else target)

    return Kernel(kernel)


class _Part:
    """The elements of one program, [places, elements of a place], and the places: numbers of rows of the output."""

    def __init__(self, p: IndexedProgram, ins: Specs, wide: np.dtype, name: str, combine: str, distinct: bool):
        self.combine, self.distinct = combine, distinct
        p = simplify(p, fixed_sizes=True)
        mask, element, *places = p.roots[0].args
        shape, rank, axes = p.roots[0].value[1], len(p.shape), axes_of(topological(p.roots))
        whole = 0  # the last axes of the output that are the last axes of the index space
        while whole < min(rank, len(places)):
            at, axis = places[-1 - whole], rank - 1 - whole
            others = axes[id(mask)].union(*(axes[id(a)] for a in places[:len(places) - 1 - whole]))
            if not (at.op == INDEX and at.value == axis and shape[-1 - whole] == p.shape[axis] and axis not in others):
                break
            whole += 1
        lead = len(places) - whole
        row: Expr = const(0, INT64)
        for i, (a, d) in enumerate(zip(places[:lead], shape[:lead])):
            row = prim("add", prim("mul", row, const(d, INT64)), a) if i else a
        row = row if mask is TRUE else prim("where", mask, row, const(-1, INT64))
        self.rows, self.inner = p.shape[:rank - whole], math.prod(p.shape[rank - whole:])
        self.shape, self.wide = p.shape, wide
        element = cast(element, wide)
        self._same = np.array([[element.value]], wide) if element.op == CONST and not whole else None  # one number everywhere
        self._input = element.value[0] if is_input(element, p.shape) else None  # the elements are those of an input
        static = math.prod(p.shape) <= STATIC and not any(x.op in (GATHER, PARAM) for x in topological((row, element)))
        ins = [] if static else ins  # what depends on nothing is computed now
        self._kernels: list[tuple[KernelFunction, slice]] = []
        alone = self._same is not None or self._input is not None
        if whole or alone:
            self._add(0, [row], self.rows, [INT64], p, ins, name)
        if whole and not alone:
            self._add(1, [element], p.shape, [wide], p, ins, name)
        if not whole and not alone:
            self._add(0, [row, element], p.shape, [INT64, wide], p, ins, name)
        self.masked = mask is not TRUE
        self._known: tuple[np.ndarray, np.ndarray] | None = None
        if static:
            self._known = self.computed(None, (), ())

    def _add(self, first: int, roots: Sequence[Expr], shape: Shape, dtypes: Sequence[np.dtype], p: IndexedProgram, ins: Specs,
             name: str) -> None:
        specs = [Spec(shape, d) for d in dtypes[:len(roots)]]
        kernel = indexed_kernel(IndexedProgram(tuple(roots), shape, p.scalars), ins, specs, [Req.WRITE] * len(roots), name=name)
        self._kernels.append((kernel, slice(first, first + len(roots))))

    def put(self, run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
        """Put the elements into the output."""
        at, elements = self.computed(run, inputs, scalars)
        no_fp_warnings(_combine, outputs[0].reshape(-1, elements.shape[1]), at, elements, self.combine, self.distinct)

    def computed(self, run: Any, inputs: Sequence[np.ndarray], scalars: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Return the places [k] and the elements [k, n] there."""
        if self._known is not None:
            return self._known
        alone = self._same is not None or self._input is not None
        wanted = [(INT64, self.rows)] if alone else [(INT64, self.rows), (self.wide, self.shape)]
        arrays = scratch_arrays(run, wanted)
        for kernel, which in self._kernels:
            kernel(run, inputs, arrays[which], scalars=scalars)
        at = arrays[0].reshape(-1)
        if self._same is not None:
            elements = self._same
        else:
            elements = (arrays[1] if self._input is None else inputs[self._input]).reshape(-1, self.inner)
        if self.masked:
            there = at >= 0
            if not there.all():
                return at[there], elements[there] if self._same is None else elements
        return at, elements


def _combine(target: np.ndarray, at: np.ndarray, elements: np.ndarray, combine: str, distinct: bool) -> None:
    """Put elements [k, n] into the rows at [k] of target [rows, n]."""
    single = elements.shape[1] == 1
    if single:
        target, elements = target[:, 0], elements[:, 0]
    if combine == "put":
        target[at] = elements
    elif combine == "maximum":
        np.maximum.at(target, at, elements)
    elif distinct:
        target[at] += elements
    elif single:
        np.add.at(target, at, elements)
    elif len(at):  # sums of equal rows, in their order
        order = np.argsort(at, kind="stable")
        placed = at[order]
        starts = np.flatnonzero(np.r_[True, placed[1:] != placed[:-1]])
        target[placed[starts]] += np.add.reduceat(elements[order], starts, axis=0)
