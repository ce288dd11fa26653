"""VGG (arXiv:1409.1556)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....context import cpu
from ....errors import ParameterError
from ....train.initializer import Xavier
from ... import nn
from ...block import HybridBlock
from ..model_store import load_pretrained

__all__ = ["VGG", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn", "get_vgg"]


class VGG(HybridBlock):
    """VGG. Input: [batch, 3, 224, 224].

    layers:      number of convolutions before each pooling.
    filters:     their channels, as many numbers as layers.
    classes:     size of the output.
    batch_norm:  a BatchNorm after each convolution.
    """

    def __init__(self, layers: Sequence[int], filters: Sequence[int], classes: int = 1000, batch_norm: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if len(layers) != len(filters):
            raise ParameterError(f"VGG: {len(layers)} numbers of layers and {len(filters)} of filters. They must be as many.")
        with self.name_scope():
            self.features = self._make_features(layers, filters, batch_norm)
            for _ in range(2):
                self.features.add(nn.Dense(4096, activation="relu", weight_initializer="normal"), nn.Dropout(rate=0.5))
            self.output = nn.Dense(classes, weight_initializer="normal")

    def _make_features(self, layers: Sequence[int], filters: Sequence[int], batch_norm: bool) -> nn.HybridSequential:
        features = nn.HybridSequential(prefix="")
        for count, channels in zip(layers, filters):
            for _ in range(count):
                features.add(nn.Conv2D(channels, kernel_size=3, padding=1, weight_initializer=Xavier(
                    rnd_type="gaussian", factor_type="out", magnitude=2)))
                if batch_norm:
                    features.add(nn.BatchNorm())
                features.add(nn.Activation("relu"))
            features.add(nn.MaxPool2D(strides=2))
        return features

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


#: Number of layers -> layers, filters.
vgg_spec = {11: ([1, 1, 2, 2, 2], [64, 128, 256, 512, 512]), 13: ([2, 2, 2, 2, 2], [64, 128, 256, 512, 512]),
            16: ([2, 2, 3, 3, 3], [64, 128, 256, 512, 512]), 19: ([2, 2, 4, 4, 4], [64, 128, 256, 512, 512])}


def get_vgg(num_layers: int, pretrained: bool = False, ctx: Any = cpu(), root: str | None = None, **kwargs: Any) -> VGG:
    """Return a VGG of 11, 13, 16 or 19 layers. The other parameters are those of `alexnet`."""
    net = VGG(*vgg_spec[num_layers], **kwargs)
    if pretrained:
        load_pretrained(net, f"vgg{num_layers}{'_bn' if kwargs.get('batch_norm') else ''}", root, ctx)
    return net


def vgg11(**kwargs: Any) -> VGG:
    """Return a VGG of 11 layers. See get_vgg."""
    return get_vgg(11, **kwargs)


def vgg13(**kwargs: Any) -> VGG:
    """Return a VGG of 13 layers. See get_vgg."""
    return get_vgg(13, **kwargs)


def vgg16(**kwargs: Any) -> VGG:
    """Return a VGG of 16 layers. See get_vgg."""
    return get_vgg(16, **kwargs)


def vgg19(**kwargs: Any) -> VGG:
    """Return a VGG of 19 layers. See get_vgg."""
    return get_vgg(19, **kwargs)


def vgg11_bn(**kwargs: Any) -> VGG:
    """Return a VGG of 11 layers with BatchNorm. See get_vgg."""
    return get_vgg(11, **{**kwargs, "batch_norm": True})


def vgg13_bn(**kwargs: Any) -> VGG:
    """Return a VGG of 13 layers with BatchNorm. See get_vgg."""
    return get_vgg(13, **{**kwargs, "batch_norm": True})


def vgg16_bn(**kwargs: Any) -> VGG:
    """Return a VGG of 16 layers with BatchNorm. See get_vgg."""
    return get_vgg(16, **{**kwargs, "batch_norm": True})


def vgg19_bn(**kwargs: Any) -> VGG:
    """Return a VGG of 19 layers with BatchNorm. See get_vgg."""
    return get_vgg(19, **{**kwargs, "batch_norm": True})
