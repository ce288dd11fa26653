"""Incoming: the contributions in the frames of workers, checked and decoded.

Every record is checked against the key table before memory is accessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import FrameError
from ..protocol.row_sparse import Rows, row_size
from ..wire.compression import TwoBit
from ..wire.frame import DTYPES, INLINE, ROWS, TWO_BITS, Record, WireFrame
from ..wire.shared_memory import SegmentViews
from .values import StoredValue, StoredValues


class Incoming:
    """views: the shared memory of each rank."""

    def __init__(self, values: StoredValues, views: Mapping[int, SegmentViews]):
        self._values, self._views = values, views

    def contributions(self, rank: int, frame: WireFrame) -> list[tuple[Record, Any]]:
        """Return each record with its elements, or its Rows. If one of them is invalid, none is returned."""
        for r in frame.records:
            self._check(r)
        found, at = list[tuple[Record, Any]](), 0
        for r in frame.records:
            if r.segment == INLINE:
                raw = np.frombuffer(frame.payload, np.uint8, r.nbytes, at)
                at += r.nbytes
            else:
                raw = self.place(rank, r.segment, r.at, r.nbytes)
            if r.dtype == TWO_BITS:
                found.append((r, TwoBit(np.int32(r.at).view(np.float32).item()).expand(raw, r.n)))
            else:
                found.append((r, _rows(raw, self._values[r.name]) if r.dtype == ROWS else raw.view(DTYPES[r.dtype])))
        return found

    def place(self, rank: int, segment: int, at: int, nbytes: int) -> np.ndarray:
        if rank not in self._views or segment < 0:
            raise FrameError(f"frame: a record names segment {segment}, which this server cannot read")
        return self._views[rank].bytes(segment, at, nbytes)

    def _check(self, r: Record) -> None:
        value = self._values[r.name]
        dtype = np.dtype("float32") if r.dtype == TWO_BITS else value.flat.dtype if r.dtype == ROWS else DTYPES[r.dtype]
        if dtype != value.flat.dtype or (r.n != len(value.flat) and r.dtype != ROWS):
            raise FrameError(f"frame: {r.n} {dtype} do not fit key {value.key[2:]!r}, slice {r.slice}: {len(value.flat)} "
                             f"{value.flat.dtype}")


def _rows(raw: np.ndarray, value: StoredValue) -> Rows:
    """Return the rows in raw, which holds their indices and then the rows themselves."""
    rows, *shape = value.array.shape or (0,)
    count, rest = divmod(len(raw), 8 + row_size(value.array.shape) * value.flat.itemsize)
    if rest:
        raise FrameError(f"frame: {len(raw)} bytes are no rows of key {value.key[2:]!r}: {value.array.shape}")
    return Rows(row_indices(raw[:8 * count], rows), raw[8 * count:].view(value.flat.dtype).reshape(count, *shape))


def row_indices(raw: np.ndarray, rows: int) -> np.ndarray:
    """Return the row indices in raw. Raises FrameError unless they ascend below rows."""
    if len(raw) % 8:
        raise FrameError(f"frame: {len(raw)} bytes are no row indices")
    indices = raw.view("<i8")
    if len(indices) and (indices[0] < 0 or indices[-1] >= rows or (indices[1:] <= indices[:-1]).any()):
        raise FrameError(f"frame: the row indices do not ascend from 0 to {rows - 1}")
    return indices
