"""Data for `mx.test_utils`: files that are there already, MNIST from its own files, iterators that repeat one batch.

Nothing is fetched: Tritium does not use the network.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FileError, MXNetError
from ...io import DataBatch, DataIter, NDArrayIter

_FILES = {"train_data": "train-images-idx3-ubyte", "train_label": "train-labels-idx1-ubyte",
          "test_data": "t10k-images-idx3-ubyte", "test_label": "t10k-labels-idx1-ubyte"}


def download(url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False, retries: int = 5) -> str:
    """The path of a file that is there already. Raises MXNetError when it is not: nothing is fetched."""
    name = fname or url.split("/")[-1]
    if dirname is not None:
        name = os.path.join(dirname, name)
    if os.path.exists(name) and not overwrite:
        return name
    raise MXNetError(f"test_utils.download: {name} is not here, and Tritium does not use the network. "
                     f"Fetch {url} yourself and put it there.")


def get_mnist(path: str = "data") -> dict[str, np.ndarray]:
    """MNIST from its four files in path, plain or .gz: {"train_data": [60000, 1, 28, 28] from 0 to 1, "train_label": [60000],
    "test_data", "test_label"}. Raises MXNetError when they are not there, FileError when they are damaged."""
    paths = {part: next((p for p in (os.path.join(path, name), os.path.join(path, f"{name}.gz")) if os.path.exists(p)), None)
             for part, name in _FILES.items()}
    if None in paths.values():
        missing = ", ".join(_FILES[part] for part, p in paths.items() if p is None)
        raise MXNetError(f"test_utils.get_mnist: {path} has no {missing}. Put MNIST's files there, plain or .gz (nothing is "
                         f"fetched); tritium.examples.digits.load_digits() has 1,797 smaller digits without any.")
    found = {part: _idx(p) for part, p in paths.items() if p is not None}
    return {part: a.reshape(len(a), 1, *a.shape[1:]).astype(np.float32) / 255 if part.endswith("data") else a
            for part, a in found.items()}


def _idx(path: str) -> np.ndarray:
    """The bytes of an IDX file as an array: 0, 0, 8 (bytes), number of axes, sizes (big-endian u32), elements."""
    opened: Any = gzip.open if path.endswith(".gz") else open
    with opened(path, "rb") as f:
        head = f.read(4)
        if len(head) < 4 or head[:3] != b"\0\0\x08" or not 1 <= head[3] <= 3:
            raise FileError(f"test_utils.get_mnist: {path}: offset 0: {head.hex()} does not begin an IDX file of bytes.")
        sizes = np.frombuffer(f.read(4 * head[3]), ">u4").astype(int)
        body = f.read()
    if len(sizes) != head[3] or len(body) != np.prod(sizes):
        raise FileError(f"test_utils.get_mnist: {path}: offset {4 + 4 * head[3]}: {len(body)} bytes follow, sizes "
                        f"{tuple(sizes.tolist())} need {int(np.prod(sizes))}.")
    return np.frombuffer(body, np.uint8).reshape(sizes)


def get_mnist_iterator(batch_size: int, input_shape: Sequence[int], num_parts: int = 1, part_index: int = 0,
                       path: str = "data") -> tuple[NDArrayIter, NDArrayIter]:
    """(training, held out) batches of MNIST, images in input_shape: (784,) or (1, 28, 28). Of the training data, part
    part_index of num_parts. Raises as get_mnist."""
    data = get_mnist(path)
    mine = slice(part_index, None, num_parts)

    def batches(images: np.ndarray, labels: np.ndarray, shuffle: bool) -> NDArrayIter:
        return NDArrayIter(images.reshape(-1, *input_shape), labels.astype(np.float32), batch_size, shuffle=shuffle)

    return (batches(data["train_data"][mine], data["train_label"][mine], True),
            batches(data["test_data"], data["test_label"], False))


class DummyIter(DataIter):
    """The first batch of real_iter, again and again, without end: for measuring without loading."""

    def __init__(self, real_iter: Any):
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data, self.provide_label = real_iter.provide_data, real_iter.provide_label
        self.the_batch: DataBatch = next(real_iter)

    def next(self) -> DataBatch:
        return self.the_batch
