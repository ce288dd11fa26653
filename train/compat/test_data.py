"""The part of `mx.test_utils` with data: MNIST from its files, an iterator that repeats a batch, and `download`.

Tritium never uses the network: `download` only finds existing files.
"""

from __future__ import annotations

import bz2
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import MXNetError, NotAvailableError
from ...io import DataBatch, DataIter, NDArrayIter
from ...io.iterators.mnist_iter import read_idx

__all__ = ["DummyIter", "download", "download_model", "get_bz2_data", "get_cifar10", "get_im2rec_path", "get_mnist",
           "get_mnist_iterator", "get_mnist_pkl", "get_mnist_ubyte", "get_zip_data"]

_FILES = {"train_data": "train-images-idx3-ubyte", "train_label": "train-labels-idx1-ubyte",
          "test_data": "t10k-images-idx3-ubyte", "test_label": "t10k-labels-idx1-ubyte"}


def download(url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False, retries: int = 5) -> str:
    """Return the path of an existing file. Raises MXNetError if it does not exist: nothing is downloaded."""
    name = fname or url.split("/")[-1]
    if dirname is not None:
        name = os.path.join(dirname, name)
    if os.path.exists(name) and not overwrite:
        return name
    raise MXNetError(f"test_utils.download: {name} does not exist, and Tritium does not use the network. "
                     f"Download {url} to that path.")


def _need(caller: str, files: Sequence[str], source: str) -> None:
    """Raise MXNetError unless all files exist."""
    missing = [f for f in files if not os.path.exists(f)]
    if missing:
        raise MXNetError(f"test_utils.{caller}: {', '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist, and "
                         f"Tritium does not use the network. Get {source}.")


def get_mnist_pkl() -> None:
    """Raise MXNetError unless data/mnist.pkl.gz exists. It is a pickle: read it with care."""
    _need("get_mnist_pkl", ["data/mnist.pkl.gz"], "http://deeplearning.net/data/mnist/mnist.pkl.gz")


def get_mnist_ubyte() -> None:
    """Raise MXNetError unless the four files of MNIST exist in the folder data."""
    _need("get_mnist_ubyte", [os.path.join("data", f) for f in _FILES.values()], "http://data.mxnet.io/mxnet/data/mnist.zip")


def get_cifar10() -> None:
    """Raise MXNetError unless the record files and lists of CIFAR-10 exist in the folder data/cifar."""
    _need("get_cifar10", [f"data/cifar/{part}.{end}" for part in ("train", "test") for end in ("rec", "lst")],
          "http://data.mxnet.io/mxnet/data/cifar10.zip")


def get_zip_data(data_dir: str, url: str, data_origin_name: str) -> None:
    """Unpack data_dir/data_origin_name, a .zip archive, into data_dir. Raises MXNetError if it does not exist."""
    path = os.path.join(data_dir, data_origin_name)
    _need("get_zip_data", [path], url)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(data_dir)


def get_bz2_data(data_dir: str, data_name: str, url: str, data_origin_name: str) -> None:
    """Unpack data_dir/data_origin_name, a .bz2 file, to data_dir/data_name, unless that exists. Raises MXNetError without it."""
    packed, path = os.path.join(data_dir, data_origin_name), os.path.join(data_dir, data_name)
    if os.path.exists(path):
        return
    _need("get_bz2_data", [packed], url)
    with bz2.open(packed) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)


def download_model(model_name: str, dst_dir: str = "./", meta_info: Mapping[str, Any] | None = None) -> tuple[str, int]:
    """Return the prefix and the epoch, 0, of a model in dst_dir. Raises MXNetError if its files do not exist."""
    prefix = os.path.join(dst_dir, model_name)
    _need("download_model", [f"{prefix}-symbol.json", f"{prefix}-0000.params"], "them from MXNet's model gallery")
    return prefix, 0


def get_im2rec_path(home_env: str = "MXNET_HOME") -> str:
    """Raise NotAvailableError: im2rec is a command here, not a script."""
    raise NotAvailableError("test_utils.get_im2rec_path: there is no script im2rec.py. Run the command `tritium im2rec` with the "
                            "same arguments.")


def get_mnist(path: str = "data") -> dict[str, np.ndarray]:
    """Read MNIST from its four files in path, plain or .gz.

    Returns: {"train_data": float32[60000, 1, 28, 28] from 0 to 1, "train_label": uint8[60000], "test_data", "test_label"}.
    Raises MXNetError for missing files, FileError for damaged ones.
    """
    paths = {part: next((p for p in (os.path.join(path, name), os.path.join(path, f"{name}.gz")) if os.path.exists(p)), None)
             for part, name in _FILES.items()}
    if None in paths.values():
        missing = ", ".join(_FILES[part] for part, p in paths.items() if p is None)
        raise MXNetError(f"test_utils.get_mnist: {path} has no {missing}. Put the files of MNIST there, plain or .gz (nothing "
                         f"is downloaded). tritium.examples.digits.load_digits() returns 1,797 smaller digits without any.")
    arrays = {part: read_idx(p) for part, p in paths.items() if p is not None}
    return {part: a.reshape(len(a), 1, *a.shape[1:]).astype(np.float32) / 255 if part.endswith("data") else a
            for part, a in arrays.items()}


def get_mnist_iterator(batch_size: int, input_shape: Sequence[int], num_parts: int = 1, part_index: int = 0,
                       path: str = "data") -> tuple[NDArrayIter, NDArrayIter]:
    """Return iterators over the training and test images of MNIST, in input_shape: (784,) or (1, 28, 28).

    The training data are part part_index of num_parts. Raises the errors of get_mnist.
    """
    data = get_mnist(path)
    part = slice(part_index, None, num_parts)

    def batches(images: np.ndarray, labels: np.ndarray, shuffle: bool) -> NDArrayIter:
        return NDArrayIter(images.reshape(-1, *input_shape), labels.astype(np.float32), batch_size, shuffle=shuffle)

    return (batches(data["train_data"][part], data["train_label"][part], True),
            batches(data["test_data"], data["test_label"], False))


class DummyIter(DataIter):
    """Repeat the first batch of real_iter forever, to measure training without loading of data."""

    def __init__(self, real_iter: Any):
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data, self.provide_label = real_iter.provide_data, real_iter.provide_label
        self.the_batch: DataBatch = next(real_iter)

    def next(self) -> DataBatch:
        return self.the_batch
