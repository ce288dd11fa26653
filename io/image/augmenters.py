"""Augmenters of mx.image: each changes an image [height, width, 3]; CreateAugmenter makes the usual list of them.

They draw from Python's `random` (lighting: NumPy's), as MXNet's do.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ParameterError
from ...ndarray import NDArray, array
from . import ops

_GREY = np.array([[[0.299, 0.587, 0.114]]], np.float32)
_EIGENVALUES = np.array([55.46, 4.794, 1.148])
_EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])


class Dumpable:
    """What tells its name and its parameters, which are this constructor's keyword arguments."""

    def __init__(self, **kwargs: Any):
        self._kwargs = {k: _plain(v) for k, v in kwargs.items()}

    def dumps(self) -> Any:
        """Its name and parameters as JSON; of one that holds others, the pair of its name and what they tell."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def restore_order(self) -> None:
        """Forget what earlier images left behind, so that the next one's change depends on the random numbers alone."""


class Augmenter(Dumpable):
    """Changes an image: `augmenter(src)` gives another NDArray."""

    def __call__(self, src: NDArray) -> NDArray:
        raise NotImplementedError(f"{type(self).__name__}.__call__")


def _plain(value: Any) -> Any:
    if isinstance(value, NDArray):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


class SequentialAug(Augmenter):
    """One after another."""

    def __init__(self, ts: Sequence[Augmenter]):
        super().__init__()
        self.ts, self._given = list(ts), list(ts)

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]

    def restore_order(self) -> None:
        self.ts = list(self._given)
        for t in self.ts:
            t.restore_order()

    def __call__(self, src: NDArray) -> NDArray:
        for t in self.ts:
            src = t(src)
        return src


class RandomOrderAug(SequentialAug):
    """All of them, in a new order each time, made of the last one as MXNet does."""

    def __call__(self, src: NDArray) -> NDArray:
        random.shuffle(self.ts)
        return super().__call__(src)


class ResizeAug(Augmenter):
    """Shorter edge to size."""

    def __init__(self, size: int, interp: int = 2):
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return ops.resize_short(src, self.size, self.interp)


class _SizedAug(Augmenter):
    """To size (width, height)."""

    def __init__(self, size: Sequence[int], interp: int = 2, **kwargs: Any):
        super().__init__(size=size, **kwargs, interp=interp)
        self.size, self.interp = size, interp


class ForceResizeAug(_SizedAug):
    """Both edges to size (width, height)."""

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


class RandomSizedCropAug(_SizedAug):
    """`random_size_crop` to size (width, height)."""

    def __init__(self, size: Sequence[int], area: float | Sequence[float], ratio: Sequence[float], interp: int = 2,
                 **kwargs: Any):
        area = kwargs.pop("min_area", area)
        super().__init__(size, interp, area=area, ratio=ratio)
        self.area, self.ratio = area, ratio

    def __call__(self, src: NDArray) -> NDArray:
        return ops.random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Mirrored, with probability p."""

    def __init__(self, p: float):
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return src.flip(axis=1) if random.random() < self.p else src


class CastAug(Augmenter):
    """Another dtype."""

    def __init__(self, typ: Any = "float32"):
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        return src.astype(self.typ)


class BrightnessJitterAug(Augmenter):
    """Times 1 ± at most brightness."""

    def __init__(self, brightness: float):
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        return src * _factor(self.brightness)


class ContrastJitterAug(Augmenter):
    """Away from, or towards, the image's mean grey."""

    def __init__(self, contrast: float):
        super().__init__(contrast=contrast)
        self.contrast = contrast

    def __call__(self, src: NDArray) -> NDArray:
        alpha = _factor(self.contrast)
        grey = src * array(_GREY)
        return src * alpha + grey.sum() * (3 * (1 - alpha) / grey.size)


class SaturationJitterAug(Augmenter):
    """Away from, or towards, each pixel's grey."""

    def __init__(self, saturation: float):
        super().__init__(saturation=saturation)
        self.saturation = saturation

    def __call__(self, src: NDArray) -> NDArray:
        alpha = _factor(self.saturation)
        return src * alpha + (src * array(_GREY)).sum(axis=2, keepdims=True) * (1 - alpha)


class HueJitterAug(Augmenter):
    """Colours turned by at most hue half turns in the YIQ plane."""

    def __init__(self, hue: float):
        super().__init__(hue=hue)
        self.hue = hue

    def __call__(self, src: NDArray) -> NDArray:
        angle = random.uniform(-self.hue, self.hue) * math.pi
        c, s = math.cos(angle), math.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
        return _mix(src, (_FROM_YIQ @ turn @ _TO_YIQ).T)


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation, those that are not 0, in a random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float):
        kinds = ((BrightnessJitterAug, brightness), (ContrastJitterAug, contrast), (SaturationJitterAug, saturation))
        super().__init__([kind(most) for kind, most in kinds if most > 0])


class LightingAug(Augmenter):
    """The same random shift for every pixel, along the colours' principal components (Krizhevsky et al. 2012)."""

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


class RandomGrayAug(Augmenter):
    """Grey, with probability p."""

    def __init__(self, p: float):
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return _mix(src, np.repeat([[0.21], [0.72], [0.07]], 3, axis=1)) if random.random() < self.p else src


def _factor(most: float) -> float:
    return 1.0 + random.uniform(-most, most)


def _mix(src: NDArray, matrix: np.ndarray) -> NDArray:
    """Every pixel, a row of colours, times matrix [3, 3]."""
    flat = src.reshape((-1, 3)).dot(array(matrix))
    return flat.reshape(src.shape)


def CreateAugmenter(data_shape: Sequence[int], resize: int = 0, rand_crop: bool = False, rand_resize: bool = False,
                    rand_mirror: bool = False, mean: Any = None, std: Any = None, brightness: float = 0, contrast: float = 0,
                    saturation: float = 0, hue: float = 0, pca_noise: float = 0, rand_gray: float = 0,
                    inter_method: int = 2) -> list[Augmenter]:
    """The augmenters that these parameters ask for, in MXNet's order: an image in, float32 data_shape (less axes) out.

    data_shape:  (channels, height, width).
    mean, std:   per channel; True: ImageNet's.
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
        chain.append(LightingAug(pca_noise, _EIGENVALUES, _EIGENVECTORS))
    if rand_gray > 0:
        chain.append(RandomGrayAug(rand_gray))
    mean = np.array([123.68, 116.28, 103.53]) if mean is True else mean if mean is not False else None
    std = np.array([58.395, 57.12, 57.375]) if std is True else std if std is not False else None
    for what, value in (("mean", mean), ("std", std)):
        if value is not None and np.shape(_plain(value)) not in ((1,), (3,)):
            raise ParameterError(f"CreateAugmenter: {what} has shape {np.shape(_plain(value))}, not (1,) or (3,).")
    if mean is not None or std is not None:
        chain.append(ColorNormalizeAug(mean, std))
    return chain
