"""ImageRecordIter: batches of images out of a RecordIO file, decoded and augmented on threads, ahead of their use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import ParameterError, nearest
from ..image.image_list import read_image_list
from ..image.mean_image import mean_image
from ..image.record_augmenter import DRAWS, RecordAugmenter
from ..image.to_batch import BatchRowWriter
from ..iterator import DataDesc
from ..plan import BatchPlan
from ..records.record_file import RecordFile
from ..text_arguments import accepts_text
from .image_reader import ImageRecordLoader
from .record_iter import RecordIter

_AUGMENT = {name for name in RecordAugmenter.__dataclass_fields__ if name != "data_shape"}
IGNORED = {"aug_seq", "verbose", "device_id", "ctx", "shuffle_chunk_size", "shuffle_chunk_seed"}
_NORMALISE = ("mean_r", "mean_g", "mean_b", "mean_a", "std_r", "std_g", "std_b", "std_a")


class ImageRecordIter(RecordIter):
    """Batches of images out of a file that `tritium im2rec` (or MXNet's im2rec) made, with MXNet's parameters.

    path_imgrec:   the records: a path or URL.   path_imgidx: its index; not needed.
    path_imglist:  a list file whose labels replace those of the records, by the records' ids.
    data_shape:    (channels, height, width) of one image: 1 channel grey, 3 red first, 4 with alpha.
    label_width:   labels of one image; more than 1 gives labels of shape (batch_size, label_width).
    dtype:         float32 unless given. uint8 gives the pixels as they are, int8 the pixels less the mean.
    shuffle, seed: a new order every epoch, decided by the two and the epoch. seed_aug: augmentation's own seed.
    num_parts, part_index, round_batch:  see BatchPlan.
    preprocess_threads:  threads that decode; the number of cores unless given.
    prefetch_buffer:     batches that are ready ahead.
    on_error:      "raise", "skip" or "substitute": what becomes of records that cannot be read, see Loader. The last
                   two count them: `skipped` holds what is wrong, by record, of the epoch; it is logged at its end.
    Augmentation:  RecordAugmenter's parameters; mean_r ... std_a, scale, mirror, rand_mirror, mean_img,
                   max_random_contrast and max_random_illumination: BatchRowWriter. What is random depends on (seed, epoch,
                   record) alone, so neither the threads nor a restart change it.
    mean_img:      a file by nd.save with the array "mean_img" of data_shape, instead of mean_r, ...; not for uint8 and int8. If
                   it is not there, it is made: the mean of what an epoch without it gives, of all parts.
    Values may be text, as in MXNet. aug_seq, verbose, device_id, ctx, shuffle_chunk_size and shuffle_chunk_seed: no effect.
    Without randomness the batches are MXNet's, bit for bit (cubic interpolation: within 2 levels).
    """

    @accepts_text
    def __init__(self, path_imgrec: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 path_imgidx: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 label_width: int = 1, shuffle: bool = False, seed: int = 0, seed_aug: int | None = None, num_parts: int = 1,
                 part_index: int = 0, round_batch: bool = True, preprocess_threads: int | None = None,
                 prefetch_buffer: int = 4, dtype: Any = None, on_error: str = "raise", data_name: str = "data",
                 label_name: str = "softmax_label", mean_img: str | os.PathLike = "", scale: float = 1.0,
                 mirror: bool = False, rand_mirror: bool = False, max_random_contrast: float = 0.0,
                 max_random_illumination: float = 0.0, **more: Any):
        name = type(self).__name__
        kind = as_dtype(dtype or "float32")
        shape = image_shape(name, data_shape)
        unknown_parameters(name, more, _AUGMENT | IGNORED | set(_NORMALISE))
        if label_width < 1:
            raise ParameterError(f"{name}: label_width={label_width} is less than 1.")
        augment = RecordAugmenter(shape, **{k: v for k, v in more.items() if k in _AUGMENT})
        mean = [float(more.get(f"mean_{c}", 0)) for c in "rgba"[:shape[0]]]
        std = [float(more.get(f"std_{c}", 1)) for c in "rgba"[:shape[0]]]
        file = RecordFile(path_imgrec, path_imgidx or None, tolerant=on_error != "raise")
        labels = read_image_list(path_imglist, label_width) if path_imglist else None

        def batches(plan: BatchPlan, kind: np.dtype, image: np.ndarray | None) -> dict[str, Any]:
            """What a RecordIter of this file takes."""
            normalise = BatchRowWriter(kind, shape, mean, std, scale, bool(mirror), bool(rand_mirror), max_random_contrast,
                                  max_random_illumination, image)
            label_shape = (plan.batch_size,) if label_width == 1 else (plan.batch_size, int(label_width))
            load = ImageRecordLoader(file, shape[0], augment, normalise, int(label_width), labels)
            return {"file": file, "plan": plan, "load": load,
                    "data": DataDesc(data_name, (plan.batch_size, *shape), kind.type),
                    "label": DataDesc(label_name, label_shape, np.float32), "seed": int(seed if seed_aug is None else seed_aug),
                    "draws": DRAWS if normalise.is_random or augment.is_random else 0, "threads": preprocess_threads,
                    "prefetch": int(prefetch_buffer), "on_error": on_error}

        image = None
        if os.fspath(mean_img) and kind not in (np.uint8, np.int8):
            once = BatchPlan(len(file), int(batch_size), round_batch=False, name=name, source=file.path)
            image = mean_image(mean_img, shape, lambda: RecordIter(**batches(once, np.dtype(np.float32), None)))
        plan = BatchPlan(len(file), int(batch_size), num_parts=num_parts, part_index=part_index, round_batch=round_batch,
                    shuffle=shuffle, seed=seed, name=name, source=file.path)
        super().__init__(**batches(plan, kind, image))


class ImageRecordUInt8Iter(ImageRecordIter):
    """ImageRecordIter that gives the pixels, uint8: a quarter of the bytes, to be normalised on the device."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "dtype": "uint8"})


class ImageRecordInt8Iter(ImageRecordIter):
    """ImageRecordIter that gives the pixels less the mean, int8."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "dtype": "int8"})


def unknown_parameters(name: str, given: Mapping[str, Any], known: set[str]) -> None:
    """Raises ParameterError if one of given is not known."""
    unknown = sorted(set(given) - known)
    if unknown:
        raise ParameterError(f"{name}: no parameter is called {', '.join(map(repr, unknown))}.{nearest(unknown[0], known)}")


def image_shape(name: str, data_shape: Sequence[int]) -> tuple[int, int, int]:
    """data_shape as three sizes. Raises ParameterError."""
    shape = tuple(int(n) for n in data_shape)
    if len(shape) != 3 or shape[0] not in (1, 3, 4) or min(shape) < 1:
        raise ParameterError(f"{name}: data_shape={tuple(data_shape)} is not (channels, height, width) with 1, 3 or 4 channels.")
    return shape
