"""Base of operators that only move elements. Each is a list of moves, which defines both back ends and the derivative.

A move copies one view of an input to one view of an output of the same shape. A view is a function from a
NumPy array to a view of it (slicing, transposing, reshaping a contiguous array, broadcasting), never to a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....integers import cdiv
from ...declare.operator_property import OperatorProperty, assign, gpu_module
from ...kernel import BoundKernel, Kernel, KernelFunction
from ...op import Req, Reqs, Shape, Specs

View = Callable[[np.ndarray], np.ndarray]
AXES = 6  # largest number of axes of a move on a GPU, after merging
_CHUNK = 1 << 18  # elements; larger moves are split over threads along their first axis


def whole(a: np.ndarray) -> np.ndarray:
    """Return a itself: the view of all elements."""
    return a


def shaped(shape: Shape) -> View:
    """Return the view of a contiguous array as another shape of the same size."""
    return lambda a: a.reshape(shape)


@dataclass(frozen=True, slots=True)
class Move:
    """Copy `take(input src)` to `put(output dst)`."""

    src: int
    take: View
    dst: int
    put: View


@dataclass(frozen=True, slots=True)
class Strided:
    """A view without its array: offset and strides, in elements."""

    offset: int
    shape: Shape
    strides: tuple[int, ...]


def layout(shape: Shape, view: View) -> Strided:
    """Return offset and strides of view in a contiguous array of this shape, without touching elements."""
    strides, step = [], 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(d, 1)
    base = np.empty(1, np.int8)
    seen = view(np.lib.stride_tricks.as_strided(base, shape, strides[::-1]))
    offset = seen.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return Strided(offset if seen.size else 0, seen.shape, seen.strides)


def convert(src: np.ndarray, dst: np.ndarray, add: bool) -> None:
    """Compute dst = src or dst += src, elementwise. Integers out of range wrap; other values must fit dst."""
    if src.dtype == dst.dtype and not add:
        np.copyto(dst, src)
        return
    with np.errstate(all="ignore"):
        assign(dst, Req.ADD if add else Req.WRITE, src)


def move_kernel(moves: Sequence[Move], ins: Specs, outs: Specs, reqs: Reqs, target: str,
                *, clear: bool = False, overlap: bool = False) -> Kernel:
    """Build the kernel that makes all moves.

    clear:    fill the elements that no move writes with zero.
    overlap:  several moves write the same elements, and their values are added. Implies clear.
    """
    clear = clear or overlap
    moves = [m for m in moves if reqs[m.dst] != Req.NULL]
    used = {m.dst for m in moves} | {i for i, r in enumerate(reqs) if r != Req.NULL and clear}
    wiped = [o for o in sorted(used) if clear and reqs[o] != Req.ADD]
    adds = [overlap or reqs[m.dst] == Req.ADD for m in moves]
    if target == "gpu":
        copy = gpu_module("tensor.triton_copy")
        plans = [(m.src, m.dst, copy.plan(layout(ins[m.src].shape, m.take), layout(outs[m.dst].shape, m.put), add))
                 for m, add in zip(moves, adds)]

        def kernel_gpu(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for o in wiped:
                copy.fill(run, outputs[o], 0)
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
                outputs[o].fill(0)
            for src, dst, add in ends:
                rows = dst.shape[0] if dst.ndim else 1
                step = max(1, _CHUNK * rows // max(dst.size, 1))
                if step >= rows:
                    convert(src, dst, add)
                else:
                    run.parallel(lambda i, s=src, d=dst, n=step, a=add: convert(s[i * n:i * n + n], d[i * n:i * n + n], a),
                                 cdiv(rows, step))

        return call

    return Kernel(bind=bind)


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
