"""Pooling_v1: the first pooling operator of MXNet, for old saved networks. Use Pooling in new ones."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from ....dtype import is_float
from ....errors import DTypeError, ParameterError, ShapeError
from ...declare.host_op import HostOp
from ...declare.operator_property import Dtypes, KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...op import Shape
from .convolution import check_axes
from .pooling import Pooling, PoolingGeometry, offsets


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

    def geometry(self, shape: Shape) -> PoolingGeometry:
        """Return all sizes of one call, which are those of Pooling."""
        like: Any = Pooling(kernel=self.kernel, global_pool=self.global_pool, pooling_convention=self.pooling_convention,
                            stride=self.stride, pad=self.pad)
        return like.geometry(shape)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if len(x) != 4:
            raise ShapeError(f"{self.name}: data {x} must be [n, c, h, w]. Use Pooling for other numbers of axes.")
        return [(*x[:2], *self.geometry(x).out)]

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        if in_type[0] is not None and not is_float(in_type[0]):
            raise DTypeError(f"{self.name}: data is {in_type[0]}. It must hold floats. Convert it with astype, or use Pooling.")
        return list(in_type), [in_type[0]], []

    def _padded(self, g: PoolingGeometry, x: np.ndarray) -> np.ndarray:
        """Pad x with zeros; beyond them, where the last windows may reach, with a value that changes no window."""
        zeros = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in g.pad)])
        beyond = [(0, max(0, e - n)) for e, n in zip(g.extent, zeros.shape[2:])]
        return np.pad(zeros, [(0, 0), (0, 0), *beyond], constant_values=-np.inf if self.pool_type == "max" else 0)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        g = self.geometry(arrays[0].shape)
        padded = self._padded(g, arrays[0])
        windows = [padded[w] for _, w in offsets(g)]
        if self.pool_type == "max":
            return np.maximum.reduce(windows)
        total = np.add.reduce(windows)
        return total / len(windows) if self.pool_type == "avg" else total

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        g = self.geometry(x[0].shape)
        padded = self._padded(g, x[0])
        spread = np.zeros_like(padded)
        for _, w in offsets(g):
            spread[w] += dy[0] * (padded[w] == y[0]) if self.pool_type == "max" else dy[0]
        dx = spread[(..., *(slice(p, p + size) for p, size in zip(g.pad, g.spatial)))]
        return dx / math.prod(g.kernel) if self.pool_type == "avg" else dx
