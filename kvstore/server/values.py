"""The values of a server, with their updaters and snapshots."""

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
from ..array_ops import sum_into
from ..protocol.key_table import untag
from ..protocol.row_sparse import Rows
from ..protocol.row_sparse import add as add_rows
from ..protocol.session import Name
from ..wire.frame import CODES
from . import optimizer_codec

_LARGEST_HEADER = 1 << 20  # bytes, of a snapshot


def as_ndarray(values: np.ndarray) -> NDArray:
    """Return an NDArray on the CPU that shares the memory of values, which is C-contiguous."""
    flat = values.reshape(-1).view(np.uint8)
    chunk = Chunk(storage.Block(flat, flat.nbytes, cpu()), Var(), cpu())
    return NDArray(layout_of(values.shape, values.dtype, cpu()), chunk=chunk)


class SnapshotFiles:
    """The snapshots of one value: two files, written in turn, so that one is complete at any time.

    Each is created under another name and renamed once. Later snapshots are written over it, which costs a tenth of the time. A
    process that dies meanwhile leaves a file with a wrong checksum, and the other file counts. A file is the size of its header
    (8 bytes), the header (JSON), the value and the states of its updater.

    layout:  key, shape and dtype of the value, which a file must agree with.
    nbytes:  of the value.
    """

    def __init__(self, folder: Path, name: str, layout: tuple[str, tuple[int, ...], str], nbytes: int):
        self._paths = [folder / f"{name}.{i}.snapshot" for i in range(2)]
        self._layout, self._nbytes, self._number = layout, nbytes, 0

    def write(self, version: int, applied: Mapping[int, int], raw: np.ndarray, states: bytes) -> None:
        path = self._paths[(self._number + 1) % 2]
        key, shape, dtype = self._layout
        crc = zlib.crc32(states, zlib.crc32(raw.data))
        header = json.dumps({"key": key, "shape": shape, "dtype": dtype, "number": self._number + 1, "version": version,
                             "applied": {str(r): n for r, n in applied.items()}, "states": len(states), "crc": crc}).encode()
        pieces = len(header).to_bytes(8, "little") + header, raw.data, states
        if path.exists():
            with open(path, "r+b") as file:
                file.writelines(pieces)
                file.truncate()
        else:
            write_atomic(path, pieces, mode=0o600, sync=False)
        self._number += 1  # only now: after an error the same file is written again

    def read(self) -> tuple[int, dict[int, int], memoryview, bytes] | None:
        """Return the arguments of `write` of the newest complete snapshot; None if there are no files.

        Raises FileError if all files are damaged.
        """
        found, error = [], None
        for path in self._paths:
            try:
                if path.exists():
                    found.append(self._parse(path.read_bytes()))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
                error = FileError(f"{path}: a damaged snapshot: {e}.")
        if not found and error is not None:
            raise error
        self._number, newest = max(found, key=lambda snapshot: snapshot[0], default=(0, None))
        return newest

    def _parse(self, data: bytes) -> tuple[int, tuple[int, dict[int, int], memoryview, bytes]]:
        size = int.from_bytes(data[:8], "little")
        if size > _LARGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        h: dict[str, Any] = json.loads(data[8:8 + size])
        rest = memoryview(data)[8 + size:]
        if (h["key"], tuple(h["shape"]), h["dtype"]) != self._layout:
            raise ValueError(f"it holds {h['key']} {h['dtype']}{h['shape']}")
        if len(rest) != self._nbytes + h["states"] or zlib.crc32(rest) != h["crc"]:
            raise ValueError("it is cut short, or its checksum is wrong")
        applied = {int(r): int(n) for r, n in h["applied"].items()}
        return int(h["number"]), (int(h["version"]), applied, rest[:self._nbytes], bytes(rest[self._nbytes:]))


