"""ImageRecordIter: batches of images from a RecordIO file, decoded and augmented ahead of their use on threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError, ParameterError, warn_ignored
from ..image.codec import decode
from ..image.image_list import read_image_list
from ..image.mean_image import mean_image
from ..image.record_augmenter import DRAWS, Draw, RecordAugmenter
from ..image.to_batch import BatchRowWriter
from ..iterator import DataDesc
from ..loading.counter_random import draw_from
from ..plan import BatchPlan
from ..records.record_file import RecordFile
from ..records.recordio import unpack
from ..text_arguments import accepts_text
from .record_iter import RecordIter

_AUGMENTER = {name for name in RecordAugmenter.__dataclass_fields__ if name != "data_shape"}
_NORMALIZE = {f"{statistic}_{c}" for statistic in ("mean", "std") for c in "rgba"}
_IGNORED = {"aug_seq", "verbose", "device_id", "ctx", "shuffle_chunk_size", "shuffle_chunk_seed"}


@dataclass
class ImageLoader:
    """Turns a record's encoded image and labels into their rows of a batch. Any thread may call it.

    label_width:  how many labels a record must have, if above 0.
    labels:       replace the records' labels, by ID, unless None.
    """

    file: RecordFile
    channels: int
    augment: Callable[..., Any]
    write_row: BatchRowWriter
    label_width: int
    labels: Mapping[int, np.ndarray] | None

    def __call__(self, record: int, numbers: Sequence[float], rows: list[np.ndarray], fetched: bytes | None = None) -> None:
        """Fill rows: data [1, channels, height, width] and label [1, ...]. Raises FileError that names the record."""
        where = self.file.where(record)
        header, data = unpack(self.file.read(record, fetched), where)
        label = header.label if self.labels is None else self.labels.get(int(header.id))
        try:
            if label is None:
                raise FileError("the list has no labels for it")
            if 0 < self.label_width != np.size(label):
                raise FileError(f"it has {np.size(label)} labels; label_width is {self.label_width}")
            self.load(data, label, rows[0][0], rows[1], draw_from(numbers))
        except FileError as e:
            raise FileError(f"{where} (id {header.id}): {str(e).rstrip('.')}.") from None

    def load(self, data: bytes, label: Any, pixels_row: np.ndarray, label_row: np.ndarray, draw: Draw) -> None:
        """Fill pixels_row [channels, height, width] and label_row [1, ...]."""
        pixels = self.augment(decode(data, self.channels, upright=True), draw, skip_last_resize=True)
        self.write_row(pixels, pixels_row, draw)
        label_row[...] = label


class ImageRecordIter(RecordIter):
    """Batches of images from a file made by `tritium im2rec` or MXNet's im2rec, with MXNet's parameters.

    path_imgrec:   the records, a path or URL.   path_imgidx: their index, optional.
    path_imglist:  a list file whose labels replace those of the records, by id.
    data_shape:    (channels, height, width) of one image; 1 channel: grey, 3: red first, 4: with alpha.
    label_width:   labels of one image; more than 1 gives labels of shape (batch_size, label_width).
    dtype:         float32 unless given. uint8 gives the pixels unchanged, int8 the pixels minus the mean.
    shuffle, seed: a new order every epoch, which depends on seed and epoch alone. seed_aug: seed of the augmentation.
    num_parts, part_index, round_batch:  see BatchPlan.
    preprocess_threads:  threads that decode; the number of cores unless given.
    prefetch_buffer:     batches that are ready ahead.
    on_error:      "raise", "skip" or "substitute" records that cannot be read, see Loader. `skipped` holds the error of each
                   such record of the epoch; their number is logged at its end.
    Augmentation:  RecordAugmenter's parameters; mean_r ... std_a, scale, mirror, rand_mirror, mean_img,
                   max_random_contrast and max_random_illumination: BatchRowWriter's. Random choices depend on (seed, epoch,
                   record) alone, so neither threads nor a restart change them.
    mean_img:      a file by nd.save with the array "mean_img" of data_shape, which replaces mean_r, ...; not for uint8 and
                   int8. If it does not exist, the mean over an epoch of all parts is computed and saved there.
    Arguments may be text, as in MXNet. Ignored: aug_seq, verbose, device_id, ctx, shuffle_chunk_size, shuffle_chunk_seed.
    Without randomness the batches are MXNet's, bit for bit (cubic interpolation: within 2 levels).
    """

    fixed_dtype: str | None = None  # of a subclass, whatever `dtype` says

    @accepts_text
    def __init__(self, path_imgrec: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 path_imgidx: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 label_width: int = 1, shuffle: bool = False, seed: int = 0, seed_aug: int | None = None, num_parts: int = 1,
                 part_index: int = 0, round_batch: bool = True, preprocess_threads: int | None = None, prefetch_buffer: int = 4,
                 dtype: Any = None, on_error: str = "raise", data_name: str = "data", label_name: str = "softmax_label",
                 mean_img: str | os.PathLike = "", scale: float = 1.0, mirror: bool = False, rand_mirror: bool = False,
                 max_random_contrast: float = 0.0, max_random_illumination: float = 0.0, **more: Any):
        name = type(self).__name__
        kind = as_dtype(self.fixed_dtype or dtype or "float32")
        shape = check_image_shape(name, data_shape)
        augment = RecordAugmenter(shape, **augmenter_parameters(name, more, _AUGMENTER))
        if label_width < 1:
            raise ParameterError(f"{name}: label_width={label_width} is less than 1.")
        mean, std = mean_and_std(more, shape[0])
        file = RecordFile(path_imgrec, path_imgidx or None, tolerant=on_error != "raise")
        labels = read_image_list(path_imglist, label_width) if path_imglist else None

        def arguments(plan: BatchPlan, kind: np.dtype, image: np.ndarray | None) -> dict[str, Any]:
            """Return the arguments of a RecordIter of this file."""
            write_row = BatchRowWriter(kind, shape, mean, std, scale, bool(mirror), bool(rand_mirror), max_random_contrast,
                                       max_random_illumination, image)
            label_shape = (plan.batch_size,) if label_width == 1 else (plan.batch_size, int(label_width))
            load = ImageLoader(file, shape[0], augment, write_row, int(label_width), labels)
            return {"file": file, "plan": plan, "load": load,
                    "data": DataDesc(data_name, (plan.batch_size, *shape), kind.type),
                    "label": DataDesc(label_name, label_shape, np.float32), "seed": int(seed if seed_aug is None else seed_aug),
                    "draws": DRAWS if write_row.is_random or augment.is_random else 0, "threads": preprocess_threads,
                    "prefetch": int(prefetch_buffer), "on_error": on_error}

        image = None
        if os.fspath(mean_img) and kind not in (np.uint8, np.int8):
            once = BatchPlan(len(file), int(batch_size), round_batch=False, name=name, source=file.path)
            image = mean_image(mean_img, shape, lambda: RecordIter(**arguments(once, np.dtype(np.float32), None)))
        plan = BatchPlan(len(file), int(batch_size), num_parts=num_parts, part_index=part_index, round_batch=round_batch,
                         shuffle=shuffle, seed=seed, name=name, source=file.path)
        super().__init__(**arguments(plan, kind, image))


class ImageRecordUInt8Iter(ImageRecordIter):
    """ImageRecordIter that gives the pixels as uint8: a quarter of the bytes, to be normalised on the device."""

    fixed_dtype = "uint8"


class ImageRecordInt8Iter(ImageRecordIter):
    """ImageRecordIter that gives the pixels minus the mean as int8."""

    fixed_dtype = "int8"


def augmenter_parameters(name: str, more: Mapping[str, Any], augmenter: set[str]) -> dict[str, Any]:
    """Return the arguments in more that are the augmenter's. An unknown one is ignored with a warning."""
    known = augmenter | _IGNORED | _NORMALIZE
    unknown = sorted(set(more) - known)
    if unknown:
        warn_ignored(name, unknown, sorted(known), stacklevel=5)
    return {k: v for k, v in more.items() if k in augmenter}


def mean_and_std(more: Mapping[str, Any], channels: int) -> tuple[list[float], list[float]]:
    """Return the values of mean_r, ... and std_r, ... for each channel."""
    mean, std = ([float(more.get(f"{statistic}_{c}", default)) for c in "rgba"[:channels]]
                 for statistic, default in (("mean", 0), ("std", 1)))
    return mean, std


def check_image_shape(name: str, data_shape: Sequence[int]) -> tuple[int, int, int]:
    """Return data_shape as three integers. Raises ParameterError."""
    shape = tuple(int(n) for n in data_shape)
    if len(shape) != 3 or shape[0] not in (1, 3, 4) or min(shape) < 1:
        raise ParameterError(f"{name}: data_shape={tuple(data_shape)} is not (channels, height, width) with 1, 3 or 4 channels.")
    return shape
