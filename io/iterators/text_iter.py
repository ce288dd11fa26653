"""TextIter: the common part of iterators over text files."""

from __future__ import annotations

import numpy as np

from ...errors import FileError
from ..iterator import DataDesc
from ..plan import BatchPlan
from .row_iter import RowIter
from .text_rows import TextRows


class TextIter(RowIter):
    """Batches of the rows of a text file, with labels from the same or another file.

    data, label:  name and shape of one example's array.
    """

    def __init__(self, rows: TextRows, label_rows: TextRows | None, batch_size: int, round_batch: bool, num_parts: int,
                 part_index: int, data: tuple[str, tuple[int, ...]], label: tuple[str, tuple[int, ...]], dtype: np.dtype):
        name = type(self).__name__
        if label_rows is not None and label_rows.rows != rows.rows:
            raise FileError(f"{name}: {rows.path} has {rows.rows:,} rows, {label_rows.path} has {label_rows.rows:,}. Every row "
                            f"needs its label.")
        self._data, self._labels = rows, label_rows
        plan = BatchPlan(rows.rows, batch_size, num_parts=num_parts, part_index=part_index, round_batch=round_batch, name=name,
                         source=rows.path)
        super().__init__(rows.path, plan, *(DataDesc(array_name, (batch_size, *shape), dtype.type)
                                            for array_name, shape in (data, label)))

    def reset(self) -> None:
        """Begin the next epoch. Raises FileError if a file's size has changed."""
        super().reset()
        for table in (self._data, self._labels):
            if table is not None:
                table.check()
