"""ImageIter: batches of images from a record file, a list of files or a list in memory, changed by augmenters in Python."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..dtype import as_dtype
from ..errors import FileError, ParameterError
from ..ndarray import NDArray, array
from .augmenters import Augmenter, CreateAugmenter
from .files import ByteSource
from .image_list import read_lines
from .image_ops import imdecode
from .iterator import DataBatch, DataDesc, DataIter
from .record_file import RecordFile
from .recordio import unpack

_log = logging.getLogger("tritium.io")


class ImageIter(DataIter):
    """Batches of images, one after another, in the caller's thread. ImageRecordIter is faster, this one can be changed:
    by augmenters, or by a subclass that overrides next_sample, imdecode, augmentation_transform or postprocess_data.

    path_imgrec:   a record file, or path_imglist: a list file (`id<TAB>labels<TAB>path`), or imglist: a list of
                   [label, path]; with path_imgrec, a list gives the labels. Paths are below path_root.
    aug_list:      augmenters; or else CreateAugmenter's, of the other keyword arguments.
    last_batch_handle:  "pad" from the front, "discard", or "roll_over" into the next epoch (there they count: pad is 0).
    shuffle:       a new order every epoch, from Python's `random`.
    num_parts, part_index:  one part of the images; all parts give equally many batches.
    on_error:      "raise", or "skip": images that cannot be read are left out, logged, and named in `skipped`.
    """

    def __init__(self, batch_size: int, data_shape: Sequence[int], label_width: int = 1,
                 path_imgrec: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 path_root: str | os.PathLike | None = None, path_imgidx: str | os.PathLike | None = None,
                 shuffle: bool = False, part_index: int = 0, num_parts: int = 1, aug_list: Sequence[Augmenter] | None = None,
                 imglist: Iterable[Sequence[Any]] | None = None, data_name: str = "data", label_name: str = "softmax_label",
                 dtype: Any = "float32", last_batch_handle: str = "pad", on_error: str = "raise", **kwargs: Any):
        super().__init__(int(batch_size))
        self.check_data_shape(data_shape)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ParameterError(f"ImageIter: last_batch_handle={last_batch_handle!r} is not one of 'pad', 'discard', "
                                 f"'roll_over'.")
        if on_error not in ("raise", "skip"):
            raise ParameterError(f"ImageIter: on_error={on_error!r} is not one of 'raise', 'skip'.")
        if not 0 <= part_index < num_parts or batch_size < 1:
            raise ParameterError(f"ImageIter: part_index={part_index} of num_parts={num_parts}, batch_size={batch_size} "
                                 f"cannot be.")
        self.data_shape, self.label_width, self.dtype = tuple(data_shape), label_width, as_dtype(dtype)
        self.path_root, self.shuffle, self.last_batch_handle, self.on_error = path_root, shuffle, last_batch_handle, on_error
        self.auglist = list(aug_list) if aug_list is not None else CreateAugmenter(data_shape, **kwargs)
        self.imglist = _labels_and_paths(path_imglist, imglist)
        self.imgrec = RecordFile(path_imgrec, path_imgidx, tolerant=on_error == "skip") if path_imgrec else None
        if self.imgrec is None and self.imglist is None:
            raise ParameterError("ImageIter: there is nothing to read. Give path_imgrec, path_imglist or imglist.")
        everything = list(range(len(self.imgrec))) if self.imgrec is not None else list(self.imglist or ())
        count = len(everything)
        self.seq = everything[part_index * count // num_parts:(part_index + 1) * count // num_parts]
        if not self.seq:
            raise ParameterError(f"ImageIter: part {part_index} of {num_parts} of {count} images is empty.")
        self.num_image = len(self.seq)
        most, least = -(-count // num_parts), count // num_parts
        self._batches = {"pad": -(-most // batch_size), "discard": least // batch_size}.get(last_batch_handle)
        shape = (batch_size,) if label_width == 1 else (batch_size, label_width)
        self.provide_data = [DataDesc(data_name, (batch_size, *self.data_shape), self.dtype.type)]
        self.provide_label = [DataDesc(label_name, shape)]
        self.skipped: list[str] = []
        self._rest: list[tuple[Any, NDArray]] = []
        self.hard_reset()

    def reset(self) -> None:
        """Begin the next epoch; under "roll_over" with what the last one left."""
        if self.shuffle:
            random.shuffle(self.seq)
        self.cur, self._given = 0, 0
        self.skipped = []

    def hard_reset(self) -> None:
        """Begin the next epoch, and forget what the last one left."""
        self._rest = []
        self.reset()

    def next_sample(self) -> tuple[Any, bytes]:
        """The label and the encoded image of the next one. Raises StopIteration at the end."""
        if self.cur >= len(self.seq):
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if self.imgrec is None:
            label, path = (self.imglist or {})[key]
            return label, self.read_image(path)
        header, data = unpack(self.imgrec.read(key), self.imgrec.where(key))
        if self.imglist is None:
            return header.label, data
        if header.id not in self.imglist:
            raise FileError(f"{self.imgrec.where(key)}: the list has no labels for id {header.id}.")
        return self.imglist[header.id][0], data

    def next(self) -> DataBatch:
        if self._batches is not None and self._given == self._batches:
            raise StopIteration
        rows, self._rest = self._rest, []
        while len(rows) < self.batch_size:
            try:
                rows.append(self._read())
            except StopIteration:
                break
        pad = self.batch_size - len(rows)
        if pad and self.last_batch_handle == "roll_over":
            self._rest = rows
            raise StopIteration
        if pad and self.last_batch_handle == "discard":
            raise StopIteration
        if pad:
            at, self.cur = self.cur, 0
            while len(rows) < self.batch_size:
                try:
                    rows.append(self._read())
                except StopIteration:
                    if not rows:
                        raise FileError("ImageIter: not one image can be read.") from None
                    rows += rows[:self.batch_size - len(rows)]
            self.cur = at
        self._given += 1
        return self._batch([r[0] for r in rows], [r[1] for r in rows], pad)

    def _batch(self, labels: list[Any], images: list[NDArray], pad: int) -> DataBatch:
        data = np.stack([image.asnumpy() for image in images])
        label = np.asarray(labels, np.float32).reshape(self.provide_label[0].shape)
        return DataBatch([array(data, dtype=self.dtype)], [array(label)], pad, provide_data=self.provide_data,
                         provide_label=self.provide_label)

    def _read(self) -> tuple[Any, NDArray]:
        """Label and changed image of the next sample that can be read."""
        while True:
            at = self.cur
            try:
                label, data = self.next_sample()
                if np.size(label) != self.label_width:
                    raise FileError(f"it has {np.size(label)} labels; label_width is {self.label_width}.")
                image = self.augmentation_transform(self.imdecode(data))
                image = self.postprocess_data(image)
                if image.shape != self.data_shape:
                    raise FileError(f"after the augmenters it is {image.shape}; data_shape is {self.data_shape}. "
                                    f"Add a crop or a resize.")
                return label, image
            except FileError as e:
                where = self._where(self.seq[at])
                text = str(e) if where in str(e) else f"{where}: {e}"
                if self.on_error == "raise":
                    raise FileError(f"ImageIter: {text}") from None
                self.skipped.append(text)
                _log.warning("ImageIter: left out: %s", text)

    def _where(self, key: Any) -> str:
        return self.imgrec.where(key) if self.imgrec is not None else os.fspath((self.imglist or {})[key][1])

    # ---- what a subclass may change ----
    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Raises ParameterError if data_shape cannot be."""
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ParameterError(f"ImageIter: data_shape={tuple(data_shape)} is not (3, height, width).")

    def read_image(self, fname: str) -> bytes:
        """The bytes of a file below path_root."""
        with ByteSource(os.path.join(self.path_root, fname) if self.path_root else fname) as source:
            return source.read(0, source.size)

    def imdecode(self, s: bytes) -> NDArray:
        """An encoded image as uint8[height, width, 3]."""
        return imdecode(s)

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """The image after all augmenters."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """[height, width, channels] as [channels, height, width]."""
        return datum.transpose((2, 0, 1))


def _labels_and_paths(path_imglist: str | os.PathLike | None,
                      imglist: Iterable[Sequence[Any]] | None) -> dict[Any, tuple[Any, str]] | None:
    """(label, path) by id."""
    if path_imglist:
        return {line.id: (line.label if len(line.label) > 1 else float(line.label[0]), line.path)
                for line in read_lines(path_imglist)}
    if imglist is None:
        return None
    return {i: (np.asarray(row[0], np.float32) if np.ndim(row[0]) else row[0] if len(row) == 2 else
                np.asarray(row[:-1], np.float32), row[-1]) for i, row in enumerate(imglist)}
