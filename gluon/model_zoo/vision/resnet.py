"""ResNet v1 (arXiv:1512.03385) and v2 (arXiv:1603.05027)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....context import cpu
from ....errors import ParameterError, check_choice
from ... import nn
from ...block import HybridBlock
from ..model_store import load_pretrained

__all__ = ["ResNetV1", "ResNetV2", "BasicBlockV1", "BasicBlockV2", "BottleneckV1", "BottleneckV2", "resnet18_v1",
           "resnet34_v1", "resnet50_v1", "resnet101_v1", "resnet152_v1", "resnet18_v2", "resnet34_v2", "resnet50_v2",
           "resnet101_v2", "resnet152_v2", "get_resnet"]


def _conv3x3(channels: int, stride: int, in_channels: int) -> nn.Conv2D:
    return nn.Conv2D(channels, kernel_size=3, strides=stride, padding=1, use_bias=False, in_channels=in_channels)


def _conv1x1(channels: int, stride: int, in_channels: int = 0, use_bias: bool = False) -> nn.Conv2D:
    return nn.Conv2D(channels, kernel_size=1, strides=stride, use_bias=use_bias, in_channels=in_channels)


class _BlockV1(HybridBlock):
    """The sum of a body and of the input, which is projected if `downsample`; then a rectifier."""

    def __init__(self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.body = nn.HybridSequential(prefix="")
        self._fill(channels, stride, in_channels)
        self.body.add(nn.BatchNorm())
        self.downsample = None
        if downsample:
            shortcut = nn.HybridSequential(prefix="")
            shortcut.add(_conv1x1(channels, stride, in_channels), nn.BatchNorm())
            self.downsample = shortcut

    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        """Add the convolutions to the body, with what stands between them."""
        raise NotImplementedError

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.Activation(self.body(x) + shortcut, act_type="relu")


class BasicBlockV1(_BlockV1):
    """The block of ResNet-18 and 34 v1: two 3×3 convolutions."""

    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        self.body.add(_conv3x3(channels, stride, in_channels), nn.BatchNorm(), nn.Activation("relu"),
                      _conv3x3(channels, 1, channels))


class BottleneckV1(_BlockV1):
    """The block of ResNet-50 and deeper v1: 1×1, 3×3 and 1×1 convolutions, the first two of channels / 4."""

    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        inner = channels // 4
        self.body.add(_conv1x1(inner, stride, use_bias=True), nn.BatchNorm(), nn.Activation("relu"),
                      _conv3x3(inner, 1, inner), nn.BatchNorm(), nn.Activation("relu"),
                      _conv1x1(channels, 1, use_bias=True))


class BasicBlockV2(HybridBlock):
    """The block of ResNet-18 and 34 v2: BasicBlockV1 with BatchNorm and rectifier before each convolution."""

    def __init__(self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv3x3(channels, stride, in_channels)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels, 1, channels)
        self.downsample = _conv1x1(channels, stride, in_channels) if downsample else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = F.Activation(self.bn1(x), act_type="relu")
        shortcut = x if self.downsample is None else self.downsample(y)
        y = F.Activation(self.bn2(self.conv1(y)), act_type="relu")
        return self.conv2(y) + shortcut


class BottleneckV2(HybridBlock):
    """The block of ResNet-50 and deeper v2: BottleneckV1 with BatchNorm and rectifier before each convolution."""

    def __init__(self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bn1 = nn.BatchNorm()
        self.conv1 = _conv1x1(channels // 4, 1)
        self.bn2 = nn.BatchNorm()
        self.conv2 = _conv3x3(channels // 4, stride, channels // 4)
        self.bn3 = nn.BatchNorm()
        self.conv3 = _conv1x1(channels, 1)
        self.downsample = _conv1x1(channels, stride, in_channels) if downsample else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = F.Activation(self.bn1(x), act_type="relu")
        shortcut = x if self.downsample is None else self.downsample(y)
        y = F.Activation(self.bn2(self.conv1(y)), act_type="relu")
        y = F.Activation(self.bn3(self.conv2(y)), act_type="relu")
        return self.conv3(y) + shortcut


class _ResNet(HybridBlock):
    """The base of both versions.

    block:      the class of the residual blocks.
    layers:     number of blocks in each stage.
    channels:   of the first convolution, then of each stage.
    classes:    size of the output.
    thumbnail:  for small images: a 3×3 convolution first and no pooling.
    """

    def __init__(self, block: Callable[..., HybridBlock], layers: Sequence[int], channels: Sequence[int], classes: int = 1000,
                 thumbnail: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if len(layers) != len(channels) - 1:
            raise ParameterError(f"{type(self).__name__}: layers {list(layers)} and channels {list(channels)}. There is one more "
                                 "number of channels, of the first convolution.")
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self._begin()
            if thumbnail:
                self.features.add(_conv3x3(channels[0], 1, 0))
            else:
                self.features.add(nn.Conv2D(channels[0], 7, 2, 3, use_bias=False), nn.BatchNorm(), nn.Activation("relu"),
                                  nn.MaxPool2D(3, 2, 1))
            for i, count in enumerate(layers):
                self.features.add(self._make_layer(block, count, channels[i + 1], 1 if i == 0 else 2, i + 1,
                                                   in_channels=channels[i]))
            self._end()
            self.output = nn.Dense(classes, in_units=channels[-1])

    def _begin(self) -> None:
        """Add the layers before the first convolution."""

    def _end(self) -> None:
        """Add the layers between the last stage and the output."""

    def _make_layer(self, block: Callable[..., HybridBlock], layers: int, channels: int, stride: int, stage_index: int,
                    in_channels: int = 0) -> nn.HybridSequential:
        stage = nn.HybridSequential(prefix=f"stage{stage_index}_")
        with stage.name_scope():
            stage.add(block(channels, stride, channels != in_channels, in_channels=in_channels, prefix=""))
            for _ in range(layers - 1):
                stage.add(block(channels, 1, False, in_channels=channels, prefix=""))
        return stage

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


class ResNetV1(_ResNet):
    """ResNet v1. Input: [batch, 3, 224, 224], or any size with thumbnail.

    block: BasicBlockV1 or BottleneckV1. layers: blocks in each stage. channels: of the first convolution, then of each stage.
    classes: size of the output. thumbnail: for small images: a 3×3 convolution first and no pooling.
    """

    def _end(self) -> None:
        self.features.add(nn.GlobalAvgPool2D())


class ResNetV2(_ResNet):
    """ResNet v2. block: BasicBlockV2 or BottleneckV2. Input and the other parameters are ResNetV1's."""

    def _begin(self) -> None:
        self.features.add(nn.BatchNorm(scale=False, center=False))

    def _end(self) -> None:
        self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten())


