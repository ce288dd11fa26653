"""The dtypes that kernels add in."""

from __future__ import annotations

from typing import Any

from .source import tl


def wide_float(array: Any) -> Any:
    """The dtype that floating-point sums over an array are computed in."""
    return tl.float64 if str(array.dtype) == "torch.float64" else tl.float32


def accumulator(array: Any) -> Any:
    """The dtype that sums over an array are computed in: int64 for integers."""
    return wide_float(array) if array.dtype.is_floating_point else tl.int64
