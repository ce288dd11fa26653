"""broadcast_to, broadcast_axis, broadcast_like: an array repeated along axes of size 1. The derivative sums along them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import KnownShapes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.traced import printed
from ...ir.expr import load
from ...ir.strided import whole
from ...kernel import KernelFunction
from ...op import Expression, Reqs, Shape, Specs
from .data_movement import Move, move_kernel
from .reshape import check_axis


class Broadcast(OperatorProperty):
    """Base class: one array repeated along its axes of size 1."""

    gradient_arguments = (0,)
    backward_reads = ("dy",)
    linear: ClassVar[bool] = True

    def target(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape of the output for known input shapes."""
        raise NotImplementedError(self.name)

    def spread(self, x: Shape, y: Shape) -> Shape:
        """Return y after checking that x broadcasts to it. Raises ShapeError with both shapes."""
        if len(x) != len(y) or any(d not in (1, e) for d, e in zip(x, y)):
            raise ShapeError(f"{self.name}: {x} does not broadcast to {y}. Only axes of size 1 can be repeated.")
        return y

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        known = [s for s in in_shape if s is not None]
        return [self.spread(known[0], self.target(known))]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return move_kernel([Move(0, lambda a: np.broadcast_to(a, outs[0].shape), 0, whole)], ins, outs, reqs, target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if not ins[0].size:
            return move_kernel([], ins, outs, reqs, target, clear=True)
        total = Expression((load(0, ins[0].dtype),), combine="add")
        return printed(total, ins, outs, reqs, target, f"backward_{self.name}")


@register_operator("broadcast_to")
class BroadcastTo(Broadcast):
    """data repeated along its axes of size 1 up to `shape`. A 0 in shape keeps the size."""

    shape: tuple = ()

    def target(self, shapes: Sequence[Shape]) -> Shape:
        x = shapes[0]
        if len(self.shape) != len(x):
            raise ShapeError(f"{self.name}: shape={self.shape} has {len(self.shape)} axes, data {x} has {len(x)}. Use reshape "
                             f"first.")
        return tuple(d if want == 0 else want for d, want in zip(x, self.shape))


@register_operator("broadcast_axis", aliases=("broadcast_axes",))
class BroadcastAxis(Broadcast):
    """data repeated along each of `axis`, which have size 1, up to `size`."""

    axis: tuple = ()
    size: tuple = ()

    def validate(self) -> None:
        if len(self.axis) != len(self.size):
            raise ParameterError(f"{self.name}: axis={self.axis} and size={self.size} must have equal length.")

    def target(self, shapes: Sequence[Shape]) -> Shape:
        y = list(shapes[0])
        for axis, size in zip(self.axis, self.size):
            at = check_axis(self.name, axis, len(y), low=0)
            if shapes[0][at] != 1:
                raise ShapeError(f"{self.name}: axis {axis} of data {shapes[0]} has size {shapes[0][at]}, not 1.")
            y[at] = size
        return tuple(y)


@register_operator("broadcast_like")
class BroadcastLike(Broadcast):
    """lhs repeated along its axes of size 1 up to the shape of rhs; or only its axes lhs_axes, to the sizes of rhs_axes.

    One of the two alone has no effect, as in MXNet.
    """

    lhs_axes: tuple | None = None
    rhs_axes: tuple | None = None
    argument_names = ("lhs", "rhs")
    own_dtypes = True

    def validate(self) -> None:
        if self.lhs_axes is None or self.rhs_axes is None:
            return
        if len(self.lhs_axes) != len(self.rhs_axes) or not self.lhs_axes:
            raise ParameterError(f"{self.name}: lhs_axes={self.lhs_axes} and rhs_axes={self.rhs_axes} must have equal length, or "
                                 f"both be left out.")

    def target(self, shapes: Sequence[Shape]) -> Shape:
        x, like = shapes
        if self.lhs_axes is None or self.rhs_axes is None:
            return like
        y = list(x)
        for a, b in zip(self.lhs_axes, self.rhs_axes):
            y[check_axis(self.name, a, len(x))] = like[check_axis(self.name, b, len(like))]
        return tuple(y)
