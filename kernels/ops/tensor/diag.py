"""diag and Crop: elements on a diagonal, and a window of the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...ir.strided import whole
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs
from .data_movement import Move, MoveProperty, move_kernel
from .reshape import check_axis
from .split_concat import Variadic


def diagonal(a: np.ndarray, k: int, axis1: int, axis2: int) -> np.ndarray:
    """Return numpy.diagonal as a writable view."""
    seen = np.diagonal(a, k, axis1, axis2)
    n = seen.shape[-1]
    start = [slice(None)] * a.ndim
    start[axis1], start[axis2] = slice(max(-k, 0), None), slice(max(k, 0), None)
    return np.lib.stride_tricks.as_strided(a[tuple(start)], (*seen.shape[:-1], n), seen.strides)


@register_operator("diag")
class Diag(MoveProperty):
    """The diagonal k of each matrix along axis1 and axis2, as the last axis. For one axis: the square matrix with that diagonal.

    k > 0: above the main diagonal. A diagonal just outside the matrix is empty, one further outside is an error.
    """

    covers: ClassVar[bool] = False

    k: int = 0
    axis1: int = 0
    axis2: int = 1

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if len(x) == 1:
            n = x[0] + abs(self.k)
            return [(n, n)]
        a, b = self._axes(x)
        n = min(x[a] + min(self.k, 0), x[b] - max(self.k, 0))
        if n < 0:
            raise ShapeError(f"{self.name}: diagonal k={self.k} does not exist in axes {a} and {b} of data {x}.")
        return [(*(d for i, d in enumerate(x) if i not in (a, b)), n)]

    def _axes(self, x: Shape) -> tuple[int, int]:
        a, b = (check_axis(self.name, axis, len(x)) for axis in (self.axis1, self.axis2))
        if a == b:
            raise ShapeError(f"{self.name}: axis1={self.axis1} and axis2={self.axis2} are the same axis of data {x}. Give two.")
        return a, b

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        x = ins[0]
        if len(x) == 1:
            return [Move(0, whole, 0, lambda a: diagonal(a, self.k, 0, 1))]
        a1, a2 = self._axes(x)
        return [Move(0, lambda a: diagonal(a, self.k, a1, a2), 0, whole)]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        moves = self.moves([ins[0].shape], [outs[0].shape])
        return move_kernel(moves, ins, outs, reqs, target, clear=len(ins[0].shape) == 1)


@register_operator("Crop")
class Crop(Variadic):
    """A window of size h_w of the planes of arg0 [n, c, h, w]; with num_args=2, of the size of arg1.

    offset: start of the window; center_crop: the window is in the middle. The derivative by arg1 is zero.
    """

    covers: ClassVar[bool] = False

    offset: tuple = (0, 0)
    h_w: tuple = (0, 0)
    center_crop: bool = False
    gradient_arguments = (0,)
    own_dtypes = True

    def validate(self) -> None:
        if self.num_args not in (1, 2) or len(self.offset) != 2 or len(self.h_w) != 2:
            raise ParameterError(f"{self.name}: num_args={self.num_args} must be 1 or 2; offset={self.offset} and "
                                 f"h_w={self.h_w} must be two numbers each.")
        if self.num_args == 1 and min(self.h_w) < 1:
            raise ParameterError(f"{self.name}: h_w={self.h_w} must be at least 1; or give a second array of the wanted size.")

    def _window(self, x: Shape, size: Shape) -> tuple[slice, slice]:
        if any(s > d for s, d in zip(size, x[2:])):
            raise ShapeError(f"{self.name}: a window of {size} is larger than the planes of {x}.")
        room = tuple(d - s for s, d in zip(size, x[2:]))
        start = tuple(r // 2 for r in room) if self.center_crop else self.offset
        if any(not 0 <= b <= r for b, r in zip(start, room)):
            raise ShapeError(f"{self.name}: a window of {size} at offset={self.offset} does not fit in the planes of {x}.")
        return slice(start[0], start[0] + size[0]), slice(start[1], start[1] + size[1])

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        known = [s for s in in_shape if s is not None]
        if any(len(s) != 4 for s in known):
            raise ShapeError(f"{self.name}: inputs {in_shape} must be [n, c, h, w].")
        size = known[1][2:] if self.num_args == 2 else self.h_w
        self._window(known[0], size)
        return [(*known[0][:2], *size)]

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        h, w = self._window(ins[0], outs[0][2:])
        return [Move(0, lambda a: a[:, :, h, w], 0, whole)]
