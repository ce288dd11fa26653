"""ImageRecordIter: batches of images out of a RecordIO file, decoded and augmented on threads, ahead of their use."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..context import cpu
from ..dtype import as_dtype
from ..errors import ParameterError
from ..ndarray import NDArray
from ..ndarray.chunk import layout
from .image_list import read_image_list
from .image_reader import ImageReader
from .iterator import DataDesc, DataIter
from .loader import Loader, Request
from .normalise import Normalise
from .plan import Plan
from .record_augment import DRAWS, RecordAugment
from .record_file import RecordFile
from .ring import Ring, Slot

_log = logging.getLogger("tritium.io")
_AUGMENT = {name for name in RecordAugment.__dataclass_fields__ if name != "data_shape"}
_IGNORED = {"aug_seq", "verbose", "device_id", "ctx", "shuffle_chunk_size", "shuffle_chunk_seed"}
_NORMALISE = ("mean_r", "mean_g", "mean_b", "mean_a", "std_r", "std_g", "std_b", "std_a")


class ImageRecordIter(DataIter):
    """Batches of images out of a file that `tritium im2rec` (or MXNet's im2rec) made, with MXNet's parameters.

    path_imgrec:   the records: a path or URL.   path_imgidx: its index; not needed.
    path_imglist:  a list file whose labels replace those of the records, by the records' ids.
    data_shape:    (channels, height, width) of one image: 1 channel grey, 3 red first, 4 with alpha.
    label_width:   labels of one image; more than 1 gives labels of shape (batch_size, label_width).
    dtype:         float32 unless given. uint8 gives the pixels as they are, int8 the pixels less the mean.
    shuffle, seed: a new order every epoch, decided by the two and the epoch. seed_aug: augmentation's own seed.
    num_parts, part_index, round_batch:  see Plan.
    preprocess_threads:  threads that decode; the number of cores unless given.
    prefetch_buffer:     batches that are ready ahead.
    on_error:      "raise", "skip" or "substitute": what becomes of records that cannot be read, see Loader. The last
                   two count them: `skipped` holds what is wrong, by record, of the epoch; it is logged at its end.
    Augmentation:  RecordAugment's parameters; mean_r ... std_a, scale, mirror, rand_mirror, mean_img,
                   max_random_contrast and max_random_illumination: Normalise. What is random depends on (seed, epoch,
                   record) alone, so neither the threads nor a restart change it.
    Without randomness the batches are MXNet's, bit for bit (rotation and cubic interpolation: within 3 levels).
    """

    def __init__(self, path_imgrec: str | os.PathLike, data_shape: Sequence[int], batch_size: int,
                 path_imgidx: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 label_width: int = 1, shuffle: bool = False, seed: int = 0, seed_aug: int | None = None, num_parts: int = 1,
                 part_index: int = 0, round_batch: bool = True, preprocess_threads: int | None = None,
                 prefetch_buffer: int = 4, dtype: Any = None, on_error: str = "raise", data_name: str = "data",
                 label_name: str = "softmax_label", mean_img: str | os.PathLike = "", scale: float = 1.0,
                 mirror: bool = False, rand_mirror: bool = False, max_random_contrast: float = 0.0,
                 max_random_illumination: float = 0.0, **more: Any):
        super().__init__(int(batch_size))
        name = type(self).__name__
        kind = as_dtype(dtype or "float32")
        shape = _image_shape(name, data_shape)
        unknown = set(more) - _AUGMENT - _IGNORED - set(_NORMALISE)
        if unknown:
            raise ParameterError(f"{name}: no parameter is called {', '.join(map(repr, sorted(unknown)))}.")
        if prefetch_buffer < 0 or label_width < 1:
            raise ParameterError(f"{name}: prefetch_buffer={prefetch_buffer} and label_width={label_width}: at least 0 and 1.")
        augment = RecordAugment(shape, **{k: v for k, v in more.items() if k in _AUGMENT})
        mean = [float(more.get(f"mean_{c}", 0)) for c in "rgba"[:shape[0]]]
        std = [float(more.get(f"std_{c}", 1)) for c in "rgba"[:shape[0]]]
        normalise = Normalise(kind, shape, mean, std, scale, bool(mirror), bool(rand_mirror), max_random_contrast,
                              max_random_illumination, mean_img)
        self._draws = DRAWS if normalise.is_random or augment.is_random else 0
        self._seed_aug = int(seed if seed_aug is None else seed_aug)
        self._file = RecordFile(path_imgrec, path_imgidx or None, tolerant=on_error != "raise")
        self.plan = Plan(len(self._file), self.batch_size, num_parts=num_parts, part_index=part_index, round_batch=round_batch,
                         shuffle=shuffle, seed=seed, name=name, source=self._file.path)
        label_shape = (self.batch_size,) if label_width == 1 else (self.batch_size, label_width)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *shape), kind.type)]
        self.provide_label = [DataDesc(label_name, label_shape, np.float32)]
        labels = read_image_list(path_imglist, label_width) if path_imglist else None
        reader = ImageReader(self._file, shape[0], augment, normalise, int(label_width), labels)
        self._loader = Loader(reader, preprocess_threads or _cores(), on_error, name)
        self._ring = Ring([layout((self.batch_size, *shape), kind, cpu()), layout(label_shape, np.dtype("float32"), cpu())],
                          int(prefetch_buffer) + 2, name)
        self._epoch, self._begin, self._batch = 0, 0, -1
        self.skipped: dict[int, str] = {}
        self._slot: Slot | None = None

    @property
    def preprocess_threads(self) -> int:
        """Threads that decode."""
        return self._loader.workers.count

    @property
    def num_batches(self) -> int:
        """Batches of this epoch."""
        return self.plan.batches(self._begin)

    # ---- batches ----
    def iter_next(self) -> bool:
        if self._batch >= self.num_batches - 1:
            if self._batch == self.num_batches - 1:
                self._report()
            self._batch, self._slot = self.num_batches, None
            return False
        self._fill_up()
        slot = self._ring.take()
        self._batch += 1  # after an error, too: the next call goes on behind the bad batch
        self._fill_up()
        if slot.tag.error is not None:
            self._slot = None
            raise slot.tag.error
        self._slot = slot
        self.skipped |= slot.tag.bad
        return True

    def getdata(self) -> list[NDArray]:
        return [self._current().arrays[0]]

    def getlabel(self) -> list[NDArray]:
        return [self._current().arrays[1]]

    def getindex(self) -> np.ndarray:
        """Which records of the file the batch holds, int64[batch_size]."""
        return self._current().tag.records

    def getpad(self) -> int:
        return self._current().tag.pad

    def reset(self) -> None:
        """Begin the next epoch; where a batch of this one was given."""
        if self._batch < 0:
            return
        ended = self._batch >= self.num_batches - 1
        self._drop()
        self._begin = self.plan.following(self._begin) if ended else 0
        self._epoch, self._batch = self._epoch + 1, -1
        self.skipped = {}
        self._file.check()
        if ended:  # whoever took a whole epoch will want the next
            self._fill_up()

    def close(self) -> None:
        """End the threads and give the file back. Dropping the iterator does the same, later."""
        self._drop()
        self._loader.workers.close()
        self._file.close()

    def __enter__(self) -> ImageRecordIter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self):
        if hasattr(self, "_ring"):
            self._drop()

    def _current(self) -> Slot:
        if self._slot is None:
            raise ParameterError(f"{type(self).__name__}: there is no batch. Call next() first, or reset().")
        return self._slot

    def _fill_up(self) -> None:
        """Begin as many batches as the ring holds."""
        while len(self._ring) < self._ring.depth and (batch := self._batch + 1 + len(self._ring)) < self.num_batches:
            request = Request(self.plan, self._epoch, self._begin, batch, self._seed_aug, self._draws)
            self._ring.begin(partial(self._loader.fill, request), request)

    def _drop(self) -> None:
        for request in self._ring.drop():
            request.cancelled = True
        self._slot = None

    def _report(self) -> None:
        lost = self._file.damage
        if self.skipped or lost:
            _log.warning("%s: epoch %d: %d of %d records could not be read, and %d bytes of %s hold no record. First: %s",
                         type(self).__name__, self._epoch, len(self.skipped), self.plan.size,
                         sum(d.stop - d.start for d in lost), self._file.path,
                         next(iter(self.skipped.values()), None) or f"byte {lost[0].start:,} {lost[0].why}")

    # ---- resuming ----
    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as a few plain numbers: `load_state_dict` goes on from there in any process."""
        return {"data": self._file.identity(), "plan": self.plan.identity(), "seed_aug": self._seed_aug,
                "epoch": self._epoch, "begin": self._begin, "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken: the next batch is the one behind it. Refuses one of another data set."""
        name, mine = type(self).__name__, self.state_dict()
        if not isinstance(state, dict) or set(state) != set(mine):
            raise ParameterError(f"{name}.load_state_dict: this is not a state of {name}: it must hold {', '.join(mine)}.")
        for what, meaning in (("data", "data set"), ("plan", "plan"), ("seed_aug", "seed")):
            if state[what] != mine[what]:
                raise ParameterError(f"{name}.load_state_dict: the state is of another {meaning}: {state[what]}, this iterator "
                                     f"has {mine[what]}.")
        epoch, begin, batch = (int(state[key]) for key in ("epoch", "begin", "batch"))
        if epoch < 0 or not 0 <= begin <= self.batch_size or not -1 <= batch <= self.plan.batches(0):
            raise ParameterError(f"{name}.load_state_dict: epoch {epoch}, begin {begin}, batch {batch} cannot be.")
        self._drop()
        self._epoch, self._begin, self._batch = epoch, begin, batch


class ImageRecordUInt8Iter(ImageRecordIter):
    """ImageRecordIter that gives the pixels, uint8: a quarter of the bytes, to be normalised on the device."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "dtype": "uint8"})


class ImageRecordInt8Iter(ImageRecordIter):
    """ImageRecordIter that gives the pixels less the mean, int8."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "dtype": "int8"})


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _image_shape(name: str, data_shape: Sequence[int]) -> tuple[int, int, int]:
    shape = tuple(int(n) for n in data_shape)
    if len(shape) != 3 or shape[0] not in (1, 3, 4) or min(shape) < 1:
        raise ParameterError(f"{name}: data_shape={tuple(data_shape)} is not (channels, height, width) with 1, 3 or 4 channels.")
    return shape
