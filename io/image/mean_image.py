"""The mean image of a record file: read from where it was saved, or computed and saved there, as MXNet does."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

import numpy as np

from ...errors import FileError
from ...ndarray import array, load, save
from ..iterator import DataIter
from ..records.files import is_url

_log = logging.getLogger("tritium.io")
_NAME = "mean_img"  # of the array in the file


def mean_image(path: str | os.PathLike, shape: Sequence[int],
               batches: Callable[[], DataIter] | None = None) -> np.ndarray:
    """The mean image in a file by nd.save, float32[channels, height, width].

    batches:  gives what it is the mean of, if there is no such file: the mean is computed and saved.
    Raises FileError where the file holds another thing, or an image of another shape.
    """
    path = os.fspath(path)
    if not is_url(path) and not os.path.exists(path):
        if batches is None:
            raise FileError(f"{path}: there is no such file. Write it with mx.nd.save(path, {{'mean_img': array}}).")
        _log.info("%s is not there: computing the mean image.", path)
        save(path, {_NAME: array(_mean(batches(), shape))})  # whole or not at all: other workers may look for it
    held = load(path)
    if not isinstance(held, dict) or _NAME not in held:
        raise FileError(f"{path}: holds no array named 'mean_img'. Write it with mx.nd.save(path, {{'mean_img': array}}).")
    image = held[_NAME].asnumpy().astype(np.float32)
    if image.shape != tuple(shape):
        raise FileError(f"{path}: the mean image is {list(image.shape)}, data_shape is {list(shape)}. Delete it to have it "
                        f"computed anew.")
    return image


def _mean(batches: DataIter, shape: Sequence[int]) -> np.ndarray:
    """The mean of the rows that count, added one after another in float32: MXNet's bits."""
    total, count = np.zeros(shape, np.float32), 0
    while batches.iter_next():
        rows = batches.getdata()[0].asnumpy()
        rows = rows[:len(rows) - (batches.getpad() or 0)]
        for row in rows:
            total += row
        count += len(rows)
    return total * (np.float32(1) / np.float32(count))
