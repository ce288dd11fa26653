"""Declaration of Convolution in one, two and three dimensions. The kernels are in convolution_cpu.py and triton_conv.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ....errors import ParameterError, ShapeError
from ...configs.key import Config, Key
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_template import Template
from ...declare.operator_property import OperatorProperty, Shapes, gpu_module, math_dtype
from ...declare.property_op import PropertyOp, register_operator
from ...kernel import BoundKernel, KernelFunction
from ...op import Op, Product, Req, Reqs, Shape, Spec, Specs, merge_shapes
from .c_conv import Forward, bind_backward, c_files, in_c
from .conv_geometry import ConvolutionGeometry
from .convolution_cpu import DEFAULT, backward, conv_key, forward

if TYPE_CHECKING:
    from ...gpu.epilogue import Epilogue


def check_axes(name: str, params: Any, rank: int, surplus: bool = False, **least: int) -> None:
    """Raise ParameterError unless each of these parameters is empty or has rank numbers, none below its least.

    surplus: it may have more numbers, which are not read.
    """
    for what, low in least.items():
        given = getattr(params, what)
        if given and (len(given) < rank if surplus else len(given) != rank):
            raise ParameterError(f"{name}: {what}={given} must have {rank} numbers, as kernel has.")
        if min(given, default=low) < low:
            raise ParameterError(f"{name}: {what}={given} must be at least {low}.")


class Spatial(OperatorProperty):
    """Base class: data with one to three spatial axes, and channels before or after them."""

    layout: str | None = None

    @property
    def channels_last(self) -> bool:
        return self.layout is not None and self.layout[1] != "C"

    def split(self, shape: Shape) -> tuple[int, int, Shape]:
        """Return batch (or filters), channels and spatial sizes of a shape."""
        return (shape[0], shape[-1], shape[1:-1]) if self.channels_last else (shape[0], shape[1], shape[2:])

    def join(self, n: int, c: int, spatial: Shape) -> Shape:
        """Return the shape of which split returns these."""
        return (n, *spatial, c) if self.channels_last else (n, c, *spatial)


class ConvolutionLayer(Spatial):
    """Base class: a weight for each element of a window, groups of channels, and a bias."""

    backward_form: ClassVar[str] = "bilinear"
    costly = True
    backward_reads = ("dy0", "x0", "x1")

    kernel: tuple
    stride: tuple = ()
    dilate: tuple = ()
    pad: tuple = ()
    num_filter: int
    num_group: int = 1
    no_bias: bool = False
    layout: Literal["NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"] | None = None

    def validate(self) -> None:
        rank = len(self.kernel)
        if not 1 <= rank <= 3 or min(self.kernel) < 1:
            raise ParameterError(f"{self.name}: kernel={self.kernel} must be one to three sizes of at least 1.")
        check_axes(self.name, self, rank, stride=1, dilate=1, pad=0)
        if self.num_filter < 1 or self.num_group < 1 or self.num_filter % self.num_group:
            raise ParameterError(f"{self.name}: num_filter={self.num_filter} must be a multiple of "
                                 f"num_group={self.num_group}.")
        if self.layout and len(self.layout) != rank + 2:
            raise ParameterError(f"{self.name}: layout {self.layout!r} does not fit kernel={self.kernel}.")

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "weight") if self.no_bias else ("data", "weight", "bias")

    def axes(self, what: str) -> Shape:
        """Return a parameter's number per spatial axis: where it is not given, 1, and 0 for pad and adj."""
        return tuple(getattr(self, what)) or (0 if what in ("pad", "adj") else 1,) * len(self.kernel)

    def check_data(self, what: str, s: Shape | None) -> None:
        """Raise ShapeError if s has another number of axes than kernel wants."""
        rank = len(self.kernel)
        if s is not None and len(s) != rank + 2:
            raise ShapeError(f"{self.name}: {what} {s} has {len(s)} axes; kernel={self.kernel} needs {rank + 2}: "
                             f"{self.layout or ['NCW', 'NCHW', 'NCDHW'][rank - 1]}.")

    def check_groups(self, x: Shape | None, channels: int) -> None:
        """Raise ShapeError if the channels of data x cannot be divided into groups. -1: unknown."""
        if channels >= 0 and channels % self.num_group:
            raise ShapeError(f"{self.name}: data {x} has {channels} channels, not a multiple of num_group={self.num_group}.")

    def match_weight(self, x: Shape | None, given: Shape | None, wanted: Shape) -> Shape:
        """Return the shape of the weight. Raises ShapeError that states the data x and both."""
        try:
            return merge_shapes(self.name, "weight", given, wanted) or wanted
        except ShapeError:
            raise ShapeError(f"{self.name}: data {x} and weight {given} disagree. For num_filter={self.num_filter}, "
                             f"kernel={self.kernel}, num_group={self.num_group} the weight must be {wanted}.") from None


