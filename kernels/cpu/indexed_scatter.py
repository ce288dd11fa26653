"""Elements put into an output at computed indices, where they add up: what a NumPy program makes of `put` nodes.

The elements and their places are computed like any index formula, by tiles. Then they are added one after the other in the order
of the index space, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import cast_into
from ..ir.expr import Expr, cast, const, prim, topological
from ..ir.indexed import INDEX, INT64, TRUE, IndexedProgram, accumulated_in, axes_of, simplify
from ..kernel import Kernel, KernelFunction
from ..op import Req, Spec, Specs
from .indexed_printer import indexed_kernel


def scatter_kernel(programs: Sequence[IndexedProgram], ins: Specs, out: Spec, req: Req, *, combine: str, distinct: bool,
                   name: str) -> Kernel:
    """Return the kernel of programs that each put elements into the one output: kernel(run, inputs, [output], scalars=()).

    combine:   "add", from 0 or, with the request ADD, from what is there; or "maximum", from -1.
    distinct:  no two elements are put at the same place, of all programs.
    """
    wide = accumulated_in(out.dtype)
    parts = [_Part(p, ins, wide, name) for p in programs if math.prod(p.shape)]
    direct = wide == out.dtype and (combine == "add" or req != Req.ADD)

    def kernel(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
        y = outputs[0]
        target = y if direct else run.workspace(out.shape, wide)
        if not direct or req != Req.ADD:
            target.fill(0 if combine == "add" else -1)
        for part in parts:
            at, elements = part.computed(run, inputs, scalars)
            with np.errstate(all="ignore"):
                _combine(target.reshape(-1, elements.shape[1]), at, elements, combine, distinct)
        if not direct:
            with np.errstate(all="ignore"):
                cast_into(y, np.add(y, target) if req == Req.ADD else target)

    return Kernel(kernel)


class _Part:
    """The elements of one program, [places, elements of a place], and the places: numbers of rows of the output."""

    def __init__(self, p: IndexedProgram, ins: Specs, wide: np.dtype, name: str):
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
        self.spec = Spec(p.shape, wide)
        self._rows = self._made(row, self.rows, INT64, ins, p, name)
        self._elements = self._made(cast(element, wide), p.shape, wide, ins, p, name)
        self.masked = mask is not TRUE

    @staticmethod
    def _made(root: Expr, shape: tuple[int, ...], dtype: np.dtype, ins: Specs, p: IndexedProgram, name: str) -> KernelFunction:
        return indexed_kernel(IndexedProgram((root,), shape, p.scalars), ins, [Spec(shape, dtype)], [Req.WRITE], name=name)

    def computed(self, run: Any, inputs: Sequence[np.ndarray], scalars: tuple) -> tuple[np.ndarray, np.ndarray]:
        at, elements = run.workspace(self.rows, INT64), run.workspace(self.spec.shape, self.spec.dtype)
        self._rows(run, inputs, [at], scalars=scalars)
        self._elements(run, inputs, [elements], scalars=scalars)
        at, elements = at.reshape(-1), elements.reshape(-1, self.inner)
        if self.masked:
            there = at >= 0
            if not there.all():
                return at[there], elements[there]
        return at, elements


def _combine(target: np.ndarray, at: np.ndarray, elements: np.ndarray, combine: str, distinct: bool) -> None:
    """Put elements [k, n] into the rows at [k] of target [rows, n]."""
    if combine == "maximum":
        if elements.shape[1] == 1:
            np.maximum.at(target[:, 0], at, elements[:, 0])
        else:
            np.maximum.at(target, at, elements)
    elif distinct:
        target[at] += elements
    elif elements.shape[1] == 1:
        np.add.at(target[:, 0], at, elements[:, 0])
    elif len(at):  # sums of equal rows, in their order
        order = np.argsort(at, kind="stable")
        placed = at[order]
        starts = np.flatnonzero(np.r_[True, placed[1:] != placed[:-1]])
        target[placed[starts]] += np.add.reduceat(elements[order], starts, axis=0)
