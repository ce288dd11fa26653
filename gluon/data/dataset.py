"""Datasets: samples by index, and datasets derived from others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import DTypeError, ParameterError
from ...io.records.recordio import MXIndexedRecordIO
from ...ndarray import NDArray
from ...show import Shown
from .sampler import FilterSampler, Sampler, SequentialSampler

__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset"]


class Dataset(Shown):
    """Base class: `dataset[i]` is sample i of `len(dataset)`. A list or an array can be used in its place."""

    def __getitem__(self, idx: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.__getitem__: a dataset must define it.")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__}.__len__: a dataset must define it.")

    def filter(self, fn: Callable[[Any], Any]) -> Dataset:
        """Return the dataset of the samples for which fn(sample) is true. All samples are read once, now."""
        return _SampledDataset(self, FilterSampler(fn, self))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Return part `index` of num_shards parts, which are consecutive and differ by at most one sample.

        Shard before shuffling, so that the workers' parts are disjoint. Raises ParameterError unless 0 <= index < num_shards.
        """
        if num_shards < 1 or not 0 <= index < num_shards:
            raise ParameterError(f"Dataset.shard: index {index} of {num_shards} shards. Give num_shards >= 1 and an index from 0 "
                                 f"to num_shards - 1.")
        length, rest = divmod(len(self), num_shards)
        start = length * index + min(index, rest)
        return _SampledDataset(self, SequentialSampler(length + (index < rest), start))

    def take(self, count: int | None) -> Dataset:
        """Return the dataset of the first count samples; of all if count is None or larger than their number."""
        return _SampledDataset(self, SequentialSampler(len(self) if count is None else min(count, len(self))))

    def sample(self, sampler: Sampler) -> Dataset:
        """Return the dataset of the samples at the indices of sampler, in its order. The sampler is read once, now."""
        if not isinstance(sampler, Sampler):
            raise DTypeError(f"Dataset.sample: sampler is a {type(sampler).__name__}. Give a gluon.data.Sampler.")
        return _SampledDataset(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Return the dataset of fn(sample), or of fn(*sample) where a sample is a tuple.

        lazy:  call fn whenever a sample is read; False: once for all samples, now.
        """
        transformed = _LazyTransformDataset(self, fn)
        return transformed if lazy else SimpleDataset([transformed[i] for i in range(len(transformed))])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Return the dataset in which the first element of each sample, such as its data, is replaced by fn(element)."""
        return self.transform(_TransformFirstClosure(fn), lazy)


class SimpleDataset(Dataset):
    """The elements of a list or of anything else with a length and indices."""

    def __init__(self, data: Any):
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: Any) -> Any:
        return self._data[idx]


class _LazyTransformDataset(Dataset):
    """fn of each sample of data, computed when the sample is read."""

    def __init__(self, data: Any, fn: Callable[..., Any]):
        self._data, self._fn = data, fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: Any) -> Any:
        sample = self._data[idx]
        return self._fn(*sample) if isinstance(sample, tuple) else self._fn(sample)


class _TransformFirstClosure:
    """fn applied to the first of its arguments. A class, so that it can be pickled."""

    def __init__(self, fn: Callable[[Any], Any]):
        self._fn = fn

    def __call__(self, x: Any, *rest: Any) -> Any:
        return (self._fn(x), *rest) if rest else self._fn(x)


class _SampledDataset(Dataset):
    """The samples of dataset at the indices of a sampler."""

    def __init__(self, dataset: Any, sampler: Sampler):
        self._dataset, self._sampler = dataset, sampler
        self._indices = list(sampler)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, idx: Any) -> Any:
        return self._dataset[self._indices[idx]]


class ArrayDataset(Dataset):
    """Samples (a[i], b[i], ...) of arrays, lists or datasets a, b, ... of one length; a[i] itself if there is only a.

    Raises ParameterError without arguments, or if lengths differ.
    """

    def __init__(self, *args: Any):
        if not args:
            raise ParameterError("ArrayDataset: no arrays are given. Give one or more.")
        self._length = len(args[0])
        for i, data in enumerate(args):
            if len(data) != self._length:
                raise ParameterError(f"ArrayDataset: array 0 has {self._length} samples, array {i} has {len(data)}. Give arrays "
                                     f"of one length.")
        # numbers, such as labels, are read faster from NumPy
        self._data = [data.asnumpy() if isinstance(data, NDArray) and data.ndim == 1 else data for data in args]

    def _facts(self) -> Mapping[str, Any]:
        return {"samples": self._length, "arrays": len(self._data)}

    def __getitem__(self, idx: Any) -> Any:
        return self._data[0][idx] if len(self._data) == 1 else tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """The records of a RecordIO file as bytes.

    filename:  of the `.rec` file; its index has the same name with `.idx`.
    Raises FileError for a missing or damaged file.
    """

    def __init__(self, filename: str):
        self.idx_file = os.path.splitext(filename)[0] + ".idx"
        self.filename = filename
        self._record = MXIndexedRecordIO(self.idx_file, filename, "r")

    def __getitem__(self, idx: Any) -> Any:
        return self._record.read_idx(self._record.keys[idx])

    def __len__(self) -> int:
        return len(self._record.keys)


class _DownloadedDataset(Dataset):
    """Base class of datasets that a subclass reads into `_data` and `_label` by `_get_data`, from files in the folder root.

    transform:  a function of data and label; None: samples are (data, label).
    """

    def __init__(self, root: str, transform: Callable[[Any, Any], Any] | None):
        super().__init__()
        self._transform = transform
        self._data: Any = None
        self._label: Any = None
        self._root = os.path.expanduser(root)
        os.makedirs(self._root, exist_ok=True)
        self._get_data()

    def __getitem__(self, idx: Any) -> Any:
        if self._transform is not None:
            return self._transform(self._data[idx], self._label[idx])
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return len(self._label)

    def _get_data(self) -> None:
        raise NotImplementedError(f"{type(self).__name__}._get_data: a subclass must define it.")
