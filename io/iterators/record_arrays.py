"""read_arrays: all labelled records of one shape as arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError
from ..records.recordio import MXRecordIO, unpack


def read_arrays(path: str | os.PathLike, shape: Sequence[int],
                dtype: Any = "uint8") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read a RecordIO file in which the data of each record are the raw bytes of an array.

    shape, dtype:  of each record's array.
    Returns:       data [N, *shape], label float32[N] and id uint64[N], in the order of the file.
    Raises:        FileError that names a record whose data have another size, or that has several labels.
    """
    path, shape, kind = os.fspath(path), tuple(shape), as_dtype(dtype)
    rows, labels, ids = [], [], []
    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    with MXRecordIO(path, "r") as records:
        while (record := records.read()) is not None:
            header, payload = unpack(record)
            if len(payload) != nbytes or header.flag:
                raise FileError(f"{path}: record {len(rows)} holds {len(payload):,} bytes and {header.flag or 1} "
                                f"label(s); {kind}{list(shape)} takes {nbytes:,} bytes, with 1 label.")
            rows.append(np.frombuffer(payload, kind).reshape(shape))
            labels.append(header.label)
            ids.append(header.id)
    data = np.stack(rows) if rows else np.empty((0, *shape), kind)
    return data, np.array(labels, np.float32), np.array(ids, np.uint64)
