"""Transforms of images: blocks that are applied to a sample, or to a batch where they say so.

An image is [height, width, channels], uint8 or float32; after ToTensor it is float32[channels, height, width]. Sizes are (width,
height), or one number for both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .... import ndarray as nd
from ....errors import DTypeError, ParameterError
from ....io import image
from ....ndarray import NDArray
from ...block import Block, HybridBlock
from ...nn import HybridSequential, Sequential

Size = int | Sequence[int]


def _pair(size: Size) -> Sequence[int]:
    return (size, size) if isinstance(size, (int, float, np.generic)) else size


class Compose(Sequential):
    """Transforms applied one after the other. Neighbours that are HybridBlocks form one HybridSequential.

    That is not hybridized here, as it is in MXNet: for an image, operators are called faster than a graph.

    transforms:  a list of blocks.
    """

    def __init__(self, transforms: Sequence[Any]):
        super().__init__()
        hybrid: list[Any] = []
        for transform in (*transforms, None):
            if isinstance(transform, HybridBlock):
                hybrid.append(transform)
                continue
            if len(hybrid) == 1:
                self.add(hybrid[0])
            elif hybrid:
                together = HybridSequential()
                together.add(*hybrid)
                self.add(together)
            hybrid = []
            if transform is not None:
                self.add(transform)


class HybridCompose(HybridSequential):
    """HybridBlocks applied one after the other, hybridized. (Of MXNet 2.)"""

    def __init__(self, transforms: Sequence[HybridBlock]):
        super().__init__()
        for transform in transforms:
            if not isinstance(transform, HybridBlock):
                raise DTypeError(f"HybridCompose: {type(transform).__name__} is not a HybridBlock. Use Compose.")
            self.add(transform)
        self.hybridize()


class Cast(HybridBlock):
    """Converts to dtype. Any shape."""

    def __init__(self, dtype: DTypeLike = "float32"):
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(x, self._dtype)


class ToTensor(HybridBlock):
    """[height, width, channels] of 0 … 255 to float32[channels, height, width] of 0 … 1; also with a batch axis in front."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - mean) / std of a tensor [channels, height, width] or a batch; mean, std: one number, or one per channel."""

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0):
        super().__init__()
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.normalize(x, self._mean, self._std)


class Rotate(Block):
    """Rotates a float32 tensor [channels, height, width], or a batch, by an angle in degrees. See mx.image.imrotate."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False):
        super().__init__()
        self._args = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: NDArray) -> NDArray:
        return image.imrotate(x, *self._args)


class RandomRotation(Block):
    """Rotates like Rotate, by a random angle within angle_limits, with probability rotate_with_proba.

    Raises ParameterError unless the limits are in order and the probability is in 0 … 1.
    """

    def __init__(self, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False,
                 rotate_with_proba: float = 1.0):
        super().__init__()
        lower, upper = angle_limits
        if lower >= upper:
            raise ParameterError(f"RandomRotation: angle_limits={angle_limits} must be (smaller, larger).")
        if not 0 <= rotate_with_proba <= 1:
            raise ParameterError(f"RandomRotation: rotate_with_proba={rotate_with_proba} must be in 0 … 1.")
        self._args = angle_limits, zoom_in, zoom_out
        self._rotate_with_proba = rotate_with_proba

    def forward(self, x: NDArray) -> NDArray:
        return x if np.random.random() > self._rotate_with_proba else image.random_rotate(x, *self._args)


class RandomResizedCrop(Block):
    """Cuts out a part of random area and aspect, and resizes it to size.

    scale:          (min, max) of its area, as fractions of the image's.
    ratio:          (min, max) of its width / height.
    interpolation:  as in mx.image.imresize.
    """

    def __init__(self, size: Size, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3 / 4, 4 / 3),
                 interpolation: int = 1):
        super().__init__()
        self._args = _pair(size), scale, ratio, interpolation

    def forward(self, x: NDArray) -> NDArray:
        return image.random_size_crop(x, *self._args)[0]


def _resized(F: Any, x: Any, size: Size, keep_ratio: bool, interpolation: int | None) -> Any:
    """Return an image or a batch resized by the operator, or by OpenCV where only that has the interpolation."""
    if interpolation in (None, 0, 1) or F is not nd:
        return F.image.resize(x, size, keep_ratio, 1 if interpolation is None else interpolation)
    if x.ndim == 4:
        return nd.stack(*(_resized(F, one, size, keep_ratio, interpolation) for one in x))
    width, height = size if isinstance(size, Sequence) else (size, size)
    if keep_ratio and not isinstance(size, Sequence):
        return image.resize_short(x, size, interpolation)
    return image.imresize(x, width, height, interpolation)


class CropResize(HybridBlock):
    """Cuts out width x height pixels at (x, y), and resizes them to size if it is given. Also of a batch.

    interpolation:  0 nearest, 1 or None bilinear; others of mx.image.imresize unless hybridized.
    """

    def __init__(self, x: int, y: int, width: int, height: int, size: Size | None = None, interpolation: int | None = None):
        super().__init__()
        self._x, self._y, self._width, self._height = x, y, width, height
        self._size, self._interpolation = size, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = F.image.crop(x, self._x, self._y, self._width, self._height)
        return _resized(F, out, self._size, False, self._interpolation) if self._size else out


class CenterCrop(Block):
    """Cuts size out of the centre. Where the image is smaller, its largest part of that aspect is resized."""

    def __init__(self, size: Size, interpolation: int = 1):
        super().__init__()
        self._args = _pair(size), interpolation

    def forward(self, x: NDArray) -> NDArray:
        return image.center_crop(x, *self._args)[0]


class RandomCrop(Block):
    """Cuts size out of a random place. (Of MXNet 2.)

    pad:  pixels of pad_value added to each side first; or two numbers, to top and bottom, and to left and right.
    """

    def __init__(self, size: Size, pad: Size | None = None, pad_value: float = 0, interpolation: int = 1):
        super().__init__()
        self._args = _pair(size), interpolation
        self._pad, self._pad_value = None if pad is None else _pair(pad), pad_value

    def forward(self, x: NDArray) -> NDArray:
        if self._pad is not None:
            high, wide = self._pad
            x = image.copyMakeBorder(x, high, high, wide, wide, values=[self._pad_value] * x.shape[2])
        return image.random_crop(x, *self._args)[0]


class Resize(HybridBlock):
    """Resizes to size, also a batch.

    keep_ratio:     with one number as size, resize the shorter edge to it and keep the aspect.
    interpolation:  0 nearest, 1 bilinear; others of mx.image.imresize unless hybridized.
    """

    def __init__(self, size: Size, keep_ratio: bool = False, interpolation: int = 1):
        super().__init__()
        self._keep, self._size, self._interpolation = keep_ratio, size, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return _resized(F, x, self._size, self._keep, self._interpolation)


class RandomFlipLeftRight(HybridBlock):
    """Mirrors the image left to right with probability 0.5."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_flip_left_right(x)


