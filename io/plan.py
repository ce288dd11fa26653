"""BatchPlan: which rows of a source make which batch of which epoch, for one part of several. A pure function."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..integers import cdiv


class BatchPlan:
    """The rows of every batch, as a function of (epoch, begin, batch) alone.

    Part i of n holds rows [i * rows // n, (i + 1) * rows // n); every part gives equally many batches, so that workers
    that take a step together end together. The last batch of an epoch is filled up with the rows that come next, and
    `pad` says how many they are. With round_batch the next epoch begins behind them (`begin`), as in MXNet; not where
    there are several parts, which have to keep step.

    shuffle:  a new order of the part's rows every epoch, decided by seed, part and epoch.
    name:     what errors call the iterator.
    """

    def __init__(self, rows: int, batch_size: int, *, num_parts: int = 1, part_index: int = 0, round_batch: bool = True,
                 shuffle: bool = False, seed: int = 0, name: str = "Plan", source: str = "the source"):
        if batch_size < 1:
            raise ParameterError(f"{name}: batch_size={batch_size} is less than 1.")
        if not 0 <= part_index < num_parts:
            raise ParameterError(f"{name}: part_index={part_index} is not one of num_parts={num_parts} parts, "
                                 f"which are numbered from 0.")
        if rows < 1:
            raise ShapeError(f"{name}: {source} has no rows.")
        self.rows, self.batch_size, self.num_parts, self.part_index = rows, batch_size, num_parts, part_index
        self.shuffle, self.seed = bool(shuffle), int(seed)
        self.first = part_index * rows // num_parts
        self.size = (part_index + 1) * rows // num_parts - self.first
        self.largest = cdiv(rows, num_parts)  # rows of the largest part
        self.carries = bool(round_batch) and num_parts == 1
        self._orders: dict[int, np.ndarray] = {}

    def batches(self, begin: int = 0) -> int:
        """How many batches an epoch has that begins at position begin of its order."""
        return cdiv(self.largest - begin, self.batch_size)

    def pad(self, begin: int, batch: int) -> int:
        """How many of the batch's last rows only fill it up."""
        return min(self.batch_size, max(0, begin + (batch + 1) * self.batch_size - self.size))

    def following(self, begin: int) -> int:
        """Where the next epoch begins, after one that began at begin and was taken to its end."""
        return (begin + self.batches(begin) * self.batch_size - self.size) % self.size if self.carries else 0

    def numbers(self, epoch: int, begin: int, batch: int) -> np.ndarray:
        """The batch's rows, int64[batch_size], as numbers in the whole source."""
        at = begin + batch * self.batch_size
        if not self.shuffle and at + self.batch_size <= self.size:
            return np.arange(at + self.first, at + self.first + self.batch_size)
        return self._at(epoch, np.arange(at, at + self.batch_size))

    def after(self, epoch: int, begin: int, batch: int, row: int) -> Iterator[int]:
        """The other rows of the part, beginning with the one that stands behind row `row` of the batch."""
        at = begin + batch * self.batch_size + row
        for more in range(1, max(self.size, 1)):
            yield int(self._at(epoch, np.array([at + more]) % self.size)[0])

    def _at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """What stands at positions of the epoch's order; behind its end, what the next epoch begins with."""
        if not self.size:  # fewer rows than parts: the batch only keeps step
            return positions % self.rows
        lap, place = np.divmod(positions, self.size)
        if not self.shuffle:
            return place + self.first
        if not self.carries:
            return self._order(epoch)[place] + self.first
        cuts = [0, *(np.flatnonzero(np.diff(lap)) + 1).tolist(), len(lap)]
        return np.concatenate([self._order(epoch + int(lap[a]))[place[a:b]] for a, b in pairwise(cuts)]) + self.first

    def _order(self, epoch: int) -> np.ndarray:
        found = self._orders.get(epoch)
        if found is None:
            bits = np.random.Philox(np.random.SeedSequence([self.seed % (1 << 64), self.part_index, epoch]))
            found = np.random.Generator(bits).permutation(self.size)
            kept = [e for e in (epoch - 1, epoch + 1) if e in self._orders]
            self._orders = {**{e: self._orders[e] for e in kept}, epoch: found}
        return found

    def identity(self) -> dict[str, Any]:
        """What a state must agree in to be this plan's."""
        return {"rows": self.rows, "batch_size": self.batch_size, "num_parts": self.num_parts, "part_index": self.part_index,
                "shuffle": self.shuffle, "seed": self.seed, "round_batch": self.carries}
