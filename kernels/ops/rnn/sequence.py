"""SequenceMask, SequenceLast, SequenceReverse: batches of sequences of unequal length."""

from __future__ import annotations

import math
from typing import ClassVar

from ....errors import ParameterError, ShapeError
from ...declare.index_kernel import At, IndexedArray, index_kernel
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import where
from ...ir.strided import whole
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs, is_known
from ..tensor.data_movement import Move, move_kernel
from ..tensor.pick import pick_kernel, put_kernel


class Sequences(OperatorProperty):
    """Base class. data: [steps, batch, ...], or [batch, steps, ...] with axis 1; sequence_length: [batch], if used."""

    use_sequence_length: bool = False
    axis: int = 0
    optional_names = ("sequence_length",)
    gradient_arguments = (0,)
    own_dtypes = True

    def validate(self) -> None:
        if self.axis not in (0, 1):
            raise ParameterError(f"{self.name}: axis={self.axis} must be 0 or 1, the axis of the steps.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "sequence_length") if self.use_sequence_length else ("data",)

    @property
    def backward_reads(self) -> tuple[str, ...]:
        return ("dy", "x1") if self.use_sequence_length else ("dy",)

    def result(self, x: Shape) -> Shape:
        """Return the shape of the output."""
        return x

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return list(in_shape), list(out_shape), []
        if len(x) < 2:
            raise ShapeError(f"{self.name}: data {x} must have at least two axes: steps and batch.")
        if self.use_sequence_length:
            batch, given = (x[1 - self.axis],), in_shape[1]
            if given is not None and is_known(given) and is_known(batch) and given != batch:
                raise ShapeError(f"{self.name}: sequence_length {given} must be {batch}: one length for each sample of data {x}.")
            return [x, batch], [self.result(x)], []
        return [x], [self.result(x)], []

    def split(self, x: Shape) -> tuple[int, int, int, int]:
        """Return x as (outer, steps, groups, rest); the batch is `outer` with axis 1, else `groups`."""
        rest = math.prod(x[2:])
        return (1, x[0], x[1], rest) if self.axis == 0 else (x[0], x[1], 1, rest)

    def move(self) -> Move:
        """Return the move from data to the output without lengths."""
        return Move(0, whole, 0, whole)

    def by_length(self, x: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, back: bool) -> KernelFunction:
        """Return the kernel for data of shape x with lengths, or its derivative."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.use_sequence_length:
            return self.by_length(ins[0].shape, ins, outs, reqs, target, False)
        return move_kernel([self.move()], ins, outs, reqs, target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.use_sequence_length:
            return self.by_length(outs[0].shape, ins, outs, reqs, target, True)
        move, clear = self.move(), ins[0].size < outs[0].size
        return move_kernel([Move(0, move.put, 0, move.take)], ins, outs, reqs, target, clear=clear)


@register_operator("SequenceMask")
class SequenceMask(Sequences):
    """data with `value` in all steps beyond the length of each sequence. Without lengths: data unchanged.

    data:             [steps, batch, ...]; with axis 1 [batch, steps, ...].
    sequence_length:  [batch], with use_sequence_length.
    """

    use_sequence_length: bool = False
    value: float = 0.0
    axis: int = 0

    def by_length(self, x: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, back: bool) -> KernelFunction:
        lines = self.split(x)

        def element(at: At, x: IndexedArray, lengths: IndexedArray, *, value: Expr) -> Expr:
            size = lengths[at[0], at[2]].astype("int64")
            return where((at[1] < size) | (size < 0), x[at], value)

        return index_kernel(element, ins, outs, reqs, target, self.name, views=[lines, (lines[0], lines[2])], results=[lines],
                            scalars={"value": 0.0 if back else self.value})


@register_operator("SequenceLast")
class SequenceLast(Sequences):
    """The last step of each sequence: the one at its length, or the last of data. Returns: data's shape without the steps.

    data:             [steps, batch, ...]; with axis 1 [batch, steps, ...].
    sequence_length:  [batch], with use_sequence_length.

    A length below 1 gives the first step (MXNet reads outside the array), a length above the number of steps gives the last.
    """

    linear: ClassVar[bool] = True

    def result(self, x: Shape) -> Shape:
        if x[self.axis] == 0:
            raise ShapeError(f"{self.name}: data {x} has no steps along axis {self.axis}. It needs at least one.")
        return (*x[:self.axis], *x[self.axis + 1:])

    def move(self) -> Move:
        last = (slice(None),) * self.axis + (-1,)
        return Move(0, lambda a: a[last], 0, whole)

    def by_length(self, x: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, back: bool) -> KernelFunction:
        outer, steps, groups, rest = self.split(x)
        return (put_kernel if back else pick_kernel)((outer, steps, 1, groups, rest), "last", ins, outs, reqs, target, self.name)


@register_operator("SequenceReverse")
class SequenceReverse(Sequences):
    """Each sequence reversed within its length; later steps stay. Without lengths: all steps reversed.

    data:             [steps, batch, ...]; axis must be 0.
    sequence_length:  [batch], with use_sequence_length.
    """

    linear: ClassVar[bool] = True

    def validate(self) -> None:
        if self.axis != 0:
            raise ParameterError(f"{self.name}: axis={self.axis}: only axis 0 can be reversed. Use SwapAxis before and after.")

    def move(self) -> Move:
        return Move(0, lambda a: a[::-1], 0, whole)

    def by_length(self, x: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, back: bool) -> KernelFunction:
        outer, steps, groups, rest = self.split(x)
        lines = (outer, steps, steps, groups, rest)
        return pick_kernel(lines, "reverse", ins, outs, reqs, target, self.name)  # reversing twice changes nothing
