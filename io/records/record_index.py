"""The index of a record file: its lines, and the records that wrong lines were meant to list."""

from __future__ import annotations

import os

import numpy as np

from .files import ByteSource


def read_index(path: str | os.PathLike) -> tuple[list[bytes], np.ndarray] | None:
    """Return keys and byte offsets int64[N] in the order of the lines; None unless all are `key<TAB>offset`."""
    with ByteSource(path) as index:
        fields = index.read(0, index.size).split()
    try:
        offsets = np.array(fields[1::2], np.int64)
    except (ValueError, OverflowError):
        return None
    return (fields[0::2], offsets) if len(offsets) and len(fields) % 2 == 0 else None


def reconcile(listed: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the offset of the record that each line of an index means, int64[N]; -1 where that is ambiguous.

    A line is right if a record begins at its offset and no earlier line has it. A run of wrong lines means the unlisted
    records between the right lines around it, if there are as many. If after that no more unlisted records than wrong
    lines are left, they belong to these lines in order.
    listed:   int64[N], the offsets in the lines.
    offsets:  int64[M], where records begin, ascending.
    """
    first = np.zeros(len(listed), bool)
    first[np.unique(listed, return_index=True)[1]] = True
    right = first & np.isin(listed, offsets)
    meant = np.where(right, listed, -1)
    unlisted = np.setdiff1d(offsets, listed[right])
    edges = np.flatnonzero(np.diff(np.concatenate([[True], right, [True]])))  # of the runs of wrong lines
    for start, stop in edges.reshape(-1, 2).tolist():
        after = np.searchsorted(unlisted, listed[start - 1]) if start else 0
        until = np.searchsorted(unlisted, listed[stop]) if stop < len(listed) else len(unlisted)
        if until - after == stop - start:
            meant[start:stop] = unlisted[after:until]
    values, counts = np.unique(meant, return_counts=True)
    meant[np.isin(meant, values[counts > 1]) & ~right] = -1  # claimed by two runs of an unordered index
    rest, unknown = np.setdiff1d(unlisted, meant), np.flatnonzero(meant < 0)
    if len(rest) <= len(unknown):
        meant[unknown[:len(rest)]] = rest
    return meant
