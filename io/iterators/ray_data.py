"""Ray Data: batches from a Ray dataset, and a Ray dataset from a .rec file. Needs 'ray[data]'."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from ...errors import DTypeError, MissingLibraryError, MXNetError, ParameterError, ShapeError
from ...integers import cdiv
from ...ndarray import NDArray, array
from ..iterator import DataBatch, DataDesc, DataIter
from ..records.record_file import RecordFile
from ..records.recordio import unpack


class RayDataIter(DataIter):
    """Batches of a Ray dataset's columns. Every epoch calls `iter_batches` again.

    dataset:      any object with Ray Data's `iter_batches(batch_size=, batch_format="numpy", drop_last=False)`.
    data, label:  names of columns, or lists of names. Their rows must be numbers, or arrays of one shape.
    Float64 columns become float32. The last batch is filled up with rows of the first; `pad` counts them.
    """

    def __init__(self, dataset: Any, batch_size: int, data: str | Sequence[str] = "data",
                 label: str | Sequence[str] | None = "label"):
        super().__init__(batch_size)
        if batch_size < 1:
            raise ParameterError(f"RayDataIter: batch_size={batch_size} is less than 1.")
        self._dataset = dataset
        self._data = [data] if isinstance(data, str) else list(data)
        self._label = [label] if isinstance(label, str) else list(label or ())
        self._batches = self._epoch()
        self._first = next(self._batches, None)  # read now, for its shapes
        if self._first is None:
            raise ShapeError("RayDataIter: the dataset has no rows.")
        columns = self._first[0]
        self.provide_data, self.provide_label = (
            [DataDesc(name, (batch_size, *columns[name].shape[1:]), columns[name].dtype.type) for name in names]
            for names in (self._data, self._label))

    def _epoch(self) -> Generator[tuple[dict[str, np.ndarray], int], None, None]:
        first: dict[str, np.ndarray] = {}
        for batch in self._dataset.iter_batches(batch_size=self.batch_size, batch_format="numpy", drop_last=False):
            columns = {name: _numbers(name, batch) for name in (*self._data, *self._label)}
            first = first or columns
            rows = len(next(iter(columns.values())))
            fill = np.arange(self.batch_size - rows) % len(next(iter(first.values())))
            yield {name: np.concatenate([c, first[name][fill]]) for name, c in columns.items()}, len(fill)

    def reset(self) -> None:
        """Begin a new epoch. Ray starts it with its first batch, so nothing runs after the last epoch."""
        self._batches.close()
        self._batches, self._first = self._epoch(), None

    def next(self) -> DataBatch:
        (columns, pad), self._first = self._first or next(self._batches), None
        return DataBatch(_arrays(columns, self._data), _arrays(columns, self._label), pad,
                         provide_data=self.provide_data, provide_label=self.provide_label)


def _numbers(name: str, batch: dict[str, Any]) -> np.ndarray:
    """Return a column of a batch as one array, rows first."""
    if name not in batch:
        raise MXNetError(f"RayDataIter: the dataset has no column {name!r}. It has {', '.join(map(repr, batch))}.")
    values = np.asarray(batch[name])
    if values.dtype == object:
        shapes = {np.shape(v) for v in values}
        if len(shapes) != 1:
            raise ShapeError(f"RayDataIter: the rows of column {name!r} have {len(shapes)} shapes. Give all rows one shape.")
        values = np.stack([np.asarray(v) for v in values])
    if values.dtype.kind not in "fiub":
        raise DTypeError(f"RayDataIter: column {name!r} has dtype {values.dtype}, which is not numeric.")
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _arrays(columns: dict[str, np.ndarray], names: list[str]) -> list[NDArray]:
    return [array(columns[name], dtype=columns[name].dtype) for name in names]


def to_ray_dataset(path_imgrec: str | os.PathLike, path_imgidx: str | os.PathLike | None = None,
                   rows_per_block: int = 1000) -> Any:
    """Return a Ray dataset of the labelled records of a .rec file.

    Its columns are id (int64), label (float32, or float32[n]) and data (bytes, as packed). Each block opens the file itself,
    so every node must see it under this path.
    """
    try:
        import ray.data
    except ImportError:
        raise MissingLibraryError("to_ray_dataset: Ray Data is not installed. Run: pip install 'tritium[ray-data]'.") from None
    path = os.fspath(path_imgrec)
    path = path if "://" in path else os.path.abspath(path)
    index = None if path_imgidx is None else os.path.abspath(path_imgidx)
    file = RecordFile(path, index)
    count = len(file)
    file.close()

    def read(batch: Any) -> Any:
        records = RecordFile(path, index)
        rows = [unpack(records.read(int(i)), records.where(int(i))) for i in batch["id"]]
        records.close()
        return {"id": batch["id"], "label": np.array([header.label for header, _ in rows], np.float32),
                "data": [data for _, data in rows]}

    blocks = max(1, cdiv(count, rows_per_block))
    return ray.data.range(count, override_num_blocks=blocks).map_batches(read, batch_size=rows_per_block)