#: Number of layers -> kind of block, blocks in each stage, channels.
resnet_spec = {18: ("basic_block", [2, 2, 2, 2], [64, 64, 128, 256, 512]),
               34: ("basic_block", [3, 4, 6, 3], [64, 64, 128, 256, 512]),
               50: ("bottle_neck", [3, 4, 6, 3], [64, 256, 512, 1024, 2048]),
               101: ("bottle_neck", [3, 4, 23, 3], [64, 256, 512, 1024, 2048]),
               152: ("bottle_neck", [3, 8, 36, 3], [64, 256, 512, 1024, 2048])}
resnet_net_versions = [ResNetV1, ResNetV2]
resnet_block_versions = [{"basic_block": BasicBlockV1, "bottle_neck": BottleneckV1},
                         {"basic_block": BasicBlockV2, "bottle_neck": BottleneckV2}]


def get_resnet(version: int, num_layers: int, pretrained: bool = False, ctx: Any = cpu(), root: str | None = None,
               **kwargs: Any) -> Any:
    """Return a ResNet of version 1 or 2, with 18, 34, 50, 101 or 152 layers. The other parameters are those of `alexnet`."""
    check_choice("get_resnet", "num_layers", num_layers, resnet_spec)
    check_choice("get_resnet", "version", version, (1, 2))
    kind, layers, channels = resnet_spec[num_layers]
    net = resnet_net_versions[version - 1](resnet_block_versions[version - 1][kind], layers, channels, **kwargs)
    if pretrained:
        load_pretrained(net, f"resnet{num_layers}_v{version}", root, ctx)
    return net


def resnet18_v1(**kwargs: Any) -> ResNetV1:
    """Return a ResNet-18 v1. See get_resnet."""
    return get_resnet(1, 18, **kwargs)


def resnet34_v1(**kwargs: Any) -> ResNetV1:
    """Return a ResNet-34 v1. See get_resnet."""
    return get_resnet(1, 34, **kwargs)


def resnet50_v1(**kwargs: Any) -> ResNetV1:
    """Return a ResNet-50 v1. See get_resnet."""
    return get_resnet(1, 50, **kwargs)


def resnet101_v1(**kwargs: Any) -> ResNetV1:
    """Return a ResNet-101 v1. See get_resnet."""
    return get_resnet(1, 101, **kwargs)


def resnet152_v1(**kwargs: Any) -> ResNetV1:
    """Return a ResNet-152 v1. See get_resnet."""
    return get_resnet(1, 152, **kwargs)


def resnet18_v2(**kwargs: Any) -> ResNetV2:
    """Return a ResNet-18 v2. See get_resnet."""
    return get_resnet(2, 18, **kwargs)


def resnet34_v2(**kwargs: Any) -> ResNetV2:
    """Return a ResNet-34 v2. See get_resnet."""
    return get_resnet(2, 34, **kwargs)


def resnet50_v2(**kwargs: Any) -> ResNetV2:
    """Return a ResNet-50 v2. See get_resnet."""
    return get_resnet(2, 50, **kwargs)


def resnet101_v2(**kwargs: Any) -> ResNetV2:
    """Return a ResNet-101 v2. See get_resnet."""
    return get_resnet(2, 101, **kwargs)


def resnet152_v2(**kwargs: Any) -> ResNetV2:
    """Return a ResNet-152 v2. See get_resnet."""
    return get_resnet(2, 152, **kwargs)
