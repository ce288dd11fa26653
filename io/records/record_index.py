"""The index of a record file: what its lines say, and which records are meant where they are wrong."""

from __future__ import annotations

import os

import numpy as np

from .files import ByteSource


def read_index(path: str | os.PathLike) -> tuple[list[bytes], np.ndarray] | None:
    """Keys, and byte offsets as int64[N], in the order of the lines; None if these are not lines of `key<TAB>offset`."""
    with ByteSource(path) as index:
        fields = index.read(0, index.size).split()
    try:
        offsets = np.array(fields[1::2], np.int64)
    except (ValueError, OverflowError):
        return None
    return (fields[0::2], offsets) if len(offsets) and len(fields) % 2 == 0 else None


def reconcile(listed: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Which record each line of an index means, int64[N]: a byte offset, or -1 where that cannot be told.

    A line is right if a record begins where it points, and no line before points there. Where lines are wrong, and as many
    records that no line lists lie between those of the lines before and behind, they are these. If no more unlisted
    records are left than wrong lines, all of them belong to the index, in their order.
    listed, heads:  int64[N], as the lines stand; int64[M], where records begin, ascending.
    """
    first = np.zeros(len(listed), bool)
    first[np.unique(listed, return_index=True)[1]] = True
    right = first & np.isin(listed, heads)
    meant = np.where(right, listed, -1)
    unlisted = np.setdiff1d(heads, listed[right])
    edges = np.flatnonzero(np.diff(np.concatenate([[True], right, [True]])))  # of the runs of wrong lines
    for start, stop in edges.reshape(-1, 2).tolist():
        after = np.searchsorted(unlisted, listed[start - 1]) if start else 0
        until = np.searchsorted(unlisted, listed[stop]) if stop < len(listed) else len(unlisted)
        if until - after == stop - start:
            meant[start:stop] = unlisted[after:until]
    values, counts = np.unique(meant, return_counts=True)
    meant[np.isin(meant, values[counts > 1]) & ~right] = -1  # of an index without order: what two places claim
    rest, unknown = np.setdiff1d(unlisted, meant), np.flatnonzero(meant < 0)
    if len(rest) <= len(unknown):
        meant[unknown[:len(rest)]] = rest
    return meant
