"""The mean image of a record file: loaded from a file, or computed and saved there, as in MXNet."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import FileError
from ...ndarray import array, load, save
from ..records.files import is_url

_log = logging.getLogger("tritium.io")
_NAME = "mean_img"  # of the array in the file


def mean_image(path: str | os.PathLike, shape: Sequence[int], batches: Callable[[], Any] | None = None) -> np.ndarray:
    """Load the mean image from a file by nd.save, float32[channels, height, width].

    batches:  returns an iterator of the images; if the file does not exist, their mean is computed and saved.
    Raises FileError if the file holds something else, or an image of another shape.
    """
    path = os.fspath(path)
    if not is_url(path) and not os.path.exists(path):
        if batches is None:
            raise FileError(f"{path}: the file does not exist. Write it with mx.nd.save(path, {{'mean_img': array}}).")
        _log.info("%s does not exist: computing the mean image.", path)
        save(path, {_NAME: array(_mean(batches(), shape))})  # atomically: other workers may look for it
    arrays = load(path)
    if not isinstance(arrays, dict) or _NAME not in arrays:
        raise FileError(f"{path}: has no array named 'mean_img'. Write it with mx.nd.save(path, {{'mean_img': array}}).")
    image = arrays[_NAME].asnumpy().astype(np.float32)
    if image.shape != tuple(shape):
        raise FileError(f"{path}: the mean image is {list(image.shape)}, data_shape is {list(shape)}. Delete the file to have it "
                        f"computed again.")
    return image


def _mean(batches: Any, shape: Sequence[int]) -> np.ndarray:
    """Return the mean of the rows without padding, summed one after another in float32 for MXNet's bits."""
    total, count = np.zeros(shape, np.float32), 0
    while batches.iter_next():
        rows = batches.getdata().asnumpy()
        rows = rows[:len(rows) - (batches.getpad() or 0)]
        for row in rows:
            total += row
        count += len(rows)
    return total * (np.float32(1) / np.float32(count))
