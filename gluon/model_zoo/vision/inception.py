"""Inception v3 (arXiv:1512.00567)."""

from __future__ import annotations

from typing import Any

from ....context import cpu
from ... import nn
from ...block import HybridBlock
from ...contrib.nn import HybridConcurrent
from ..model_store import load_pretrained

__all__ = ["Inception3", "inception_v3"]


def _conv(channels: int, kernel_size: Any, strides: Any = 1, padding: Any = 0) -> nn.HybridSequential:
    """Return a convolution, a BatchNorm and a rectifier."""
    out = nn.HybridSequential(prefix="")
    out.add(nn.Conv2D(channels, kernel_size, strides, padding, use_bias=False), nn.BatchNorm(epsilon=0.001),
            nn.Activation("relu"))
    return out


def _row(*convolutions: tuple[Any, ...], first: HybridBlock | None = None) -> nn.HybridSequential:
    """Return a row of convolutions, each given by the arguments of `_conv`, after the block `first`."""
    out = nn.HybridSequential(prefix="")
    if first is not None:
        out.add(first)
    for settings in convolutions:
        out.add(_conv(*settings))
    return out


def _average() -> nn.AvgPool2D:
    return nn.AvgPool2D(pool_size=3, strides=1, padding=1)


def _maximum() -> nn.MaxPool2D:
    return nn.MaxPool2D(pool_size=3, strides=2)


#: The kernel and padding of a convolution along one axis.
_WIDE_7, _TALL_7 = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
_WIDE_3, _TALL_3 = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))


def _block_a(pool_channels: int, prefix: str) -> HybridConcurrent:
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        out.add(_row((64, 1)))
        out.add(_row((48, 1), (64, 5, 1, 2)))
        out.add(_row((64, 1), (96, 3, 1, 1), (96, 3, 1, 1)))
        out.add(_row((pool_channels, 1), first=_average()))
    return out


def _block_b(prefix: str) -> HybridConcurrent:
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        out.add(_row((384, 3, 2)))
        out.add(_row((64, 1), (96, 3, 1, 1), (96, 3, 2)))
        out.add(_row(first=_maximum()))
    return out


def _block_c(channels: int, prefix: str) -> HybridConcurrent:
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        out.add(_row((192, 1)))
        out.add(_row((channels, 1), (channels, *_WIDE_7), (192, *_TALL_7)))
        out.add(_row((channels, 1), (channels, *_TALL_7), (channels, *_WIDE_7), (channels, *_TALL_7), (192, *_WIDE_7)))
        out.add(_row((192, 1), first=_average()))
    return out


def _block_d(prefix: str) -> HybridConcurrent:
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        out.add(_row((192, 1), (320, 3, 2)))
        out.add(_row((192, 1), (192, *_WIDE_7), (192, *_TALL_7), (192, 3, 2)))
        out.add(_row(first=_maximum()))
    return out


def _split(*first: tuple[Any, ...]) -> nn.HybridSequential:
    """Return a row of convolutions, then a wide and a tall one beside each other."""
    out = nn.HybridSequential(prefix="")
    out.add(_row(*first))
    both = HybridConcurrent(axis=1, prefix="")
    both.add(_row((384, *_WIDE_3)), _row((384, *_TALL_3)))
    out.add(both)
    return out


def _block_e(prefix: str) -> HybridConcurrent:
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        out.add(_row((320, 1)))
        out.add(_split((384, 1)))
        out.add(_split((448, 1), (384, 3, 1, 1)))
        out.add(_row((192, 1), first=_average()))
    return out


def make_aux(classes: int) -> nn.HybridSequential:
    """Return the auxiliary classifier of the paper, which the network of the zoo does not have."""
    out = nn.HybridSequential(prefix="")
    out.add(nn.AvgPool2D(pool_size=5, strides=3), _conv(128, 1), _conv(768, 5), nn.Flatten(), nn.Dense(classes))
    return out


class Inception3(HybridBlock):
    """Inception v3. Input: [batch, 3, 299, 299]. classes: size of the output."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                _conv(32, 3, 2), _conv(32, 3), _conv(64, 3, 1, 1), nn.MaxPool2D(pool_size=3, strides=2),
                _conv(80, 1), _conv(192, 3), nn.MaxPool2D(pool_size=3, strides=2),
                _block_a(32, "A1_"), _block_a(64, "A2_"), _block_a(64, "A3_"),
                _block_b("B_"),
                _block_c(128, "C1_"), _block_c(160, "C2_"), _block_c(160, "C3_"), _block_c(192, "C4_"),
                _block_d("D_"),
                _block_e("E1_"), _block_e("E2_"),
                nn.AvgPool2D(pool_size=8), nn.Dropout(0.5))
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def inception_v3(pretrained: bool = False, ctx: Any = cpu(), root: str | None = None, **kwargs: Any) -> Inception3:
    """Return an Inception v3. The parameters are those of `alexnet`."""
    net = Inception3(**kwargs)
    if pretrained:
        load_pretrained(net, "inceptionv3", root, ctx)
    return net
