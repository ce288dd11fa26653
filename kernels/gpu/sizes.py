"""Sizes and dtypes that hand-written kernels work out alike."""

from __future__ import annotations

from typing import Any

from .source import tl


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


def wide_float(array: Any) -> Any:
    """The dtype that floating-point sums over an array are computed in."""
    return tl.float64 if str(array.dtype) == "torch.float64" else tl.float32


def accumulator(array: Any) -> Any:
    """The dtype that sums over an array are computed in: int64 for integers."""
    return wide_float(array) if array.dtype.is_floating_point else tl.int64
