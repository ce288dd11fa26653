"""DataIter, the interface of every source of batches; DataBatch and DataDesc, its results."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..engine.profiler import Event
from ..errors import MXNetError, ParameterError
from ..ndarray import NDArray
from ..show import Shown
from .iterator_state import check_counts, check_keys, integers, state_of


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name, shape, dtype and layout of one array of a batch. It compares and unpacks as the pair (name, shape).

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
        """Return the batch axis: 0 if layout is None, -1 if the layout has no N."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Iterable[tuple[str, Sequence[int]]], types: Iterable[tuple[str, Any]] | None) -> list[DataDesc]:
        """Return a DataDesc for each (name, shape); types are pairs (name, dtype)."""
        dtypes = dict(types or ())
        return [DataDesc(name, shape, dtypes.get(name, np.float32)) for name, shape in shapes]


class DataBatch(Shown):
    """The arrays of one training step.

    data, label:  lists of NDArray.
    pad:          how many of the last examples are padding.
    index:        int64[batch], the examples' positions in the source, or None.
    """

    def __init__(self, data: Sequence[NDArray] | None, label: Sequence[NDArray] | None = None, pad: int | None = None,
                 index: np.ndarray | None = None, bucket_key: Any = None,
                 provide_data: list[DataDesc] | None = None, provide_label: list[DataDesc] | None = None):
        for name, arrays in (("data", data), ("label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise MXNetError(f"DataBatch: {name} is a {type(arrays).__name__}. Give a list of NDArrays.")
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key, self.provide_data, self.provide_label = bucket_key, provide_data, provide_label

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        data = [d.shape for d in self.data or ()]
        label = [d.shape for d in self.label] if self.label else None
        return f"{type(self).__name__}: data shapes: {data} label shapes: {label}"


def as_batch(batch: Any) -> DataBatch:
    """Convert a batch of any class to a DataBatch. Attributes that it lacks become None.

    Raises ParameterError if it has no attribute `data`.
    """
    if isinstance(batch, DataBatch):
        return batch
    if not hasattr(batch, "data"):
        raise ParameterError(f"Module: a batch of class {type(batch).__name__} has no attribute `data`. Give a DataBatch, or any "
                             f"object whose `data` is a list of arrays.")
    names = ("label", "pad", "index", "bucket_key", "provide_data", "provide_label")
    label, pad, index, *others = (getattr(batch, name, None) for name in names)
    return DataBatch(batch.data, label, pad, None if callable(index) else index, *others)  # a namedtuple has a method `index`


class DataIter(Shown):
    """A source of batches. Iterate over it, call `reset()`, iterate again.

    A subclass sets provide_data and provide_label. It implements either iter_next, getdata and, if needed, getlabel, getpad
    and getindex, or it implements next.
    """

    def __init__(self, batch_size: int = 0):
        self.batch_size = batch_size

    def __iter__(self):
        return self

    def __next__(self) -> DataBatch:
        with Event("decode"):  # shown by the profiler
            return self.next()

    def next(self) -> DataBatch:
        """Return the next batch. Raises StopIteration at the end of the epoch."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def reset(self) -> None:
        """Go back to the first batch."""

    def iter_next(self) -> bool:
        """Move to the next batch. Returns False at the end of the epoch."""
        raise NotImplementedError(f"{type(self).__name__}.iter_next")

    def getdata(self) -> Any:
        """Return the data arrays of the current batch; the one array itself where an iterator reads a file."""
        raise NotImplementedError(f"{type(self).__name__}.getdata")

    def getlabel(self) -> Any:
        """Return the label arrays of the current batch, or None; the one array itself where an iterator reads a file."""
        return None

    def getindex(self) -> np.ndarray | None:
        """Return the positions of the batch's examples in the source, int64[batch], or None if unknown."""
        return None

    def getpad(self) -> int | None:
        """Return how many of the batch's last examples are padding, or None if unknown."""
        return None


class CurrentBatchIter(DataIter):
    """An iterator whose batches come from other iterators. A subclass's iter_next stores each in `current_batch`."""

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
    """Another iterator, shortened or repeated so that an epoch has `size` batches.

    reset_internal:  also reset the inner iterator in `reset()`.
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
        """Return the position as plain data. The inner iterator must have a state_dict, too."""
        return {"size": self.size, "cur": self.cur, "inner": state_of(self.data_iter, "ResizeIter")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of an iterator of the same size."""
        check_keys("ResizeIter", state, ("size", "cur", "inner"), {"size": self.size})
        cur, = integers("ResizeIter", state, "cur")
        check_counts("ResizeIter", 0 <= cur <= self.size, cur=cur)
        self.data_iter.load_state_dict(state["inner"])
        self.cur = cur
