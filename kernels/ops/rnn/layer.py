"""One recurrent layer in one direction, for both devices.

The products with the inputs are computed for all steps at once. Then each step computes its recurrent product and the body of
the cell.

Arrays are flat. Gates are stored as [slots, steps, batch, hidden], so that those of one step are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....integers import cdiv
from ...declare.row_kernel import row_kernel
from ...kernel import DeviceArray, KernelFunction
from ...op import Req, Spec
from ..linalg.gemm import Matrix, product
from .cells import Cell


@dataclass(frozen=True)
class Weights:
    """The part of the parameter vector, or of its derivative, of one layer: wx [g·h, inputs], wh [g·h, h], bx and bh [g·h]."""

    wx: Any
    wh: Any
    bx: Any
    bh: Any


class Layer:
    """t steps of a batch of n, from i inputs to h outputs. reverse: the last step comes first.

    forward keeps for backward: gates [slots, t, n, h]; hidden [t + 1, n, h], which begins with the initial state (or ends with
    it, if reverse); cells, like hidden, for an lstm.
    """

    sums_biases: ClassVar[bool] = False  # steps_back computes the derivatives of biases

    def __init__(self, cell: Cell, sizes: tuple[int, int, int, int], reverse: bool, dtype: np.dtype, target: str):
        self.cell, self.sizes, self.reverse, self.target = cell, sizes, reverse, target
        self.t, self.n, self.i, self.h = sizes
        self.dtype, self.lstm, self.gru = dtype, cell.gates == 4, cell.slots > cell.gates

    # ---- layout of arrays -------------------------------------------------------------------------------------------
    @property
    def step(self) -> int:
        """Number of elements of [batch, hidden]."""
        return self.n * self.h

    def after(self, states: DeviceArray) -> DeviceArray:
        """Return the states after each step [t, n, h] as a view of states [t + 1, n, h]."""
        return states[:self.t * self.step] if self.reverse else states[self.step:]

    def before(self, states: DeviceArray) -> DeviceArray:
        """Return the states before each step, likewise."""
        return states[self.step:] if self.reverse else states[:self.t * self.step]

    def edge(self, states: DeviceArray, last: bool) -> DeviceArray:
        """Return the state [n, h] before the first step, or after the last one."""
        return states[self.t * self.step:] if last != self.reverse else states[:self.step]

    def _at(self, array: Any, slot: int, t: int) -> Any:
        start = (slot * self.t + t) * self.step
        return array[start:start + self.step]

    def _kernel(self, body: Any, ins: int, outs: int, inplace: dict[int, Req], name: str) -> Any:
        spec, view = Spec((self.step,), self.dtype), (self.step,)
        return row_kernel(body, [view] * ins, [view] * outs, view, [spec] * ins, [spec] * outs,
                          [inplace.get(i, Req.WRITE) for i in range(outs)], self.target, name)

    def _product(self, a: Matrix, b: Matrix, out: Matrix, req: Req) -> Any:
        return product(a, b, out, req, self.target)

    # ---- forward ----------------------------------------------------------------------------------------------------
    def forward(self) -> KernelFunction:
        """Return kernel(run, x, weights, gates, hidden, cells), which fills gates, hidden and cells from their initial states."""
        (t, n, i, h), g = self.sizes, self.cell.gates
        enter = self._product((0, (g, t * n, i), (0, i, 1)), (1, (g, i, h), (h * i, 1, i)),
                              (2, (g, t * n, h), (t * self.step, h, 1)), Req.WRITE)
        steps = self.steps()

        def kernel(run: Any, x: Any, w: Weights, gates: Any, hidden: Any, cells: Any) -> None:
            enter(run, [x, w.wx, gates])
            steps(run, w, gates, hidden, cells)

        return kernel

    def steps(self) -> KernelFunction:
        """Return kernel(run, weights, gates, hidden, cells): `forward` from gates that hold the products with the inputs."""
        t, n, h, cell, all_steps = self.t, self.n, self.h, self.cell, self.t * self.step
        g, shared = cell.gates, cell.shared
        back = [(first, slot, self._product((0, (count, n, h), (0, h, 1)), (1, (count, h, h), (h * h, 1, h)),
                                            (2, (count, n, h), (all_steps, h, 1)), Req.ADD))
                for first, count, slot in cell.recurrent]
        biases = self._biases(shared)
        slots, ins = cell.slots, cell.slots + (self.lstm or self.gru)
        inplace = dict.fromkeys(range(0 if ins == slots else g), Req.INPLACE)
        step = self._kernel(cell.forward, ins, len(inplace) + 1 + self.lstm, inplace, "rnn_step")

        def kernel(run: Any, w: Weights, gates: Any, hidden: Any, cells: Any) -> None:
            for bias, add in biases:
                bias(run, add(w), gates)
            old, new = self.before(hidden), self.after(hidden)
            for at in reversed(range(t)) if self.reverse else range(t):
                h_old = self._at(old, 0, at)
                for first, slot, multiply in back:
                    multiply(run, [h_old, w.wh[first * h * h:], gates[(slot * t + at) * self.step:]])
                now = [self._at(gates, s, at) for s in range(slots)]
                out = [self._at(new, 0, at)]
                if self.lstm:
                    step(run, [*now, self._at(self.before(cells), 0, at)], [*now, self._at(self.after(cells), 0, at), *out])
                elif self.gru:
                    step(run, [*now, h_old], [*now[:g], *out])
                else:
                    step(run, now, out)

        return kernel

    def _biases(self, shared: int) -> list[tuple[Any, Any]]:
        """Return pairs of kernel(run, biases, gates) and the biases it adds to the gates before the products."""
        h, g, rows = self.h, self.cell.gates, self.t * self.n

        def made(count: int, parts: int, slot: int, req: Req) -> Any:
            body = (lambda a, b: a + b) if parts == 2 else (lambda a: a)
            full = (count, rows, h)
            fill = row_kernel(body, [(count, 1, h)] * parts, [full], full, [Spec((count * h,), self.dtype)] * parts,
                              [Spec(full, self.dtype)], [req], self.target, "rnn_bias")
            size = rows * h
            return lambda run, biases, gates: fill(run, biases, [gates[slot * size:(slot + count) * size]])

        found = [(made(shared, 2, 0, Req.ADD), lambda w: [w.bx[:shared * h], w.bh[:shared * h]])]
        if self.gru:
            found.append((made(g - shared, 1, shared, Req.ADD), lambda w: [w.bx[shared * h:]]))
            found.append((made(g - shared, 1, g, Req.WRITE), lambda w: [w.bh[shared * h:]]))
        return found

    # ---- backward ---------------------------------------------------------------------------------------------------
    def backward(self, dx: Req, dw: Req, start: bool) -> KernelFunction:
        """Return kernel(run, x, w, gates, hidden, cells, dy, dh, dc, dx, dw).

        dh and dc hold the derivatives by the last states, and afterwards, if start, those by the first. dw: like the weights.
        """
        cell, all_steps = self.cell, self.t * self.step
        steps = self.steps_back(start, dw)
        finish = self._weights(dw) if dw != Req.NULL else None
        leave = self.leave(dx) if dx != Req.NULL else None

        def kernel(run: Any, x: Any, w: Weights, gates: Any, hidden: Any, cells: Any, dy: Any, dh: Any, dc: Any, into: Any,
                   dweights: Weights | None) -> None:
            dgates = run.workspace((cell.slots * all_steps,), self.dtype)
            steps(run, w, dgates, gates, hidden, cells, dy, dh, dc, dweights)
            if finish is not None and dweights is not None:
                finish(run, x, self.before(hidden), dgates, dweights)
            if leave is not None:
                leave(run, dgates, w, into)

        return kernel

    def leave(self, req: Req) -> KernelFunction:
        """Return kernel(run, dgates, w, dx), which computes the derivative by the input."""
        (t, n, i, h), all_steps = self.sizes, self.t * self.step
        products = {r: self._product((0, (1, t * n, h), (0, h, 1)), (1, (1, h, i), (0, i, 1)), (2, (1, t * n, i), (0, i, 1)), r)
                    for r in (req, Req.ADD)}

        def kernel(run: Any, dgates: Any, w: Weights, dx: Any) -> None:
            for k in range(self.cell.gates):
                products[req if k == 0 else Req.ADD](run, [dgates[k * all_steps:], w.wx[k * h * i:], dx])

        return kernel

    def steps_back(self, start: bool, db: Req) -> KernelFunction:
        """Return kernel(run, w, dgates, gates, hidden, cells, dy, dh, dc, dw), which fills dgates, the derivatives of gates.

        dh, dc: as in `backward`. db: the request of the derivatives of biases, for layers with `sums_biases`.
        """
        t, n, h, cell = self.t, self.n, self.h, self.cell
        extra = {cell.slots: Req.INPLACE} if self.lstm or self.gru else {}
        ins = 2 + self.lstm + cell.slots + self.lstm + (self.lstm or self.gru)
        step = self._kernel(cell.backward, ins, cell.slots + len(extra), extra, "rnn_step_backward")
        through = {req: self._product((0, (1, n, h), (0, h, 1)), (1, (1, h, h), (0, h, 1)), (2, (1, n, h), (0, h, 1)), req)
                   for req in (Req.WRITE, Req.ADD)}
        steps_back = [(first + k, slot + k) for first, count, slot in cell.recurrent for k in range(count)]

        def kernel(run: Any, w: Weights, dgates: Any, gates: Any, hidden: Any, cells: Any, dy: Any, dh: Any, dc: Any,
                   dw: Weights | None) -> None:
            for at in range(t) if self.reverse else reversed(range(t)):
                now = [self._at(gates, s, at) for s in range(cell.slots)]
                dnow = [self._at(dgates, s, at) for s in range(cell.slots)]
                given = [dh, self._at(dy, 0, at)]
                if self.lstm:
                    before, after = self._at(self.before(cells), 0, at), self._at(self.after(cells), 0, at)
                    step(run, [*given, dc, *now, after, before], [*dnow, dc])
                elif self.gru:
                    step(run, [*given, *now, self._at(self.before(hidden), 0, at)], [*dnow, dh])
                else:
                    step(run, [*given, self._at(self.after(hidden), 0, at)], dnow)
                for k, (gate, slot) in enumerate(steps_back):
                    through[Req.ADD if k or self.gru else Req.WRITE](run, [dnow[slot], w.wh[gate * h * h:], dh])

        return kernel

    def _weights(self, req: Req) -> Any:
        """Return kernel(run, x, states before, dgates, dw), which computes the derivatives by weights and biases."""
        (t, n, i, h), cell, all_steps = self.sizes, self.cell, self.t * self.step
        rows = t * n

        def made(count: int, width: int) -> Any:
            return self._product((0, (count, h, rows), (all_steps, 1, h)), (1, (count, rows, width), (0, width, 1)),
                                 (2, (count, h, width), (h * width, width, 1)), req)

        def total(count: int) -> Any:
            full, one = (count, rows, h), (count, 1, h)
            return row_kernel(lambda d: d, [full], [one], full, [Spec(full, self.dtype)], [Spec(one, self.dtype)], [req],
                              self.target, "rnn_bias_sum")

        jobs: list[tuple[int, int, int, bool, Any, Any]] = [(0, cell.gates, 0, True, made(cell.gates, i), total(cell.gates))]
        jobs += [(first, count, slot, False, made(count, h), total(count)) for first, count, slot in cell.recurrent]

        def kernel(run: Any, x: Any, states: Any, dgates: Any, dw: Weights) -> None:
            for first, count, slot, entering, multiply, add_up in jobs:
                d = dgates[slot * all_steps:(slot + count) * all_steps]
                weight, bias, width = (dw.wx, dw.bx, i) if entering else (dw.wh, dw.bh, h)
                multiply(run, [d, x if entering else states, weight[first * h * width:]])
                if not self.sums_biases:
                    add_up(run, [d], [bias[first * h:(first + count) * h]])

        return kernel


def stacked(sizes: Sequence[int]) -> list[int]:
    """Return the offsets of consecutive arrays of these sizes, each a multiple of 64 elements, and the total size."""
    starts = [0]
    for size in sizes:
        starts.append(cdiv(starts[-1] + size, 64) * 64)
    return starts