class StoredValue:
    """One slice of a key.

    filled:   it has an initial value.
    durable:  the version on disk; -1: none.
    saved:    async: the last contribution of each rank to the version on disk.
    turn:     a number that spreads the snapshots of different values over the rounds.
    """

    def __init__(self, name: Name, key: str, shape: Sequence[int], dtype: np.dtype, folder: Path | None):
        self.name, self.key = name, key
        self.array = allocate(layout_of(tuple(shape), dtype, cpu()))
        self.flat: np.ndarray = self.array.device_array().reshape(-1)
        self.flat.fill(0)
        self.raw: np.ndarray = self.flat.view(np.uint8)
        self.code, self.layout = CODES[dtype], (key, tuple(shape), dtype.name)
        self.filled = False
        self.updater: Any = None
        self.durable, self.turn = -1, 0
        self.saved: dict[int, int] = {}
        self._files = None if folder is None else SnapshotFiles(folder, f"{name[0]}.{name[1]}", self.layout, len(self.raw))
        self._sum: NDArray | None = None

    def update(self, contributions: Sequence[Any]) -> None:
        """Merge the sum of contributions (arrays or Rows, added from first to last): by the updater, or replacing the value."""
        if Rows in map(type, contributions):
            self._update_rows(contributions)
        elif self.updater is None:
            sum_into(self.flat, contributions)
        elif len(contributions) == 1 and contributions[0].flags.aligned:
            self._merge(as_ndarray(contributions[0].reshape(self.array.shape)))
        else:
            if self._sum is None:
                self._sum = allocate(layout_of(self.array.shape, self.flat.dtype, cpu()))
            sum_into(self._sum.device_array().reshape(-1), contributions)
            self._merge(self._sum)

    def _update_rows(self, contributions: Sequence[Any]) -> None:
        shape = self.array.shape
        if not all(type(c) is Rows for c in contributions):
            self.update([c.into(np.empty(shape, self.flat.dtype)).reshape(-1) if type(c) is Rows else c for c in contributions])
            return
        total = add_rows(contributions)
        if self.updater is None:
            total.into(self.flat.reshape(shape))
        else:
            self._merge(RowSparseNDArray(total.indices, as_ndarray(total.values), shape))

    def _merge(self, grad: NDArray | RowSparseNDArray) -> None:
        self.updater(untag(self.key), grad, self.array)
        self.array.wait_to_read()

    def save(self, version: int, applied: Mapping[int, int]) -> None:
        if self._files is not None:
            self._files.write(version, applied, self.raw, self.updater.get_states(True) if self.updater is not None else b"")
            self.durable, self.saved = version, dict(applied)

    def load(self) -> tuple[int, dict[int, int]] | None:
        """Read a snapshot, and return (version, applied), or None if there is none. Raises FileError for a damaged one."""
        snapshot = None if self._files is None else self._files.read()
        if snapshot is None:
            return None
        version, applied, raw, states = snapshot
        self.raw[:] = np.frombuffer(raw, np.uint8)
        if self.updater is not None and states:
            self.updater.set_states(states, "a snapshot")
        self.filled, self.durable, self.saved = True, version, applied
        return version, applied


class StoredValues(dict[Name, StoredValue]):
    """All values of a server. folder: for snapshots; None: no snapshots."""

    def __init__(self, folder: Path | None = None):
        super().__init__()
        self._folder = folder
        self._make_updater: Callable[[], Any] | None = None

    def __missing__(self, name: Name) -> StoredValue:
        raise FrameError(f"frame: unknown key number {name[0]}, slice {name[1]}")

    @property
    def has_optimizer(self) -> bool:
        return self._make_updater is not None

    def create(self, name: Name, key: str, shape: Sequence[int], dtype: Any) -> StoredValue:
        """Add a slice of a key, with zeros. Raises KVStoreError if there is not enough memory."""
        try:
            value = self[name] = StoredValue(name, key, shape, np.dtype(dtype), self._folder)
        except MemoryError as e:
            raise KVStoreError(f"key {key[2:]!r}: not enough memory for {math.prod(shape)} elements of {dtype}") from e
        value.turn = len(self)
        if self._make_updater is not None:
            value.updater = self._make_updater()
        return value

    def set_optimizer(self, spec: Mapping[str, Any] | None) -> None:
        """Merge pushes by the optimizer that spec describes. Each slice has its own copy, with its own update count."""
        if spec is None:
            return
        make = optimizer_codec.hook("from_spec")
        make(spec)  # raises the error of an invalid spec now
        self._make_updater = lambda: make(spec).create_updater()
        for value in self.values():
            value.updater = self._make_updater()
