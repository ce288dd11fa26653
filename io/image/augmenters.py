"""Augmenters of mx.image: each transforms an image [height, width, 3]. CreateAugmenter returns the usual list of them.

They draw from Python's `random` (LightingAug: from NumPy's), as MXNet's do.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ...errors import ParameterError
from ...ndarray import NDArray, array
from ...show import Shown
from . import ops
from .record_augmenter import EIGENVALUES, EIGENVECTORS

IMAGENET_MEAN, IMAGENET_STD = np.array([123.68, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
_GREY = np.array([[[0.299, 0.587, 0.114]]], np.float32)
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])


class Dumpable(Shown):
    """Mixin: `dumps()` returns the class name and the constructor's keyword arguments as JSON.

    A subclass passes these arguments to this constructor, or is a dataclass of them.
    """

    def __init__(self, **kwargs: Any):
        self._kwargs = {k: _plain(v) for k, v in kwargs.items()}

    def __post_init__(self) -> None:
        own: Any = self
        Dumpable.__init__(self, **{f.metadata.get("name", f.name): getattr(self, f.name) for f in fields(own)})

    def _facts(self) -> Mapping[str, Any]:
        return self._kwargs

    def dumps(self) -> Any:
        """Return name and arguments as JSON; for a container of augmenters, [name, the dumps of each]."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def restore_order(self) -> None:
        """Undo the shuffling of earlier calls, so that the next image depends on the random numbers alone."""


class Augmenter(Dumpable):
    """Transforms an image: `augmenter(src)` returns another NDArray."""

    def __call__(self, src: NDArray) -> NDArray:
        raise NotImplementedError(f"{type(self).__name__}.__call__")


def _plain(value: Any) -> Any:
    if isinstance(value, NDArray):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


class SequentialAug(Augmenter):
    """Applies augmenters one after another."""

    def __init__(self, ts: Sequence[Augmenter]):
        super().__init__()
        self.ts, self._original_order = list(ts), list(ts)

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]

    def restore_order(self) -> None:
        self.ts = list(self._original_order)
        for t in self.ts:
            t.restore_order()

    def __call__(self, src: NDArray) -> NDArray:
        for t in self.ts:
            src = t(src)
        return src


class RandomOrderAug(SequentialAug):
    """Applies augmenters in a random order, shuffled from the previous one as in MXNet."""

    def __call__(self, src: NDArray) -> NDArray:
        random.shuffle(self.ts)
        return super().__call__(src)


@dataclass(eq=False, repr=False)
class ResizeAug(Augmenter):
    """Resizes the shorter edge to size."""

    size: int
    interp: int = 2

    def __call__(self, src: NDArray) -> NDArray:
        return ops.resize_short(src, self.size, self.interp)


@dataclass(eq=False, repr=False)
class _SizedAug(Augmenter):
    size: Sequence[int]
    interp: int = 2


class ForceResizeAug(_SizedAug):
    """Resizes both edges to size (width, height)."""

    def __call__(self, src: NDArray) -> NDArray:
        return ops.imresize(src, self.size[0], self.size[1], self.interp)


class RandomCropAug(_SizedAug):
    """`random_crop` to size (width, height)."""

    def __call__(self, src: NDArray) -> NDArray:
        return ops.random_crop(src, self.size, self.interp)[0]


class CenterCropAug(_SizedAug):
    """`center_crop` to size (width, height)."""

    def __call__(self, src: NDArray) -> NDArray:
        return ops.center_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """`random_size_crop` to size (width, height)."""

    def __init__(self, size: Sequence[int], area: float | Sequence[float], ratio: Sequence[float], interp: int = 2,
                 **kwargs: Any):
        area = kwargs.pop("min_area", area)
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: NDArray) -> NDArray:
        return ops.random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


@dataclass(eq=False, repr=False)
class HorizontalFlipAug(Augmenter):
    """Mirrors the image with probability p."""

    p: float

    def __call__(self, src: NDArray) -> NDArray:
        return src.flip(axis=1) if random.random() < self.p else src


@dataclass(eq=False, repr=False)
class CastAug(Augmenter):
    """Converts to another dtype."""

    typ: Any = field(default="float32", metadata={"name": "type"})

    def __call__(self, src: NDArray) -> NDArray:
        return src.astype(self.typ)


@dataclass(eq=False, repr=False)
class BrightnessJitterAug(Augmenter):
    """Multiplies by a random factor within 1 ± brightness."""

    brightness: float

    def __call__(self, src: NDArray) -> NDArray:
        return src * _factor(self.brightness)


@dataclass(eq=False, repr=False)
class ContrastJitterAug(Augmenter):
    """Moves pixels away from, or towards, the image's mean grey."""

    contrast: float

    def __call__(self, src: NDArray) -> NDArray:
        alpha = _factor(self.contrast)
        grey = src * array(_GREY)
        return src * alpha + grey.sum() * (3 * (1 - alpha) / grey.size)


