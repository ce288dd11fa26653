"""Pad: a border around the last axes, filled with a constant, the edge or a mirror image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from ....dtype import is_half
from ....errors import ParameterError, ShapeError
from ...cpu.c_move import LEAST
from ...declare.index_kernel import At, IndexedArray, index_kernel
from ...declare.operator_property import Shapes
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import maximum, minimum, where
from ...ir.strided import whole
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs, is_known
from ..tensor.data_movement import Move, fill, move_kernel
from .resize import Resampled, Taps, taps_at

MOST_COPIES = 40  # of parts of the data that make a border


@register_operator("Pad", aliases=("pad",))
class Pad(Resampled):
    """data [n, c, h, w] or [n, c, d, h, w] with a border.

    pad_width: (before, after) of each axis, flattened; 0 for the first two axes.
    mode: "constant": constant_value (a negative width crops); "edge": the outermost element; "reflect": the mirror image.
    """

    mode: Literal["constant", "edge", "reflect"]
    pad_width: tuple
    constant_value: float = 0.0

    def validate(self) -> None:
        w = self.pad_width
        if len(w) not in (8, 10) or any(w[:4]) or (self.mode != "constant" and min(w) < 0):
            raise ParameterError(f"{self.name}: pad_width={w} must be 8 or 10 numbers, a pair for each axis of 4-D or 5-D data, "
                                 f"0 for the first two axes" + (", and not negative." if self.mode != "constant" else "."))

    @property
    def linear(self) -> bool:
        return not self.constant_value

    def pairs(self) -> list[tuple[int, int]]:
        """Return (before, after) per axis."""
        return list(zip(self.pad_width[::2], self.pad_width[1::2]))

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return [x], list(out_shape), []
        if len(x) * 2 != len(self.pad_width):
            raise ShapeError(f"{self.name}: data {x} has {len(x)} axes, pad_width={self.pad_width} is for "
                             f"{len(self.pad_width) // 2}.")
        for d, (before, after) in zip(x, self.pairs()):
            if is_known(x) and (before + d + after < 0 or (self.mode == "reflect" and max(before, after) >= max(d, 1))
                                or (self.mode == "edge" and not d and before + after)):
                raise ShapeError(f"{self.name}: data {x} cannot be padded by {before} and {after} on an axis of {d}, mode "
                                 f"{self.mode!r}.")
        return [x], [tuple(-1 if d < 0 else d + b + a for d, (b, a) in zip(x, self.pairs()))], []

    def taps(self, x: Shape, y: Shape) -> list[tuple[int, Taps]]:
        found = []
        for axis, (before, after) in enumerate(self.pairs()):
            if before or after or (axis + 1 == len(x) and not found):
                at = np.arange(-before, x[axis] + after)
                if self.mode == "edge":
                    at = np.clip(at, 0, x[axis] - 1)
                else:
                    at = np.abs(at)
                    at = np.where(at >= x[axis], 2 * (x[axis] - 1) - at, at)
                found.append((axis, taps_at(x[axis], at)))
        return found

    def _repeated(self, at: At, x: IndexedArray) -> Expr:
        """Return an element with a border of other elements."""
        source = []
        for i, d, (before, after) in zip(at, x.shape, self.pairs()):
            if not before and not after:
                source.append(i)
            elif self.mode == "edge":
                source.append(minimum(maximum(i - before, 0), d - 1))
            else:
                mirrored = abs(i - before)
                source.append(where(mirrored >= d, 2 * (d - 1) - mirrored, mirrored))
        return x[tuple(source)]

    def _copies(self, x: Shape) -> list[Move]:
        """Return the moves that make an output with a border of other elements; the first one moves all of data."""
        regions = [self._regions(d, before, after) for d, (before, after) in zip(x, self.pairs())]
        return [Move(0, itemgetter(tuple(r[0] for r in each)), 0, itemgetter(tuple(r[1] for r in each)))
                for each in itertools.product(*regions)]

    def _regions(self, d: int, before: int, after: int) -> list[tuple[slice, slice]]:
        """Return the parts of an axis of d elements, first all of it, and the parts of the output to which they are copied."""
        found = [(slice(0, d), slice(before, before + d))]
        if self.mode == "edge":
            found += [(slice(0, 1), slice(i, i + 1)) for i in range(before)]
            found += [(slice(d - 1, d), slice(i, i + 1)) for i in range(before + d, before + d + after)]
        else:
            found += [(slice(before, 0, -1), slice(0, before))] if before else []
            last = d - 2 - after
            found += [(slice(d - 2, None if last < 0 else last, -1), slice(before + d, before + d + after))] if after else []
        return found

    def _by_copies(self, x: Spec, target: str) -> list[Move]:
        """Return the moves of `_copies` where they are made one by one, on the CPU; [] where one formula says all elements."""
        if target == "gpu" or x.size < LEAST or math.prod(1 + sum(pair) for pair in self.pairs()) > MOST_COPIES:
            return []
        return self._copies(x.shape)

    def _window(self, ins: Sequence[Shape]) -> Move:
        inner, outer = [], []
        for d, (before, after) in zip(ins[0], self.pairs()):
            inner.append(slice(max(-before, 0), d + min(after, 0)))
            outer.append(slice(max(before, 0), max(before, 0) + max(d + min(after, 0) - max(-before, 0), 0)))
        return Move(0, lambda a: a[tuple(inner)], 0, lambda a: a[tuple(outer)])

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.mode != "constant":
            if copies := self._by_copies(ins[0], target):
                return move_kernel(copies, ins, outs, reqs, target, alike=True)
            return index_kernel(self._repeated, ins, outs, reqs, target, self.name)
        value, y, adds = self.constant_value, outs[0], reqs[0] == Req.ADD
        put = move_kernel([self._window([ins[0].shape])], ins, outs, [Req.WRITE], target)
        add = move_kernel([Move(0, whole, 0, whole)], outs, outs, reqs, target)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            made = run.workspace(y.shape, y.dtype) if adds else outputs[0]
            fill(run, made, value)
            put(run, inputs, [made])
            if adds:
                add(run, [made], outputs)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.mode != "constant":
            copies = self._by_copies(outs[0], target) if not is_half(outs[0].dtype) else []
            if copies:
                return self._collected(copies, ins, outs, reqs, target)
            return super().backward_kernel(ins, outs, reqs, target, train)
        move = self._window([outs[0].shape])
        return move_kernel([Move(0, move.put, 0, move.take)], ins, outs, reqs, target, clear=min(self.pad_width) < 0)

    def _collected(self, copies: Sequence[Move], ins: Specs, outs: Specs, reqs: Reqs, target: str) -> KernelFunction:
        """Return the kernel of the derivative: what was copied to several places adds up, in the order of the copies."""
        back = [Move(0, move.put, 0, move.take) for move in copies]
        inner = move_kernel(back[:1], ins, outs, reqs, target)
        border = move_kernel(back[1:], ins, outs, [Req.NULL if reqs[0] == Req.NULL else Req.ADD], target, overlap=True)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            inner(run, inputs, outputs)
            border(run, inputs, outputs)

        return kernel
