"""Affine transformations of pixels as in OpenCV 3, and so in MXNet: positions are rounded to 1/32 of a pixel.

OpenCV 5 computes positions exactly, which changes pixels by up to 4 levels. Given rounded positions, it interpolates as
OpenCV 3 did.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BITS, _PARTS = 10, 5  # positions are computed in 1/1024 of a pixel, then truncated to 1/32
_MOST = 1 << 50  # in 1/1024 of a pixel; outside of any image


def warp_affine(cv2: Any, pixels: np.ndarray, matrix: np.ndarray, width: int, height: int, method: int,
                fill: float) -> np.ndarray:
    """Transform pixels uint8[y, x, channels] to uint8[height, width, channels] by matrix [2, 3].

    method:  OpenCV's interpolation; area is bilinear.   fill: value of pixels from outside.
    """
    rounding = 1 << _BITS - 1 if method == cv2.INTER_NEAREST else 1 << _BITS - _PARTS - 1
    x, y = (_parts(b * np.arange(height) + c, a * np.arange(width), rounding)
            for a, b, c in _inverse(matrix.astype(np.float64)).tolist())
    integer = np.empty((height, width, 2), np.int16)
    for k, positions in enumerate((x, y)):
        np.right_shift(positions, _PARTS, out=integer[:, :, k], casting="unsafe")
        positions &= (1 << _PARTS) - 1
    y <<= _PARTS
    y |= x
    return cv2.remap(pixels, integer, None if method == cv2.INTER_NEAREST else y.astype(np.uint16),
                     cv2.INTER_LINEAR if method == cv2.INTER_AREA else method, borderMode=cv2.BORDER_CONSTANT,
                     borderValue=[fill] * 4)


def _inverse(m: np.ndarray) -> np.ndarray:
    """Invert a transformation in OpenCV's order of operations. A singular matrix maps everything to 0."""
    (a, b, x), (c, d, y) = m.tolist()
    by = a * d - b * c
    by = 1 / by if by else 0.0
    a, b, c, d = d * by, b * -by, c * -by, a * by
    return np.array([[a, b, -a * x - b * y], [c, d, -c * x - d * y]])


def _parts(of_rows: np.ndarray, of_columns: np.ndarray, rounding: int) -> np.ndarray:
    """Return a coordinate of every pixel in 1/32 of a pixel, clipped to ±32,768 pixels."""
    rows, columns = (np.rint(p * (1 << _BITS)).clip(-_MOST, _MOST).astype(np.int64) for p in (of_rows, of_columns))
    rows += rounding
    kind = np.int32 if np.abs(rows).max() + np.abs(columns).max() < 1 << 31 else np.int64
    positions = rows.astype(kind)[:, None] + columns.astype(kind)
    positions.clip(-1 << 15 + _BITS, (1 << 15 + _BITS) - 1, out=positions)
    positions >>= _BITS - _PARTS
    return positions
