"""Convolutions and transposed convolutions; MXNet's module has the pooling layers too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ...errors import ParameterError, check_choice
from ..block import HybridBlock
from .activations import Activation
from .pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    ReflectionPad2D,
    Size,
    sizes,
)
from .pooling import _Pooling as _Pooling

__all__ = ["Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose", "MaxPool1D", "MaxPool2D",
           "MaxPool3D", "AvgPool1D", "AvgPool2D", "AvgPool3D", "GlobalMaxPool1D", "GlobalMaxPool2D", "GlobalMaxPool3D",
           "GlobalAvgPool1D", "GlobalAvgPool2D", "GlobalAvgPool3D", "ReflectionPad2D"]


def weight_shape(layout: str, outer: int, inner: int, kernel: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a weight: outer where layout has N, inner where it has C, the kernel at the other letters."""
    spatial = iter(kernel)
    return tuple(int({"N": outer, "C": inner}[letter] if letter in "NC" else next(spatial)) for letter in layout)


def channel_mapping(shape: Any) -> str:
    """Return "3 -> 8", axes 1 and 0 of a weight's shape, as a layer prints them."""
    return f"{shape[1] if shape[1] else None} -> {shape[0]}"


class _Conv(HybridBlock):
    """The base of convolutions and of transposed convolutions, whose op_name is "Deconvolution"."""

    def __init__(self, channels: int, kernel_size: Sequence[int], strides: Size, padding: Size, dilation: Size, groups: int,
                 layout: str, in_channels: int = 0, activation: str | None = None, use_bias: bool = True,
                 weight_initializer: Any = None, bias_initializer: Any = "zeros", op_name: str = "Convolution",
                 adj: Sequence[int] | None = None, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        name, n = type(self).__name__, len(kernel_size)
        with self.name_scope():
            self._channels, self._in_channels, self._op_name = channels, in_channels, op_name
            self._kwargs = {"kernel": tuple(kernel_size), "stride": sizes(name, "strides", strides, n),
                            "dilate": sizes(name, "dilation", dilation, n), "pad": sizes(name, "padding", padding, n),
                            "num_filter": channels, "num_group": groups, "no_bias": not use_bias, "layout": layout}
            if adj is not None:
                self._kwargs["adj"] = adj
            if channels % groups or in_channels % groups:
                raise ParameterError(f"{name}: {in_channels} channels to {channels} in {groups} groups. groups must divide both.")
            outer, inner = (in_channels, channels) if op_name == "Deconvolution" else (channels, in_channels)
            self.weight = self.params.get("weight", shape=weight_shape(layout, outer, inner // groups, kernel_size),
                                          init=weight_initializer, allow_deferred_init=True)
            self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer,
                                        allow_deferred_init=True) if use_bias else None
            self.act = Activation(activation, prefix=activation + "_") if activation is not None else None

    def _alias(self) -> str:
        return "conv"

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        arrays = (x, weight) if bias is None else (x, weight, bias)
        y = getattr(F, self._op_name)(*arrays, name="fwd", **self._kwargs)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        k, n = self._kwargs, len(self._kwargs["kernel"])
        text = [channel_mapping(self.weight.shape), f"kernel_size={k['kernel']}", f"stride={k['stride']}"]
        if k["pad"] != (0,) * n:
            text.append(f"padding={k['pad']}")
        if k["dilate"] != (1,) * n:
            text.append(f"dilation={k['dilate']}")
        if k["num_group"] != 1:
            text.append(f"groups={k['num_group']}")
        if self.bias is None:
            text.append("bias=False")
        if self.act:
            text.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(text)})"


class _Convolution(_Conv):
    """A convolution of as many spatial axes as its layouts have."""

    layouts: ClassVar[tuple[str, ...]]

    def __init__(self, channels: int, kernel_size: Size, strides: Size = 1, padding: Size = 0, dilation: Size = 1,
                 groups: int = 1, layout: str | None = None, activation: str | None = None, use_bias: bool = True,
                 weight_initializer: Any = None, bias_initializer: Any = "zeros", in_channels: int = 0, **kwargs: Any) -> None:
        layout = self.layouts[0] if layout is None else layout
        check_choice(type(self).__name__, "layout", layout, self.layouts)
        kernel_size = sizes(type(self).__name__, "kernel_size", kernel_size, len(layout) - 2)
        super().__init__(channels, kernel_size, strides, padding, dilation, groups, layout, in_channels, activation, use_bias,
                         weight_initializer, bias_initializer, **kwargs)


class Conv1D(_Convolution):
    """A convolution along one axis, as of time.

    channels:     number of filters.
    kernel_size:  size of the window. strides: distance between windows. padding: zeros added at both ends.
    dilation:     distance between the elements of a window.
    groups:       each of the groups of output channels reads its own group of input channels.
    layout:       'NCW'.
    activation:   the name of an activation of `nn.Activation`, or None.
    in_channels:  0: known at the first forward.
    Output:       [batch, channels, floor((width + 2 padding - dilation (kernel_size - 1) - 1) / strides) + 1].
    """

    layouts = ("NCW",)


class Conv2D(_Convolution):
    """A convolution of images. layout: 'NCHW' or 'NHWC'. The other parameters are Conv1D's."""

    layouts = ("NCHW", "NHWC")


class Conv3D(_Convolution):
    """A convolution of volumes. layout: 'NCDHW' or 'NDHWC'. The other parameters are Conv1D's."""

    layouts = ("NCDHW", "NDHWC")


class _Transposed(_Conv):
    """A transposed convolution of as many spatial axes as its layouts have."""

    layouts: ClassVar[tuple[str, ...]]

    def __init__(self, channels: int, kernel_size: Size, strides: Size = 1, padding: Size = 0, output_padding: Size = 0,
                 dilation: Size = 1, groups: int = 1, layout: str | None = None, activation: str | None = None,
                 use_bias: bool = True, weight_initializer: Any = None, bias_initializer: Any = "zeros", in_channels: int = 0,
                 **kwargs: Any) -> None:
        layout = self.layouts[0] if layout is None else layout
        name, n = type(self).__name__, len(layout) - 2
        check_choice(name, "layout", layout, self.layouts)
        output_padding = sizes(name, "output_padding", output_padding, n)
        super().__init__(channels, sizes(name, "kernel_size", kernel_size, n), strides, padding, dilation, groups, layout,
                         in_channels, activation, use_bias, weight_initializer, bias_initializer,
                         op_name=kwargs.pop("op_name", "Deconvolution"), adj=output_padding, **kwargs)
        self.outpad = output_padding


class Conv1DTranspose(_Transposed):
    """The transpose of a convolution along one axis: it maps what Conv1D gives back to the shape of Conv1D's input.

    output_padding: positions added at one end. The other parameters are Conv1D's.
    Output: [batch, channels, strides (width - 1) + dilation (kernel_size - 1) + 1 - 2 padding + output_padding].
    """

    layouts = ("NCW",)


class Conv2DTranspose(_Transposed):
    """The transpose of Conv2D. layout: 'NCHW' or 'NHWC'. The other parameters are Conv1DTranspose's."""

    layouts = ("NCHW", "NHWC")


class Conv3DTranspose(_Transposed):
    """The transpose of Conv3D. layout: 'NCDHW' or 'NDHWC'. The other parameters are Conv1DTranspose's."""

    layouts = ("NCDHW", "NDHWC")
