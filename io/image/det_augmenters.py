"""Detection's augmenters of mx.image: each changes an image and the objects in it; CreateDetAugmenter makes the usual list.

They draw from Python's `random`, as MXNet's do. The parameters of random crops and pads follow Liu et al. 2016 (SSD).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
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
    """Changes an image and its objects: `augmenter(src, label)` gives both anew.

    src:    [height, width, 3].
    label:  float32[n, 5 or more]: class, left, top, right, bottom as shares of the image's size, and more.
    """

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        raise NotImplementedError(f"{type(self).__name__}.__call__")


class DetBorrowAug(DetAugmenter):
    """An Augmenter that leaves the objects where they are: of colours, or a resize of the whole image."""

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
    """One of aug_list, or, with probability skip_prob, none; an empty list is none, too."""

    def __init__(self, aug_list: Sequence[DetAugmenter] | DetAugmenter, skip_prob: float = 0):
        super().__init__()
        self.aug_list: list[DetAugmenter] = [aug_list] if isinstance(aug_list, DetAugmenter) else list(aug_list)
        self._given = list(self.aug_list)
        for augmenter in self.aug_list:
            if not isinstance(augmenter, DetAugmenter):
                raise ParameterError(f"DetRandomSelectAug: {type(augmenter).__name__} is no DetAugmenter. DetBorrowAug makes "
                                     f"one of an Augmenter that leaves the objects where they are.")
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [a.dumps() for a in self.aug_list]]

    def restore_order(self) -> None:
        self.aug_list = list(self._given)
        for augmenter in self.aug_list:
            augmenter.restore_order()

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        if random.random() < self.skip_prob:
            return src, label
        random.shuffle(self.aug_list)  # and not `choice`: the numbers drawn are MXNet's
        return self.aug_list[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Image and objects mirrored, with probability p."""

    def __init__(self, p: float):
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        if random.random() >= self.p:
            return src, label
        label = label.copy()
        label[:, [1, 3]] = 1 - label[:, [3, 1]]
        return src.flip(axis=1), label


class DetRandomCropAug(DetAugmenter):
    """A random part of the image, and what is left of the objects there; after max_attempts misses, all as it was.

    aspect_ratio_range:  (least, most) of width / height; one number is both.
    area_range:          (least, most) as shares of the image's area; one number is both.
    min_object_covered:  of every object that is in the part at all, more than this share is.
    min_eject_coverage:  objects of which no more than this share is in the part are left out.
    """

    def __init__(self, min_object_covered: float = 0.1, aspect_ratio_range: Any = (0.75, 1.33), area_range: Any = (0.05, 1.0),
                 min_eject_coverage: float = 0.3, max_attempts: int = 50):
        self.aspect_ratio_range, self.area_range = (_range("DetRandomCropAug", name, value) for name, value in
                                                    (("aspect_ratio_range", aspect_ratio_range), ("area_range", area_range)))
        super().__init__(min_object_covered=min_object_covered, aspect_ratio_range=self.aspect_ratio_range,
                         area_range=self.area_range, min_eject_coverage=min_eject_coverage, max_attempts=max_attempts)
        self.min_object_covered, self.min_eject_coverage = min_object_covered, min_eject_coverage
        self.max_attempts = max_attempts

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        height, width = src.shape[:2]
        for _ in range(self.max_attempts):
            place = self._place(height, width)
            kept = None if place is None else self._objects_in(place, label, height, width)
            if place is not None and kept is not None:
                return ops.fixed_crop(src, *place), kept
        return src, label

    def _place(self, height: int, width: int) -> Place | None:
        """A random part of such an image, or None if what was drawn does not fit."""
        ratio = random.uniform(*self.aspect_ratio_range)
        least, most = (share * height * width for share in self.area_range)
        highest = min(round(math.sqrt(most / ratio)), height, math.ceil((width + 0.5) / ratio) - 1)
        lowest = min(round(math.sqrt(least / ratio)), highest)
        h = random.randint(lowest, highest) if lowest < highest else highest
        area = h * round(h * ratio)
        h += (area < least) - (area > most)  # a rounding away from the limits
        w = round(h * ratio)
        if not 1 <= h <= height or not 1 <= w <= width or not least <= w * h <= most:
            return None
        top = random.randint(0, height - h)
        return random.randint(0, width - w), top, w, h

    def _objects_in(self, place: Place, label: np.ndarray, height: int, width: int) -> np.ndarray | None:
        """The objects as shares of that part of the image; None if too little of one is in it, or none is left."""
        x, y, w, h = place
        corners, area = label[:, 1:5], _areas(label[:, 1:5])
        real = area * width * height > 2  # pixels: a smaller object says nothing
        inside = relative(corners, np.array([x / width, y / height, (x + w) / width, (y + h) / height])).clip(0, 1)
        share = _areas(inside) * (w * h / (width * height)) / np.where(area > 0, area, 1)
        touched = share[real & (share > 0)]
        stays = (share > self.min_eject_coverage) & (inside[:, 2] > inside[:, 0]) & (inside[:, 3] > inside[:, 1])
        if w * h < 2 or not len(touched) or touched.min() <= self.min_object_covered or not stays.any():
            return None
        kept = label[stays].copy()
        kept[:, 1:5] = inside[stays]
        return kept


