"""Element types: names, MXNet's numbers for them in files, conversion of a user's spelling, and casts."""

from __future__ import annotations

import functools
import math
from typing import Any

import ml_dtypes
import numpy as np

from .errors import DTypeError

if np.dtype("bool").name != "bool":  # a script says np.bool = bool, and NumPy 2 finds the name of this dtype by np.bool
    np.bool = np.bool_  # type: ignore[misc]

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float16 = np.dtype("float16")
float32 = np.dtype("float32")
float64 = np.dtype("float64")

#: MXNet's type flags, as in `.params` files and symbol attributes (mshadow/base.h).
FLAG_TO_DTYPE: dict[int, np.dtype] = {
    0: float32, 1: float64, 2: float16, 3: np.dtype("uint8"), 4: np.dtype("int32"), 5: np.dtype("int8"), 6: np.dtype("int64"),
    7: np.dtype("bool"), 12: bfloat16,
}
DTYPE_TO_FLAG: dict[np.dtype, int] = {v: k for k, v in FLAG_TO_DTYPE.items()}

#: Every dtype an array may have: MXNet's, and the unsigned ones it lacks.
DTYPES = {d.name: d for d in (*FLAG_TO_DTYPE.values(), *map(np.dtype, ("int16", "uint16", "uint32", "uint64")))}
_NATIVE = {d: d for d in DTYPES.values()}
_BY_CLASS = {d.type: d for d in DTYPES.values()}


def as_dtype(spelling: Any) -> np.dtype:
    """Return the numpy dtype for a user's spelling: "float32", np.float32, np.dtype(...), "bfloat16", "half", float, int.

    None gives float32. Raises DTypeError for a dtype that arrays cannot have (object, complex, strings).
    """
    if spelling is None:
        return float32
    if isinstance(spelling, np.dtype):
        dtype = _NATIVE.get(spelling)  # the name of a dtype is made anew each time
        dtype = DTYPES.get(spelling.name) if dtype is None else dtype
    elif isinstance(spelling, str) and spelling in DTYPES:
        dtype = DTYPES[spelling]
    elif isinstance(spelling, type) and spelling in _BY_CLASS:
        dtype = _BY_CLASS[spelling]
    elif isinstance(spelling, str) and "(" in spelling:  # "(2)f4", arrays as elements: NumPy warns that it is going to change
        dtype = None
    else:
        try:
            dtype = DTYPES.get(np.dtype(spelling).name)
        except (TypeError, ValueError, SyntaxError):  # NumPy raises any of these for text that is no dtype
            dtype = None
    if dtype is None:
        raise DTypeError(f"dtype: {spelling!r} is not an element type of arrays. Known: {', '.join(sorted(DTYPES))}.")
    return dtype


def is_float(dtype: np.dtype) -> bool:
    """Return True for a floating type; also for bfloat16, whose NumPy kind is not 'f'."""
    return dtype.kind == "f" or dtype == bfloat16


def to_integer(value: float, dtype: np.dtype) -> int:
    """Return value as an element of an integer dtype: a float as `cast_into` converts it, an int wrapped around.

    300 becomes 44 in int8, and -1 becomes 255 in uint8.
    """
    bits = 8 * dtype.itemsize
    if isinstance(value, (float, np.floating)):
        width = _width(dtype)
        top = 1 << (bits if dtype == _UINT64 else width - 1)
        value = int(value) if math.isfinite(value) else top
        value = value if -(1 << (width - 1)) <= value < top else -(1 << (width - 1))
    low = 0 if dtype.kind == "u" else -(1 << (bits - 1))
    return (int(value) - low) % (1 << bits) + low


_UINT64 = np.dtype("uint64")


def _width(dtype: np.dtype) -> int:
    """Return the bits of the signed integers through which floats become dtype."""
    return 32 if dtype.itemsize < 4 or dtype == np.dtype("int32") else 64


def cast_into(out: np.ndarray, values: Any) -> None:
    """Write values to out in its dtype, with the same result on every processor.

    Floats become integers by truncation: int32, or int64 for the dtypes that int32 does not hold. NaN and values out of range
    become the least of those. Then narrower and unsigned dtypes wrap. 2⁶³ to 2⁶⁴ keep their value in uint64.
    """
    have = getattr(values, "dtype", None)
    if out.dtype.kind not in "iu" or have is None or not is_float(have) or _numpy_agrees(have, out.dtype):
        np.copyto(out, values, casting="unsafe")
    else:
        np.copyto(out, _truncate(values, out.dtype), casting="unsafe")


def cast_copy(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy of values in dtype, as `cast_into` converts."""
    out = np.empty(values.shape, dtype)
    with np.errstate(all="ignore"):
        cast_into(out, values)
    return out


def _truncate(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return floats as integers of dtype, without a conversion whose result depends on the processor."""
    values = np.asarray(values, float32) if is_half(values.dtype) else values
    width = _width(dtype)
    end = values.dtype.type(2.0 ** (width - 1))
    high = (values >= end) & (values < 2 * end) if dtype == _UINT64 else np.zeros(np.shape(values), bool)
    values = np.where(high, values - end, values)
    cut = np.where((values >= -end) & (values < end), values, -end).astype(f"int{width}")
    return np.where(high, cut ^ np.int64(-(2**63)), cut).astype(dtype) if dtype == _UINT64 else cut.astype(dtype)


def is_plain_cast(have: np.dtype, want: np.dtype) -> bool:
    """Return whether `astype` converts like `cast_into`."""
    return want.kind not in "iu" or not is_float(have) or _numpy_agrees(have, want)


@functools.cache
def _numpy_agrees(have: np.dtype, want: np.dtype) -> bool:
    """Return True if NumPy's conversion, which beyond the range depends on the processor, agrees with `_truncate`."""
    numbers = [s * n for n in (0.0, 1.5, 300.7, 4e4, 2.0**31, 3e9, 2.0**32, 2.0**63, 1.5 * 2.0**63, 2.0**64, 1e25, math.inf)
               for s in (1, -1)] + [math.nan]
    with np.errstate(all="ignore"):
        values = np.array(numbers * 3).astype(have)  # more than one vector holds, with each number at several places
        expected = _truncate(values, want)
        results = values.astype(want), np.repeat(values, 2)[::2].astype(want), np.array([v.astype(want) for v in values])
    return all(np.array_equal(r, expected) for r in results)


def is_half(dtype: np.dtype) -> bool:
    """Return True for a 16-bit float. Arithmetic on it is done in float32 and rounded once."""
    return dtype in (float16, bfloat16)
