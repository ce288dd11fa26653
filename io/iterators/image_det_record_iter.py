"""ImageDetRecordIter: batches of images and the objects in them, as many as each has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError, ParameterError
from ..image.codec import decode
from ..image.det_record_augmenter import DetRecordAugmenter, split_label
from ..image.image_list import read_lines
from ..image.mean_image import mean_image
from ..image.to_batch import BatchRowWriter
from ..iterator import DataDesc
from ..loading.counter_random import draw_from
from ..plan import BatchPlan
from ..records.record_file import RecordFile
from ..records.recordio import unpack
from ..text_arguments import accepts_text
from .image_record_iter import IGNORED, image_shape, unknown_parameters
from .record_iter import RecordIter

_AUGMENT = {name for name in DetRecordAugmenter.__dataclass_fields__ if name != "data_shape"}
_FRONT = 4  # numbers before an image's labels: channels, height, width, how many labels


class ImageDetRecordIter(RecordIter):
    """Batches of images with objects, out of a record file made with `tritium im2rec --pack-label`.

    A record's labels are: how many numbers come before the objects (2 or more), how many an object takes (5 or more),
    further numbers up to the first count, then the objects: class, left, top, right, bottom, the corners as shares of
    the image's size.
    A batch's label is float32[batch_size, 4 + width]: channels, height and width of the image in the data, how many
    labels, the labels, and label_pad_value up to the width.

    label_pad_width:  width; 0 or -1: as many as the largest record has.
    label_width:      labels that every record must have; -1: as many as it has.
    Other parameters: DetRecordAugmenter's, and ImageRecordIter's.
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
        kind, shape = as_dtype(dtype or "float32"), image_shape(name, data_shape)
        colours = {f"{what}_{c}" for what in ("mean", "std") for c in "rgba"}
        unknown_parameters(name, more, _AUGMENT | IGNORED | colours)
        augment = DetRecordAugmenter(shape, **{k: v for k, v in more.items() if k in _AUGMENT})
        mean = [float(more.get(f"mean_{c}", 0)) for c in "rgba"[:shape[0]]]
        std = [float(more.get(f"std_{c}", 0)) or 1.0 for c in "rgba"[:shape[0]]]
        normalise = BatchRowWriter(kind, shape, mean, std, scale, False, False, 0, 0,
                              mean_image(mean_img, shape) if os.fspath(mean_img) else None, divide=True)
        file = RecordFile(path_imgrec, path_imgidx or None, tolerant=on_error != "raise")
        labels = {line.id: line.label for line in read_lines(path_imglist)} if path_imglist else None
        most = max((len(v) for v in labels.values()), default=0) if labels is not None else most_labels(file)
        if 0 < label_pad_width < most:
            raise ParameterError(f"{name}: label_pad_width={label_pad_width} is less than the {most} labels of a record.")
        width = label_pad_width if label_pad_width > 0 else most
        plan = BatchPlan(len(file), batch_size, num_parts=num_parts, part_index=part_index, round_batch=round_batch,
                         shuffle=shuffle, seed=seed, name=name, source=file.path)
        super().__init__(
            file, plan, DetRecordLoader(file, shape[0], augment, normalise, label_width, label_pad_value, labels),
            DataDesc(data_name, (batch_size, *shape), kind.type),
            DataDesc(label_name, (batch_size, _FRONT + width), np.float32),
            draws=augment.draws, seed=int(seed if seed_aug is None else seed_aug), threads=preprocess_threads,
            prefetch=int(prefetch_buffer), on_error=on_error)


class DetRecordLoader:
    """As ImageRecordLoader, for a record with objects."""

    def __init__(self, file: RecordFile, channels: int, augment: DetRecordAugmenter, normalise: BatchRowWriter, label_width: int,
                 fill: float, labels: Mapping[int, np.ndarray] | None):
        self.file, self.channels, self.augment, self.normalise = file, channels, augment, normalise
        self.label_width, self.fill, self.labels = label_width, fill, labels

    def __call__(self, record: int, numbers: Sequence[float], rows: list[np.ndarray], fetched: bytes | None = None) -> None:
        draw = draw_from(numbers)
        where = self.file.where(record)
        header, data = unpack(self.file.read(record, fetched), where)
        given = header.label if self.labels is None else self.labels.get(int(header.id))
        try:
            if given is None:
                raise FileError("the list has no labels for it")
            front, objects = split_label(given)
            if 0 < self.label_width != np.size(given):
                raise FileError(f"it has {np.size(given)} labels; label_width is {self.label_width}")
            pixels, objects = self.augment(decode(data, self.channels, upright=True), objects, draw)
            height, width = pixels.shape[:2]
            if (height, width) != rows[0].shape[2:]:
                small, pixels = pixels, np.zeros((*rows[0].shape[2:], self.channels), np.uint8)
                pixels[:height, :width] = small
            self.normalise(pixels, rows[0][0], draw)
        except FileError as e:
            raise FileError(f"{where} (id {header.id}): {str(e).rstrip('.')}.") from None
        label = np.concatenate([front, objects.ravel()])
        row = rows[1][0]
        if _FRONT + len(label) > len(row):
            raise FileError(f"{where} (id {header.id}): has {len(label)} labels, {len(row) - _FRONT} fit.")
        row[:_FRONT] = self.channels, height, width, len(label)
        row[_FRONT:_FRONT + len(label)] = label
        row[_FRONT + len(label):] = self.fill


def most_labels(file: RecordFile) -> int:
    """The most labels that a record has, by the records' heads alone."""
    most = 0
    for number, start in enumerate(file.offsets.tolist()):
        flag = int.from_bytes(file.source.read(start + 8, min(start + 12, file.source.size)), "little")
        if 4 * flag <= file.span(number):  # more cannot be: the record is damaged, and will be told
            most = max(most, flag)
    return most
