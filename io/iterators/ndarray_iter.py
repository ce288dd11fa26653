"""NDArrayIter: batches from arrays in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...context import Context, cpu
from ...errors import DTypeError, ParameterError, ShapeError, check_choice
from ...ndarray import NDArray, array
from ...ndarray.core.array_core import allocate
from ...ndarray.core.chunk import layout_of
from ..iterator import DataBatch, DataDesc, DataIter
from ..iterator_state import check_counts, check_keys, integers

_MAX_SHUFFLES = 1 << 20  # in a state; loading it repeats them


class _Source:
    """One named array on the host, its batch axis, and the context its batches go to."""

    def __init__(self, name: str, value: Any, layout: str):
        self.name = name
        self.ctx: Context = value.context if isinstance(value, NDArray) else cpu()
        if isinstance(value, NDArray):
            self.values = value.asnumpy()
        else:
            try:
                self.values = np.asarray(value, np.float32)  # MXNet's rule for all but NDArrays
            except (TypeError, ValueError):
                raise DTypeError(f"NDArrayIter: {name!r} is a {type(value).__name__} that cannot become an array of "
                                 f"numbers. Give an NDArray or a NumPy array.") from None
        axis = layout.find("N")
        self.axis = axis if 0 <= axis < self.values.ndim else 0
        if self.values.ndim == 0:
            raise ShapeError(f"NDArrayIter: {name!r} is a single number, not an array of examples.")

    def take(self, index: np.ndarray) -> NDArray:
        """Return the examples at index, on the source's context."""
        if self.ctx.is_gpu:
            return array(self.values.take(index, axis=self.axis), ctx=self.ctx, dtype=self.values.dtype)
        examples = allocate(layout_of(self._shape(len(index)), self.values.dtype, self.ctx))
        # written without a push: no task knows the array yet. Mode "raise" would copy once more, and indices are in range
        self.values.take(index, self.axis, examples.device_array(), "clip")
        return examples

    def describe(self, batch_size: int, layout: str) -> DataDesc:
        return DataDesc(self.name, self._shape(batch_size), self.values.dtype.type, layout)

    def _shape(self, examples: int) -> tuple[int, ...]:
        return (*self.values.shape[:self.axis], examples, *self.values.shape[self.axis + 1:])


