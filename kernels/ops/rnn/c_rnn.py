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

LEAST = 1 << 20  # multiplications of all steps from which on C is worth compiling
ROWS = 16  # of a block that goes through all steps
WORK = 1 << 19  # multiplications of a step that are worth cutting


@functools.cache
def _template(mode: str) -> Template:
    return Template(functools.partial(rnn_text, mode), names(mode))


def in_c(mode: str, clipped: bool, sizes: tuple[int, int, int, int], gates: int, dtype: np.dtype, target: str) -> bool:
    """Return whether C computes a layer of these sizes [steps, batch, inputs, hidden]."""
    t, n, _, h = sizes
    return target == "cpu" and dtype == np.float32 and not clipped and _template(mode).serves(t * n * h * h * gates, LEAST)


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
        self._wide = cdiv(h, MOST_COLUMNS) * MOST_COLUMNS

    def _sizes(self, steps: int, start: bool = False, add: bool = False) -> Any:
        (rows, columns), each = self._blocks, steps if self._blocks[1] == 1 else 1
        return int64s(self.t, self.n, self.h, self.reverse, self._rows, rows, self._columns, columns, each, start, add)

    def _phases(self, call: Call, steps: int, *arrays: Any) -> tuple[Any, list[list[Step]]]:
        """Return the addresses of a function of all steps, and its phases."""
        whole, count = call.prepare(*arrays), call.pieces
        if self._blocks[1] == 1:
            return whole.addresses, [[whole]]

        def phase(first: int) -> Step:
            ranges = int64s(*(n for piece in range(first, first + count) for n in (piece, piece + 1)))
            return Step(whole.function, whole.addresses, count, ranges, held=whole.held)

        return whole.addresses, [[phase(s * count)] for s in range(steps)]

    def _packed(self, weight: Any, matrices: int, depth: int, down: int, along: int) -> tuple[Step, int]:
        """Return the step that packs a recurrent weight, matrices of [depth, hidden], and the number of elements."""
        each = cdiv(c_product.COPY, depth * MOST_COLUMNS) * MOST_COLUMNS
        pieces, h, size = cdiv(self.h, each), self.h, self._wide * depth
        numbers = int64s(depth, h, down, along, each, pieces, h * h, size)
        call = Call(c_product.TEMPLATE, "product_pack", matrices * pieces, numbers)
        return call.prepare(weight, None), matrices * size

    def steps(self) -> KernelFunction:
        t, h, g = self.t, self.h, self.cell.gates
        blocks = self._blocks[0] * self._blocks[1]
        call = Call(self._template, self._names[0], blocks, self._sizes(t))

        def steps(run: Any, w: Weights, gates: Any, hidden: Any, cells: Any) -> None:
            pack, size = self._packed(w.wh, g, h, 1, h)
            addresses, phases = self._phases(call, t, None, gates, hidden, cells, w.bx, w.bh)
            Phases([[pack], *phases], scratch=[Scratch(size, ((pack.addresses, 1), (addresses, 0)))])(run)

        return steps

    def steps_back(self, start: bool, db: Req) -> KernelFunction:
        t, h, g, slots = self.t, self.h, self.cell.gates, self.cell.slots
        blocks = self._blocks[0] * self._blocks[1]
        call = Call(self._template, self._names[1], blocks, self._sizes(t + 1, start))
        finish = Call(self._template, self._names[2], 1, self._sizes(t + 1, add=db == Req.ADD))

        def steps(run: Any, w: Weights, dgates: Any, gates: Any, hidden: Any, cells: Any, dy: Any, dh: Any, dc: Any,
                  dw: Weights | None) -> None:
            pack, size = self._packed(w.wh, 1, g * h, h, 1)
            addresses, phases = self._phases(call, t + 1, None, dgates, gates, hidden, cells, dy, dh, dc, None)
            sums = [(addresses, 8)]
            if dw is not None:
                biases = finish.prepare(None, dw.bx, dw.bh)
                phases.append([biases])
                sums.append((biases.addresses, 0))
            Phases([[pack], *phases], scratch=[Scratch(size, ((pack.addresses, 1), (addresses, 0))),
                                               Scratch(self._blocks[0] * slots * h, sums)])(run)

        return steps
