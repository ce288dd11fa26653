"""LocalKVStore: the store of one process. All its work is pushed to the engine, and no call waits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..atomic_file import read_file, write_atomic
from ..context import cpu
from ..errors import FileError, MXNetError, ParameterError, ShapeError, describe, nearest
from ..ndarray import NDArray, RowSparseNDArray, empty
from .array_ops import add_up, add_up_all, copy, copy_all, copy_rows
from .base import Key, KVStore, MakesUpdater, Updater, first_values, pairs
from .protocol.row_sparse import add_up_rows, row_indices

_SMALL = 2 << 20  # bytes of all values: below this, work runs inline


class LocalKVStore(KVStore):
    """`local` keeps and sums values on the host; `device` does so on the device that pushed first, with copies from GPU to GPU.

    Devices are summed in the order they are given, so the bits of the sum do not depend on timing.
    """

    def __init__(self, kind: str = "local"):
        super().__init__(kind)
        self._values: dict[Key, NDArray] = {}
        self._key_type: type | None = None
        self._updater: Updater | None = None
        self._on_device = kind != "local"
        self._nbytes = 0

    def _facts(self) -> Mapping[str, Any]:
        return {"type": self.type, "keys": len(self._values)}

    @property
    def _is_small(self) -> bool:
        """True if all values together are so small that work on them is faster inline than in other threads."""
        return self._nbytes <= _SMALL

    # ---- keys ---------------------------------------------------------------------------------------------------
    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        for k, arrays in first_values(key, value):
            self._check_new(k, arrays)
            ctx = arrays[0].context if self._on_device else cpu(0)
            self._values[k] = empty(arrays[0].shape, ctx=ctx, dtype=arrays[0].dtype)
            self._nbytes += arrays[0].nbytes
            copy(arrays[0], self._values[k])

    def _check_new(self, key: Key, arrays: Sequence[NDArray]) -> None:
        """Raise ParameterError unless init may create the key."""
        kind = str if isinstance(key, str) else int
        if self._key_type not in (None, kind):
            raise ParameterError(f"KVStore.init: keys are all int or all str: {key!r} is a {kind.__name__}, "
                                 f"earlier keys are {self._key_type.__name__}.")
        self._key_type = kind
        if key in self._values or len(arrays) > 1:
            raise ParameterError(f"KVStore.init: key {key!r} exists already. Call init once for a key; push changes its value.")

    def _pairs(self, caller: str, key: Key | Sequence[Key], value: Any) -> list[tuple[Key, list[Any]]]:
        """Return `pairs`. Raises ParameterError for an unknown key, ShapeError for an array unlike its key's value."""
        todo = pairs(caller, key, value)
        for k, arrays in todo:
            stored = self._values.get(k)
            if stored is None:
                raise ParameterError(f"{caller}: no key {k!r}.{nearest(str(k), map(str, self._values))} "
                                     f"Call init({k!r}, value) first.")
            for a in arrays:
                if tuple(stored.shape) != tuple(a.shape) or np.dtype(stored.dtype) != np.dtype(a.dtype):
                    raise ShapeError(f"{caller}: key {k!r} holds {describe(stored)}, this is {describe(a)}. "
                                     f"A key keeps the shape and dtype of its initial value.")
        return todo

    # ---- values -------------------------------------------------------------------------------------------------
    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        todo = self._push_sparse(self._pairs("KVStore.push", key, value), priority)
        for k, arrays in todo:
            stored = self._values[k]
            if self._on_device and not stored.context.is_gpu and arrays[0].context.is_gpu:
                stored = self._values[k] = stored.copyto(arrays[0].context)
            if self._updater is None:
                add_up([(arrays, stored)], priority, self._is_small)
        if self._updater is None:
            return
        sums = add_up_all([(arrays, self._values[k]) for k, arrays in todo], priority)
        if len(todo) > 1 and hasattr(self._updater, "get_states"):  # an optimizer's updater takes all keys at once
            update_all: Any = self._updater
            update_all([k for k, _ in todo], sums, [self._values[k] for k, _ in todo])
            return
        for (k, _), total in zip(todo, sums):
            self._updater(k, total, self._values[k])

    def _push_sparse(self, todo: list[tuple[Key, list[Any]]], priority: int) -> list[tuple[Key, list[Any]]]:
        """Push the row-sparse values in todo, and return the others."""
        sparse = [t for t in todo if RowSparseNDArray in map(type, t[1])]
        if not sparse:
            return todo
        for k, arrays in sparse:
            if any(type(a) is not RowSparseNDArray for a in arrays):
                raise ParameterError(f"KVStore.push: key {k!r}: some arrays are dense, some row-sparse. Use tostype('default').")
        for k, arrays in sparse:
            self._push_rows(k, arrays, priority)
        keys = {k for k, _ in sparse}
        return [t for t in todo if t[0] not in keys]

    def _push_rows(self, key: Key, arrays: Sequence[RowSparseNDArray], priority: int) -> None:
        stored = self._values[key]
        total = add_up_rows(arrays, stored.context, priority)
        if self._updater is None:
            copy(total.tostype("default"), stored, priority)
        else:
            self._updater(key, total, stored)

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        caller = "KVStore.pull"
        if out is None:
            raise ParameterError(f"{caller}: give the array to fill: pull(key, out=array).")
        todo = self._pairs(caller, key, out)
        for k, arrays in todo:
            if RowSparseNDArray in map(type, arrays):
                raise ParameterError(f"{caller}: key {k!r}: pull cannot fill a row-sparse array. Use "
                                     f"row_sparse_pull(key, out, row_ids=ids).")
        copy_all([(self._values[k], a) for k, arrays in todo for a in arrays], priority, self._is_small)

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        caller = "KVStore.row_sparse_pull"
        if out is None or row_ids is None:
            raise ParameterError(f"{caller}: give the array to fill and the rows: row_sparse_pull(key, out=array, row_ids=ids).")
        outs = [(k, a) for k, arrays in self._pairs(caller, key, out) for a in arrays]
        ids = list(row_ids) if isinstance(row_ids, (list, tuple)) else [row_ids] * len(outs)
        if len(ids) != len(outs):
            raise ParameterError(f"{caller}: {len(outs)} arrays to fill, {len(ids)} arrays of row indices. Give one of each.")
        for (k, a), rows in zip(outs, ids):
            self._pull_rows(k, a, rows, priority)

    def _pull_rows(self, key: Key, out: Any, ids: NDArray, priority: int) -> None:
        if isinstance(out, RowSparseNDArray):
            out.rows = row_indices(ids, out.shape)
            out.data = self._values[key][out.rows].as_in_context(out.context)
        else:
            copy_rows(self._values[key], ids, out, priority)

    def barrier(self) -> None:
        for value in self._values.values():
            value.wait_to_read()

    # ---- updating ------------------------------------------------------------------------------------------------
    def set_updater(self, updater: Updater | None) -> None:
        """Merge pushes by updater(key, sum, stored), which changes `stored` in place. None: a push replaces the value.

        `sum` may be the pushed array itself, so an updater must not write it.
        """
        if updater is not None and not callable(updater):
            raise ParameterError(f"KVStore.set_updater: {updater!r} is not a function updater(key, grad, weight).")
        self._updater = updater

    _set_updater = set_updater  # MXNet's name for it

    def set_optimizer(self, optimizer: MakesUpdater) -> None:
        """Merge pushes by an optimizer: an object whose `create_updater()` returns an updater.

        For state files, the updater needs `get_states(dump_optimizer)` and `set_states(bytes, source)`.
        """
        if not isinstance(optimizer, MakesUpdater):
            raise ParameterError(f"KVStore.set_optimizer: {optimizer!r} has no create_updater(). "
                                 f"Create an optimizer with mx.optimizer.create(name, ...).")
        self.set_updater(optimizer.create_updater())

    def save_optimizer_states(self, fname: str | os.PathLike, dump_optimizer: bool = False) -> None:
        """Write the updater's states to fname. A reader never sees a partly written file."""
        get = self._hook("save_optimizer_states", "get_states")
        write_atomic(fname, get(dump_optimizer))

    def load_optimizer_states(self, fname: str | os.PathLike) -> None:
        """Load the states in fname. Raises FileError if they cannot be read; then nothing has changed."""
        put = self._hook("load_optimizer_states", "set_states")
        put(read_states(fname), os.fspath(fname))

    def _hook(self, caller: str, name: str) -> Any:
        hook = getattr(self._updater, name, None)
        if hook is None:
            raise MXNetError(f"KVStore.{caller}: the store has no optimizer, so no states. Call set_optimizer first.")
        return hook


def read_states(fname: str | os.PathLike) -> bytes:
    """Return the content of a state file. Raises FileError if it cannot be read."""
    try:
        return read_file(fname)
    except OSError as e:
        raise FileError(f"{fname}: cannot be read: {e.strerror}.") from e