@dataclass(eq=False, repr=False)
class SaturationJitterAug(Augmenter):
    """Moves pixels away from, or towards, their own grey."""

    saturation: float

    def __call__(self, src: NDArray) -> NDArray:
        alpha = _factor(self.saturation)
        return src * alpha + (src * array(_GREY)).sum(axis=2, keepdims=True) * (1 - alpha)


@dataclass(eq=False, repr=False)
class HueJitterAug(Augmenter):
    """Rotates colours in the YIQ plane by a random angle of at most hue half turns."""

    hue: float

    def __call__(self, src: NDArray) -> NDArray:
        angle = random.uniform(-self.hue, self.hue) * math.pi
        c, s = math.cos(angle), math.sin(angle)
        rotation = np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
        return _multiply_colours(src, (_FROM_YIQ @ rotation @ _TO_YIQ).T)


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation, without those that are 0, in a random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float):
        kinds = ((BrightnessJitterAug, brightness), (ContrastJitterAug, contrast), (SaturationJitterAug, saturation))
        super().__init__([kind(most) for kind, most in kinds if most > 0])


class LightingAug(Augmenter):
    """Adds the same random shift to every pixel, along the colours' principal components (Krizhevsky et al. 2012)."""

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any):
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, np.asarray(eigval), np.asarray(eigvec)

    def __call__(self, src: NDArray) -> NDArray:
        alpha = np.random.normal(0, self.alphastd, size=(3,))
        return src + array((self.eigvec * alpha) @ self.eigval)


class ColorNormalizeAug(Augmenter):
    """`color_normalize`; mean and std: 1 or 3 numbers, or None."""

    def __init__(self, mean: Any, std: Any):
        super().__init__(mean=None if mean is None else np.asarray(_plain(mean), np.float32),
                         std=None if std is None else np.asarray(_plain(std), np.float32))
        self.mean = None if mean is None else array(_plain(mean))
        self.std = None if std is None else array(_plain(std))

    def __call__(self, src: NDArray) -> NDArray:
        return ops.color_normalize(src, self.mean, self.std)


@dataclass(eq=False, repr=False)
class RandomGrayAug(Augmenter):
    """Makes the image grey with probability p."""

    p: float

    def __call__(self, src: NDArray) -> NDArray:
        if random.random() >= self.p:
            return src
        return _multiply_colours(src, np.repeat([[0.21], [0.72], [0.07]], 3, axis=1))


def _factor(most: float) -> float:
    return 1.0 + random.uniform(-most, most)


def _multiply_colours(src: NDArray, matrix: np.ndarray) -> NDArray:
    """Multiply every pixel, a row of colours, by matrix [3, 3]."""
    flat = src.reshape((-1, 3)).dot(array(matrix))
    return flat.reshape(src.shape)


def CreateAugmenter(data_shape: Sequence[int], resize: int = 0, rand_crop: bool = False, rand_resize: bool = False,
                    rand_mirror: bool = False, mean: Any = None, std: Any = None, brightness: float = 0, contrast: float = 0,
                    saturation: float = 0, hue: float = 0, pca_noise: float = 0, rand_gray: float = 0,
                    inter_method: int = 2) -> list[Augmenter]:
    """Return the augmenters for these parameters in MXNet's order. Their result is float32[height, width, channels].

    data_shape:  (channels, height, width).
    mean, std:   one number per channel, or True for ImageNet's.
    """
    size = (data_shape[2], data_shape[1])
    chain: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    if rand_resize:
        if not rand_crop:
            raise ParameterError("CreateAugmenter: rand_resize=True needs rand_crop=True.")
        chain.append(RandomSizedCropAug(size, 0.08, (3 / 4, 4 / 3), inter_method))
    else:
        chain.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        chain.append(HorizontalFlipAug(0.5))
    chain.append(CastAug())
    if brightness or contrast or saturation:
        chain.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        chain.append(HueJitterAug(hue))
    if pca_noise > 0:
        chain.append(LightingAug(pca_noise, EIGENVALUES, EIGENVECTORS))
    if rand_gray > 0:
        chain.append(RandomGrayAug(rand_gray))
    mean = IMAGENET_MEAN if mean is True else mean if mean is not False else None
    std = IMAGENET_STD if std is True else std if std is not False else None
    for name, value in (("mean", mean), ("std", std)):
        if value is not None and np.shape(_plain(value)) not in ((1,), (3,)):
            raise ParameterError(f"CreateAugmenter: {name} has shape {np.shape(_plain(value))}, not (1,) or (3,).")
    if mean is not None or std is not None:
        chain.append(ColorNormalizeAug(mean, std))
    return chain
