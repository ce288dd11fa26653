"""Element types: their names, MXNet's numbers for them in files, and how a user's spelling becomes a `numpy.dtype`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .errors import DTypeError

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float16 = np.dtype("float16")
float32 = np.dtype("float32")
float64 = np.dtype("float64")

#: MXNet's type flags, as they stand in `.params` files and symbol attributes (mshadow/base.h).
FLAG_TO_DTYPE: dict[int, np.dtype] = {
    0: float32,
    1: float64,
    2: float16,
    3: np.dtype("uint8"),
    4: np.dtype("int32"),
    5: np.dtype("int8"),
    6: np.dtype("int64"),
    7: np.dtype("bool"),
    12: bfloat16,
}
DTYPE_TO_FLAG: dict[np.dtype, int] = {v: k for k, v in FLAG_TO_DTYPE.items()}

#: Every dtype an array may have: MXNet's, and the unsigned ones it lacks.
DTYPES: dict[str, np.dtype] = {d.name: d for d in FLAG_TO_DTYPE.values()} | {
    n: np.dtype(n) for n in ("int16", "uint16", "uint32", "uint64")
}


def as_dtype(spelling: Any, *, default: np.dtype = float32) -> np.dtype:
    """The numpy dtype that a user's spelling means: "float32", np.float32, np.dtype(...), "bfloat16", float, int, None.

    None gives `default`. Raises DTypeError for a dtype arrays cannot have (object, complex, strings).
    """
    if spelling is None:
        return default
    if isinstance(spelling, np.dtype):
        found = DTYPES.get(spelling.name)
    elif isinstance(spelling, str):
        found = DTYPES.get(spelling)
    else:
        try:
            found = DTYPES.get(np.dtype(spelling).name)
        except TypeError:
            found = None
    if found is None:
        raise DTypeError(f"dtype: {spelling!r} is not an element type of arrays. Known: {', '.join(sorted(DTYPES))}.")
    return found


def is_float(dtype: np.dtype) -> bool:
    """Whether dtype is a floating type; true for bfloat16, whose NumPy kind is not 'f'."""
    return dtype.kind == "f" or dtype == bfloat16


def whole(value: float, dtype: np.dtype) -> int:
    """value cut to a whole number and wrapped around into the range of dtype, as C does: -1 is 255 in uint8."""
    n, bits = int(value), 8 * dtype.itemsize
    low = 0 if dtype.kind == "u" else -(1 << (bits - 1))
    return (n - low) % (1 << bits) + low


def is_half(dtype: np.dtype) -> bool:
    """Whether dtype is a 16-bit float: arithmetic on it is done in float32 and rounded once."""
    return dtype in (float16, bfloat16)
