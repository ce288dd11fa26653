"""MobileNet (arXiv:1704.04861) and MobileNet v2 (arXiv:1801.04381)."""

from __future__ import annotations

from typing import Any

from ....context import cpu
from ... import nn
from ...block import HybridBlock
from ..model_store import load_pretrained

__all__ = ["MobileNet", "MobileNetV2", "mobilenet1_0", "mobilenet_v2_1_0", "mobilenet0_75", "mobilenet_v2_0_75",
           "mobilenet0_5", "mobilenet_v2_0_5", "mobilenet0_25", "mobilenet_v2_0_25", "get_mobilenet", "get_mobilenet_v2"]


class RELU6(HybridBlock):
    """x between 0 and 6."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.clip(x, a_min=0, a_max=6, name="relu6")


def _add_conv(out: nn.HybridSequential, channels: int = 1, kernel: int = 1, stride: int = 1, pad: int = 0, num_group: int = 1,
              active: bool = True, relu6: bool = False) -> None:
    out.add(nn.Conv2D(channels, kernel, stride, pad, groups=num_group, use_bias=False), nn.BatchNorm(scale=True))
    if active:
        out.add(RELU6() if relu6 else nn.Activation("relu"))


class LinearBottleneck(HybridBlock):
    """A convolution to t times as many channels, one for each of them, and one to the output's, with no rectifier.

    The input is added where the shapes agree.
    """

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        wide = in_channels * t
        with self.name_scope():
            self.out = nn.HybridSequential()
            _add_conv(self.out, wide, relu6=True)
            _add_conv(self.out, wide, kernel=3, stride=stride, pad=1, num_group=wide, relu6=True)
            _add_conv(self.out, channels, active=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


#: The separable convolutions of MobileNet: input channels, output channels, stride.
_SEPARABLE = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), *[(512, 512, 1)] * 5,
              (512, 1024, 2), (1024, 1024, 1)]

#: The bottlenecks of MobileNet v2, in groups: output channels, t, stride of the first, how many.
_BOTTLENECKS = [(16, 1, 1, 1), (24, 6, 2, 2), (32, 6, 2, 3), (64, 6, 2, 4), (96, 6, 1, 3), (160, 6, 2, 3), (320, 6, 1, 1)]


class MobileNet(HybridBlock):
    """MobileNet. Input: [batch, 3, 224, 224].

    multiplier:  of all numbers of channels.
    classes:     size of the output.
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            _add_conv(self.features, int(32 * multiplier), kernel=3, pad=1, stride=2)
            for inner, outer, stride in _SEPARABLE:
                inner = int(inner * multiplier)
                _add_conv(self.features, inner, kernel=3, stride=stride, pad=1, num_group=inner)
                _add_conv(self.features, int(outer * multiplier))
            self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


class MobileNetV2(HybridBlock):
    """MobileNet v2. The parameters are MobileNet's."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                channels = int(32 * multiplier)
                _add_conv(self.features, channels, kernel=3, stride=2, pad=1, relu6=True)
                for outer, t, first_stride, count in _BOTTLENECKS:
                    for i in range(count):
                        before, channels = channels, int(outer * multiplier)
                        self.features.add(LinearBottleneck(before, channels, t, first_stride if i == 0 else 1))
                _add_conv(self.features, int(1280 * multiplier) if multiplier > 1.0 else 1280, relu6=True)
                self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def _suffix(multiplier: float) -> str:
    """Return the multiplier as file names have it: 1.0, 0.75, 0.5, 0.25."""
    text = f"{multiplier:.2f}"
    return text[:-1] if text in ("1.00", "0.50") else text


def get_mobilenet(multiplier: float, pretrained: bool = False, ctx: Any = cpu(), root: str | None = None,
                  **kwargs: Any) -> MobileNet:
    """Return a MobileNet; published multipliers are 1, 0.75, 0.5 and 0.25. The other parameters are those of `alexnet`."""
    net = MobileNet(multiplier, **kwargs)
    if pretrained:
        load_pretrained(net, f"mobilenet{_suffix(multiplier)}", root, ctx)
    return net


def get_mobilenet_v2(multiplier: float, pretrained: bool = False, ctx: Any = cpu(), root: str | None = None,
                     **kwargs: Any) -> MobileNetV2:
    """Return a MobileNet v2. The parameters are those of get_mobilenet."""
    net = MobileNetV2(multiplier, **kwargs)
    if pretrained:
        load_pretrained(net, f"mobilenetv2_{_suffix(multiplier)}", root, ctx)
    return net


def mobilenet1_0(**kwargs: Any) -> MobileNet:
    """Return a MobileNet. See get_mobilenet."""
    return get_mobilenet(1.0, **kwargs)


def mobilenet0_75(**kwargs: Any) -> MobileNet:
    """Return a MobileNet with 0.75 of the channels. See get_mobilenet."""
    return get_mobilenet(0.75, **kwargs)


def mobilenet0_5(**kwargs: Any) -> MobileNet:
    """Return a MobileNet with half the channels. See get_mobilenet."""
    return get_mobilenet(0.5, **kwargs)


def mobilenet0_25(**kwargs: Any) -> MobileNet:
    """Return a MobileNet with a quarter of the channels. See get_mobilenet."""
    return get_mobilenet(0.25, **kwargs)


def mobilenet_v2_1_0(**kwargs: Any) -> MobileNetV2:
    """Return a MobileNet v2. See get_mobilenet."""
    return get_mobilenet_v2(1.0, **kwargs)


def mobilenet_v2_0_75(**kwargs: Any) -> MobileNetV2:
    """Return a MobileNet v2 with 0.75 of the channels. See get_mobilenet."""
    return get_mobilenet_v2(0.75, **kwargs)


def mobilenet_v2_0_5(**kwargs: Any) -> MobileNetV2:
    """Return a MobileNet v2 with half the channels. See get_mobilenet."""
    return get_mobilenet_v2(0.5, **kwargs)


def mobilenet_v2_0_25(**kwargs: Any) -> MobileNetV2:
    """Return a MobileNet v2 with a quarter of the channels. See get_mobilenet."""
    return get_mobilenet_v2(0.25, **kwargs)
