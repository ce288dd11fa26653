"""ImageDetRecordIter: batches of images with a varying number of objects each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError, ParameterError
from ..image.codec import decode
from ..image.det_record_augmenter import DetRecordAugmenter, split_label
from ..image.image_det_iter import labels_of
from ..image.image_list import read_lines
from ..image.mean_image import mean_image
from ..image.record_augmenter import Draw
from ..image.to_batch import BatchRowWriter
from ..iterator import DataDesc
from ..plan import BatchPlan
from ..records.record_file import RecordFile
from ..text_arguments import accepts_text
from .image_record_iter import ImageLoader, augmenter_parameters, check_image_shape, mean_and_std
from .record_iter import RecordIter

_AUGMENTER = {name for name in DetRecordAugmenter.__dataclass_fields__ if name != "data_shape"}
_PREFIX = 4  # numbers before an image's labels: channels, height, width, number of labels


class ImageDetRecordIter(RecordIter):
    """Batches of images with objects, from a record file made with `tritium im2rec --pack-label`.

    A record's labels are: the number of values before the objects (2 or more), the number of values of an object (5 or
    more), further values up to the first number, then for each object class, left, top, right, bottom, ..., as fractions of
    the image's size.
    A batch's label is float32[batch_size, 4 + width]: channels, height and width of the image in the data, the number of
    labels, the labels, and label_pad_value up to the width.

    label_pad_width:  the width; 0 or -1: the number of labels of the largest record.
    label_width:      how many labels every record must have; -1: any number.
    Other parameters: DetRecordAugmenter's and ImageRecordIter's.
    """

    @accepts_text
    def __init__(self, path_imgrec: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 path_imgidx: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 label_width: int = -1, label_pad_width: int = 0, label_pad_value: float = -1.0, shuffle: bool = False,
                 seed: int = 0, seed_aug: int | None = None, num_parts: int = 1, part_index: int = 0,
                 round_batch: bool = True, preprocess_threads: int | None = None, prefetch_buffer: int = 4,
                 dtype: Any = None, on_error: str = "raise", data_name: str = "data", label_name: str = "softmax_label",
                 mean_img: str | os.PathLike = "", scale: float = 1.0, **more: Any):
        name, batch_size = type(self).__name__, int(batch_size)
        dtype, shape = as_dtype(dtype or "float32"), check_image_shape(name, data_shape)
        augment = DetRecordAugmenter(shape, **augmenter_parameters(name, more, _AUGMENTER))
        mean, std = mean_and_std(more, shape[0])
        write_row = BatchRowWriter(dtype, shape, mean, [s or 1.0 for s in std], scale, False, False, 0, 0,
                                   mean_image(mean_img, shape) if os.fspath(mean_img) else None, divide=True)
        file = RecordFile(path_imgrec, path_imgidx or None, tolerant=on_error != "raise")
        labels = {line.id: line.label for line in read_lines(path_imglist)} if path_imglist else None
        listed = labels.values() if labels is not None else (label for _, _, label in labels_of(file))
        most = max(map(np.size, listed), default=0)
        if 0 < label_pad_width < most:
            raise ParameterError(f"{name}: label_pad_width={label_pad_width} is less than the {most} labels of a record.")
        width = label_pad_width if label_pad_width > 0 else most
        plan = BatchPlan(len(file), batch_size, num_parts=num_parts, part_index=part_index, round_batch=round_batch,
                         shuffle=shuffle, seed=seed, name=name, source=file.path)
        super().__init__(
            file, plan, DetLoader(file, shape[0], augment, write_row, label_width, labels, label_pad_value),
            DataDesc(data_name, (batch_size, *shape), dtype.type),
            DataDesc(label_name, (batch_size, _PREFIX + width), np.float32),
            draws=augment.draws, seed=int(seed if seed_aug is None else seed_aug), threads=preprocess_threads,
            prefetch=int(prefetch_buffer), on_error=on_error)


@dataclass
class DetLoader(ImageLoader):
    """Turns a record's image and objects into their rows of a batch."""

    pad_value: float

    def load(self, data: bytes, label: Any, pixels_row: np.ndarray, label_row: np.ndarray, draw: Draw) -> None:
        prefix, objects = split_label(label)
        pixels, objects = self.augment(decode(data, self.channels, upright=True), objects, draw)
        height, width = pixels.shape[:2]
        _, rows, columns = pixels_row.shape
        if (height, width) != (rows, columns):
            pixels = np.pad(pixels, ((0, rows - height), (0, columns - width), (0, 0)))
        self.write_row(pixels, pixels_row, draw)
        values, row = np.concatenate([prefix, objects.ravel()]), label_row[0]
        if _PREFIX + len(values) > len(row):
            raise FileError(f"it has {len(values)} labels, {len(row) - _PREFIX} fit")
        row[:_PREFIX] = self.channels, height, width, len(values)
        row[_PREFIX:_PREFIX + len(values)] = values
        row[_PREFIX + len(values):] = self.pad_value
