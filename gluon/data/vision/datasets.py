"""Datasets of images: MNIST and CIFAR from local files, record files, folders and lists. Nothing is downloaded."""

from __future__ import annotations

import os
import tarfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from .... import ndarray as nd
from ....errors import FileError
from ....io import image
from ....io.image.image_list import read_lines
from ....io.iterators.mnist_iter import read_idx
from ....io.records import recordio
from ....train.compat.base import data_dir
from .. import dataset

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "ImageFolderDataset", "ImageListDataset", "ImageRecordDataset"]

Transform = Callable[[Any, Any], Any] | None

_IMAGE_FILES = (".jpg", ".jpeg", ".png")


def _root(name: str) -> str:
    return os.path.join(data_dir(), "datasets", name)


class MNIST(dataset._DownloadedDataset):
    """Handwritten digits: samples (uint8[28, 28, 1] as NDArray, int32 label).

    root:       the folder with the four idx files, gzipped or not, such as train-images-idx3-ubyte.gz.
    train:      the 60,000 images for training; False: the 10,000 for testing.
    transform:  a function of image and label.
    Raises FileError for a missing or damaged file.
    """

    _source: ClassVar[str] = "http://yann.lecun.com/exdb/mnist"

    def __init__(self, root: str = _root("mnist"), train: bool = True, transform: Transform = None):
        self._train = train
        super().__init__(root, transform)

    def _get_data(self) -> None:
        kind = "train" if self._train else "t10k"
        label_file, data_file = self._find(f"{kind}-labels-idx1-ubyte"), self._find(f"{kind}-images-idx3-ubyte")
        label, data = read_idx(label_file), read_idx(data_file)
        if label.ndim != 1 or data.shape != (len(label), 28, 28):
            raise FileError(f"{type(self).__name__}: {data_file} holds uint8{list(data.shape)} and {label_file} "
                            f"uint8{list(label.shape)}. Images are [n, 28, 28], labels [n].")
        self._data = nd.array(data[..., None], dtype=np.uint8)
        self._label = label.astype(np.int32)

    def _find(self, name: str) -> str:
        for path in (os.path.join(self._root, f"{name}.gz"), os.path.join(self._root, name)):
            if os.path.exists(path):
                return path
        raise _missing(self, os.path.join(self._root, f"{name}.gz"))


class FashionMNIST(MNIST):
    """Images of articles of clothing in the format of MNIST. Parameters, samples and file names are MNIST's."""

    _source = "https://github.com/zalandoresearch/fashion-mnist"

    def __init__(self, root: str = _root("fashion-mnist"), train: bool = True, transform: Transform = None):
        super().__init__(root, train, transform)


