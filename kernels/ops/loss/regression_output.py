"""Losses that output a prediction, and whose derivative is that of the loss: regression outputs, MakeLoss and make_loss."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from ....errors import ShapeError
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.lang import exp, maximum, row_sum, where
from ...ir.strided import whole
from ...kernel import KernelFunction
from ...op import Reqs, Specs, is_known, merge_shapes
from ..tensor.data_movement import Move, move_kernel


class Unchanged(OperatorProperty):
    """Base class: the output is the data."""

    forward_inplace = ((0, 0),)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return move_kernel([Move(0, whole, 0, whole)], ins, outs, reqs, target)


class RegressionOutput(Unchanged):
    """Base class: an output and a label of as many elements. The head gradient is ignored."""

    grad_scale: float = 1.0
    kind: ClassVar[str] = "linear"
    argument_names = ("data", "label")
    gradient_arguments = (0,)
    backward_reads = ("y0", "x1")
    backward_inplace = (("y0", 0),)
    own_dtypes = True

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        label = in_shape[1]
        x = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0])
        if x is None:
            return [x, label], [x], []
        if label is None:
            label = x[:1] if len(x) == 2 and x[1] == 1 else x
        elif len(label) == len(x):
            label = merge_shapes(self.name, "data and label", x, label)
        elif is_known(x) and is_known(label) and (math.prod(x) != math.prod(label) or x[:1] != label[:1]):
            raise ShapeError(f"{self.name}: data {x} and label {label} disagree. The label must have the batch size of the data "
                             f"and as many elements.")
        return [x, label], [x], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.kind != "logistic":
            return super().forward_kernel(ins, outs, reqs, target, train)
        full = outs[0].shape

        def body(x: Any) -> Any:
            e = exp(-abs(x))
            return where(x >= 0, 1, e) / (1 + e)

        return row_kernel(body, [full], [full], full, ins[:1], outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full, scale = outs[0].shape, self.grad_scale / max(1, math.prod(ins[1].shape[1:]))

        def body(y: Any, label: Any) -> Any:
            return (where(y > label, 1, -1) if self.kind == "absolute" else y - label) * scale

        return row_kernel(body, [full, full], [full], full, ins, outs, reqs, target, f"{self.name}_backward")


@register_operator("LinearRegressionOutput")
class LinearRegressionOutput(RegressionOutput):
    """y = data; derivative grad_scale · (y - label) / outputs per sample."""


@register_operator("LogisticRegressionOutput")
class LogisticRegressionOutput(RegressionOutput):
    """y = 1 / (1 + exp(-data)); derivative grad_scale · (y - label) / outputs per sample."""

    kind: ClassVar[str] = "logistic"


@register_operator("MAERegressionOutput")
class MAERegressionOutput(RegressionOutput):
    """y = data; derivative ± grad_scale / outputs per sample, plus where y > label, minus also where they are equal."""

    kind: ClassVar[str] = "absolute"


class ConstantLoss(Unchanged):
    """Base class: the data as a loss. The derivative is a constant; the head gradient is ignored."""

    grad_scale = 1.0
    valid_thresh = 0.0
    normalization = "null"
    backward_reads = ("y",)  # the output is the data; the head gradient is not needed

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full, scale, above = (1, outs[0].size), self.grad_scale, self.valid_thresh
        if self.normalization == "batch":
            scale /= max(1, math.prod(outs[0].shape[:-1]))

        def body(y: Any) -> Any:
            return scale / maximum(row_sum(where(y > above, 1, 0)), 1) if self.normalization == "valid" else scale

        return row_kernel(body, [full], [full], (1, 1), ins, outs, reqs, target, f"{self.name}_backward")


@register_operator("MakeLoss")
class MakeLoss(ConstantLoss):
    """The data as a loss: its derivative is grad_scale, and the head gradient is ignored.

    normalization: "batch" divides by the batch (all axes but the last), "valid" by the number of elements above
        valid_thresh (at least 1).
    """

    grad_scale: float = 1.0
    valid_thresh: float = 0.0
    normalization: Literal["null", "batch", "valid"] = "null"


@register_operator("make_loss")
class MakeLossOfOnes(ConstantLoss):
    """The data as a loss: its derivative is 1, and the head gradient is ignored."""

    output_names = ("loss",)
