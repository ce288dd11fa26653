"""RecordAugmenter: augmentation of one image for ImageRecordIter, with MXNet's parameters and OpenCV's arithmetic.

The steps and their order are those of MXNet's default augmenter, so that without randomness the pixels are MXNet's, bit for
bit. Random choices use the numbers of the `draw` argument in a fixed order.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FileError, ParameterError
from .codec import opencv
from .ops import interpolation_by_size, shorter_edge_to

Draw = Callable[[], float]  # the next random number in [0, 1)
DRAWS = 80  # random numbers that one image takes at most; ten attempts at a crop take 50

EIGENVALUES = np.array([55.46, 4.794, 1.148])  # of ImageNet's colours (Krizhevsky et al. 2012), as in MXNet
EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
_BITS, _PARTS = 10, 5  # positions are computed in 1/1024 of a pixel, then truncated to 1/32
_MOST = 1 << 50  # in 1/1024 of a pixel; outside of any image


@dataclasses.dataclass(frozen=True)
class RecordAugmenter:
    """Transforms a decoded image to data_shape = (channels, height, width). The parameters are MXNet's."""

    data_shape: tuple[int, int, int]
    resize: int = -1
    rand_crop: bool = False
    random_resized_crop: bool = False
    max_rotate_angle: int = 0
    max_aspect_ratio: float = 0.0
    min_aspect_ratio: float | None = None
    max_shear_ratio: float = 0.0
    max_crop_size: int = -1
    min_crop_size: int = -1
    max_random_scale: float = 1.0
    min_random_scale: float = 1.0
    max_random_area: float = 1.0
    min_random_area: float = 1.0
    max_img_size: float = 1e10
    min_img_size: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    pca_noise: float = 0.0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    rotate: int = -1
    fill_value: int = 255
    inter_method: int = 1
    pad: int = 0

    def __post_init__(self):
        if self.inter_method not in (0, 1, 2, 3, 4, 9, 10):
            raise ParameterError(f"ImageRecordIter: inter_method={self.inter_method} is not one of 0 nearest, 1 bilinear, "
                                 f"2 cubic, 3 area, 4 Lanczos, 9 by size, 10 random.")
        for low, high in (("min_crop_size", "max_crop_size"), ("min_random_scale", "max_random_scale"),
                          ("min_random_area", "max_random_area"), ("min_img_size", "max_img_size")):
            if getattr(self, low) > getattr(self, high):
                raise ParameterError(f"ImageRecordIter: {low}={getattr(self, low)} is more than {high}={getattr(self, high)}.")
        if self.data_shape[0] != 3 and (self.random_h or self.random_s or self.random_l or self.brightness or self.contrast
                                        or self.saturation or self.pca_noise):
            raise ParameterError(f"ImageRecordIter: colours can be changed in images of 3 channels only; data_shape is "
                                 f"{self.data_shape}.")

    @property
    def is_random(self) -> bool:
        """True if it takes random numbers."""
        return (self.rand_crop or self.random_resized_crop or self._is_affine or self.inter_method == 10
                or self.max_crop_size != -1 or self._is_coloured)

    @functools.cached_property
    def _is_coloured(self) -> bool:
        return any((self.brightness, self.contrast, self.saturation, self.pca_noise, self.random_h, self.random_s, self.random_l))

    def __call__(self, pixels: np.ndarray, draw: Draw, skip_last_resize: bool = False) -> np.ndarray:
        """Transform uint8[height, width, channels] to uint8[data_shape[1], data_shape[2], channels].

        skip_last_resize:  return pixels of another size where only a bilinear resize is left, which the caller then does.
        """
        cv2 = opencv("ImageRecordIter")
        skip_resize = skip_last_resize and not self._is_coloured
        if self.resize > 0:
            height, width = shorter_edge_to(self.resize, *pixels.shape[:2])
            pixels = self._resized(cv2, pixels, width, height, draw)
        if self._is_affine:
            pixels = self._affine(cv2, pixels, draw)
        if self.pad > 0:
            pixels = cv2.copyMakeBorder(pixels, *[self.pad] * 4, cv2.BORDER_CONSTANT, value=[self.fill_value] * 4)
        if self.random_resized_crop and self._is_sized:
            pixels = self._sized_crop(cv2, pixels, draw, skip_resize)
        elif self.max_crop_size != -1 or self.min_crop_size != -1:
            pixels = self._square_crop(cv2, pixels, draw, skip_resize)
        else:
            pixels = self._crop(cv2, pixels, draw)
        if self.brightness > 0 or self.contrast > 0 or self.saturation > 0:
            pixels = self._shift_light(cv2, pixels, draw)
        if self.random_h or self.random_s or self.random_l:
            h, s, l = (int(between(draw, -most, most)) for most in (self.random_h, self.random_s, self.random_l))
            pixels = shift_hls(cv2, pixels, h, l, s)
        if self.pca_noise > 0:
            alphas = np.array([normal(draw) * self.pca_noise for _ in range(3)])
            pixels = np.clip(pixels + EIGENVECTORS @ (alphas * EIGENVALUES), 0, 255).astype(np.uint8)
        return pixels if pixels.ndim == 3 else pixels[:, :, None]

    def _method(self, old: tuple[int, int], new: tuple[int, int], draw: Draw) -> int:
        """Return OpenCV's interpolation for sizes (height, width). It has MXNet's numbers except 9 and 10."""
        if self.inter_method == 9:
            return interpolation_by_size(*old, *new)
        return int(draw() * 5) if self.inter_method == 10 else self.inter_method

    def _resized(self, cv2: Any, pixels: np.ndarray, width: int, height: int, draw: Draw, skip: bool = False) -> np.ndarray:
        method = self._method(pixels.shape[:2], (height, width), draw)
        if skip and method == cv2.INTER_LINEAR:
            return pixels
        out = np.empty((height, width, *pixels.shape[2:]), np.uint8)  # OpenCV would take the GIL to allocate it
        return cv2.resize(pixels, (width, height), out, interpolation=method)

    # ---- geometry ----
    @functools.cached_property
    def _is_affine(self) -> bool:
        aspect = not self.random_resized_crop and (self.min_aspect_ratio is not None or self.max_aspect_ratio != 0)
        return (self.max_rotate_angle > 0 or self.max_shear_ratio > 0 or self.rotate > 0 or aspect
                or self.max_random_scale != 1 or self.min_random_scale != 1 or self.max_img_size != 1e10
                or self.min_img_size != 0)

    @functools.cached_property
    def _is_sized(self) -> bool:
        """True if random_resized_crop may cut off anything; otherwise MXNet ignores it."""
        least = 1 - self.max_aspect_ratio if self.min_aspect_ratio is None else self.min_aspect_ratio
        most = 1 + self.max_aspect_ratio if self.min_aspect_ratio is None else self.max_aspect_ratio
        return (self.min_random_area, self.max_random_area, least, most) != (1, 1, 1, 1)

    def _aspect(self, draw: Draw) -> float:
        if self.min_aspect_ratio is not None:
            return between(draw, self.min_aspect_ratio, self.max_aspect_ratio)
        return 1 + between(draw, -self.max_aspect_ratio, self.max_aspect_ratio)

    def _affine(self, cv2: Any, pixels: np.ndarray, draw: Draw) -> np.ndarray:
        shear = between(draw, -self.max_shear_ratio, self.max_shear_ratio)
        angle = int(between(draw, -self.max_rotate_angle, self.max_rotate_angle + 1)) if self.max_rotate_angle > 0 else 0
        angle = self.rotate if self.rotate > 0 else angle
        a, b = math.cos(angle / 180 * math.pi), math.sin(angle / 180 * math.pi)
        scale = between(draw, self.min_random_scale, self.max_random_scale)
        ratio = 1.0 if self.random_resized_crop else self._aspect(draw)
        hs = 2 * scale / (1 + ratio)
        ws = ratio * hs
        h, w = pixels.shape[:2]
        size = np.array([max(self.min_img_size, min(self.max_img_size, scale * edge)) for edge in (w, h)], np.float32)
        new_w, new_h = size.astype(int).tolist()
        m = np.array([[hs * a - shear * b * ws, hs * b + shear * a * ws, 0], [-b * ws, a * ws, 0]], np.float32)
        m[:, 2] = (size - m[:, :2] @ np.array([w, h], np.float32)) / 2
        return warp_affine(cv2, pixels, m, new_w, new_h, self._method((h, w), (new_h, new_w), draw), self.fill_value)

    def _sized_crop(self, cv2: Any, pixels: np.ndarray, draw: Draw, skip_resize: bool) -> np.ndarray:
        """Cut out a part of random area and aspect, and resize it. After ten failures, an ordinary crop."""
        _, height, width = self.data_shape
        h, w = pixels.shape[:2]
        for _ in range(10):
            area = between(draw, self.min_random_area, self.max_random_area) * h * w
            ratio = self._aspect(draw)
            if draw() < 0.5:
                ratio = 1 / ratio
            crop_w, crop_h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < crop_w <= w and 0 < crop_h <= h:
                y, x = below(draw, h - crop_h + 1), below(draw, w - crop_w + 1)
                return self._resized(cv2, pixels[y:y + crop_h, x:x + crop_w], width, height, draw, skip_resize)
        return self._crop(cv2, pixels, draw)

    def _square_crop(self, cv2: Any, pixels: np.ndarray, draw: Draw, skip_resize: bool) -> np.ndarray:
        _, height, width = self.data_shape
        h, w = pixels.shape[:2]
        if min(h, w) < self.max_crop_size:
            raise FileError(f"the image of {w} x {h} pixels is smaller than max_crop_size={self.max_crop_size}. "
                            f"Give resize={self.max_crop_size} or more.")
        least = self.max_crop_size if self.min_crop_size == -1 else self.min_crop_size
        size = least + below(draw, self.max_crop_size - least + 1)
        y, x = self._corner(h - size, w - size, draw)
        return self._resized(cv2, pixels[y:y + size, x:x + size], width, height, draw, skip_resize)

    def _crop(self, cv2: Any, pixels: np.ndarray, draw: Draw) -> np.ndarray:
        """Cut out data_shape. A small image is enlarged in proportion, first to the height and then to the width, as in MXNet."""
        _, height, width = self.data_shape
        h, w = pixels.shape[:2]
        if h < height:
            pixels = self._resized(cv2, pixels, w * height // h, height, draw)
        h, w = pixels.shape[:2]
        if w < width:
            pixels = self._resized(cv2, pixels, width, h * width // w, draw)
        y, x = self._corner(pixels.shape[0] - height, pixels.shape[1] - width, draw)
        return pixels[y:y + height, x:x + width]

    def _corner(self, max_y: int, max_x: int, draw: Draw) -> tuple[int, int]:
        if self.rand_crop:
            return below(draw, max_y + 1), below(draw, max_x + 1)
        return max_y // 2, max_x // 2

    # ---- colours ----
    def _shift_light(self, cv2: Any, pixels: np.ndarray, draw: Draw) -> np.ndarray:
        """Change brightness, contrast and saturation, in a random order."""
        factors = [1 + between(draw, -most, most) for most in (self.brightness, self.contrast, self.saturation)]
        order = [0, 1, 2]
        for last in (2, 1):  # Fisher and Yates
            other = below(draw, last + 1)
            order[last], order[other] = order[other], order[last]
        for kind in order:
            factor = factors[kind]
            if factor == 1:
                continue
            if kind == 0:
                pixels = cv2.addWeighted(pixels, factor, pixels, 0, 0)
                continue
            grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
            if kind == 1:
                pixels = cv2.addWeighted(pixels, factor, pixels, 0, (1 - factor) * float(grey.mean()))
            else:
                pixels = cv2.addWeighted(pixels, factor, cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), 1 - factor, 0)
        return pixels


def shift_hls(cv2: Any, pixels: np.ndarray, h: int, l: int, s: int) -> np.ndarray:
    """Shift hue (0 to 180), lightness and saturation (0 to 255) of pixels, clipped to their ranges."""
    table = np.stack([np.clip(np.arange(256) + by, 0, limit) for by, limit in ((h, 180), (l, 255), (s, 255))], axis=1)
    hls = cv2.LUT(cv2.cvtColor(pixels, cv2.COLOR_RGB2HLS), table[None].astype(np.uint8))
    return cv2.cvtColor(hls, cv2.COLOR_HLS2RGB)


def between(draw: Draw, low: float, high: float) -> float:
    """Draw from [low, high). It takes a number even if low == high, so that later draws do not change."""
    return low + draw() * (high - low)


def below(draw: Draw, n: int) -> int:
    """Draw one of 0 .. n-1."""
    return int(draw() * n)


def normal(draw: Draw) -> float:
    """Draw from the standard normal distribution (Box and Muller)."""
    return math.sqrt(-2 * math.log(1 - draw())) * math.cos(2 * math.pi * draw())


def warp_affine(cv2: Any, pixels: np.ndarray, matrix: np.ndarray, width: int, height: int, method: int,
                fill: float) -> np.ndarray:
    """Transform pixels uint8[y, x, channels] to uint8[height, width, channels] by matrix [2, 3], as OpenCV 3 and so MXNet do.

    Positions are rounded to 1/32 of a pixel: OpenCV 5's exact positions would change pixels by up to 4 levels.
    method:  OpenCV's interpolation; area is bilinear.   fill: value of pixels from outside.
    """
    rounding = 1 << _BITS - 1 if method == cv2.INTER_NEAREST else 1 << _BITS - _PARTS - 1
    x, y = (_parts(b * np.arange(height) + c, a * np.arange(width), rounding)
            for a, b, c in cv2.invertAffineTransform(matrix.astype(np.float64)).tolist())
    integer = np.empty((height, width, 2), np.int16)
    for k, positions in enumerate((x, y)):
        np.right_shift(positions, _PARTS, out=integer[:, :, k], casting="unsafe")
        positions &= (1 << _PARTS) - 1
    y <<= _PARTS
    y |= x
    return cv2.remap(pixels, integer, None if method == cv2.INTER_NEAREST else y.astype(np.uint16),
                     cv2.INTER_LINEAR if method == cv2.INTER_AREA else method, borderMode=cv2.BORDER_CONSTANT,
                     borderValue=[fill] * 4)


def _parts(of_rows: np.ndarray, of_columns: np.ndarray, rounding: int) -> np.ndarray:
    """Return a coordinate of every pixel in 1/32 of a pixel, clipped to ±32,768 pixels."""
    rows, columns = (np.rint(p * (1 << _BITS)).clip(-_MOST, _MOST).astype(np.int64) for p in (of_rows, of_columns))
    rows += rounding
    kind = np.int32 if np.abs(rows).max() + np.abs(columns).max() < 1 << 31 else np.int64
    positions = rows.astype(kind)[:, None] + columns.astype(kind)
    positions.clip(-1 << 15 + _BITS, (1 << 15 + _BITS) - 1, out=positions)
    positions >>= _BITS - _PARTS
    return positions
