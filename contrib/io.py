"""`mx.contrib.io`: a Gluon DataLoader as a DataIter, for Module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import ParameterError
from ..io import DataDesc, DataIter
from ..ndarray import NDArray, concatenate

__all__ = ["DataLoaderIter"]


class DataLoaderIter(DataIter):
    """The batches [data, label] of a DataLoader. A last batch that is too small is filled up with its first samples.

    loader:      gives pairs of arrays; it is iterated once per epoch.
    data_name, label_name, dtype:  of the arrays that provide_data and provide_label describe.
    """

    def __init__(self, loader: Any, data_name: str = "data", label_name: str = "softmax_label", dtype: str = "float32"):
        super().__init__()
        self._loader, self.dtype = loader, dtype
        self._iter: Iterator[Any] = iter(loader)
        try:
            self._first: Any = next(self._iter)
        except StopIteration:
            raise ParameterError("DataLoaderIter: the loader has no batches.") from None
        data, label = self._first
        self.batch_size = data.shape[0]
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self._batch: Any = None

    def reset(self) -> None:
        """Begin an epoch."""
        self._iter, self._first = iter(self._loader), None

    def iter_next(self) -> bool:
        self._batch = self._first if self._first is not None else next(self._iter, None)
        self._first = None
        return self._batch is not None

    def getdata(self) -> list[NDArray]:
        return [self._whole(self._batch[0])]

    def getlabel(self) -> list[NDArray]:
        return [self._whole(self._batch[1])]

    def getpad(self) -> int:
        return self.batch_size - self._batch[0].shape[0]

    def getindex(self) -> None:
        return None

    def _whole(self, array: NDArray) -> NDArray:
        """Return array in the dtype of the iterator, with batch_size samples."""
        array = array.astype(self.dtype)
        missing = self.batch_size - array.shape[0]
        repeats = -(-self.batch_size // array.shape[0])
        return concatenate([array] * repeats)[: self.batch_size] if missing else array