class DetRandomPadAug(DetAugmenter):
    """The image somewhere in a larger one, filled with pad_val; after max_attempts misses, all as it was.

    aspect_ratio_range:  (least, most) of the larger one's width / height; one number is both.
    area_range:          (least, most) of its area, as multiples of the image's; one number is both.
    pad_val:             a number, or one per channel.
    """

    def __init__(self, aspect_ratio_range: Any = (0.75, 1.33), area_range: Any = (1.0, 3.0), max_attempts: int = 50,
                 pad_val: Any = (128, 128, 128)):
        self.pad_val = tuple(pad_val) if isinstance(pad_val, (list, tuple)) else (pad_val,) * 3
        self.aspect_ratio_range, self.area_range = (_range("DetRandomPadAug", name, value) for name, value in
                                                    (("aspect_ratio_range", aspect_ratio_range), ("area_range", area_range)))
        if self.area_range[1] <= 1:
            raise ParameterError(f"DetRandomPadAug: area_range={self.area_range}: the most must be above 1, for a larger image.")
        super().__init__(aspect_ratio_range=self.aspect_ratio_range, area_range=self.area_range, max_attempts=max_attempts,
                         pad_val=self.pad_val)
        self.max_attempts = max_attempts

    def __call__(self, src: NDArray, label: np.ndarray) -> Detected:
        height, width = src.shape[:2]
        for _ in range(self.max_attempts):
            place = self._place(height, width)
            if place is not None:
                x, y, w, h = place
                padded = ops.copyMakeBorder(src, y, h - height - y, x, w - width - x, values=self.pad_val)
                around = np.array([-x / width, -y / height, (w - x) / width, (h - y) / height])
                label = label.copy()
                label[:, 1:5] = relative(label[:, 1:5], around)
                return padded, label
        return src, label

    def _place(self, height: int, width: int) -> Place | None:
        """Where the image stands in the larger one, and the larger one's width and height; None if it does not fit."""
        ratio = random.uniform(*self.aspect_ratio_range)
        least, most = (share * height * width for share in self.area_range)
        highest = round(math.sqrt(most / ratio))
        lowest = min(max(round(math.sqrt(least / ratio)), height, int((width + 0.5) / ratio)), highest)
        h = random.randint(lowest, highest) if lowest < highest else highest
        w = round(h * ratio)
        if h - height < 2 or w - width < 2:
            return None
        top = random.randint(0, h - height)
        return random.randint(0, w - width), top, w, h


