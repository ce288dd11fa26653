"""Values of a shard: one array for each part of a key it holds, what updates it, and its file on disk."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic_file import write_atomic
from ...context import cpu
from ...engine import Var
from ...engine.memory import storage
from ...errors import FileError, FrameError, KVStoreError
from ...ndarray import NDArray, RowSparseNDArray
from ...ndarray.core.array_core import allocate
from ...ndarray.core.chunk import Chunk, layout_of
from ..protocol.placement import untag
from ..protocol.row_sparse import Rows
from ..protocol.row_sparse import add as add_rows
from ..wire.frame import CODES
from . import optimizer_codec

Name = tuple[int, int]  # key number, part
_LARGEST_HEADER = 1 << 20


def over(values: np.ndarray) -> NDArray:
    """An array that is the memory of values, C-contiguous, on the CPU."""
    flat = values.reshape(-1).view(np.uint8)
    chunk = Chunk(storage.Block(flat, flat.nbytes, cpu()), Var(), cpu())
    return NDArray(layout_of(values.shape, values.dtype, cpu()), chunk=chunk)


class Value:
    """One part of a key.

    name:     its key's number, and which part it is.
    raw:      its bytes. What goes out of this process is these: there are dtypes of which Python knows no buffers (bfloat16).
    code:     of its dtype in frames.               turn:    its number, so that not all are written at once.
    durable:  the version on disk, -1 for none.     sparse:  whether it was given Rows.
    saved:    async: the last contribution of each rank to what is on disk.
    """

    def __init__(self, name: Name, key: str, shape: tuple[int, ...], dtype: np.dtype):
        self.name, self.key, self._made_as = name, key, (key, tuple(shape), dtype)
        self.array = allocate(layout_of(shape, dtype, cpu()))
        self.flat: np.ndarray = self.array.device_array().reshape(-1)
        self.flat.fill(0)
        self.raw: np.ndarray = self.flat.view(np.uint8)
        self.code = CODES[dtype]
        self.filled = False
        self.sum: NDArray | None = None
        self.updater: Any = None
        self.durable, self.turn = -1, 0
        self.saved: dict[int, int] = {}
        self.sparse = False

    def agrees(self, key: str, shape: tuple[int, ...], dtype: str) -> bool:
        """Whether it is a value of that key, shape and dtype."""
        return self._made_as == (key, tuple(shape), np.dtype(dtype))

    def update(self, contributions: Sequence[Any]) -> None:
        """Merge contributions, arrays or Rows, added from first to last: by the updater, else they replace the value."""
        if self.sparse and any(type(c) is Rows for c in contributions):
            self._update_rows(contributions)
            return
        if self.updater is None:
            add_up(contributions, self.flat)
            return
        first = contributions[0]
        if len(contributions) == 1 and first.flags.aligned:
            grad = over(first.reshape(self.array.shape))
        else:
            grad = self.sum
            if grad is None:
                grad = self.sum = allocate(layout_of(self.array.shape, self.flat.dtype, cpu()))
            add_up(contributions, grad.device_array().reshape(-1))
        self.updater(untag(self.key), grad, self.array)
        self.array.wait_to_read()

    def _update_rows(self, contributions: Sequence[Any]) -> None:
        shape = self.array.shape
        if not all(type(c) is Rows for c in contributions):
            self.update([c.into(np.empty(shape, self.flat.dtype)).reshape(-1) if type(c) is Rows else c for c in contributions])
            return
        total = add_rows(contributions)
        if self.updater is None:
            total.into(self.flat.reshape(shape))
            return
        self.updater(untag(self.key), RowSparseNDArray(total.numbers, over(total.values), shape), self.array)
        self.array.wait_to_read()


def add_up(contributions: Sequence[np.ndarray], out: np.ndarray) -> None:
    """out = their sum, added from first to last."""
    first, *rest = contributions
    if not rest:
        np.copyto(out, first)
        return
    with np.errstate(all="ignore"):
        np.add(first, rest[0], out=out)
        for c in rest[1:]:
            np.add(out, c, out=out)


class Values:
    """All values of a shard.

    folder:  where they are written, a file each; None: nowhere.
    """

    def __init__(self, folder: Path | None = None):
        self._folder = folder
        self._values: dict[Name, Value] = {}
        self._make_updater: Callable[[], Any] | None = None

    def __getitem__(self, name: Name) -> Value:
        """Raises FrameError for a key that is not there."""
        try:
            return self._values[name]
        except KeyError:
            raise FrameError(f"frame: there is no key number {name[0]}, part {name[1]}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def items(self) -> list[tuple[Name, Value]]:
        return list(self._values.items())

    @property
    def updates(self) -> bool:
        """Whether pushes go through an optimizer."""
        return self._make_updater is not None

    def make(self, name: Name, key: str, shape: tuple[int, ...], dtype: Any) -> Value:
        """A part of a key, zero until it is filled. Raises KVStoreError when there is no memory for it."""
        try:
            value = self._values[name] = Value(name, key, shape, np.dtype(dtype))
            value.turn = len(self._values)
        except MemoryError as e:
            raise KVStoreError(f"key {key[2:]!r}: no memory for {math.prod(shape)} elements of {dtype}") from e
        if self._make_updater is not None:
            value.updater = self._make_updater()
        return value

    def set_optimizer(self, spec: Mapping[str, Any] | None) -> None:
        """Update by the optimizer that spec describes, one for each part, so that its counts are the key's own."""
        if spec is None:
            return
        make = optimizer_codec.hook("from_spec")
        make(spec)  # what is wrong with it is said now
        self._make_updater = lambda: make(spec).create_updater()
        for value in self._values.values():
            value.updater = self._make_updater()

    # ---- on disk ------------------------------------------------------------------------------------------------------
    def save(self, name: Name, version: int, applied: Mapping[int, int]) -> None:
        """Write a value and the states of its updater. Whoever reads the file sees the old one or the new one, whole."""
        if self._folder is None:
            return
        value = self._values[name]
        states = value.updater.get_states(True) if value.updater is not None else b""
        crc = zlib.crc32(states, zlib.crc32(value.raw.data))
        header = json.dumps({"key": value.key, "shape": value.array.shape, "dtype": value.flat.dtype.name, "version": version,
                             "applied": {str(r): n for r, n in applied.items()}, "states": len(states), "crc": crc}).encode()
        pieces = len(header).to_bytes(8, "little") + header, value.raw.data, states
        write_atomic(self._path(name), pieces, sync=False)
        value.durable, value.saved = version, dict(applied)

    def load(self, name: Name) -> tuple[int, dict[int, int]] | None:
        """Read a value back: (version, applied), or None if it was never written. Raises FileError for a damaged file."""
        path = None if self._folder is None else self._path(name)
        if path is None or not path.exists():
            return None
        value, data = self._values[name], path.read_bytes()
        try:
            size = int.from_bytes(data[:8], "little")
            if size > _LARGEST_HEADER:
                raise ValueError(f"a header of {size} bytes")
            h = json.loads(data[8:8 + size])
            start, nbytes = 8 + size, value.flat.nbytes
            if (h["key"], tuple(h["shape"]), h["dtype"]) != (value.key, value.array.shape, value.flat.dtype.name):
                raise ValueError(f"it holds {h['key']} {h['dtype']}{h['shape']}")
            if len(data) != start + nbytes + h["states"] or zlib.crc32(memoryview(data)[start:]) != h["crc"]:
                raise ValueError("it is cut short, or its checksum is wrong")
            version, applied = int(h["version"]), {int(r): int(n) for r, n in h["applied"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise FileError(f"{path}: a damaged snapshot: {e}.") from e
        value.flat[:] = np.frombuffer(data, value.flat.dtype, len(value.flat), start)
        if value.updater is not None and h["states"]:
            value.updater.set_states(data[start + nbytes:], str(path))
        value.filled, value.durable, value.saved = True, version, applied
        return version, applied

    def _path(self, name: Name) -> Path:
        assert self._folder is not None
        return self._folder / f"{name[0]}.{name[1]}.snapshot"
