"""SequenceMask, SequenceLast, SequenceReverse: batches of sequences of unequal length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs, is_known
from ..tensor.data_movement import Move, move_kernel, whole
from ..tensor.pick import pick_kernel, put_kernel


class Sequences(OperatorProperty):
    """Base class. data: [steps, batch, ...], or [batch, steps, ...] with axis 1; sequence_length: [batch], if used."""

    use_sequence_length: bool = False
    axis: int = 0
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


@register_operator("SequenceMask")
class SequenceMask(Sequences):
    """data with `value` in all steps beyond the length of each sequence. Without lengths: data unchanged."""

    use_sequence_length: bool = False
    value: float = 0.0
    axis: int = 0

    def _kernel(self, shape: Shape, req: Req, target: str, value: float) -> KernelFunction:
        lines = self.split(shape)
        outer, steps, groups, _ = lines
        if target == "gpu":
            module = gpu_module("tensor.triton_pick")
            return lambda run, inputs, outputs: module.mask_steps(run, lines, *inputs, outputs[0], value, add=req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            with np.errstate(invalid="ignore"):
                sizes = inputs[1].reshape(outer, 1, groups, 1).astype(np.int64)
            keep = (np.arange(steps)[None, :, None, None] < sizes) | (sizes < 0)
            x = inputs[0].reshape(lines)
            assign(outputs[0].reshape(lines), req, np.where(keep, x, np.asarray(value).astype(x.dtype)))

        return kernel

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if not self.use_sequence_length:
            return move_kernel([Move(0, whole, 0, whole)], ins, outs, reqs, target)
        return self._kernel(ins[0].shape, reqs[0], target, self.value)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if not self.use_sequence_length:
            return move_kernel([Move(0, whole, 0, whole)], ins, outs, reqs, target)
        return self._kernel(outs[0].shape, reqs[0], target, 0.0)


@register_operator("SequenceLast")
class SequenceLast(Sequences):
    """The last step of each sequence: the one at its length, or the last of data. Returns: data's shape without the steps.

    A length below 1 gives the first step (MXNet reads outside the array), a length above the number of steps gives the last.
    """

    linear: ClassVar[bool] = True

    def result(self, x: Shape) -> Shape:
        if x[self.axis] == 0:
            raise ShapeError(f"{self.name}: data {x} has no steps along axis {self.axis}. It needs at least one.")
        return (*x[:self.axis], *x[self.axis + 1:])

    def _lines(self, x: Shape) -> tuple[int, int, int, int, int]:
        outer, steps, groups, rest = self.split(x)
        return outer, steps, 1, groups, rest

    def _moves(self, back: bool) -> list[Move]:
        last = (slice(None),) * self.axis + (-1,)
        cut = lambda a: a[last]
        return [Move(0, whole, 0, cut) if back else Move(0, cut, 0, whole)]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if not self.use_sequence_length:
            return move_kernel(self._moves(False), ins, outs, reqs, target)
        return pick_kernel(self._lines(ins[0].shape), "last", reqs[0], target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if not self.use_sequence_length:
            return move_kernel(self._moves(True), ins, outs, reqs, target, clear=True)
        return put_kernel(self._lines(outs[0].shape), "last", reqs[0], target)


@register_operator("SequenceReverse")
class SequenceReverse(Sequences):
    """Each sequence reversed within its length; later steps stay. Without lengths: all steps reversed. Axis 0 only."""

    linear: ClassVar[bool] = True

    def validate(self) -> None:
        if self.axis != 0:
            raise ParameterError(f"{self.name}: axis={self.axis}: only axis 0 can be reversed. Use SwapAxis before and after.")

    def _kernel(self, shape: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str) -> KernelFunction:
        if not self.use_sequence_length:
            return move_kernel([Move(0, lambda a: a[::-1], 0, whole)], ins, outs, reqs, target)
        outer, steps, groups, rest = self.split(shape)
        return pick_kernel((outer, steps, steps, groups, rest), "reverse", reqs[0], target)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._kernel(ins[0].shape, ins, outs, reqs, target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._kernel(outs[0].shape, ins, outs, reqs, target)  # reversing twice changes nothing
