"""BatchPlan: the rows of each batch of each epoch, for one part of several. It depends on its arguments alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..integers import cdiv


class BatchPlan:
    """The rows of every batch, as a function of (epoch, begin, batch).

    Part i of n holds rows [i * rows // n, (i + 1) * rows // n). Every part gives equally many batches, so that workers in
    synchronous training end together. The last batch of an epoch is filled up with the rows that come next; `pad` counts
    them. With round_batch and a single part the next epoch begins behind them (`begin`), as in MXNet.

    shuffle:  a new order of the part's rows in each epoch, which depends on seed, part and epoch alone.
    name:     the iterator's name in error messages.
    """

    def __init__(self, rows: int, batch_size: int, *, num_parts: int = 1, part_index: int = 0, round_batch: bool = True,
                 shuffle: bool = False, seed: int = 0, name: str = "BatchPlan", source: str = "the source"):
        if batch_size < 1:
            raise ParameterError(f"{name}: batch_size={batch_size} is less than 1.")
        if not 0 <= part_index < num_parts:
            raise ParameterError(f"{name}: part_index={part_index} is out of range for num_parts={num_parts}. "
                                 f"Parts count from 0.")
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
        """Return the number of batches in an epoch that starts at position begin."""
        return cdiv(self.largest - begin, self.batch_size)

    def pad(self, begin: int, batch: int) -> int:
        """Return how many of the batch's last rows are padding."""
        return min(self.batch_size, max(0, begin + (batch + 1) * self.batch_size - self.size))

    def following(self, begin: int) -> int:
        """Return the position at which the epoch after a complete one starts."""
        return (begin + self.batches(begin) * self.batch_size - self.size) % self.size if self.carries else 0

    def numbers(self, epoch: int, begin: int, batch: int) -> np.ndarray:
        """Return the batch's rows, int64[batch_size], as indices into the whole source."""
        at = begin + batch * self.batch_size
        if not self.shuffle and at + self.batch_size <= self.size:
            return np.arange(at + self.first, at + self.first + self.batch_size)
        return self._rows_at(epoch, np.arange(at, at + self.batch_size))

    def after(self, epoch: int, begin: int, batch: int, row: int) -> Iterator[int]:
        """Yield the other rows of the part, in order, from the one after row `row` of the batch."""
        at = begin + batch * self.batch_size + row
        for offset in range(1, max(self.size, 1)):
            yield int(self._rows_at(epoch, np.array([at + offset]) % self.size)[0])

    def _rows_at(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the rows at these positions of the epoch's order. Positions past its end continue in the next epoch."""
        if not self.size:  # fewer rows than parts: the batch only keeps this part in step
            return positions % self.rows
        lap, position = np.divmod(positions, self.size)
        if not self.shuffle:
            return position + self.first
        if not self.carries:
            return self._order(epoch)[position] + self.first
        cuts = [0, *(np.flatnonzero(np.diff(lap)) + 1).tolist(), len(lap)]
        return np.concatenate([self._order(epoch + int(lap[a]))[position[a:b]] for a, b in pairwise(cuts)]) + self.first

    def _order(self, epoch: int) -> np.ndarray:
        order = self._orders.get(epoch)
        if order is None:
            bits = np.random.Philox(np.random.SeedSequence([self.seed % (1 << 64), self.part_index, epoch]))
            order = np.random.Generator(bits).permutation(self.size)
            neighbours = [e for e in (epoch - 1, epoch + 1) if e in self._orders]
            self._orders = {**{e: self._orders[e] for e in neighbours}, epoch: order}
        return order

    def identity(self) -> dict[str, Any]:
        """Return the values that a state must share to fit this plan."""
        return {"rows": self.rows, "batch_size": self.batch_size, "num_parts": self.num_parts, "part_index": self.part_index,
                "shuffle": self.shuffle, "seed": self.seed, "round_batch": self.carries}
