"""Snapshots of one value: two files, written in turn, so that one is complete at any time.

Each is created under another name and renamed once. Later snapshots are written over it, which costs a tenth of the time. A
process that dies meanwhile leaves a file with a wrong checksum, and the other file counts. A file is the size of its header
(8 bytes), the header (JSON), the value and the states of its updater. Every size in it is checked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...atomic_file import write_atomic
from ...errors import FileError

_LARGEST_HEADER = 1 << 20  # bytes


class Snapshot(NamedTuple):
    """A value on disk. number: of the snapshots of this value; applied: async, the last contribution of each rank."""

    number: int
    version: int
    applied: dict[int, int]
    raw: memoryview
    states: bytes


class SnapshotFiles:
    """The files of one value. layout: its key, shape and dtype, which a file must agree with; nbytes: of the value."""

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

    def read(self) -> Snapshot | None:
        """Return the newest complete snapshot; None if there are no files. Raises FileError if all files are damaged."""
        found, error = [], None
        for path in self._paths:
            try:
                if path.exists():
                    found.append(self._parse(path.read_bytes()))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
                error = FileError(f"{path}: a damaged snapshot: {e}.")
        if not found and error is not None:
            raise error
        newest = max(found, key=lambda snapshot: snapshot.number, default=None)
        self._number = newest.number if newest is not None else 0
        return newest

    def _parse(self, data: bytes) -> Snapshot:
        size = int.from_bytes(data[:8], "little")
        if size > _LARGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        h: dict[str, Any] = json.loads(data[8:8 + size])
        rest = memoryview(data)[8 + size:]
        if (h["key"], tuple(h["shape"]), h["dtype"]) != self._layout:
            raise ValueError(f"it holds {h['key']} {h['dtype']}{h['shape']}")
        if len(rest) != self._nbytes + h["states"] or zlib.crc32(rest) != h["crc"]:
            raise ValueError("it is cut short, or its checksum is wrong")
        return Snapshot(int(h["number"]), int(h["version"]), {int(r): int(n) for r, n in h["applied"].items()},
                        rest[:self._nbytes], bytes(rest[self._nbytes:]))