class CIFAR10(dataset._DownloadedDataset):
    """Small photographs of 10 classes: samples (uint8[32, 32, 3] as NDArray, int32 label).

    root:       the folder with the files data_batch_1.bin, ..., or with the archive cifar-10-binary.tar.gz.
    train:      the 50,000 images for training; False: the 10,000 for testing.
    transform:  a function of image and label.
    Raises FileError for a missing or damaged file.
    """

    _archive: ClassVar[str] = "cifar-10-binary.tar.gz"
    _train_data: ClassVar[Sequence[str]] = [f"data_batch_{i}.bin" for i in range(1, 6)]
    _test_data: ClassVar[Sequence[str]] = ["test_batch.bin"]
    _label_bytes: ClassVar[int] = 1
    _source: ClassVar[str] = "https://www.cs.toronto.edu/~kriz/cifar.html"

    def __init__(self, root: str = _root("cifar10"), train: bool = True, transform: Transform = None):
        self._train = train
        super().__init__(root, transform)

    def _get_data(self) -> None:
        rows = np.concatenate([self._read(name) for name in (self._train_data if self._train else self._test_data)])
        pixels = rows[:, self._label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self._data = nd.array(pixels, dtype=np.uint8)
        self._label = self._label_of(rows).astype(np.int32)

    def _label_of(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, 0]

    def _read(self, name: str) -> np.ndarray:
        """Return the rows of a file of bytes: labels, then pixels [3, 32, 32]."""
        path, archive = os.path.join(self._root, name), os.path.join(self._root, self._archive)
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
        elif os.path.exists(archive):
            path, data = f"{archive}:{name}", _from_archive(archive, name)
        else:
            raise _missing(self, path, f" or {archive}")
        width = self._label_bytes + 3 * 32 * 32
        if not data or len(data) % width:
            raise FileError(f"{path}: has {len(data):,} bytes, which is not a number of samples of {width:,} bytes.")
        return np.frombuffer(data, np.uint8).reshape(-1, width)


class CIFAR100(CIFAR10):
    """Small photographs of 100 classes, which form 20 groups. Parameters and samples are CIFAR10's.

    root:        the folder with train.bin and test.bin, or with the archive cifar-100-binary.tar.gz.
    fine_label:  labels are the 100 classes; False: the 20 groups.
    """

    _archive = "cifar-100-binary.tar.gz"
    _train_data = ["train.bin"]
    _test_data = ["test.bin"]
    _label_bytes = 2

    def __init__(self, root: str = _root("cifar100"), fine_label: bool = False, train: bool = True,
                 transform: Transform = None):
        self._fine_label = fine_label
        super().__init__(root, train, transform)

    def _label_of(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, int(self._fine_label)]


def _from_archive(archive: str, name: str) -> bytes:
    """Return the file called name, in whatever folder of a tar archive. Nothing is unpacked to disk."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and os.path.basename(member.name) == name:
                    file = tar.extractfile(member)
                    assert file is not None
                    return file.read()
    except (tarfile.TarError, OSError, EOFError) as e:
        raise FileError(f"{archive}: cannot be read as a tar archive: {e}.") from None
    raise FileError(f"{archive}: has no file {name}.")


def _missing(data: Any, path: str, more: str = "") -> FileError:
    return FileError(f"{type(data).__name__}: there is no file {path}{more}. Nothing is downloaded: get it from {data._source} "
                     f"and put it there, or give another root.")


class ImageRecordDataset(dataset.RecordFileDataset):
    """The images of a RecordIO file: samples (uint8[height, width, 3] as NDArray, label).

    filename:   of the `.rec` file, with an index `.idx` beside it.
    flag:       1: three channels; 0: one channel, gray.
    transform:  a function of image and label.
    """

    def __init__(self, filename: str, flag: int = 1, transform: Transform = None):
        super().__init__(filename)
        self._flag, self._transform = flag, transform

    def __getitem__(self, idx: Any) -> Any:
        header, packed = recordio.unpack(super().__getitem__(idx))
        pixels = image.imdecode(packed, self._flag)
        return (pixels, header.label) if self._transform is None else self._transform(pixels, header.label)


class _ImageFiles(dataset.Dataset):
    """Samples (image, label) of `items`, which are pairs of a file name and a label."""

    items: list[tuple[str, Any]]
    _flag: int
    _transform: Transform = None

    def __getitem__(self, idx: Any) -> Any:
        path, label = self.items[idx]
        pixels = image.imread(path, self._flag)
        return (pixels, label) if self._transform is None else self._transform(pixels, label)

    def __len__(self) -> int:
        return len(self.items)


class ImageFolderDataset(_ImageFiles):
    """The images in the folders of a folder: samples (uint8[height, width, 3] as NDArray, number of the folder).

    root:       holds one folder of `.jpg`, `.jpeg` and `.png` files for each class. Other files are skipped with a warning.
    flag:       1: three channels; 0: one channel, gray.
    transform:  a function of image and label.

    synsets:  the names of the folders, sorted: `synsets[i]` is class i.
    items:    (file name, label) of all images.
    """

    def __init__(self, root: str, flag: int = 1, transform: Transform = None):
        self._root = os.path.expanduser(root)
        self._flag, self._transform, self._exts = flag, transform, list(_IMAGE_FILES)
        self._list_images(self._root)

    def _list_images(self, root: str) -> None:
        self.synsets: list[str] = []
        self.items = []
        for folder in sorted(os.listdir(root)):
            path = os.path.join(root, folder)
            if not os.path.isdir(path):
                warnings.warn(f"ImageFolderDataset: {path} is not a folder, and is skipped.", stacklevel=3)
                continue
            label = len(self.synsets)
            self.synsets.append(folder)
            for name in sorted(os.listdir(path)):
                file = os.path.join(path, name)
                if os.path.splitext(file)[1].lower() in self._exts:
                    self.items.append((file, label))
                else:
                    warnings.warn(f"ImageFolderDataset: {file} is skipped: its name does not end with {', '.join(self._exts)}.",
                                  stacklevel=3)


class ImageListDataset(_ImageFiles):
    """The images of a list: samples (uint8[height, width, 3] as NDArray, label). (Of MXNet 2.)

    root:     the folder that file names are relative to.
    imglist:  the name of a `.lst` file, or a list of [label, file name] or [label, ..., file name].
    flag:     1: three channels; 0: one channel, gray.
    A single label is a float, several are float32[n].
    """

    def __init__(self, root: str = ".", imglist: str | Sequence[Sequence[Any]] | None = None, flag: int = 1):
        self._root, self._flag = os.path.expanduser(root), flag
        if isinstance(imglist, str):
            listed = [(line.path, line.label) for line in read_lines(os.path.join(self._root, imglist))]
        else:
            listed = [(path, np.asarray(labels, np.float32).reshape(-1)) for *labels, path in imglist or ()]
        self.items = [(os.path.join(self._root, path), float(label[0]) if len(label) == 1 else label) for path, label in listed]
