"""Base of operators that only move elements. Each is a list of moves, which defines both back ends and the derivative.

A move copies one view of an input to one view of an output of the same shape (kernels/ir/strided.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ....integers import cdiv
from ...cpu.c_move import copies, filling, fills
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases, Step
from ...cpu.c_template import Call, address
from ...declare.operator_property import OperatorProperty, assign
from ...gpu import copy
from ...ir.strided import View, layout
from ...kernel import BoundKernel, Kernel, KernelFunction, Run
from ...op import Req, Reqs, Shape, Specs

_CHUNK = 1 << 18  # elements; larger moves are split over threads along their first axis
FILLED = 1 << 22  # bytes from which on threads share filling an array
_ZERO = np.zeros(8, np.uint8)  # zero in every dtype


@dataclass(frozen=True, slots=True)
class Move:
    """Copy `take(input src)` to `put(output dst)`."""

    src: int
    take: View
    dst: int
    put: View


def convert(src: np.ndarray, dst: np.ndarray, add: bool) -> None:
    """Compute dst = src or dst += src, elementwise. Integers out of range wrap; other values must fit dst."""
    if src.dtype == dst.dtype and not add:
        np.copyto(dst, src)
        return
    with np.errstate(all="ignore"):
        assign(dst, Req.ADD if add else Req.WRITE, src)


def fill(run: Run, array: Any, value: float | np.generic) -> None:
    """Write value to every element of an array on any device."""
    if isinstance(array, np.ndarray):
        if array.nbytes >= FILLED and array.flags.c_contiguous and fills(array.dtype, array.nbytes):
            Phases([[filling(array.size, array.dtype).prepare(np.full(1, value, array.dtype), array)]])(run)
        else:
            array.fill(value)
    else:
        copy.fill(run, array, value)


def copy_into(run: Run, source: Any, target: Any, *, add: bool = False) -> None:
    """Copy an array to another of its shape on the same device, or add it."""
    if isinstance(target, np.ndarray):
        convert(source, target, add)
    else:
        dense = layout(tuple(target.shape))
        copy.plan(dense, dense, add)(run, source, target)


def move_kernel(moves: Sequence[Move], ins: Specs, outs: Specs, reqs: Reqs, target: str,
                *, clear: bool = False, overlap: bool = False, alike: bool = False) -> Kernel:
    """Build the kernel that makes all moves.

    clear:    fill the elements that no move writes with zero.
    overlap:  several moves write the same elements, and their values are added. Implies clear.
    alike:    the moves go through their arrays in the same order, so that their parts lie beside each other.
    """
    clear = clear or overlap
    moves = [m for m in moves if reqs[m.dst] != Req.NULL]
    used = {m.dst for m in moves} | {i for i, r in enumerate(reqs) if r != Req.NULL and clear}
    wiped = [o for o in sorted(used) if clear and reqs[o] != Req.ADD]
    adds = [overlap or reqs[m.dst] == Req.ADD for m in moves]
    if target == "gpu":
        plans = [(m.src, m.dst, copy.plan(layout(ins[m.src].shape, m.take), layout(outs[m.dst].shape, m.put), add))
                 for m, add in zip(moves, adds)]

        def kernel_gpu(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for o in wiped:
                fill(run, outputs[o], 0)
            for src, dst, plan in plans:
                plan(run, inputs[src], outputs[dst])

        return Kernel(kernel_gpu)

    def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
        ends = [(m.take(inputs[m.src]), m.put(outputs[m.dst]), add) for m, add in zip(moves, adds)]
        ends = [(src, dst, add) for src, dst, add in ends
                if add or dst.__array_interface__["data"] != src.__array_interface__["data"] or dst.strides != src.strides
                or dst.dtype != src.dtype]  # else both share memory and nothing is to do

        def call(run: Any) -> None:
            for o in wiped:
                fill(run, outputs[o], 0)
            for src, dst, add in ends:
                rows = dst.shape[0] if dst.ndim else 1
                step = max(1, _CHUNK * rows // max(dst.size, 1))
                if step >= rows:
                    convert(src, dst, add)
                else:
                    run.parallel(lambda i, s=src, d=dst, n=step, a=add: convert(s[i * n:i * n + n], d[i * n:i * n + n], a),
                                 cdiv(rows, step))

        return call

    in_c = _in_c(moves, adds, wiped, ins, outs, alike)
    return Kernel(bind=bind) if in_c is None else ReboundKernel(partial(_bind_in_c, *in_c, overlap), reentrant=True)


@dataclass(frozen=True, slots=True)
class _InC:
    """A move in C. source: None for zeros; alike: whether it does nothing where both arrays are the same memory."""

    call: Call
    source: int | None
    target: int
    alike: bool = False


def _in_c(moves: Sequence[Move], adds: Sequence[bool], wiped: Sequence[int], ins: Specs, outs: Specs,
          alike: bool) -> tuple[list[_InC], list[_InC]] | None:
    """Return the functions that fill outputs with zeros, and the moves, in C; None where NumPy makes them."""
    moved = [(m, add, layout(ins[m.src].shape, m.take), layout(outs[m.dst].shape, m.put)) for m, add in zip(moves, adds)]
    moved = [m for m in moved if math.prod(m[2].shape)]
    kinds = {(ins[m.src].dtype, outs[m.dst].dtype, add) for m, add, *_ in moved}
    calls = copies([(take, put) for *_, take, put in moved], *kinds.pop(), alike) if len(kinds) == 1 else None
    if calls is None:
        return None
    found = [_InC(call, m.src, m.dst, not add and take == put) for call, (m, add, take, put) in zip(calls, moved)]
    zeros = [_InC(filling(outs[o].size, outs[o].dtype), None, o) for o in wiped if outs[o].size]
    return zeros, found


def _bind_in_c(zeros: Sequence[_InC], moves: Sequence[_InC], overlap: bool, inputs: Sequence[Any], outputs: Sequence[Any]
               ) -> BoundKernel:
    def step(m: _InC, then: Step | None = None) -> Step:
        made = m.call.prepare(_ZERO if m.source is None else inputs[m.source], outputs[m.target])
        made.then = then
        return made

    moves = [m for m in moves
             if not (m.alike and m.source is not None and address(inputs[m.source]) == address(outputs[m.target]))]
    if overlap or len({m.call.pieces for m in moves}) != 1:
        steps = [step(m) for m in moves]
    else:  # one after the other on each piece: they often write to the same cache lines
        chain = None
        for m in reversed(moves):
            chain = step(m, chain)
        steps = [] if chain is None else [chain]
    return Phases([[step(m) for m in zeros], *([s] for s in steps)] if overlap else [[step(m) for m in zeros], steps])


class MoveProperty(OperatorProperty):
    """An operator that only moves elements. Subclasses define `moves`; the derivative makes them in reverse."""

    linear: ClassVar[bool] = True

    covers: ClassVar[bool] = True  # every element of every input is moved
    overlaps: ClassVar[bool] = False  # an element may be moved to several places, so its derivative is a sum
    backward_reads = ("dy",)

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        """Return the moves for inputs and outputs of these shapes."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        moves = self.moves([s.shape for s in ins], [s.shape for s in outs])
        return move_kernel(moves, ins, outs, reqs, target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        given = self.list_gradients()
        inputs: list[Shape] = [()] * len(self.argument_names)
        for i, s in zip(given, outs):
            inputs[i] = s.shape
        moves = [Move(m.dst, m.put, given.index(m.src), m.take)
                 for m in self.moves(inputs, [s.shape for s in ins]) if m.src in given]
        return move_kernel(moves, ins, outs, reqs, target, clear=not self.covers, overlap=self.overlaps)
