"""SqueezeNet (arXiv:1602.07360)."""

from __future__ import annotations

from typing import Any

from ....context import cpu
from ....errors import check_choice
from ... import nn
from ...block import HybridBlock
from ...contrib.nn import HybridConcurrent
from ..model_store import load_pretrained

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]


def _conv(channels: int, kernel_size: int, padding: int = 0) -> nn.HybridSequential:
    out = nn.HybridSequential(prefix="")
    out.add(nn.Conv2D(channels, kernel_size, padding=padding), nn.Activation("relu"))
    return out


def _fire(squeeze: int, expand: int) -> nn.HybridSequential:
    """Return a 1×1 convolution to few channels, then a 1×1 and a 3×3 one beside each other."""
    out = nn.HybridSequential(prefix="")
    out.add(_conv(squeeze, 1))
    both = HybridConcurrent(axis=1, prefix="")
    both.add(_conv(expand, 1), _conv(expand, 3, 1))
    out.add(both)
    return out


#: Version -> channels and kernel of the first convolution, and which fire modules a pooling precedes.
_VERSIONS = {"1.0": (96, 7, (0, 3, 7)), "1.1": (64, 3, (0, 2, 4))}
_FIRE = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]


class SqueezeNet(HybridBlock):
    """SqueezeNet. Input: [batch, 3, 224, 224].

    version:  '1.0', or '1.1' with 2.4 times less computation.
    classes:  size of the output.
    """

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_choice("SqueezeNet", "version", version, _VERSIONS)
        channels, kernel, pooled = _VERSIONS[version]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.Conv2D(channels, kernel_size=kernel, strides=2), nn.Activation("relu"))
            for i, sizes in enumerate(_FIRE):
                if i in pooled:
                    self.features.add(nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True))
                self.features.add(_fire(*sizes))
            self.features.add(nn.Dropout(0.5))
            self.output = nn.HybridSequential(prefix="")
            self.output.add(nn.Conv2D(classes, kernel_size=1), nn.Activation("relu"), nn.AvgPool2D(13), nn.Flatten())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def get_squeezenet(version: str, pretrained: bool = False, ctx: Any = cpu(), root: str | None = None,
                   **kwargs: Any) -> SqueezeNet:
    """Return a SqueezeNet of version '1.0' or '1.1'. The other parameters are those of `alexnet`."""
    net = SqueezeNet(version, **kwargs)
    if pretrained:
        load_pretrained(net, f"squeezenet{version}", root, ctx)
    return net


def squeezenet1_0(**kwargs: Any) -> SqueezeNet:
    """Return a SqueezeNet 1.0. See get_squeezenet."""
    return get_squeezenet("1.0", **kwargs)


def squeezenet1_1(**kwargs: Any) -> SqueezeNet:
    """Return a SqueezeNet 1.1. See get_squeezenet."""
    return get_squeezenet("1.1", **kwargs)
