"""MNISTIter: batches from the idx files of MNIST and similar data sets (Fashion-MNIST, KMNIST, EMNIST)."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zlib
from typing import Any

import numpy as np

from ...errors import FileError, ParameterError
from ..iterator import DataDesc
from ..plan import BatchPlan
from ..records.files import ByteSource
from ..text_arguments import accepts_text
from .row_iter import RowIter


def read_idx(path: str | os.PathLike) -> np.ndarray:
    """Read the uint8 array of an idx file, plain or gzipped: u32 magic (0x0800 + axes), u32 sizes, values; big endian.

    Raises FileError. No more is decompressed than the header announces.
    """
    path = os.fspath(path)
    with ByteSource(path) as source:
        raw: Any = source.read(0, source.size)
    zipped = raw[:2] == b"\x1f\x8b"
    try:
        stream = gzip.GzipFile(fileobj=io.BytesIO(raw)) if zipped else io.BytesIO(raw)
        header = stream.read(4)
        magic = struct.unpack(">I", header)[0] if len(header) == 4 else 0
        axes = magic - 0x0800
        if not 1 <= axes <= 8:
            raise FileError(f"{path}: begins with {header.hex(' ')}, not as an idx file of bytes.")
        sizes = stream.read(4 * axes)
        if len(sizes) < 4 * axes:
            raise FileError(f"{path}: ends inside its header, which takes {4 + 4 * axes} bytes.")
        shape = struct.unpack(f">{axes}I", sizes)
        count = int(np.prod(shape, dtype=object))
        if not zipped and count > len(raw):
            raise FileError(f"{path}: announces uint8{list(shape)}, {count:,} bytes, and has {len(raw) - 4 - 4 * axes:,}.")
        values = stream.read(min(count + 1, 1032 * len(raw) + 1))  # deflate expands a byte to at most 1,032
    except (OSError, EOFError, zlib.error) as e:
        raise FileError(f"{path}: is damaged: {e}.") from None
    if len(values) != count:
        raise FileError(f"{path}: announces uint8{list(shape)}, {count:,} bytes, and has "
                        f"{'more' if len(values) > count else f'{len(values):,}'}.")
    return np.frombuffer(values, np.uint8).reshape(shape)


class MNISTIter(RowIter):
    """Batches of gray images and their labels, float32, pixels divided by 256 as in MXNet.

    image, label:  idx files, plain or gzipped.
    shuffle:       a new order every epoch, which depends on seed and epoch alone. (MXNet shuffles once.)
    flat:          data of shape (batch_size, rows * columns) instead of (batch_size, 1, rows, columns).
    num_parts, part_index:  read one part of the images.
    silent, prefetch_buffer, ctx, data_shape, input_shape:  accepted for MXNet's sake, without effect.
    An incomplete last batch is skipped, as in MXNet; with shuffle it holds other images every epoch. A part smaller than a
    batch gives one batch with padding. (MXNet refuses it.)
    """

    @accepts_text
    def __init__(self, image: str | os.PathLike = "./train-images-idx3-ubyte",
                 label: str | os.PathLike = "./train-labels-idx1-ubyte", batch_size: int = 128, shuffle: bool = True,
                 flat: bool = False, seed: int = 0, silent: bool = False, num_parts: int = 1, part_index: int = 0,
                 dtype: Any = None, data_name: str = "data", label_name: str = "softmax_label", prefetch_buffer: int = 4,
                 ctx: Any = None, data_shape: Any = None, input_shape: Any = None):
        images, labels = read_idx(image), read_idx(label)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise FileError(f"MNISTIter: {os.fspath(image)} holds uint8{list(images.shape)} and {os.fspath(label)} "
                            f"uint8{list(labels.shape)}. Images are [n, rows, columns], labels [n].")
        if dtype not in (None, "float32", np.float32, np.dtype("float32")):
            raise ParameterError(f"MNISTIter: dtype={dtype!r} is not supported. Batches are float32.")
        n, height, width = images.shape
        shape = (height * width,) if flat else (1, height, width)
        self._images, self._labels = images.reshape(n, *shape), labels
        plan = BatchPlan(n, batch_size, num_parts=num_parts, part_index=part_index, round_batch=False, shuffle=shuffle, seed=seed,
                    name="MNISTIter", source=os.fspath(image))
        super().__init__(os.fspath(image), plan, DataDesc(data_name, (batch_size, *shape)), DataDesc(label_name, (batch_size,)))

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, equal for all parts."""
        return max(1, self.plan.rows // self.plan.num_parts // self.batch_size)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = np.multiply(self._images[numbers], np.float32(1 / 256), dtype=np.float32)
        return data, self._labels[numbers].astype(np.float32)
