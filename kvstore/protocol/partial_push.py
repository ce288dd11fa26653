"""Contributions that arrive in several runs, until they are complete."""

from __future__ import annotations

import numpy as np

from ...errors import FrameError
from .row_sparse import Rows


class PartialPush:
    """A contribution that arrives in several runs. attempt: its round, and the number of its frames."""

    def __init__(self, attempt: tuple[int, int], n: int, dtype: np.dtype):
        self.attempt = attempt
        self.data, self.missing, self.seen = np.empty(n, dtype), n, set[int]()

    def add(self, offset: int, run: np.ndarray) -> bool:
        """Add a run, and return whether the contribution is complete. A repeated run counts once."""
        if offset not in self.seen:
            self.seen.add(offset)
            self.data[offset:offset + len(run)] = run
            self.missing -= len(run)
        return self.missing <= 0


class PartialPushRows:
    """A contribution of `total` rows that arrives in several runs. attempt: as in `PartialPush`."""

    def __init__(self, attempt: tuple[int, int], total: int):
        self.attempt, self.total, self.runs = attempt, total, dict[int, Rows]()

    def add(self, offset: int, run: Rows) -> Rows | None:
        """Add a run, and return all rows when they are complete. A repeated run counts once.

        Raises FrameError if the runs do not fit together.
        """
        self.runs[offset] = run
        if sum(len(r.indices) for r in self.runs.values()) < self.total:
            return None
        runs = [self.runs[at] for at in sorted(self.runs)]
        rows = runs[0] if len(runs) == 1 else Rows(*(np.concatenate(parts) for parts in zip(*runs)))
        if len(rows.indices) != self.total or (rows.indices[1:] <= rows.indices[:-1]).any():
            raise FrameError("frame: the row indices are not ascending")
        return rows
