"""Detection augmenters of mx.image: each transforms an image and the objects in it. CreateDetAugmenter returns the usual list.

They draw from Python's `random`, as MXNet's do. The parameters of random crops and pads follow Liu et al. 2016 (SSD).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ParameterError
from ...ndarray import NDArray
from . import ops
from .augmenters import Augmenter, CreateAugmenter, Dumpable, ForceResizeAug, ResizeAug
from .det_record_augmenter import relative

Detected = tuple[NDArray, np.ndarray]  # an image, and its objects
Place = tuple[int, int, int, int]  # left, top, width, height, in pixels of the image


class DetAugmenter(Dumpable):
    """Transforms an image and its objects: `augmenter(src, label)` returns both.

    src:    [height, width, 3].
    label:  float32[n, 5 or more]: class, left, top, right, bottom as fractions of the image's size, and more.
    """

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        raise NotImplementedError(f"{type(self).__name__}.__call__")


class DetBorrowAug(DetAugmenter):
    """Applies an Augmenter that does not move objects: one of colours, or a resize of the whole image."""

    def __init__(self, augmenter: Augmenter):
        if not isinstance(augmenter, Augmenter):
            raise ParameterError(f"DetBorrowAug: augmenter is a {type(augmenter).__name__}, not an Augmenter.")
        super().__init__()
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def restore_order(self) -> None:
        self.augmenter.restore_order()

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """Applies one of aug_list, or with probability skip_prob none. An empty list means none."""

    def __init__(self, aug_list: Sequence[DetAugmenter] | DetAugmenter, skip_prob: float = 0):
        super().__init__()
        self.aug_list: list[DetAugmenter] = [aug_list] if isinstance(aug_list, DetAugmenter) else list(aug_list)
        self._original_order = list(self.aug_list)
        for augmenter in self.aug_list:
            if not isinstance(augmenter, DetAugmenter):
                raise ParameterError(f"DetRandomSelectAug: {type(augmenter).__name__} is not a DetAugmenter. Wrap an "
                                     f"Augmenter that does not move objects in DetBorrowAug.")
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [a.dumps() for a in self.aug_list]]

    def restore_order(self) -> None:
        self.aug_list = list(self._original_order)
        for augmenter in self.aug_list:
            augmenter.restore_order()

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        if random.random() < self.skip_prob:
            return src, label
        random.shuffle(self.aug_list)  # `choice` would draw other numbers than MXNet
        return self.aug_list[0](src, label)


@dataclass(eq=False, repr=False)
class DetHorizontalFlipAug(DetAugmenter):
    """Mirrors image and objects with probability p."""

    p: float

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        if random.random() >= self.p:
            return src, label
        label = label.copy()
        label[:, [1, 3]] = 1 - label[:, [3, 1]]
        return src.flip(axis=1), label


class _RandomPlaceAug(DetAugmenter):
    """Draws a place until it fits, at most max_attempts times."""

    aspect_ratio_range: Any
    area_range: Any
    max_attempts: int

    def __post_init__(self):
        for name in ("aspect_ratio_range", "area_range"):
            value = getattr(self, name)
            low, high = (value, value) if isinstance(value, (int, float)) else value
            if high <= 0 or not 0 <= low <= high or (low == 0 and name == "aspect_ratio_range"):
                raise ParameterError(f"{type(self).__name__}: {name}={value}. Give (min, max), both above 0.")
            setattr(self, name, (low, high))
        super().__post_init__()

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        for _ in range(self.max_attempts):
            result = self._attempt(src, label)
            if result is not None:
                return result
        return src, label

    def _attempt(self, src: NDArray, label: np.ndarray) -> Detected | None:
        """Draw a place; return image and objects there, or None if they do not fit."""
        raise NotImplementedError(f"{type(self).__name__}._attempt")

    def _draw_shape(self, height: int, width: int) -> tuple[float, float, float]:
        """Draw the aspect; return it and the limits of the area in pixels."""
        min_area, max_area = (fraction * height * width for fraction in self.area_range)
        return random.uniform(*self.aspect_ratio_range), min_area, max_area


@dataclass(eq=False, repr=False)
class DetRandomCropAug(_RandomPlaceAug):
    """Cuts out a random part of the image and keeps the objects there. After max_attempts failures nothing is changed.

    aspect_ratio_range:  (min, max) of width / height, or one number for both.
    area_range:          (min, max) as fractions of the image's area, or one number for both.
    min_object_covered:  every object that is partly inside is inside by more than this fraction.
    min_eject_coverage:  objects that are inside by at most this fraction are dropped.
    """

    min_object_covered: float = 0.1
    aspect_ratio_range: Any = (0.75, 1.33)
    area_range: Any = (0.05, 1.0)
    min_eject_coverage: float = 0.3
    max_attempts: int = 50

    def _attempt(self, src: NDArray, label: np.ndarray) -> Detected | None:
        height, width = src.shape[:2]
        ratio, min_area, max_area = self._draw_shape(height, width)
        highest = min(round(math.sqrt(max_area / ratio)), height, math.ceil((width + 0.5) / ratio) - 1)
        lowest = min(round(math.sqrt(min_area / ratio)), highest)
        h = random.randint(lowest, highest) if lowest < highest else highest
        area = h * round(h * ratio)
        h += (area < min_area) - (area > max_area)  # rounded towards the limits
        w = round(h * ratio)
        if not 1 <= h <= height or not 1 <= w <= width or not min_area <= w * h <= max_area:
            return None
        top = random.randint(0, height - h)
        place = random.randint(0, width - w), top, w, h
        objects = self._objects_in(place, label, height, width)
        return None if objects is None else (ops.fixed_crop(src, *place), objects)

    def _objects_in(self, place: Place, label: np.ndarray, height: int, width: int) -> np.ndarray | None:
        """Return the objects relative to this part of the image; None if one is covered too little, or none is left."""
        x, y, w, h = place
        corners, area = label[:, 1:5], _areas(label[:, 1:5])
        real = area * width * height > 2  # pixels; smaller objects are not checked
        inside = relative(corners, np.array([x / width, y / height, (x + w) / width, (y + h) / height])).clip(0, 1)
        share = _areas(inside) * (w * h / (width * height)) / np.where(area > 0, area, 1)
        touched = share[real & (share > 0)]
        stays = (share > self.min_eject_coverage) & (inside[:, 2] > inside[:, 0]) & (inside[:, 3] > inside[:, 1])
        if w * h < 2 or not len(touched) or touched.min() <= self.min_object_covered or not stays.any():
            return None
        kept = label[stays].copy()
        kept[:, 1:5] = inside[stays]
        return kept


@dataclass(eq=False, repr=False)
class DetRandomPadAug(_RandomPlaceAug):
    """Puts the image at a random place in a larger one filled with pad_val. After max_attempts failures nothing is changed.

    aspect_ratio_range:  (min, max) of the larger image's width / height, or one number for both.
    area_range:          (min, max) of its area, as multiples of the image's, or one number for both.
    pad_val:             a number, or one per channel.
    """

    aspect_ratio_range: Any = (0.75, 1.33)
    area_range: Any = (1.0, 3.0)
    max_attempts: int = 50
    pad_val: Any = (128, 128, 128)

    def __post_init__(self):
        self.pad_val = tuple(self.pad_val) if isinstance(self.pad_val, (list, tuple)) else (self.pad_val,) * 3
        super().__post_init__()
        if self.area_range[1] <= 1:
            raise ParameterError(f"DetRandomPadAug: area_range={self.area_range}: the maximum must be above 1.")

    def _attempt(self, src: NDArray, label: np.ndarray) -> Detected | None:
        height, width = src.shape[:2]
        ratio, min_area, max_area = self._draw_shape(height, width)
        highest = round(math.sqrt(max_area / ratio))
        lowest = min(max(round(math.sqrt(min_area / ratio)), height, int((width + 0.5) / ratio)), highest)
        h = random.randint(lowest, highest) if lowest < highest else highest
        w = round(h * ratio)
        if h - height < 2 or w - width < 2:
            return None
        y, x = random.randint(0, h - height), random.randint(0, w - width)
        padded = ops.copyMakeBorder(src, y, h - height - y, x, w - width - x, values=self.pad_val)
        label = label.copy()
        label[:, 1:5] = relative(label[:, 1:5], np.array([-x / width, -y / height, (w - x) / width, (h - y) / height]))
        return padded, label


def _areas(corners: np.ndarray) -> np.ndarray:
    """Return the areas of rectangles [n, (left, top, right, bottom)]."""
    return np.prod(np.maximum(corners[:, 2:] - corners[:, :2], 0), axis=1)


def CreateMultiRandCropAugmenter(min_object_covered: Any = 0.1, aspect_ratio_range: Any = (0.75, 1.33),
                                 area_range: Any = (0.05, 1.0), min_eject_coverage: Any = 0.3, max_attempts: Any = 50,
                                 skip_prob: float = 0) -> DetRandomSelectAug:
    """Return an augmenter that applies one of several DetRandomCropAugs. A parameter may be a list with a value for each.

    Raises ParameterError if two lists have different lengths.
    """
    parameters = {"min_object_covered": min_object_covered, "aspect_ratio_range": aspect_ratio_range, "area_range": area_range,
                  "min_eject_coverage": min_eject_coverage, "max_attempts": max_attempts}
    lists = {name: value if isinstance(value, list) else [value] for name, value in parameters.items()}
    count = max(map(len, lists.values()))
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise ParameterError(f"CreateMultiRandCropAugmenter: {name} has {len(values)} values, another parameter has "
                                 f"{count}. Give lists of equal length.")
    rows = zip(*(values * (count // len(values)) for values in lists.values()))
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in rows], skip_prob)


def CreateDetAugmenter(data_shape: Sequence[int], resize: int = 0, rand_crop: float = 0, rand_pad: float = 0,
                       rand_gray: float = 0, rand_mirror: bool = False, mean: Any = None, std: Any = None,
                       brightness: float = 0, contrast: float = 0, saturation: float = 0, pca_noise: float = 0,
                       hue: float = 0, inter_method: int = 2, min_object_covered: Any = 0.1,
                       aspect_ratio_range: Any = (0.75, 1.33), area_range: Any = (0.05, 3.0), min_eject_coverage: Any = 0.3,
                       max_attempts: Any = 50, pad_val: Any = (127, 127, 127)) -> list[DetAugmenter]:
    """Return the detection augmenters for these parameters in MXNet's order. Their result is float32[height, width, 3].

    data_shape:  (channels, height, width); the whole image is resized to it, not in proportion.
    rand_crop, rand_pad, rand_gray:  the probability of each.   rand_mirror: mirror half of the images.
    min_object_covered ... max_attempts:  CreateMultiRandCropAugmenter's.   The maximum of area_range applies to pads, too.
    Other parameters: CreateAugmenter's.
    """
    chain: list[DetAugmenter] = [DetBorrowAug(ResizeAug(resize, inter_method))] if resize > 0 else []
    if rand_crop > 0:
        chain.append(CreateMultiRandCropAugmenter(min_object_covered, aspect_ratio_range, area_range, min_eject_coverage,
                                                  max_attempts, 1 - rand_crop))
    if rand_mirror:
        chain.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        ratios = float(np.min(aspect_ratio_range)), float(np.max(aspect_ratio_range))  # over all crops
        pad = DetRandomPadAug(ratios, (1.0, float(np.max(area_range))), int(np.max(max_attempts)), pad_val)
        chain.append(DetRandomSelectAug([pad], 1 - rand_pad))
    chain.append(DetBorrowAug(ForceResizeAug((data_shape[2], data_shape[1]), inter_method)))
    colours = CreateAugmenter(data_shape, mean=mean, std=std, brightness=brightness, contrast=contrast, saturation=saturation,
                              hue=hue, pca_noise=pca_noise, rand_gray=rand_gray)
    return chain + [DetBorrowAug(augmenter) for augmenter in colours[1:]]  # without the crop to data_shape
