"""Contributions that come in several runs, until they are whole."""

from __future__ import annotations

import numpy as np

from ...errors import FrameError
from .row_sparse import Rows


class Partial:
    """A contribution that comes in several runs. which: its round, and the number of its frames."""

    def __init__(self, which: tuple[int, int], n: int, dtype: np.dtype):
        self.which = which
        self.data, self.missing, self.seen = np.empty(n, dtype), n, set[int]()

    def add(self, offset: int, run: np.ndarray) -> bool:
        """Whether it is complete now. The same run twice counts once."""
        if offset not in self.seen:
            self.seen.add(offset)
            self.data[offset:offset + len(run)] = run
            self.missing -= len(run)
        return self.missing <= 0


class PartialRows:
    """A contribution of `total` rows that comes in several runs."""

    def __init__(self, which: tuple[int, int], total: int):
        self.which, self.total, self.runs = which, total, dict[int, Rows]()

    def add(self, offset: int, run: Rows) -> Rows | None:
        """All of it, once it is complete. The same run twice counts once. Raises FrameError for runs that are not one."""
        self.runs[offset] = run
        if sum(len(r.numbers) for r in self.runs.values()) < self.total:
            return None
        runs = [self.runs[at] for at in sorted(self.runs)]
        whole = runs[0] if len(runs) == 1 else Rows(*(np.concatenate(parts) for parts in zip(*runs)))
        if len(whole.numbers) != self.total or (whole.numbers[1:] <= whole.numbers[:-1]).any():
            raise FrameError("frame: the numbers of rows do not ascend")
        return whole
