"""_split_v2: an array split at given indices. _np_moveaxis: axes moved to other positions."""

from __future__ import annotations

from collections.abc import Sequence

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...op import Shape
from .data_movement import Move, MoveProperty, shaped
from .reshape import Permuted, check_axis
from .split_concat import window


@register_operator("_split_v2")
class SplitV2(MoveProperty):
    """data cut along axis: into `sections` equal parts, or before each of `indices`, the first of which is 0.

    squeeze_axis: parts have size 1 along the axis, which is removed.
    """

    indices: tuple = ()
    axis: int = 1
    squeeze_axis: bool = False
    sections: int = 0

    def validate(self) -> None:
        if self.sections < 0 or (not self.sections and (not self.indices or self.indices[0] != 0
                                                        or list(self.indices) != sorted(self.indices))):
            raise ParameterError(f"{self.name}: sections={self.sections}, indices={self.indices}: give a number of parts, or "
                                 f"ascending indices that begin with 0.")

    def list_outputs(self) -> list[str]:
        n = self.sections or len(self.indices)
        return [f"output{i}" for i in range(n)] if n > 1 else ["output"]

    def parts(self, size: int) -> list[tuple[int, int]]:
        """Return (begin, end) of each part of an axis of this size."""
        if self.sections:
            if size % self.sections:
                raise ShapeError(f"{self.name}: an axis of size {size} does not divide into {self.sections} equal parts.")
            step = size // self.sections
            return [(i * step, (i + 1) * step) for i in range(self.sections)]
        if self.indices[-1] > size:
            raise ShapeError(f"{self.name}: indices={self.indices} exceed an axis of size {size}.")
        return list(zip(self.indices, (*self.indices[1:], size)))

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        axis = check_axis(self.name, self.axis, len(x))
        sizes = [e - b for b, e in self.parts(x[axis])]
        if self.squeeze_axis and any(s != 1 for s in sizes):
            raise ShapeError(f"{self.name}: squeeze_axis needs parts of size 1, but axis {axis} of {x} has parts {sizes}.")
        thin = lambda s: (*x[:axis], *([] if self.squeeze_axis else [s]), *x[axis + 1:])
        return [thin(s) for s in sizes]

    def moves(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> list[Move]:
        x = ins[0]
        axis = self.axis % len(x)
        return [Move(0, window(axis, b, e), i, shaped((*x[:axis], e - b, *x[axis + 1:])))
                for i, (b, e) in enumerate(self.parts(x[axis]))]


@register_operator("_np_moveaxis", aliases=("moveaxis",))
class MoveAxis(Permuted):
    """Axes `source` of a moved to positions `destination`; the other axes keep their order."""

    source: tuple
    destination: tuple
    argument_names = ("a",)

    def order(self, rank: int) -> tuple[int, ...]:
        src, dst = ([check_axis(self.name, a, rank) for a in axes] for axes in (self.source, self.destination))
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            raise ShapeError(f"{self.name}: source={self.source} and destination={self.destination} must name the same "
                             f"number of axes, each once.")
        rest = iter(a for a in range(rank) if a not in src)
        return tuple(src[dst.index(i)] if i in dst else next(rest) for i in range(rank))