class NDArrayIter(DataIter):
    """Batches from arrays in memory.

    data, label:  one array, a list (named `_0_data`, `_1_data`, ...), or a dict of name to array, used in the order of
        the names. Arrays of other classes than NDArray become float32. A csr matrix gives dense batches.
    shuffle:      a new order for every epoch, from NumPy's global generator, so that `np.random.seed(n)` gives MXNet's
        orders. With `seed`, from a generator of this iterator.
    last_batch_handle, when batch_size does not divide the number of examples:
        "pad"        the last batch is filled up from the front; `pad` counts those examples.
        "discard"    the remaining examples are skipped.
        "roll_over"  the remaining examples begin the next epoch; `pad` of that batch counts them.
    provide_data, provide_label:  a DataDesc for each array of a batch.
    layout:       the position of N is the batch axis; an array without that axis uses axis 0.
    `index` of a batch holds its examples' positions in the arrays.
    """

    def __init__(self, data: Any, label: Any = None, batch_size: int = 1, shuffle: bool = False, last_batch_handle: str = "pad",
                 data_name: str = "data", label_name: str = "softmax_label", layout: str = "NCHW", seed: int | None = None):
        super().__init__(batch_size)
        check_choice("NDArrayIter", "last_batch_handle", last_batch_handle, ("pad", "discard", "roll_over"))
        if batch_size < 1:
            raise ParameterError(f"NDArrayIter: batch_size={batch_size} is less than 1.")
        self.layout, self.shuffle, self.last_batch_handle = layout, shuffle, last_batch_handle
        self._data = _sources(data, data_name, layout)
        self._label = [] if label is None else _sources(label, label_name, layout)
        if not self._data:
            raise ParameterError("NDArrayIter: data is empty. Give at least one array.")
        first = self._data[0]
        self.num_data = first.values.shape[first.axis]
        for s in (*self._data, *self._label):
            if s.values.shape[s.axis] != self.num_data:
                raise ShapeError(f"NDArrayIter: {first.name!r} has {self.num_data} examples, {s.name!r} has "
                                 f"{s.values.shape[s.axis]}. Give equally many.")
        if self.num_data == 0:
            raise ShapeError(f"NDArrayIter: {first.name!r} has no examples.")
        self.provide_data = [s.describe(batch_size, layout) for s in self._data]
        self.provide_label = [s.describe(batch_size, layout) for s in self._label]
        self.num_source = len(self._data) + len(self._label)
        self.seed = seed
        self._rest = np.arange(0)  # rows of the last epoch that begin this one
        self.cursor = -batch_size
        self._reset_order()
        self.reset()

    def _facts(self) -> Mapping[str, Any]:
        return {"rows": self.num_data, "batch_size": self.batch_size, "data": {d.name: d.shape for d in self.provide_data},
                "labels": [d.name for d in self.provide_label], "shuffle": bool(self.shuffle)}

    def _reset_order(self) -> None:
        self._random = np.random if self.seed is None else np.random.Generator(np.random.Philox(self.seed))
        self.idx = np.arange(self.num_data)
        self._order = np.arange(self.num_data)  # the rows of this epoch
        self._shuffles = 0

    @property
    def data(self) -> list[tuple[str, NDArray]]:
        """The data as (name, NDArray), in this epoch's order."""
        return [(s.name, s.take(self._order)) for s in self._data]

    @data.setter
    def data(self, arrays: Sequence[tuple[str, Any]]) -> None:
        self._settle()
        self._data = [_Source(name, value, self.layout) for name, value in arrays]

    @property
    def label(self) -> list[tuple[str, NDArray]]:
        """The labels as (name, NDArray), in this epoch's order."""
        return [(s.name, s.take(self._order)) for s in self._label]

    @label.setter
    def label(self, arrays: Sequence[tuple[str, Any]]) -> None:
        self._settle()
        self._label = [_Source(name, value, self.layout) for name, value in arrays]

    @property
    def data_list(self) -> list[NDArray]:
        """The arrays of `data`, then those of `label`."""
        return [array for _, array in (*self.data, *self.label)]

    def _settle(self) -> None:
        """Put the examples in this epoch's order, in which a subclass that assigns `data` has read them."""
        for s in (*self._data, *self._label):
            s.values = s.values.take(self._order, s.axis)
        self._order = np.arange(self.num_data)

    def reset(self) -> None:
        """Begin a new epoch. With "roll_over", a completed epoch's remaining examples come first."""
        self._shuffle()
        if self.last_batch_handle == "roll_over" and self.num_data - self.batch_size < self.cursor < self.num_data:
            self.cursor -= self.num_data + self.batch_size
        else:
            self.cursor = -self.batch_size

    def hard_reset(self) -> None:
        """Begin a new epoch without the remaining examples of the last one."""
        self._shuffle()
        self.cursor = -self.batch_size
        self._rest = self._order[:0]

    def _shuffle(self) -> None:
        if self.shuffle:
            # MXNet shuffles the row numbers and then the rows by them: the same seed must give the same batches
            self._random.shuffle(self.idx)
            self._order = self._order[self.idx]
            self._shuffles += 1

    def iter_next(self) -> bool:
        self.cursor += self.batch_size
        return self.cursor < self.num_data

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        rows = self.getindex()
        if len(rows) < self.batch_size:
            self._rest = rows
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), rows, provide_data=self.provide_data,
                         provide_label=self.provide_label)

    def getindex(self) -> np.ndarray:
        """Return the rows in the batch, fewer than batch_size where an epoch ends without padding."""
        start, end = self.cursor, self.cursor + self.batch_size
        if start < 0:
            return np.concatenate([self._rest, self._order[:end]])
        if self.last_batch_handle == "pad" and end > self.num_data:
            return self._order[np.arange(start, end) % self.num_data]
        return self._order[start:end]

    def getdata(self) -> list[NDArray]:
        rows = self.getindex()
        return [s.take(rows) for s in self._data]

    def getlabel(self) -> list[NDArray]:
        rows = self.getindex()
        return [s.take(rows) for s in self._label]

    def getpad(self) -> int:
        """Return how many of the batch's examples belong to another epoch: at its end ("pad") or its front ("roll_over")."""
        if self.last_batch_handle == "pad":
            return max(0, self.cursor + self.batch_size - self.num_data)
        return max(0, -self.cursor) if self.last_batch_handle == "roll_over" else 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data, for `load_state_dict` in this or another process. With shuffle it needs a seed."""
        if self.shuffle and self.seed is None:
            raise ParameterError("NDArrayIter.state_dict: the order comes from NumPy's global generator, which other code uses "
                                 "too. Give seed=.")
        return {**self._identity(), "shuffles": self._shuffles, "cursor": self.cursor, "rest": self._rest.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch after the one at which the state was saved. Refuses a state of other sizes or seed."""
        check_keys("NDArrayIter", state, self.state_dict(), self._identity())
        shuffles, cursor = integers("NDArrayIter", state, "shuffles", "cursor")
        rest, limit = state["rest"], self.num_data + self.batch_size
        valid = (0 <= shuffles <= _MAX_SHUFFLES and -limit <= cursor < limit and isinstance(rest, list)
                 and len(rest) <= self.batch_size and all(type(row) is int and 0 <= row < self.num_data for row in rest))
        check_counts("NDArrayIter", valid, shuffles=shuffles, cursor=cursor, rest=rest)
        self._reset_order()
        for _ in range(shuffles):
            self._shuffle()
        self.cursor, self._rest = cursor, np.array(rest, np.int64)

    def _identity(self) -> dict[str, Any]:
        return {"rows": self.num_data, "batch_size": self.batch_size, "last_batch_handle": self.last_batch_handle,
                "shuffle": bool(self.shuffle), "seed": self.seed}


def _init_data(data: Any, allow_empty: bool, default_name: str) -> list[tuple[str, NDArray]]:
    """Return the arrays of data with their names, as NDArrays on the host. MXNet's helper, which users' iterators call.

    data: as for NDArrayIter; None stands for no array. Raises ParameterError for no array, unless allow_empty.
    """
    found = [] if data is None or (isinstance(data, (list, tuple)) and not data) else _sources(data, default_name, "")
    if not found and not allow_empty:
        raise ParameterError(f"_init_data: {default_name!r} has no array. Give an array, a list or a dict of arrays.")
    return [(s.name, array(s.values, dtype=s.values.dtype)) for s in found]


def _sources(arrays: Any, name: str, layout: str) -> list[_Source]:
    if isinstance(arrays, (list, tuple)) and not all(np.isscalar(a) for a in arrays):
        arrays = {name if len(arrays) == 1 else f"_{i}_{name}": a for i, a in enumerate(arrays)}
    elif not isinstance(arrays, Mapping):
        arrays = {name: arrays}
    return [_Source(k, v, layout) for k, v in sorted(arrays.items())]
