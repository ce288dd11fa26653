"""DataIter: what every source of batches looks like; DataBatch and DataDesc, what it gives."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..engine.profiler import Event
from ..errors import MXNetError, ParameterError
from ..ndarray import NDArray
from .iterator_state import check_keys, integers, state_of


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """The name, shape, dtype and layout of one array of a batch. Compares and unpacks as the pair (name, shape).

    layout:  one letter per axis; N is the batch ("NCHW", "TNC").
    """

    dtype: Any
    layout: str | None

    def __new__(cls, name: str, shape: Sequence[int], dtype: Any = np.float32, layout: str | None = "NCHW"):
        self = super().__new__(cls, name, tuple(shape))
        self.dtype, self.layout = dtype, layout
        return self

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Which axis counts the examples: 0 if layout is None, -1 if no axis does."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Iterable[tuple[str, Sequence[int]]],
                 types: Iterable[tuple[str, Any]] | None) -> list[DataDesc]:
        """One DataDesc per (name, shape), with the dtype that (name, dtype) pairs give it."""
        dtypes = dict(types or ())
        return [DataDesc(name, shape, dtypes.get(name, np.float32)) for name, shape in shapes]


class DataBatch:
    """One step's arrays.

    data, label:  lists of NDArray.
    pad:          how many of the last examples only fill the batch up, and count for nothing.
    index:        int64[batch]: which examples of the source these are, where the iterator knows.
    """

    def __init__(self, data: Sequence[NDArray] | None, label: Sequence[NDArray] | None = None, pad: int | None = None,
                 index: np.ndarray | None = None, bucket_key: Any = None,
                 provide_data: list[DataDesc] | None = None, provide_label: list[DataDesc] | None = None):
        for what, arrays in (("data", data), ("label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise MXNetError(f"DataBatch: {what} is a {type(arrays).__name__}. Give a list of NDArrays.")
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key, self.provide_data, self.provide_label = bucket_key, provide_data, provide_label

    def __str__(self) -> str:
        data = [d.shape for d in self.data or ()]
        label = [d.shape for d in self.label] if self.label else None
        return f"{type(self).__name__}: data shapes: {data} label shapes: {label}"


def as_batch(batch: Any) -> DataBatch:
    """A batch of any class as a DataBatch: `data` it must have; each other attribute that its class lacks is None.

    Raises ParameterError when there is no `data`.
    """
    if isinstance(batch, DataBatch):
        return batch
    if not hasattr(batch, "data"):
        raise ParameterError(f"Module: a batch of class {type(batch).__name__} has no attribute `data`. Give a DataBatch, or any "
                             f"object whose `data` is a list of arrays.")
    index = getattr(batch, "index", None)
    index = None if callable(index) else index  # every tuple, so every namedtuple, has a method of that name
    label, pad, bucket_key = (getattr(batch, name, None) for name in ("label", "pad", "bucket_key"))
    return DataBatch(batch.data, label, pad, index, bucket_key, getattr(batch, "provide_data", None),
                     getattr(batch, "provide_label", None))


class DataIter:
    """A source of batches: iterate over it, `reset()`, iterate again.

    A subclass gives iter_next and getdata, and getlabel, getpad, getindex if there is something to say; or next; and
    provide_data, provide_label.
    """

    def __init__(self, batch_size: int = 0):
        self.batch_size = batch_size

    def __iter__(self):
        return self

    def __next__(self) -> DataBatch:
        with Event("decode"):  # shown by the profiler
            return self.next()

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration at the end of the epoch."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def reset(self) -> None:
        """Go back to the first batch."""

    def iter_next(self) -> bool:
        """Move on; whether there is a batch."""
        raise NotImplementedError(f"{type(self).__name__}.iter_next")

    def getdata(self) -> list[NDArray]:
        """The data arrays of the batch iter_next moved to."""
        raise NotImplementedError(f"{type(self).__name__}.getdata")

    def getlabel(self) -> list[NDArray] | None:
        """The label arrays of the batch iter_next moved to, or None if there are none."""
        return None

    def getindex(self) -> np.ndarray | None:
        """Which examples of the source the batch holds, int64[batch], or None if that is not known."""
        return None

    def getpad(self) -> int | None:
        """How many of the batch's last examples only fill it up, or None if that is not known."""
        return None


class CurrentBatchIter(DataIter):
    """An iterator that takes its batches whole from others: a subclass's iter_next puts them into `current_batch`."""

    current_batch: DataBatch | None = None

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        assert self.current_batch is not None
        return self.current_batch

    def getdata(self):
        return self.current_batch.data if self.current_batch is not None else []

    def getlabel(self):
        return as_batch(self.current_batch).label if self.current_batch is not None else []

    def getindex(self):
        return as_batch(self.current_batch).index if self.current_batch is not None else None

    def getpad(self):
        return as_batch(self.current_batch).pad if self.current_batch is not None else None


class ResizeIter(CurrentBatchIter):
    """Another iterator, cut or repeated to `size` batches an epoch.

    reset_internal:  whether `reset()` also sends the inner iterator back to its beginning.
    """

    def __init__(self, data_iter: Any, size: int, reset_internal: bool = True):
        super().__init__(data_iter.batch_size)
        self.data_iter, self.size, self.reset_internal = data_iter, size, reset_internal
        self.provide_data, self.provide_label = data_iter.provide_data, data_iter.provide_label
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key
        self.cur = 0

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        if self.cur == self.size:
            return False
        self.current_batch = next(self.data_iter, None)
        if self.current_batch is None:
            self.data_iter.reset()
            self.current_batch = next(self.data_iter, None)
            if self.current_batch is None:
                raise MXNetError("ResizeIter: the inner iterator has no batch at all.")
        self.cur += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as plain data, if the inner one can say where it does."""
        return {"size": self.size, "cur": self.cur, "inner": state_of(self.data_iter, "ResizeIter")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken. Refuses a state of another size; the inner iterator, one that is not its own."""
        check_keys("ResizeIter", state, ("size", "cur", "inner"))
        cur, = integers("ResizeIter", state, "cur")
        if state["size"] != self.size or not 0 <= cur <= self.size:
            raise ParameterError(f"ResizeIter.load_state_dict: the state is of size {state['size']!r}, cur {cur}; this iterator "
                                 f"has size {self.size!r}.")
        self.data_iter.load_state_dict(state["inner"])
        self.cur = cur
