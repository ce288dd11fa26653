"""Pooling_v1: the first pooling operator of MXNet, for old saved networks. Use Pooling in new ones."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import numpy as np

from ....dtype import is_float
from ....errors import DTypeError, ParameterError, ShapeError
from ....integers import cdiv
from ...declare.host_op import HostOp
from ...declare.operator_property import Dtypes, KnownShapes, Shapes
from ...declare.property_op import register_operator
from .convolution import check_axes


@register_operator("Pooling_v1")
class PoolingV1(HostOp):
    """The maximum, mean or sum of every window of [n, c, h, w], for each channel.

    Unlike in Pooling, padding counts as zeros, in maxima too; a mean always divides by the size of the kernel; of equal maxima
    each gets the derivative. Returns: [n, c, *windows]. Computed on the host.
    """

    kernel: tuple = ()
    pool_type: Literal["max", "avg", "sum"] = "max"
    global_pool: bool = False
    pooling_convention: Literal["valid", "full"] = "valid"
    stride: tuple = ()
    pad: tuple = ()

    def validate(self) -> None:
        if self.global_pool:
            return
        if len(self.kernel) != 2 or min(self.kernel) < 1:
            raise ParameterError(f"{self.name}: kernel={self.kernel} must be two sizes of at least 1, or global_pool=True. Use "
                                 f"Pooling for other numbers of axes.")
        check_axes(self.name, self, 2, stride=1, pad=0)

    def _axes(self, shape: Any) -> list[tuple[int, int, int, int]]:
        """Return (windows, kernel, stride, pad) for height and width."""
        if self.global_pool:
            return [(1, n, 1, 0) for n in shape[2:]]
        found = []
        for n, k, s, p in zip(shape[2:], self.kernel, self.stride or (1, 1), self.pad or (0, 0)):
            if n + 2 * p < k:
                raise ShapeError(f"{self.name}: kernel {self.kernel} is larger than the input {tuple(shape)} with pad {p}. Pad "
                                 f"more, or use a smaller kernel.")
            left = n + 2 * p - k
            found.append(((cdiv(left, s) if self.pooling_convention == "full" else left // s) + 1, k, s, p))
        return found

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if len(x) != 4:
            raise ShapeError(f"{self.name}: data {x} must be [n, c, h, w]. Use Pooling for other numbers of axes.")
        return [(*x[:2], *(axis[0] for axis in self._axes(x)))]

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        if in_type[0] is not None and not is_float(in_type[0]):
            raise DTypeError(f"{self.name}: data is {in_type[0]}. It must hold floats. Convert it with astype, or use Pooling.")
        return list(in_type), [in_type[0]], []

    def _windows(self, padded: np.ndarray, shape: Any) -> list[np.ndarray]:
        """Return, for each index within a window, its elements of all windows, [n, c, *windows]."""
        axes = self._axes(shape)
        places = product(*(range(k) for _, k, _, _ in axes))
        return [padded[(..., *(slice(i, i + (n - 1) * s + 1, s) for i, (n, _, s, _) in zip(at, axes)))] for at in places]

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """Pad x with zeros; beyond them, where the last windows may reach, with a value that changes no window."""
        axes = self._axes(x.shape)
        sizes = [max((n - 1) * s + k, size + 2 * p) for size, (n, k, s, p) in zip(x.shape[2:], axes)]
        made = np.full((*x.shape[:2], *sizes), -np.inf if self.pool_type == "max" else 0, x.dtype)
        made[(..., *(slice(size + 2 * p) for size, (_, _, _, p) in zip(x.shape[2:], axes)))] = 0
        made[self._inside(x.shape)] = x
        return made

    def _inside(self, shape: Any) -> tuple[Any, ...]:
        return (..., *(slice(p, p + size) for size, (_, _, _, p) in zip(shape[2:], self._axes(shape))))

    def compute(self, *arrays: np.ndarray) -> Any:
        windows = self._windows(self._padded(arrays[0]), arrays[0].shape)
        if self.pool_type == "max":
            return np.maximum.reduce(windows)
        total = np.add.reduce(windows)
        return total / len(windows) if self.pool_type == "avg" else total

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> Any:
        padded = self._padded(x[0])
        spread = np.zeros_like(padded)
        seen = self._windows(padded, x[0].shape)
        for here, part in zip(seen, self._windows(spread, x[0].shape)):
            part += dy[0] * (here == y[0]) if self.pool_type == "max" else dy[0]
        dx = spread[self._inside(x[0].shape)]
        return dx / len(seen) if self.pool_type == "avg" else dx
