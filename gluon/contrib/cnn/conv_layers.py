"""Deformable convolutions: their windows are moved by offsets, which a convolution of the same input gives."""

from __future__ import annotations

from typing import Any

from ....errors import check_choice
from ...block import HybridBlock
from ...nn.activations import Activation
from ...nn.conv_layers import channel_mapping, weight_shape
from ...nn.pooling import Size, sizes

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class _Deformable(HybridBlock):
    """The base of both, with the two convolutions' parameters.

    per_element: channels of the offsets for each element of a window: 2, and 1 more where it is weighted too.
    """

    def __init__(self, per_element: int, weight_first: bool, channels: int, kernel_size: Size, strides: Size, padding: Size,
                 dilation: Size, groups: int, num_deformable_group: int, layout: str, use_bias: bool, in_channels: int,
                 activation: str | None, weight_initializer: Any, bias_initializer: Any, offset_weight_initializer: Any,
                 offset_bias_initializer: Any, offset_use_bias: bool, op_name: str, adj: Any, prefix: str | None,
                 params: Any) -> None:
        super().__init__(prefix=prefix, params=params)
        name = type(self).__name__
        check_choice(name, "layout", layout, ("NCHW", "NHWC"))
        kernel = sizes(name, "kernel_size", kernel_size, 2)
        with self.name_scope():
            self._channels, self._in_channels, self._op_name = channels, in_channels, op_name
            window = {"kernel": kernel, "stride": sizes(name, "strides", strides, 2),
                      "dilate": sizes(name, "dilation", dilation, 2), "pad": sizes(name, "padding", padding, 2)}
            extra = {"adj": adj} if adj else {}
            offset_channels = per_element * kernel[0] * kernel[1] * num_deformable_group
            self._kwargs_offset = {**window, "num_filter": offset_channels, "num_group": groups,
                                   "no_bias": not offset_use_bias, "layout": layout, **extra}
            self._kwargs_deformable_conv = {**window, "num_filter": channels, "num_group": groups,
                                            "num_deformable_group": num_deformable_group, "no_bias": not use_bias,
                                            "layout": layout, **extra}
            offset = (("offset_weight", weight_shape(layout, offset_channels, in_channels // groups, kernel),
                       offset_weight_initializer, True),
                      ("offset_bias", (offset_channels,), offset_bias_initializer, offset_use_bias))
            weight = (("deformable_conv_weight", (channels, 0, *kernel), weight_initializer, True),
                      ("deformable_conv_bias", (channels,), bias_initializer, use_bias))
            for parameter, shape, init, used in weight + offset if weight_first else offset + weight:
                setattr(self, parameter, self.params.get(parameter, shape=shape, init=init, allow_deferred_init=True)
                        if used else None)
            self.act = Activation(activation, prefix=activation + "_") if activation else None

    def _offsets(self, F: Any, x: Any, weight: Any, bias: Any) -> Any:
        arrays = (x, weight) if bias is None else (x, weight, bias)
        return F.Convolution(*arrays, cudnn_off=True, **self._kwargs_offset)

    def _convolve(self, F: Any, bias: Any, **arrays: Any) -> Any:
        if bias is not None:
            arrays["bias"] = bias
        y = getattr(F.contrib, self._op_name)(**arrays, name="fwd", **self._kwargs_deformable_conv)
        return self.act(y) if self.act else y


class DeformableConvolution(_Deformable):
    """A convolution of images whose windows are deformed by learned offsets (arXiv:1703.06211).

    num_deformable_group:  groups of input channels with offsets of their own.
    offset_...:            initializers and bias of the convolution that gives the offsets; zeros: a plain convolution.
    The other parameters are nn.Conv2D's.
    """

    def __init__(self, channels: int, kernel_size: Size = (1, 1), strides: Size = (1, 1), padding: Size = (0, 0),
                 dilation: Size = (1, 1), groups: int = 1, num_deformable_group: int = 1, layout: str = "NCHW",
                 use_bias: bool = True, in_channels: int = 0, activation: str | None = None, weight_initializer: Any = None,
                 bias_initializer: Any = "zeros", offset_weight_initializer: Any = "zeros",
                 offset_bias_initializer: Any = "zeros", offset_use_bias: bool = True, op_name: str = "DeformableConvolution",
                 adj: Any = None, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(2, False, channels, kernel_size, strides, padding, dilation, groups, num_deformable_group, layout,
                         use_bias, in_channels, activation, weight_initializer, bias_initializer, offset_weight_initializer,
                         offset_bias_initializer, offset_use_bias, op_name, adj, prefix, params)

    def _alias(self) -> str:
        return "deformable_conv"

    def hybrid_forward(self, F: Any, x: Any, offset_weight: Any, deformable_conv_weight: Any, offset_bias: Any = None,
                       deformable_conv_bias: Any = None) -> Any:
        offset = self._offsets(F, x, offset_weight, offset_bias)
        return self._convolve(F, deformable_conv_bias, data=x, offset=offset, weight=deformable_conv_weight)

    def __repr__(self) -> str:
        k = self._kwargs_deformable_conv
        weight: Any = self.deformable_conv_weight  # type: ignore[attr-defined]
        text = [channel_mapping(weight.shape), f"kernel_size={k['kernel']}", f"stride={k['stride']}"]
        if k["pad"] != (0, 0):
            text.append(f"padding={k['pad']}")
        if k["dilate"] != (1, 1):
            text.append(f"dilation={k['dilate']}")
        if k["num_group"] != 1:
            text.append(f"groups={k['num_group']}")
        if k["no_bias"]:
            text.append("bias=False")
        if self.act:
            text.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(text)})"


class ModulatedDeformableConvolution(_Deformable):
    """DeformableConvolution whose offsets have a learned weight each, 2 · sigmoid (arXiv:1811.11168)."""

    def __init__(self, channels: int, kernel_size: Size = (1, 1), strides: Size = (1, 1), padding: Size = (0, 0),
                 dilation: Size = (1, 1), groups: int = 1, num_deformable_group: int = 1, layout: str = "NCHW",
                 use_bias: bool = True, in_channels: int = 0, activation: str | None = None, weight_initializer: Any = None,
                 bias_initializer: Any = "zeros", offset_weight_initializer: Any = "zeros",
                 offset_bias_initializer: Any = "zeros", offset_use_bias: bool = True,
                 op_name: str = "ModulatedDeformableConvolution", adj: Any = None, prefix: str | None = None,
                 params: Any = None) -> None:
        super().__init__(3, True, channels, kernel_size, strides, padding, dilation, groups, num_deformable_group, layout,
                         use_bias, in_channels, activation, weight_initializer, bias_initializer, offset_weight_initializer,
                         offset_bias_initializer, offset_use_bias, op_name, adj, prefix, params)
        kernel = self._kwargs_offset["kernel"]
        self.offset_split_index = num_deformable_group * 2 * kernel[0] * kernel[1]

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def hybrid_forward(self, F: Any, x: Any, offset_weight: Any, deformable_conv_weight: Any, offset_bias: Any = None,
                       deformable_conv_bias: Any = None) -> Any:
        offset = self._offsets(F, x, offset_weight, offset_bias)
        moves = F.slice_axis(offset, axis=1, begin=0, end=self.offset_split_index)
        mask = F.sigmoid(F.slice_axis(offset, axis=1, begin=self.offset_split_index, end=None)) * 2
        return self._convolve(F, deformable_conv_bias, data=x, offset=moves, mask=mask, weight=deformable_conv_weight)
