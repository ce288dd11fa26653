"""Rotation of images by any angle: mx.image.imrotate and random_rotate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import ndarray as nd
from ...dtype import as_dtype
from ...errors import DTypeError, ParameterError, ShapeError, describe
from ...ndarray import NDArray


def imrotate(src: NDArray, rotation_degrees: float | NDArray, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """src rotated about its middle, bilinear, in the size it has; what comes from outside is 0.

    src:               float32[channels, height, width], or [batch, channels, height, width].
    rotation_degrees:  counterclockwise; of a batch one number, or one for each image.
    zoom_in:           enlarged until nothing from outside is seen.   zoom_out: shrunk until no corner is lost.
    Raises:            DTypeError, ShapeError, ParameterError.
    """
    if zoom_in and zoom_out:
        raise ParameterError("imrotate: zoom_in and zoom_out are both True. Give one of them.")
    if as_dtype(src.dtype) != np.float32:
        raise DTypeError(f"imrotate: src is {describe(src)}. Convert it with astype('float32').")
    if src.ndim not in (3, 4):
        raise ShapeError(f"imrotate: src is {describe(src)}, and must be [channels, height, width], with or without a batch.")
    batch = src if src.ndim == 4 else src.expand_dims(axis=0)
    given = rotation_degrees.asnumpy() if isinstance(rotation_degrees, NDArray) else np.asarray(rotation_degrees)
    if given.ndim > 1 or (given.ndim == 1 and (src.ndim == 3 or len(given) != len(src))):
        raise ShapeError(f"imrotate: {list(given.shape)} angles for src {describe(src)}. Give one number, or one for each image "
                         f"of a batch.")
    radians = np.broadcast_to(np.deg2rad(given.astype(np.float64)), (batch.shape[0],))
    grid = np.stack([_grid(float(angle), batch.shape[2], batch.shape[3], zoom_in, zoom_out) for angle in radians])
    turned = nd.BilinearSampler(batch, nd.array(grid.astype(np.float32), src.context))
    return turned if src.ndim == 4 else turned.reshape(src.shape)


def random_rotate(src: NDArray, angle_limits: Sequence[float], zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """imrotate by a random angle between two limits, in degrees, another for each image of a batch; from NumPy's `random`."""
    low, high = angle_limits
    angles = np.random.uniform(low, high) if src.ndim == 3 else nd.array(np.random.uniform(low, high, len(src)))
    return imrotate(src, angles, zoom_in, zoom_out)


def _grid(angle: float, height: int, width: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """Where each pixel of the result comes from, [2, height, width]: x, then y, from -1 to 1 across src."""
    c, s = np.cos(angle), np.sin(angle)
    half_w, half_h = (width - 1) / 2, (height - 1) / 2
    y, x = np.mgrid[0:height, 0:width] - np.array([half_h, half_w])[:, None, None]
    scale = 1.0
    if zoom_in or zoom_out:  # how much larger the rectangle around the turned one is than it: the larger of the two edges
        larger = max((abs(c) * width + abs(s) * height) / width, (abs(s) * width + abs(c) * height) / height)
        scale = larger if zoom_out else 1 / larger
    return np.stack([(x * c - y * s) / max(half_w, 1), (x * s + y * c) / max(half_h, 1)]) * scale
