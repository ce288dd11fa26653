"""DetRecordAugmenter: augmentation of one image and its objects for ImageDetRecordIter, with MXNet's parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FileError, ParameterError, check_choice
from .codec import opencv
from .ops import fitting, shorter_edge_to
from .record_augmenter import Draw, below, between, shift_hls


@dataclasses.dataclass(frozen=True)
class DetRecordAugmenter:
    """Transforms an image and its objects, float32[n, 5 or more]: class, left, top, right, bottom as fractions of its size, more.

    A random crop takes one of num_crop_sampler samplers, and tries until at least one object meets its limits. Parameters
    of samplers are one number, or one for each sampler.
    overlaps: intersection over union of crop and object.   sample_coverages: over the crop.   object_coverages: over the object.
    """

    data_shape: tuple[int, int, int]
    resize: int = -1
    rand_crop_prob: float = 0.0
    min_crop_scales: Sequence[float] = (0.0,)
    max_crop_scales: Sequence[float] = (1.0,)
    min_crop_aspect_ratios: Sequence[float] = (1.0,)
    max_crop_aspect_ratios: Sequence[float] = (1.0,)
    min_crop_overlaps: Sequence[float] = (0.0,)
    max_crop_overlaps: Sequence[float] = (1.0,)
    min_crop_sample_coverages: Sequence[float] = (0.0,)
    max_crop_sample_coverages: Sequence[float] = (1.0,)
    min_crop_object_coverages: Sequence[float] = (0.0,)
    max_crop_object_coverages: Sequence[float] = (1.0,)
    num_crop_sampler: int = 1
    crop_emit_mode: str = "center"
    emit_overlap_thresh: float = 0.3
    max_crop_trials: Sequence[int] = (25,)
    rand_pad_prob: float = 0.0
    max_pad_scale: float = 1.0
    max_random_hue: int = 0
    random_hue_prob: float = 0.0
    max_random_saturation: int = 0
    random_saturation_prob: float = 0.0
    max_random_illumination: int = 0
    random_illumination_prob: float = 0.0
    max_random_contrast: float = 0.0
    random_contrast_prob: float = 0.0
    rand_mirror_prob: float = 0.0
    fill_value: int = 127
    inter_method: int = 1
    resize_mode: str = "force"

    def __post_init__(self):
        for name, choices in (("resize_mode", ("force", "shrink", "fit")), ("crop_emit_mode", ("center", "overlap")),
                              ("inter_method", (0, 1, 2, 3, 4))):
            check_choice("ImageDetRecordIter", name, getattr(self, name), choices)
        for field in dataclasses.fields(self):
            if isinstance(field.default, tuple):  # a parameter of samplers
                value = getattr(self, field.name)
                value = (value,) if isinstance(value, (int, float)) else tuple(value)
                value = value * self.num_crop_sampler if len(value) == 1 else value
                if len(value) < self.num_crop_sampler:
                    raise ParameterError(f"ImageDetRecordIter: {field.name} has {len(value)} numbers for "
                                         f"{self.num_crop_sampler} samplers.")
                object.__setattr__(self, field.name, value)

    def _limits(self, name: str, sampler: int) -> tuple[float, float]:
        """Return min and max of a parameter of a sampler."""
        return getattr(self, f"min_crop_{name}")[sampler], getattr(self, f"max_crop_{name}")[sampler]

    @property
    def draws(self) -> int:
        """The largest number of random numbers that one image takes."""
        probabilities = (self.rand_crop_prob, self.rand_pad_prob, self.random_hue_prob, self.random_saturation_prob,
                         self.random_illumination_prob, self.random_contrast_prob, self.rand_mirror_prob)
        return 20 + 4 * max(self.max_crop_trials) if any(p > 0 for p in probabilities) else 0

    def __call__(self, pixels: np.ndarray, objects: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Transform uint8[height, width, channels]. The result has data_shape's size, or less unless resize_mode is "force"."""
        cv2 = opencv("ImageDetRecordIter")
        if self.resize > 0:
            height, width = shorter_edge_to(self.resize, *pixels.shape[:2])
            pixels = self._resized(cv2, pixels, width, height)
        pixels = self._shift_colours(cv2, pixels, draw) if self.draws else pixels
        objects = objects.copy()
        if self.rand_mirror_prob > 0 and draw() < self.rand_mirror_prob:
            pixels = cv2.flip(pixels, 1)
            objects[:, [1, 3]] = 1 - objects[:, [3, 1]]
        if self.rand_pad_prob > 0 and self.max_pad_scale > 1 and draw() < self.rand_pad_prob:
            pixels, objects = self._pad(cv2, pixels, objects, draw)
        if self.rand_crop_prob > 0 and draw() < self.rand_crop_prob:
            pixels, objects = self._crop(pixels, objects, draw)
        _, height, width = self.data_shape
        if self.resize_mode != "force":
            height, width = fitting(pixels.shape[0], pixels.shape[1], height, width, enlarge=self.resize_mode == "fit")
        pixels = self._resized(cv2, pixels, width, height)
        return pixels if pixels.ndim == 3 else pixels[:, :, None], objects

    def _resized(self, cv2: Any, pixels: np.ndarray, width: int, height: int) -> np.ndarray:
        return cv2.resize(pixels, (width, height), interpolation=self.inter_method)

    def _shift_colours(self, cv2: Any, pixels: np.ndarray, draw: Draw) -> np.ndarray:
        shifts = []
        for most, probability in ((self.max_random_hue, self.random_hue_prob),
                                  (self.max_random_illumination, self.random_illumination_prob),
                                  (self.max_random_saturation, self.random_saturation_prob)):
            by = int(between(draw, -most, most))
            shifts.append(by if draw() < probability else 0)
        if any(shifts) and pixels.shape[2] == 3:
            pixels = shift_hls(cv2, pixels, *shifts)
        contrast = between(draw, -self.max_random_contrast, self.max_random_contrast)
        if draw() < self.random_contrast_prob:
            pixels = cv2.addWeighted(pixels, 1 + contrast, pixels, 0, 0).reshape(pixels.shape)
        return pixels

    def _pad(self, cv2: Any, pixels: np.ndarray, objects: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Put the image at a random place in a larger one."""
        h, w = pixels.shape[:2]
        scale = between(draw, 1, self.max_pad_scale)
        new_h, new_w = int(h * scale), int(w * scale)
        y, x = below(draw, new_h - h + 1), below(draw, new_w - w + 1)
        border = (y, new_h - h - y, x, new_w - w - x)
        padded = cv2.copyMakeBorder(pixels, *border, cv2.BORDER_CONSTANT, value=[self.fill_value] * 4)
        objects[:, 1:5] = (objects[:, 1:5] * [w, h, w, h] + [x, y, x, y]) / [new_w, new_h, new_w, new_h]
        return padded, objects

    def _crop(self, pixels: np.ndarray, objects: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Cut out a random part with an object. If no trial finds one, return the image unchanged."""
        sampler = below(draw, self.num_crop_sampler)
        h, w = pixels.shape[:2]
        least, most = self._limits("aspect_ratios", sampler)
        for _ in range(self.max_crop_trials[sampler]):
            scale = max(between(draw, *self._limits("scales", sampler)), 1e-6)
            # of width and height as fractions of the image's
            aspect = between(draw, max(least * h / w, scale**2), min(most * h / w, 1 / scale**2)) ** 0.5
            width, height = min(1.0, scale * aspect), min(1.0, scale / aspect)
            left, top = draw() * (1 - width), draw() * (1 - height)
            kept = self._inside(np.array([left, top, left + width, top + height]), objects, sampler)
            y, x, rows, columns = int(top * h), int(left * w), int(height * h), int(width * w)
            if kept is not None and rows and columns:
                return pixels[y:y + rows, x:x + columns], kept
        return pixels, objects

    def _inside(self, box: np.ndarray, objects: np.ndarray, sampler: int) -> np.ndarray | None:
        """Return the objects in box, relative to it; None if none meets the limits, or none is left."""
        corners = objects[:, 1:5]
        first, last = np.maximum(corners[:, :2], box[:2]), np.minimum(corners[:, 2:], box[2:])
        common = np.prod(np.clip(last - first, 0, None), axis=1)
        area, box_area = np.prod(corners[:, 2:] - corners[:, :2], axis=1), np.prod(box[2:] - box[:2])
        with np.errstate(divide="ignore", invalid="ignore"):
            overlap, sample, covered = common / (area + box_area - common), common / box_area, common / area
        limits = [(value, *self._limits(name, sampler)) for name, value in (
            ("overlaps", overlap), ("sample_coverages", sample), ("object_coverages", covered))]
        meets = np.all([(low <= value) & (value <= high) for value, low, high in limits], axis=0)
        if self.crop_emit_mode == "center":
            middle = (corners[:, :2] + corners[:, 2:]) / 2
            stays = np.all((box[:2] <= middle) & (middle <= box[2:]), axis=1)
        else:
            stays = covered > self.emit_overlap_thresh
        if not meets.any() or not stays.any():
            return None
        kept = objects[stays]
        kept[:, 1:5] = relative(kept[:, 1:5], box).clip(0, 1)
        return kept


def relative(corners: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Return rectangles [n, (left, top, right, bottom)] relative to box (left, top, right, bottom)."""
    return (corners - np.tile(box[:2], 2)) / np.tile(box[2:] - box[:2], 2)


def split_label(label: Any) -> tuple[np.ndarray, np.ndarray]:
    """Split an image's labels into the numbers before the objects, and the objects, float32[n, size]; n may be 0.

    Raises FileError unless the labels are as described in ImageDetRecordIter.
    """
    numbers = np.atleast_1d(np.asarray(label, np.float32))
    before, size = (int(numbers[0]), int(numbers[1])) if len(numbers) > 2 and np.isfinite(numbers[:2]).all() else (0, 0)
    if before < 2 or size < 5 or len(numbers) < before or (len(numbers) - before) % size:
        raise FileError(f"its {len(numbers)} labels are not objects: they must begin with 2 or more (numbers before the "
                        f"objects) and 5 or more (numbers of each), and have that many")
    return numbers[:before], numbers[before:].reshape(-1, size)
