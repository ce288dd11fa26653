"""Deconvolution: the data derivative of a convolution as a layer. Forward and backward call the kernels of the convolution from
its output to its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import Shapes, gpu_module
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs, merge_shapes
from . import convolution_cpu
from .conv_geometry import ConvolutionGeometry
from .convolution import ConvolutionLayer, check_axes


@register_operator("Deconvolution")
class Deconvolution(ConvolutionLayer):
    """Every element of data adds a weighted window to the output (transposed convolution).

    data:    [n, c, w], [n, c, h, w] or [n, c, d, h, w].
    weight:  [c, num_filter / num_group, *kernel].  bias: [num_filter], absent with no_bias (the default).
    Returns: [n, num_filter, ...]; along an axis of size s the output has
             stride (s - 1) + dilate (kernel - 1) + 1 - 2 pad + adj positions, adj < stride; or target_shape, from which
             pad and adj are computed.
    """

    optional_names = ("bias",)
    kernel: tuple
    stride: tuple = ()
    dilate: tuple = ()
    pad: tuple = ()
    adj: tuple = ()
    target_shape: tuple = ()
    num_filter: int
    num_group: int = 1
    no_bias: bool = True
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None

    def validate(self) -> None:
        super().validate()
        check_axes(self.name, self, len(self.kernel), adj=0, target_shape=0)
        if not any(self.target_shape) and any(a >= s for a, s in zip(self.adj, self.axes("stride"))):
            raise ParameterError(f"{self.name}: adj={self.adj} must be smaller than stride={self.axes('stride')}.")

    def padding(self, spatial: Shape) -> tuple[Shape, Shape]:
        """Return pad and output sizes for data of these sizes (-1 unknown)."""
        stride, dilate = self.axes("stride"), self.axes("dilate")
        pad, out = list(self.axes("pad")), []
        extent = [t * (s - 1) + d * (k - 1) + 1 if s >= 0 else -1 for s, t, d, k in zip(spatial, stride, dilate, self.kernel)]
        if any(self.target_shape):
            for i, (e, wanted) in enumerate(zip(extent, self.target_shape)):
                if 0 <= e < wanted:
                    raise ShapeError(f"{self.name}: target_shape={self.target_shape} is larger than {tuple(extent)}, the "
                                     f"largest output for data {spatial}. Use a larger stride or kernel.")
                if e >= 0:
                    pad[i] = (e - wanted + 1) // 2
                    if (e - wanted) % 2 >= stride[i]:
                        raise ShapeError(f"{self.name}: target_shape={self.target_shape} is an odd number of positions less "
                                         f"than the {tuple(extent)} that data {spatial} reaches, which stride={stride} cannot "
                                         f"make up. Change it by one, or use a stride of 2.")
            return tuple(pad), tuple(self.target_shape)
        for e, p, a in zip(extent, pad, self.axes("adj")):
            if 0 <= e < 2 * p - a:
                raise ShapeError(f"{self.name}: pad={tuple(pad)} leaves nothing of the {tuple(extent)} that data "
                                 f"{spatial} reaches.")
            out.append(e - 2 * p + a if e >= 0 else -1)
        return tuple(pad), tuple(out)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, w, y = in_shape[0], in_shape[1], out_shape[0]
        if x is None:
            return in_shape, out_shape, []
        self.check_data("data", x)
        self.check_groups(x, x[1])
        weight = self.match_weight(x, w, (x[1], self.num_filter // self.num_group, *self.kernel))
        x = (x[0], weight[0], *x[2:])
        y = merge_shapes(self.name, "the output", y, (x[0], self.num_filter, *self.padding(x[2:])[1]))
        return [x, weight, *([] if self.no_bias else [(self.num_filter,)])], [y], []

    def geometry(self, x: Shape, y: Shape) -> ConvolutionGeometry:
        """Return the sizes of the convolution from the output y to data x."""
        return ConvolutionGeometry(x[0], self.num_filter, x[1], self.num_group, y[2:], x[2:], self.kernel, self.axes("stride"),
                                   self.axes("dilate"), self.padding(x[2:])[0], False)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g, req, y = self.geometry(ins[0].shape, outs[0].shape), reqs[0], outs[0]
        conv: Any = gpu_module("nn.triton_conv") if target == "gpu" else convolution_cpu
        add_bias: Any = None
        if not self.no_bias:
            full = (y.shape[0], y.shape[1], math.prod(y.shape[2:]))
            add_bias = row_kernel(lambda b: b, [(1, full[1], 1)], [full], full, [ins[2]], outs, [Req.ADD], target, "bias")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            conv.backward(run, g, inputs[0], outputs[0], inputs[1], [outputs[0], None], [req, Req.NULL])
            if add_bias is not None:
                add_bias(run, [inputs[2]], outputs)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        y, x = ins[0], ins[1]
        g, full = self.geometry(x.shape, y.shape), (y.shape[0], y.shape[1], math.prod(y.shape[2:]))
        conv: Any = gpu_module("nn.triton_conv") if target == "gpu" else convolution_cpu
        sum_bias: Any = None
        if not self.no_bias and reqs[2] != Req.NULL:
            sum_bias = row_kernel(lambda dy: dy, [full], [(1, full[1], 1)], full, [y], [outs[2]], [reqs[2]], target, "bias_sum")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dy, data, weight = inputs
            if reqs[0] != Req.NULL:
                conv.forward(run, g, dy, weight, None, outputs[0], add=reqs[0] == Req.ADD)
            if reqs[1] != Req.NULL:
                conv.backward(run, g, data, dy, weight, [None, outputs[1]], [Req.NULL, reqs[1]])
            if sum_bias is not None:
                sum_bias(run, [dy], [outputs[2]])

        return kernel
