"""ImageDetIter: batches of images and the objects in them, with augmenters in Python."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import FileError, ParameterError, ShapeError
from ...ndarray import NDArray
from ..iterator import DataDesc
from ..records.framing import WHOLE, part_kind
from ..records.record_file import RecordFile
from ..records.recordio import unpack
from .augmenters import IMAGENET_MEAN, IMAGENET_STD, ForceResizeAug
from .codec import opencv
from .det_augmenters import CreateDetAugmenter, DetBorrowAug
from .det_record_augmenter import split_label
from .image_iter import ImageIter

_LABEL_BYTES = 4096  # first bytes of a record that are read for its labels; the whole record if they do not suffice
_RECORDS_PER_READ = 256


class ImageDetIter(ImageIter):
    """Batches of images with objects, otherwise like ImageIter. ImageDetRecordIter is faster.

    The labels of an image are those of ImageDetRecordIter. Objects without width or height are dropped; an image without objects
    is an error.
    A batch's label is float32[batch_size, objects, numbers of an object], -1 where an image has fewer objects.

    label_shape:   (objects, numbers of an object) of a batch, for the image with the most objects. See reshape.
    aug_list:      DetAugmenters; by default CreateDetAugmenter's for the other keyword arguments.
    Other parameters: ImageIter's.
    """

    def __init__(self, batch_size: int, data_shape: Sequence[int], path_imgrec: str | os.PathLike | None = None,
                 path_imglist: str | os.PathLike | None = None, path_root: str | os.PathLike | None = None,
                 path_imgidx: str | os.PathLike | None = None, shuffle: bool = False, part_index: int = 0, num_parts: int = 1,
                 aug_list: Sequence[Any] | None = None, imglist: Any = None, data_name: str = "data",
                 label_name: str = "label", last_batch_handle: str = "pad", **kwargs: Any):
        super().__init__(batch_size, data_shape, path_imgrec=path_imgrec, path_imglist=path_imglist, path_root=path_root,
                         path_imgidx=path_imgidx, shuffle=shuffle, part_index=part_index, num_parts=num_parts,
                         aug_list=aug_list, imglist=imglist, data_name=data_name, label_name=label_name,
                         last_batch_handle=last_batch_handle, **kwargs)
        if shuffle and self.seed is None:  # MXNet shuffles three times before the first epoch
            random.shuffle(self.seq)
            random.shuffle(self.seq)

    # ---- shapes ----
    def reshape(self, data_shape: Sequence[int] | None = None, label_shape: Sequence[int] | None = None) -> None:
        """Change data_shape or label_shape of the next batches. A ForceResizeAug among the augmenters is adapted."""
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.data_shape = tuple(data_shape)
            for augmenter in self.auglist:
                if isinstance(augmenter, DetBorrowAug) and isinstance(augmenter.augmenter, ForceResizeAug):
                    augmenter.augmenter = ForceResizeAug((data_shape[2], data_shape[1]), augmenter.augmenter.interp)
            old = self.provide_data[0]
            self.provide_data = [DataDesc(old.name, (self.batch_size, *self.data_shape), old.dtype)]
            self._end_pool()
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.label_shape = (int(label_shape[0]), int(label_shape[1]))
            self.provide_label = [DataDesc(self.provide_label[0].name, (self.batch_size, *self.label_shape))]

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Give both iterators the larger of their label shapes, for training and validation of one network. Returns `it`."""
        if not isinstance(it, ImageDetIter):
            raise ParameterError(f"ImageDetIter.sync_label_shape: it is a {type(it).__name__}, not an ImageDetIter.")
        objects, width = max(self.label_shape[0], it.label_shape[0]), self.label_shape[1]
        for iterator in (self, it):
            iterator.reshape(label_shape=(objects, width))
        return it

    def check_label_shape(self, label_shape: Sequence[int]) -> None:
        """Raise ShapeError if an image's objects might not fit."""
        if len(label_shape) != 2 or label_shape[0] < self.label_shape[0] or label_shape[1] != self.label_shape[1]:
            raise ShapeError(f"ImageDetIter: label_shape={tuple(label_shape)} must be (objects, {self.label_shape[1]}) with "
                             f"{self.label_shape[0]} objects or more, as an image has so many.")

    def _label_shape(self) -> tuple[int, ...]:
        """Return the most objects of an image in the source, and the count of numbers of an object; equal for all parts."""
        most, width, bad = 0, 0, None
        for key, label in self._all_labels():
            try:
                objects = self._objects(label)
            except FileError as e:
                bad = bad or (key, e)
                if self.on_error == "raise":
                    self._handle_error(key, e)
                continue
            if width and objects.shape[1] != width:
                raise FileError(f"{type(self).__name__}: {self._where(key)}: its objects have {objects.shape[1]} numbers, "
                                f"other objects {width}.")
            most, width = max(most, len(objects)), objects.shape[1]
        if not most:
            why = f" {self._where(bad[0])}: {bad[1]}" if bad else ""
            raise FileError(f"{type(self).__name__}: no image has objects.{why}")
        self.label_shape = (most, width)
        return self.label_shape

    def _all_labels(self) -> Iterator[tuple[Any, Any]]:
        if self.imglist is not None:
            yield from ((key, label) for key, (label, _) in self.imglist.items() if self.imgrec is None)
        if self.imgrec is not None:
            for number, identity, label in labels_of(self.imgrec):
                label = label if self.imglist is None else self.imglist.get(identity, (None,))[0]
                if label is not None:
                    yield number, label

    # ---- labels ----
    def _objects(self, label: Any) -> np.ndarray:
        """Return the objects in an image's labels, float32[n, 5 or more]; n is at least 1."""
        _, objects = split_label(label)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        if not len(objects):
            raise FileError("none of its objects has a width and a height.")
        return objects

    def _augment(self, label: Any, data: bytes) -> tuple[Any, NDArray]:
        image, objects = self.augmentation_transform(self.imdecode(data), self._objects(label))
        return np.asarray(objects, np.float32), self.postprocess_data(image)

    def augmentation_transform(self, data: NDArray, label: np.ndarray | None = None) -> Any:
        """Apply all augmenters to the image and its objects."""
        for augmenter in self.auglist:
            data, label = augmenter(data, label)
        return data, label

    def _default_augmenters(self, parameters: dict[str, Any]) -> list[Any]:
        return CreateDetAugmenter(self.data_shape, **parameters)

    def _labels(self, labels: list[Any]) -> np.ndarray:
        most, width = self.label_shape
        out = np.full((len(labels), most, width), -1, np.float32)
        for i, objects in enumerate(labels):
            if len(objects) > most or objects.shape[1] != width:
                raise ShapeError(f"ImageDetIter: an image has objects {list(objects.shape)}, the batch's label_shape is "
                                 f"{self.label_shape}. Call reshape(label_shape=...).")
            out[i, :len(objects)] = objects
        return out

    # ---- drawing ----
    def draw_next(self, color: Sequence[int] | None = None, thickness: int = 2, mean: Any = None, std: Any = None,
                  clip: bool = True, waitKey: int | None = None, window_name: str = "draw_next",
                  id2labels: dict[int, str] | None = None) -> Iterator[np.ndarray]:
        """Yield the epoch's images with their objects drawn into them, uint8[height, width, 3]. No window is opened.

        waitKey, window_name:  accepted for MXNet's sake, without effect.
        color:      red, green, blue; random for each object unless given.
        mean, std:  of the normalisation to undo; True: ImageNet's.
        id2labels:  names of the classes to write beside the objects.
        """
        cv2 = opencv("draw_next")
        mean = IMAGENET_MEAN if mean is True else 0 if mean is None else np.asarray(mean)
        std = IMAGENET_STD if std is True else 1 if std is None else np.asarray(std)
        while True:
            try:
                row = self._read()
            except StopIteration:
                return
            pixels = row.pixels.transpose(1, 2, 0) * std + mean
            pixels = np.ascontiguousarray((pixels.clip(0, 255) if clip else pixels).astype(np.uint8))
            height, width = pixels.shape[:2]
            for number in row.label:
                x0, y0, x1, y1 = (int(v * edge) for v, edge in zip(number[1:5], (width, height) * 2))
                line = tuple(color) if color is not None else tuple(random.randint(0, 255) for _ in range(3))
                cv2.rectangle(pixels, (x0, y0), (x1, y1), line, thickness)
                if id2labels is not None and int(number[0]) in id2labels:
                    cv2.putText(pixels, id2labels[int(number[0])], (x0 + 5, y0 + 15), cv2.FONT_HERSHEY_SIMPLEX, 0.5, line, 1)
            yield pixels


def labels_of(file: RecordFile) -> Iterator[tuple[int, int, Any]]:
    """Yield (record, ID, labels) of all records that can be read, from their first bytes where these suffice."""
    starts = file.offsets.tolist()
    for begin in range(0, len(file), _RECORDS_PER_READ):
        numbers = range(begin, min(begin + _RECORDS_PER_READ, len(file)))
        fronts = file.source.read_many([(starts[i], starts[i] + min(file.span(i), _LABEL_BYTES)) for i in numbers])
        for number, front in zip(numbers, fronts):
            has_labels = 32 + 4 * int.from_bytes(front[8:12], "little") <= len(front) and part_kind(front[:8]) == WHOLE
            try:
                header, _ = unpack(front[8:] if has_labels else file.read(number), file.where(number))
            except FileError:
                continue
            yield number, header.id, header.label