@register_operator("Convolution", aliases=("Convolution_v1",))
class Convolution(ConvolutionLayer):
    """Every output channel is a weighted sum over windows of the input channels of its group, plus a bias.

    data:    [n, c, w], [n, c, h, w] or [n, c, d, h, w]; with layout NWC, NHWC or NDHWC the channels are last.
    weight:  [num_filter, c / num_group, *kernel] (channels last: [num_filter, *kernel, c / num_group]).
    bias:    [num_filter], absent with no_bias.
    Returns: [n, num_filter, ...]; along an axis of size s the output has
             (s + 2 pad - dilate (kernel - 1) - 1) // stride + 1 positions.
    """

    epilogue_block = 1
    weight_first: ClassVar[bool] = False  # see ConvolutionGeometry

    def join_weight(self, filters: int, channels: int) -> Shape:
        """Return the shape of the weight."""
        return self.join(filters, channels, self.kernel)

    def c_files(self, ins: Specs, train: bool) -> Sequence[Template]:
        return c_files(self._turned(ins), ins[0].dtype) if len(ins[0].shape) == 4 else ()

    def prefers_channels_last(self, ins: Specs, target: str) -> bool:
        return target == "gpu" or (len(ins[0].shape) == 4 and in_c(self._turned(ins), ins[0].dtype))

    def _turned(self, ins: Specs) -> ConvolutionGeometry:
        """Return the geometry with channels last."""
        return replace(self.geometry(ins[0].shape), channels_last=True)

    def with_channels_last(self) -> dict[str, object] | None:
        return {"layout": "NHWC"} if len(self.kernel) == 2 and self.layout in (None, "NCHW") else None

    def with_data_last(self) -> tuple[Op, Op | None] | None:
        return _LAST, _TURNING

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, w, y = in_shape[0], in_shape[1], out_shape[0]
        rank = len(self.kernel)
        if x is None and y is None:
            return list(in_shape), list(out_shape), []
        stride, dilate, pad = self.axes("stride"), self.axes("dilate"), self.axes("pad")
        self.check_data("data", x)
        self.check_data("the output", y)
        n, c, spatial = self.split(x) if x is not None else (-1, -1, (-1,) * rank)
        self.check_groups(x, c)
        if w is not None and len(w) == rank + 2 and c < 0:
            wc = w[self.join_weight(-2, -3).index(-3)]
            c = wc * self.num_group if wc >= 0 else -1
        extent = tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, dilate))
        if y is not None:
            yn, _, ys = self.split(y)
            n = yn if n < 0 else n
            spatial = tuple(s if s >= 0 or o < 0 or t != 1 else o - 1 - 2 * p + e
                            for s, o, t, p, e in zip(spatial, ys, stride, pad, extent))
        out = []
        for s, t, p, e in zip(spatial, stride, pad, extent):
            if s >= 0 and s + 2 * p < e:
                raise ShapeError(f"{self.name}: kernel {self.kernel} with dilate {dilate} spans {extent}, more than "
                                 f"data {x} with pad {pad}. Pad more, or use a smaller kernel.")
            out.append((s + 2 * p - e) // t + 1 if s >= 0 else -1)
        weight = self.match_weight(x, w, self.join_weight(self.num_filter, c // self.num_group if c >= 0 else -1))
        x = self.join(n, c, spatial)
        y = merge_shapes(self.name, "the output", y, self.join(n, self.num_filter, tuple(out)))
        return [x, weight, *([] if self.no_bias else [(self.num_filter,)])], [y], []

    def geometry(self, x: Shape) -> ConvolutionGeometry:
        """Return all sizes of one call."""
        n, c, spatial = self.split(x)
        stride, dilate, pad = self.axes("stride"), self.axes("dilate"), self.axes("pad")
        out = tuple((s + 2 * p - d * (k - 1) - 1) // t + 1
                    for s, p, d, k, t in zip(spatial, pad, dilate, self.kernel, stride))
        return ConvolutionGeometry(n, c, self.num_filter, self.num_group, spatial, out, self.kernel, stride, dilate, pad,
                                   self.channels_last, self.weight_first)

    def products(self, shapes: Sequence[Shape]) -> tuple[Product, ...]:
        g = self.geometry(shapes[0])
        positions = g.n * math.prod(g.out)
        return (1, positions, g.f, g.depth), (1, positions, g.depth, g.f), (1, g.f, g.depth, positions)

    def tuning_keys(self, products: Sequence[Product], ins: Specs, reqs: tuple[Req, ...], *, backward: bool
                    ) -> list[tuple[Key, Config, tuple[Req, ...]]]:
        if not math.prod(products[0]) or all(r == Req.NULL for r in reqs):
            return []
        key = conv_key(self.geometry(ins[backward].shape), "backward" if backward else "forward", math_dtype(ins[0].dtype))
        return [(key, DEFAULT, reqs)]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g, req, bias = self.geometry(ins[0].shape), reqs[0], not self.no_bias
        if target == "gpu":
            whole = self.gpu_kernel(ins, outs[0], req)
            return lambda run, inputs, outputs: whole(run, inputs, outputs[0])

        if req != Req.NULL and in_c(g, outs[0].dtype):
            made = Forward(g, bias, add=req == Req.ADD)

            def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
                return made.bind(inputs, outputs[0])

            if train:
                return ReboundKernel(bind)
            return ReboundKernel(bind, keep=lambda inputs, outputs: made.keep(inputs, outputs[0]), keeps=Forward.keeps)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            forward(run, g, inputs[0], inputs[1], inputs[2] if bias else None, outputs[0], add=req == Req.ADD)

        return kernel

    def in_pieces(self, ins: Specs, out: Spec) -> Forward | None:
        g = self.geometry(ins[0].shape)
        return Forward(g, not self.no_bias) if g.channels_last and in_c(g, out.dtype) else None

    def gpu_kernel(self, ins: Specs, out: Spec, req: Req, epilogue: Epilogue | None = None) -> KernelFunction:
        """Return the GPU function f(run, inputs, output). The arrays of an Epilogue (gpu/epilogue.py) follow the inputs."""
        g, bias, conv = self.geometry(ins[0].shape), not self.no_bias, gpu_module("nn.triton_conv")
        if req == Req.NULL or not out.size:
            return lambda run, inputs, output: None
        return lambda run, inputs, output: conv.forward(
            run, g, inputs[0], inputs[1], inputs[2] if bias else None, output, add=req == Req.ADD, epilogue=epilogue,
            others=inputs[2 + bias:])

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g = self.geometry(ins[1].shape)
        if target == "cpu" and in_c(g, outs[0].dtype):
            return ReboundKernel(lambda inputs, outputs: bind_backward(g, inputs[0], inputs[1], inputs[2], outputs, reqs))
        compute: Any = gpu_module("nn.triton_conv").backward if target == "gpu" else backward
        return lambda run, inputs, outputs: compute(run, g, *inputs, outputs, reqs)


class ConvolutionLast(Convolution):
    """Convolution of two axes with data and output [n, h, w, channels], and the weight of `Convolution`.

    The graph puts it in the place of convolutions on a CPU, whose kernels take the weight as it lies. It has no public name.
    """

    name = "_convolution_last"
    weight_first = True

    @property
    def channels_last(self) -> bool:
        return True

    def with_channels_last(self) -> dict[str, object] | None:
        return None

    def join_weight(self, filters: int, channels: int) -> Shape:
        return (filters, channels, *self.kernel)  # type: ignore[attr-defined]


class ConvolutionTurning(ConvolutionLast):
    """The same with data [n, channels, h, w], which is turned as it is copied: in inference, the first convolution of a graph."""

    name = "_convolution_turning"

    def geometry(self, x: Shape) -> ConvolutionGeometry:
        return replace(super().geometry((x[0], *x[2:], x[1])), data_first=True)  # type: ignore[attr-defined]


_LAST = PropertyOp(ConvolutionLast.name, ConvolutionLast)
_TURNING = PropertyOp(ConvolutionTurning.name, ConvolutionTurning)
