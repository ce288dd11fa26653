"""mx.nd.image.random_*: images [h, w, c] flipped at random, or with randomly changed colours.

uint8 results are clipped to 0 … 255. Computed on the host with NumPy; no derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ....errors import ParameterError
from ...declare.host_op import HostOp
from ...declare.operator_property import RANDOM, RandomNumbers, Shapes
from ...declare.property_op import register_operator
from ...op import Specs
from .image import picture_axes

GRAY = np.array([0.299, 0.587, 0.114], np.float32)
#: Principal components of the colours of ImageNet, each times its standard deviation. Source: Krizhevsky, Sutskever, Hinton 2012.
LIGHT = np.array([[55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009],
                  [55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140],
                  [55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203]], np.float32)


def brightened(x: np.ndarray, by: float) -> np.ndarray:
    """Return x · by."""
    return x * np.float32(by)


def contrasted(x: np.ndarray, by: float) -> np.ndarray:
    """Scale the distance of x [h, w, c] from its mean gray by `by`."""
    gray = (x[..., :3] @ GRAY if x.shape[-1] > 1 else x).mean(dtype=np.float64)
    return x * np.float32(by) + np.float32((1 - by) * gray)


def saturated(x: np.ndarray, by: float) -> np.ndarray:
    """Scale the distance of each pixel from its own gray by `by`."""
    return x if x.shape[-1] == 1 else x * np.float32(by) + (x @ GRAY)[..., None] * np.float32(1 - by)


def hue_turned(x: np.ndarray, by: float) -> np.ndarray:
    """Rotate the hue by the fraction `by` of the colour circle, at the same lightness and saturation."""
    if x.shape[-1] == 1:
        return x
    v = x / 255
    high, low = v.max(-1), v.min(-1)
    spread, light = high - low, (high + low) / 2
    some = spread > 1e-7
    safe = np.where(some, spread, 1)
    saturation = np.where(some, safe / np.where(light < 0.5, high + low, 2 - high - low), 0)
    r, g, b = np.moveaxis(v, -1, 0)
    sixth = np.where(high == r, (g - b) / safe, np.where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    turned = (sixth / 6 + by) * 6
    top = np.where(light <= 0.5, light * (1 + saturation), light + saturation - light * saturation)
    bottom = 2 * light - top
    made = []
    for shift in (2, 0, -2):
        at = np.mod(turned + shift, 6)
        made.append(np.where(at < 1, bottom + (top - bottom) * at, np.where(at < 3, top, np.where(
            at < 4, bottom + (top - bottom) * (4 - at), bottom))))
    return np.where(some[..., None], np.stack(made, -1), light[..., None]) * 255


def lit(x: np.ndarray, amounts: ArrayLike) -> np.ndarray:
    """Add light along the principal components of the colours."""
    return x if x.shape[-1] == 1 else x + LIGHT @ np.asarray(amounts, np.float32)


class Changed(HostOp):
    """Base class: an image of the same shape and dtype as data."""

    numbers: ClassVar[int] = 1  # random numbers drawn per call; 0: compute is called instead of compute_random
    colours: ClassVar[bool] = True
    resources = (RANDOM,)
    gradient_arguments = ()

    def num_random(self, outs: Specs) -> int:
        return self.numbers

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is not None:
            picture_axes(self.name, len(x))
            if self.colours and x[-1] not in (-1, 1, 3):
                raise ParameterError(f"{self.name}: data {x} must have 1 or 3 channels, last.")
        return [x], [x], []

    def changed(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """Change x [..., h, w, c]. draw: `numbers` uniform numbers in [0, 1)."""
        raise NotImplementedError(self.name)

    def compute_random(self, random: RandomNumbers, *arrays: np.ndarray) -> np.ndarray:
        return self.settled(arrays[0], random.uniform((self.numbers,)))

    def settled(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        """Return `changed`, clipped to the range of x's dtype."""
        y = self.changed(x.astype(np.float32), draw)
        return np.clip(y, 0, 255) if x.dtype == np.uint8 else y


def _between(low: float, high: float, share: Any) -> float:
    return low + (high - low) * float(share)


