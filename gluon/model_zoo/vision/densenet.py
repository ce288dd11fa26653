"""DenseNet-BC (arXiv:1608.06993)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....context import cpu
from ... import nn
from ...block import HybridBlock
from ...contrib.nn import HybridConcurrent, Identity
from ..model_store import load_pretrained

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]


def _dense_layer(growth_rate: int, bn_size: int, dropout: float) -> HybridConcurrent:
    """Return a layer that puts growth_rate new channels beside its input."""
    new = nn.HybridSequential(prefix="")
    for channels, kernel, padding in ((bn_size * growth_rate, 1, 0), (growth_rate, 3, 1)):
        new.add(nn.BatchNorm(), nn.Activation("relu"),
                nn.Conv2D(channels, kernel_size=kernel, padding=padding, use_bias=False))
    if dropout:
        new.add(nn.Dropout(dropout))
    layer = HybridConcurrent(axis=1, prefix="")
    layer.add(Identity(), new)
    return layer


def _transition(channels: int) -> nn.HybridSequential:
    """Return the layers between two dense blocks, which halve height and width."""
    out = nn.HybridSequential(prefix="")
    out.add(nn.BatchNorm(), nn.Activation("relu"), nn.Conv2D(channels, kernel_size=1, use_bias=False),
            nn.AvgPool2D(pool_size=2, strides=2))
    return out


class DenseNet(HybridBlock):
    """DenseNet. Input: [batch, 3, 224, 224].

    num_init_features:  channels of the first convolution.
    growth_rate:        channels added by each layer.
    block_config:       number of layers of each dense block.
    bn_size:            channels of a layer's first convolution / growth_rate.
    dropout:            rate after each layer.
    classes:            size of the output.
    """

    def __init__(self, num_init_features: int, growth_rate: int, block_config: Sequence[int], bn_size: int = 4,
                 dropout: float = 0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.Conv2D(num_init_features, kernel_size=7, strides=2, padding=3, use_bias=False),
                              nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(pool_size=3, strides=2, padding=1))
            channels = num_init_features
            for i, layers in enumerate(block_config):
                stage = nn.HybridSequential(prefix=f"stage{i + 1}_")
                with stage.name_scope():
                    for _ in range(layers):
                        stage.add(_dense_layer(growth_rate, bn_size, dropout))
                self.features.add(stage)
                channels += layers * growth_rate
                if i != len(block_config) - 1:
                    channels //= 2
                    self.features.add(_transition(channels))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(pool_size=7), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


#: Number of layers -> num_init_features, growth_rate, block_config.
densenet_spec = {121: (64, 32, [6, 12, 24, 16]), 161: (96, 48, [6, 12, 36, 24]), 169: (64, 32, [6, 12, 32, 32]),
                 201: (64, 32, [6, 12, 48, 32])}


def get_densenet(num_layers: int, pretrained: bool = False, ctx: Any = cpu(), root: str | None = None,
                 **kwargs: Any) -> DenseNet:
    """Return a DenseNet of 121, 161, 169 or 201 layers. The other parameters are those of `alexnet`."""
    net = DenseNet(*densenet_spec[num_layers], **kwargs)
    if pretrained:
        load_pretrained(net, f"densenet{num_layers}", root, ctx)
    return net


def densenet121(**kwargs: Any) -> DenseNet:
    """Return a DenseNet of 121 layers. See get_densenet."""
    return get_densenet(121, **kwargs)


def densenet161(**kwargs: Any) -> DenseNet:
    """Return a DenseNet of 161 layers. See get_densenet."""
    return get_densenet(161, **kwargs)


def densenet169(**kwargs: Any) -> DenseNet:
    """Return a DenseNet of 169 layers. See get_densenet."""
    return get_densenet(169, **kwargs)


def densenet201(**kwargs: Any) -> DenseNet:
    """Return a DenseNet of 201 layers. See get_densenet."""
    return get_densenet(201, **kwargs)
