"""Recurrent layers in C: the steps of a layer and their derivatives, in one call for all steps.

The recurrent weight is packed once for a pass. Then the rows of a batch are independent: blocks of them go through all steps,
each with the gates, states and products of its own in cache, and no thread waits for another. Small batches are cut along the
hidden units instead, with one phase for a step. The cell's formula is printed from its traced body; it reads the products where
they were just stored. The sums for the derivatives of biases are taken in the same pass, block by block.

Products with the inputs, and those of the derivatives by the input and by weights, are computed for all steps at once.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....integers import cdiv
from ...cpu.c_team import Phases, Scratch, Step, int64s
from ...cpu.c_template import Call, Template
from ...cpu.c_tile import MOST_COLUMNS
from ...kernel import KernelFunction
from ...op import Req
from ..linalg import c_product
from .c_rnn_text import names, rnn_text
from .cells import Cell
from .layer import Layer, Weights

FEW_STEPS = 4  # below which NumPy computes, unless there are many rows; above, its calls take 30 us for every step of an LSTM
FEW_ROWS, LEAST = 256, 1 << 20  # rows, and multiplications, of all of few steps from which on C computes
ROWS = 16  # of a block that goes through all steps
WORK = 1 << 19  # multiplications of a step that are worth cutting
ALL_ROWS, MANY = 64, 8  # rows of a block of the products of all steps; blocks from which on columns are not cut


@functools.cache
def _template(mode: str) -> Template:
    return Template(functools.partial(rnn_text, mode), names(mode))


def in_c(mode: str, clipped: bool, sizes: tuple[int, int, int, int], gates: int, dtype: np.dtype, target: str) -> bool:
    """Return whether C computes a layer of these sizes [steps, batch, inputs, hidden]."""
    t, n, _, h = sizes
    if target != "cpu" or dtype != np.float32 or clipped:
        return False
    work = t * n * h * h * gates
    pays = t >= FEW_STEPS or (t * n >= FEW_ROWS and work >= LEAST)  # else packing the weights takes longer than NumPy's products
    return _template(mode).serves(work, 0 if pays else work + 1)


class CLayer(Layer):
    """A layer whose steps are computed in C."""

    sums_biases = True

    def __init__(self, mode: str, cell: Cell, sizes: tuple[int, int, int, int], reverse: bool, dtype: np.dtype, target: str):
        super().__init__(cell, sizes, reverse, dtype, target)
        self._template, self._names = _template(mode), names(mode)
        n, h = self.n, self.h
        self._rows, self._columns = n, h
        if n >= ROWS:
            self._rows = ROWS
        elif n * h * h * cell.gates >= WORK:
            self._columns = MOST_COLUMNS
        self._blocks = cdiv(n, self._rows), cdiv(h, self._columns)
        self._rows_of_all = cdiv(self.t * n, ALL_ROWS)
        self._wide_inputs = self.i if self._rows_of_all >= MANY else MOST_COLUMNS

    def _sizes(self, steps: int, start: bool = False, add: bool = False) -> Any:
        (rows, columns), each = self._blocks, steps if self._blocks[1] == 1 else 1
        return int64s(self.t, self.n, self.h, self.reverse, self._rows, rows, self._columns, columns, each, start, add, self.i,
                      ALL_ROWS, self._wide_inputs)

    def _phases(self, call: Call, steps: int, *arrays: Any) -> tuple[Any, list[list[Step]]]:
        """Return the addresses of a function of all steps, and its phases."""
        whole, count = call.prepare(*arrays), call.pieces
        if self._blocks[1] == 1:
            return whole.addresses, [[whole]]

        def phase(first: int) -> Step:
            ranges = int64s(*(n for piece in range(first, first + count) for n in (piece, piece + 1)))
            return Step(whole.function, whole.addresses, count, ranges, held=whole.held)

        return whole.addresses, [[phase(s * count)] for s in range(steps)]

    def _packed(self, weight: Any, matrices: int, depth: int, columns: int, down: int, along: int) -> tuple[Step, int]:
        """Return the step that packs matrices of [depth, columns] into panels, and the number of elements."""
        size = cdiv(columns, MOST_COLUMNS) * MOST_COLUMNS * depth
        call = c_product.packing(matrices, depth, columns, (down, along, depth * columns), size)
        return call.prepare(weight, None), matrices * size

    def forward(self) -> KernelFunction:
        i, h, g = self.i, self.h, self.cell.gates
        enter = Call(self._template, self._names[0], self._rows_of_all * g, self._sizes(0))

        def kernel(run: Any, x: Any, w: Weights, gates: Any, hidden: Any, cells: Any) -> None:
            pack, size = self._packed(w.wx, g, i, h, 1, i)
            entered = enter.prepare(x, None, gates)
            phases, scratch = self._steps(w, gates, hidden, cells)
            phases = [[pack, *phases[0]], [entered], *phases[1:]]
            Phases(phases, scratch=[Scratch(size, ((pack.addresses, 1), (entered.addresses, 1))), scratch])(run)

        return kernel

    def steps(self) -> KernelFunction:
        def kernel(run: Any, w: Weights, gates: Any, hidden: Any, cells: Any) -> None:
            phases, scratch = self._steps(w, gates, hidden, cells)
            Phases(phases, scratch=[scratch])(run)

        return kernel

    def _steps(self, w: Weights, gates: Any, hidden: Any, cells: Any) -> tuple[list[list[Step]], Scratch]:
        """Return the phases of `steps`, of which the first packs, and the memory that they need."""
        t, h, g = self.t, self.h, self.cell.gates
        call = Call(self._template, self._names[2], self._blocks[0] * self._blocks[1], self._sizes(t))
        pack, size = self._packed(w.wh, g, h, h, 1, h)
        addresses, phases = self._phases(call, t, None, gates, hidden, cells, w.bx, w.bh)
        return [[pack], *phases], Scratch(size, ((pack.addresses, 1), (addresses, 0)))

    def leave(self, req: Req) -> KernelFunction:
        i, h, g = self.i, self.h, self.cell.gates
        pieces = self._rows_of_all * cdiv(i, self._wide_inputs)
        call = Call(self._template, self._names[1], pieces, self._sizes(0, add=req == Req.ADD))

        def kernel(run: Any, dgates: Any, w: Weights, dx: Any) -> None:
            pack, size = self._packed(w.wx, 1, g * h, i, i, 1)
            left = call.prepare(dgates, None, dx)
            Phases([[pack], [left]], scratch=[Scratch(size, ((pack.addresses, 1), (left.addresses, 1)))])(run)

        return kernel

    def steps_back(self, start: bool, db: Req) -> KernelFunction:
        t, h, g, slots = self.t, self.h, self.cell.gates, self.cell.slots
        blocks = self._blocks[0] * self._blocks[1]
        call = Call(self._template, self._names[3], blocks, self._sizes(t + 1, start))
        finish = Call(self._template, self._names[4], 1, self._sizes(t + 1, add=db == Req.ADD))

        def steps(run: Any, w: Weights, dgates: Any, gates: Any, hidden: Any, cells: Any, dy: Any, dh: Any, dc: Any,
                  dw: Weights | None) -> None:
            pack, size = self._packed(w.wh, 1, g * h, h, h, 1)
            addresses, phases = self._phases(call, t + 1, None, dgates, gates, hidden, cells, dy, dh, dc, None)
            sums = [(addresses, 8)]
            if dw is not None:
                biases = finish.prepare(None, dw.bx, dw.bh)
                phases.append([biases])
                sums.append((biases.addresses, 0))
            Phases([[pack], *phases], scratch=[Scratch(size, ((pack.addresses, 1), (addresses, 0))),
                                               Scratch(self._blocks[0] * slots * h, sums)])(run)

        return steps