def _areas(corners: np.ndarray) -> np.ndarray:
    """The areas of rectangles [n, left, top, right, bottom]."""
    return np.prod(np.maximum(corners[:, 2:] - corners[:, :2], 0), axis=1)


def _range(owner: str, name: str, value: Any) -> tuple[float, float]:
    low, high = (value, value) if isinstance(value, (int, float)) else value
    if high <= 0 or not 0 <= low <= high or (low == 0 and name == "aspect_ratio_range"):
        raise ParameterError(f"{owner}: {name}={value}: two numbers are needed, (least, most), above 0.")
    return low, high


def CreateMultiRandCropAugmenter(min_object_covered: Any = 0.1, aspect_ratio_range: Any = (0.75, 1.33),
                                 area_range: Any = (0.05, 1.0), min_eject_coverage: Any = 0.3, max_attempts: Any = 50,
                                 skip_prob: float = 0) -> DetRandomSelectAug:
    """One of several DetRandomCropAugs at random: a parameter that is a list gives each of them its own value.

    Raises ParameterError if two lists have different lengths.
    """
    given = {"min_object_covered": min_object_covered, "aspect_ratio_range": aspect_ratio_range, "area_range": area_range,
             "min_eject_coverage": min_eject_coverage, "max_attempts": max_attempts}
    lists = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    count = max(map(len, lists.values()))
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise ParameterError(f"CreateMultiRandCropAugmenter: {name} is a list of {len(values)}, another parameter's has "
                                 f"{count}. Give lists of one length.")
    rows = zip(*(values * (count // len(values)) for values in lists.values()))
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in rows], skip_prob)


def CreateDetAugmenter(data_shape: Sequence[int], resize: int = 0, rand_crop: float = 0, rand_pad: float = 0,
                       rand_gray: float = 0, rand_mirror: bool = False, mean: Any = None, std: Any = None,
                       brightness: float = 0, contrast: float = 0, saturation: float = 0, pca_noise: float = 0,
                       hue: float = 0, inter_method: int = 2, min_object_covered: Any = 0.1,
                       aspect_ratio_range: Any = (0.75, 1.33), area_range: Any = (0.05, 3.0), min_eject_coverage: Any = 0.3,
                       max_attempts: Any = 50, pad_val: Any = (127, 127, 127)) -> list[DetAugmenter]:
    """Detection's augmenters that these parameters ask for, in MXNet's order: float32 [height, width, 3] out.

    data_shape:  (channels, height, width); the image is resized to it whole, not in proportion.
    rand_crop, rand_pad, rand_gray:  the probability of each.   rand_mirror: half of the images.
    min_object_covered ... max_attempts:  CreateMultiRandCropAugmenter's.   area_range: its most is rand_pad's, too.
    The others are CreateAugmenter's.
    """
    chain: list[DetAugmenter] = [DetBorrowAug(ResizeAug(resize, inter_method))] if resize > 0 else []
    if rand_crop > 0:
        chain.append(CreateMultiRandCropAugmenter(min_object_covered, aspect_ratio_range, area_range, min_eject_coverage,
                                                  max_attempts, 1 - rand_crop))
    if rand_mirror:
        chain.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        ratios = float(np.min(aspect_ratio_range)), float(np.max(aspect_ratio_range))  # of all that the crops were given
        pad = DetRandomPadAug(ratios, (1.0, float(np.max(area_range))), int(np.max(max_attempts)), pad_val)
        chain.append(DetRandomSelectAug([pad], 1 - rand_pad))
    chain.append(DetBorrowAug(ForceResizeAug((data_shape[2], data_shape[1]), inter_method)))
    colours = CreateAugmenter(data_shape, mean=mean, std=std, brightness=brightness, contrast=contrast, saturation=saturation,
                              hue=hue, pca_noise=pca_noise, rand_gray=rand_gray)
    return chain + [DetBorrowAug(augmenter) for augmenter in colours[1:]]  # the first one is the crop to data_shape