class Scaled(Changed):
    """Base class: a change by a factor between min_factor and max_factor."""

    change: ClassVar[Callable[[np.ndarray, float], np.ndarray]]

    min_factor: float
    max_factor: float

    def validate(self) -> None:
        if not 0 <= self.min_factor <= self.max_factor:
            raise ParameterError(f"{self.name}: min_factor={self.min_factor} must be at least 0 and at most max_factor="
                                 f"{self.max_factor}.")

    def changed(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        return type(self).change(x, _between(self.min_factor, self.max_factor, draw[0]))


@register_operator("_image_random_brightness")
class RandomBrightness(Scaled):
    """data times a factor from min_factor to max_factor. data: [h, w, c]."""

    change = staticmethod(brightened)


@register_operator("_image_random_contrast")
class RandomContrast(Scaled):
    """data's distance from its mean gray, times a factor from min_factor to max_factor. data: [h, w, c]."""

    change = staticmethod(contrasted)


@register_operator("_image_random_saturation")
class RandomSaturation(Scaled):
    """Each element's distance from its gray, times a factor from min_factor to max_factor. data: [h, w, c].

    MXNet 1.9.1 uses black instead of gray, which changes the brightness. This operator keeps the brightness.
    """

    change = staticmethod(saturated)


@register_operator("_image_random_hue")
class RandomHue(Scaled):
    """Hue rotated by a fraction of the colour circle, from min_factor to max_factor. data: [h, w, c]."""

    change = staticmethod(hue_turned)


@register_operator("_image_random_color_jitter")
class RandomColorJitter(Changed):
    """Brightness, contrast and saturation changed by random factors within 1 ± their parameter, hue rotated within ± hue.

    The four changes are made in random order. data: [h, w, c].
    """

    numbers: ClassVar[int] = 8

    brightness: float
    contrast: float
    saturation: float
    hue: float

    def validate(self) -> None:
        if min(self.brightness, self.contrast, self.saturation, self.hue) < 0:
            raise ParameterError(f"{self.name}: brightness={self.brightness}, contrast={self.contrast}, saturation="
                                 f"{self.saturation}, hue={self.hue} must be at least 0.")

    def changed(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        steps = ((brightened, self.brightness, 1.0), (contrasted, self.contrast, 1.0), (saturated, self.saturation, 1.0),
                 (hue_turned, self.hue, 0.0))
        for i in np.argsort(draw[4:], kind="stable"):
            change, most, about = steps[i]
            if most > 0:
                x = change(x, _between(max(about - most, 0.0) if about else -most, about + most, draw[i]))
        return x


@register_operator("_image_adjust_lighting")
class AdjustLighting(Changed):
    """Light added along the principal components of the colours, alpha[i] of each. data: [h, w, c]; alpha: three numbers."""

    numbers: ClassVar[int] = 0

    alpha: tuple[float, ...]
    resources = ()

    def validate(self) -> None:
        if len(self.alpha) != 3:
            raise ParameterError(f"{self.name}: alpha={self.alpha} must be three numbers.")

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.settled(arrays[0], np.zeros(1))

    def changed(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        return lit(x, self.alpha)


@register_operator("_image_random_lighting")
class RandomLighting(Changed):
    """Random light along the principal components, normal with standard deviation alpha_std. data: [h, w, c]."""

    numbers: ClassVar[int] = 6

    alpha_std: float = 0.05

    def changed(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        radius = np.sqrt(-2 * np.log1p(-draw[:3].astype(np.float64)))
        return lit(x, self.alpha_std * radius * np.cos(2 * np.pi * draw[3:]))


class RandomFlip(Changed):
    """Base class: a flip with probability p."""

    axis: ClassVar[int]
    colours: ClassVar[bool] = False

    p: float = 0.5

    def changed(self, x: np.ndarray, draw: np.ndarray) -> np.ndarray:
        return np.flip(x, self.axis) if draw[0] < self.p else x


@register_operator("_image_random_flip_left_right")
class RandomFlipLeftRight(RandomFlip):
    """data [h, w, c] flipped left to right with probability p."""

    axis: ClassVar[int] = -2


@register_operator("_image_random_flip_top_bottom")
class RandomFlipTopBottom(RandomFlip):
    """data [h, w, c] flipped top to bottom with probability p."""

    axis: ClassVar[int] = -3
