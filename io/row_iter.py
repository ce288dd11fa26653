"""RowIter: batches out of a source whose rows are numbered, whole or one part of several."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..ndarray import NDArray, array
from .iterator import DataDesc, DataIter


class RowIter(DataIter):
    """Batches of rows 0 to rows-1. A subclass gives `read(numbers)`: the data and the label array of these rows.

    Part i of n holds the rows [i * rows // n, (i + 1) * rows // n); every part gives equally many batches, so that
    workers that take a step together end together.
    The last batch of an epoch is filled up from the part's front, and `pad` says by how many rows. With round_batch
    the next epoch begins behind them, as in MXNet; not where there are several parts, which have to keep step.
    """

    def __init__(self, source: str, rows: int, batch_size: int, data: DataDesc, label: DataDesc, *,
                 round_batch: bool = True, num_parts: int = 1, part_index: int = 0):
        super().__init__(int(batch_size))
        name = type(self).__name__
        if self.batch_size < 1:
            raise ParameterError(f"{name}: batch_size={batch_size} is less than 1.")
        if not 0 <= part_index < num_parts:
            raise ParameterError(f"{name}: part_index={part_index} is not one of num_parts={num_parts} parts, "
                                 f"which are numbered from 0.")
        if rows < 1:
            raise ShapeError(f"{name}: {source} has no rows.")
        self.rows, self.num_parts, self.part_index = rows, num_parts, part_index
        self.provide_data, self.provide_label = [data], [label]
        self._source = source
        self._first = part_index * rows // num_parts
        self._size = (part_index + 1) * rows // num_parts - self._first
        self._largest = -(-rows // num_parts)
        self._carries = bool(round_batch) and num_parts == 1
        self._begin = 0  # rows that the last epoch's last batch took from the front
        self._epoch, self._batch = 0, -1

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The data and label values of rows int64[batch]; in runs of consecutive numbers."""
        raise NotImplementedError

    @property
    def num_batches(self) -> int:
        """Batches of this epoch."""
        return -(-(self._largest - self._begin) // self.batch_size)

    def reset(self) -> None:
        """Begin the next epoch; behind what filled the last one's last batch, if that was given (round_batch)."""
        over = self._begin + self.num_batches * self.batch_size - self._size
        complete = self._batch >= self.num_batches - 1
        self._begin = over % self._size if self._carries and complete else 0
        self._epoch, self._batch = self._epoch + 1, -1

    def iter_next(self) -> bool:
        self._batch += 1
        if self._batch >= self.num_batches:
            self._batch = self.num_batches
            return False
        self._values = self.read(self.getindex())
        return True

    def getindex(self) -> np.ndarray:
        """The rows in the batch, int64[batch_size], as numbers in the whole source."""
        at = self._begin + self._batch * self.batch_size
        positions = np.arange(at, at + self.batch_size)
        if not self._size:  # fewer rows than parts: the batch only keeps step
            return positions % self.rows
        return self.order(positions % self._size) + self._first

    def order(self, positions: np.ndarray) -> np.ndarray:
        """Which of the part's rows stand at these positions of the epoch. Here: as they stand in the source."""
        return positions

    def getdata(self) -> list[NDArray]:
        values = self._values[0]
        return [array(values, dtype=values.dtype)]

    def getlabel(self) -> list[NDArray]:
        values = self._values[1]
        return [array(values, dtype=values.dtype)]

    def getpad(self) -> int:
        end = self._begin + (self._batch + 1) * self.batch_size
        return min(self.batch_size, max(0, end - self._size))

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator stands, as plain data: `load_state_dict` goes on from there, also in another process."""
        return {**self._identity(), "epoch": self._epoch, "begin": self._begin, "batch": self._batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where state_dict() was taken: the next batch is the one behind it. Refuses one of another source."""
        for key, mine in self._identity().items():
            if state.get(key) != mine:
                raise ParameterError(f"{type(self).__name__}.load_state_dict: the state is of {key} {state.get(key)!r}, "
                                     f"this iterator has {mine!r}.")
        epoch, begin, batch = (int(state[key]) for key in ("epoch", "begin", "batch"))
        if not (0 <= begin < self.rows and epoch >= 0 and -1 <= batch <= self.rows):
            raise ParameterError(f"{type(self).__name__}.load_state_dict: epoch {epoch}, begin {begin} and batch {batch} "
                                 f"cannot be.")
        self._epoch, self._begin, self._batch = epoch, begin, batch

    def _identity(self) -> dict[str, Any]:
        return {"source": self._source, "rows": self.rows, "batch_size": self.batch_size,
                "num_parts": self.num_parts, "part_index": self.part_index}
