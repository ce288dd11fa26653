"""Pooling_v1: the first pooling operator of MXNet, for old saved networks. Use Pooling in new ones."""

from __future__ import annotations

import math
from typing import Any, Literal

from ....dtype import is_float
from ....errors import DTypeError, ParameterError, ShapeError
from ....integers import cdiv
from ...declare.index_kernel import index_kernel
from ...declare.operator_property import Dtypes, KnownShapes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir import lang
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs
from .convolution import check_axes
from .pooling import Pooling, PoolingGeometry


@register_operator("Pooling_v1")
class PoolingV1(OperatorProperty):
    """The maximum, mean or sum of every window of [n, c, h, w], for each channel.

    Unlike in Pooling, padding counts as zeros, in maxima too; a mean always divides by the size of the kernel; of equal maxima
    each gets the derivative. Returns: [n, c, *windows].
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

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g = self.geometry(ins[0].shape)
        (kh, kw), (sh, sw), (ph, pw), largest = g.kernel, g.stride, g.pad, self.pool_type == "max"
        beyond = any(e > size + 2 * p for e, size, p in zip(g.extent, g.spatial, g.pad))

        def body(at: Any, x: Any) -> Any:
            n, c, i, j = at
            h, w = x.shape[2:]

            def element(a: Any, b: Any) -> Any:
                row, column = i * sh + a - ph, j * sw + b - pw
                v = x.at(n, c, row, column, inside=(row >= 0) & (row < h) & (column >= 0) & (column < w))
                if largest and beyond:  # where the last windows reach over the padding
                    v = lang.where((row < h + ph) & (column < w + pw), v, -math.inf)
                return v

            over = lang.max if largest else lang.sum
            total = over(kh, lambda a: over(kw, lambda b: element(a, b)))
            return total / (kh * kw) if self.pool_type == "avg" else total

        return index_kernel(body, ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g = self.geometry(outs[0].shape)
        (kh, kw), (sh, sw), (ph, pw) = g.kernel, g.stride, g.pad

        def body(at: Any, dy: Any, x: Any, y: Any) -> Any:
            n, c, row, column = at
            h, w = dy.shape[2:]

            def part(a: Any, b: Any) -> Any:  # of the windows that hold this element, counted from the last
                i, j = (row + ph) // sh - a, (column + pw) // sw - b
                inside = (i >= 0) & (i < h) & (row + ph - i * sh < kh) & (j >= 0) & (j < w) & (column + pw - j * sw < kw)
                v = dy.at(n, c, i, j, inside=inside)
                if self.pool_type == "max":
                    v = lang.where(inside & (y.at(n, c, i, j, inside=inside) == x[at]), v, 0)
                return v

            total = lang.sum(cdiv(kh, sh), lambda a: lang.sum(cdiv(kw, sw), lambda b: part(a, b)))
            return total / (kh * kw) if self.pool_type == "avg" else total

        return index_kernel(body, ins, outs, reqs, target, f"{self.name}_backward")
