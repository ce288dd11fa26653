"""argmax, argmin, argmax_channel: the index of the first largest or smallest element. NaN wins over every number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....dtype import is_half
from ....errors import ShapeError
from ...cpu import c_order
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_team import Phases
from ...declare.operator_property import OperatorProperty, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs, is_known
from .data_movement import convert
from .reshape import check_axis, lines_of


class ArgExtreme(OperatorProperty):
    """Base class: indices along an axis, in the dtype of data."""

    low: ClassVar[bool] = False
    axis, keepdims = 1, False  # not annotated: parameters of argmax and argmin alone
    gradient_arguments = ()

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return [x], list(out_shape), []
        if is_known(x) and lines_of(self.name, self.axis, x)[1] == 0:
            raise ShapeError(f"{self.name}: data {x} has no element along axis {self.axis}.")
        if self.axis is None:
            return [x], [(1,) * len(x) if self.keepdims else (1,)], []
        axis = check_axis(self.name, self.axis, len(x))
        return [x], [(*x[:axis], *([1] if self.keepdims else []), *x[axis + 1:]) or (1,)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        lines, low, req = lines_of(self.name, self.axis, ins[0].shape), self.low, reqs[0]
        if target == "gpu":
            module = gpu_module("tensor.triton_order")
            return lambda run, inputs, outputs: module.extreme(run, lines, inputs[0], outputs[0], low=low, add=req == Req.ADD)

        wide = np.dtype(np.float32) if is_half(ins[0].dtype) else ins[0].dtype
        if c_order.orders(wide, lines):
            direct = req != Req.ADD and outs[0].dtype.name in c_order.KINDS
            extreme = c_order.extreme(wide, lines, low, c_order.KINDS[outs[0].dtype.name if direct else "int64"])
            bind = lambda x, found: Phases([[extreme.prepare(x, found)]])
            if direct and wide == ins[0].dtype:
                return ReboundKernel(lambda inputs, outputs: bind(inputs[0], outputs[0]), reentrant=True)

            def kernel_c(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
                found = outputs[0] if direct else run.workspace((lines[0], lines[2]), np.dtype(np.int64))
                bind(inputs[0].astype(wide, copy=False), found)(run)
                if not direct:
                    convert(found, outputs[0].reshape(found.shape), req == Req.ADD)

            return kernel_c

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x = inputs[0].reshape(lines)
            x = x.astype(wide, copy=False)
            convert(x.argmin(1) if low else x.argmax(1), outputs[0].reshape(lines[0], lines[2]), req == Req.ADD)

        return kernel


@register_operator("argmax")
class Argmax(ArgExtreme):
    """The index of the largest element along axis, the first of equals. axis None: in the flat data, shape (1,).

    keepdims: keep the axis with size 1. Returns: indices in the dtype of data, as in MXNet.
    """

    axis: int | None = None
    keepdims: bool = False


@register_operator("argmin")
class Argmin(Argmax):
    """The index of the smallest element along axis, the first of equals. Parameters as in argmax."""

    low: ClassVar[bool] = True


@register_operator("argmax_channel")
class ArgmaxChannel(ArgExtreme):
    """argmax along axis 1."""
