"""Losses that output a prediction, and whose derivative is that of the loss: regression outputs, MakeLoss and make_loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import ShapeError
from ...declare.operator_property import OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs, is_known, merge_shapes
from ..tensor.data_movement import Move, move_kernel, whole


class RegressionOutput(OperatorProperty):
    """Base class: an output and a label of as many elements. The head gradient is ignored."""

    grad_scale: float = 1.0
    kind: ClassVar[str] = "linear"
    argument_names = ("data", "label")
    gradient_arguments = (0,)
    backward_reads = ("y0", "x1")
    forward_inplace = ((0, 0),)
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

    def backward_inplace_option(self, out_grad: list[int], in_data: list[int], out_data: list[int],
                                in_grad: list[int]) -> list[tuple[int, int]]:
        return [(out_data[0], in_grad[0])]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        if self.kind != "logistic":
            return move_kernel([Move(0, whole, 0, whole)], ins, outs, reqs, target)
        req = reqs[0]
        if target == "gpu":
            loss = gpu_module("loss.triton_loss")
            return lambda run, inputs, outputs: loss.sigmoid(run, inputs[0], outputs[0], add=req == Req.ADD)
        dtype = math_dtype(outs[0].dtype)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            e = np.exp(-np.abs(inputs[0].astype(dtype, copy=False)))
            assign(outputs[0], req, np.where(inputs[0] >= 0, 1, e) / (1 + e))

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        label, req, sign = ins[1].shape, reqs[0], self.kind == "absolute"
        scale = self.grad_scale / max(1, math.prod(label[1:]))
        if target == "gpu":
            loss = gpu_module("loss.triton_loss")
            return lambda run, inputs, outputs: loss.difference(run, *inputs, outputs[0], scale=scale, sign=sign,
                                                                add=req == Req.ADD)
        dtype = math_dtype(outs[0].dtype)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            d = inputs[0].astype(dtype, copy=False) - inputs[1].reshape(inputs[0].shape)
            assign(outputs[0], req, (np.sign(d) if sign else d) * dtype.type(scale))

        return kernel


@register_operator("LinearRegressionOutput")
class LinearRegressionOutput(RegressionOutput):
    """y = data; derivative grad_scale · (y - label) / outputs per sample."""


@register_operator("LogisticRegressionOutput")
class LogisticRegressionOutput(RegressionOutput):
    """y = 1 / (1 + exp(-data)); derivative grad_scale · (y - label) / outputs per sample."""

    kind: ClassVar[str] = "logistic"


@register_operator("MAERegressionOutput")
class MAERegressionOutput(RegressionOutput):
    """y = data; derivative grad_scale · sign(y - label) / outputs per sample."""

    kind: ClassVar[str] = "absolute"


class Loss(OperatorProperty):
    """Base class: the data as a loss. The derivative is a constant; the head gradient is ignored."""

    forward_inplace = ((0, 0),)

    def constant(self) -> tuple[float, str, float]:
        """Return the constant, its normalization, and the threshold for "valid"."""
        return 1.0, "null", 0.0

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        return list(out_data)  # the output is the data; the head gradient is not needed

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return move_kernel([Move(0, whole, 0, whole)], ins, outs, reqs, target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (scale, normalization, threshold), req = self.constant(), reqs[0]
        valid = normalization == "valid"
        if normalization == "batch" and outs[0].shape:
            scale /= max(1, math.prod(outs[0].shape[:-1]))
        if target == "gpu":
            loss = gpu_module("loss.triton_loss")
            return lambda run, inputs, outputs: loss.constant(run, inputs[0] if valid else None, outputs[0],
                                                              scale=scale, threshold=threshold, add=req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            count = max(1, int((inputs[0] > threshold).sum())) if valid else 1
            assign(outputs[0], req, np.asarray(scale / count, outputs[0].dtype))

        return kernel


@register_operator("MakeLoss")
class MakeLoss(Loss):
    """The data as a loss: its derivative is grad_scale, and the head gradient is ignored.

    normalization: "batch" divides by the batch (all axes but the last), "valid" by the number of elements above
        valid_thresh (at least 1).
    """

    grad_scale: float = 1.0
    valid_thresh: float = 0.0
    normalization: Literal["null", "batch", "valid"] = "null"

    def constant(self) -> tuple[float, str, float]:
        return self.grad_scale, self.normalization, self.valid_thresh


@register_operator("make_loss")
class MakeLossOfOnes(Loss):
    """The data as a loss: its derivative is 1, and the head gradient is ignored."""

    output_names = ("loss",)