class RandomFlipTopBottom(HybridBlock):
    """Mirrors the image top to bottom with probability 0.5."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_flip_top_bottom(x)


class _RandomFactor(HybridBlock):
    """Changes an image by a random factor from max(0, 1 - most) to 1 + most."""

    def __init__(self, most: float):
        super().__init__()
        self._args = max(0, 1 - most), 1 + most


class RandomBrightness(_RandomFactor):
    """Multiplies by a random factor within 1 ± brightness."""

    def __init__(self, brightness: float):
        super().__init__(brightness)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_brightness(x, *self._args)


class RandomContrast(_RandomFactor):
    """Scales the distance from the mean gray of the image by a random factor within 1 ± contrast."""

    def __init__(self, contrast: float):
        super().__init__(contrast)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_contrast(x, *self._args)


class RandomSaturation(_RandomFactor):
    """Scales the distance of each pixel from its gray by a random factor within 1 ± saturation."""

    def __init__(self, saturation: float):
        super().__init__(saturation)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_saturation(x, *self._args)


class RandomHue(_RandomFactor):
    """Rotates the hues by a random fraction of the colour circle, within 1 ± hue."""

    def __init__(self, hue: float):
        super().__init__(hue)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_hue(x, *self._args)


class RandomColorJitter(HybridBlock):
    """Changes brightness, contrast, saturation and hue at random, in a random order."""

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0):
        super().__init__()
        self._args = brightness, contrast, saturation, hue

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_color_jitter(x, *self._args)


class RandomLighting(HybridBlock):
    """Adds light of random strength along the principal components of colours (Krizhevsky et al. 2012).

    alpha:  the standard deviation of the strength.
    """

    def __init__(self, alpha: float):
        super().__init__()
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_lighting(x, self._alpha)


class RandomGray(Block):
    """Makes an image of three channels gray with probability p. (Of MXNet 2.)"""

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p = p
        self._gray = image.RandomGrayAug(1.0)

    def forward(self, x: NDArray) -> NDArray:
        return x if random.random() >= self.p else self._gray(x.astype("float32")).astype(x.dtype)


class RandomApply(Sequential):
    """Applies `transforms`, a block, with probability p."""

    def __init__(self, transforms: Any, p: float = 0.5):
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, x: Any) -> Any:
        return x if self.p < random.random() else self.transforms(x)
