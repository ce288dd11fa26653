"""linalg_extractdiag, makediag, extracttrian, maketrian: elements on or beside a diagonal of each matrix, and back.

Each operator selects indices of the flattened matrix, so one index table defines it. Its transpose is the derivative.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ....errors import ShapeError
from ...declare.index_kernel import index_kernel, put, scatter_kernel
from ...declare.operator_property import KnownShapes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Spec, Specs


@lru_cache(maxsize=256)
def _places(n: int, offset: int, lower: bool | None) -> np.ndarray:
    """Return flat indices into an n × n matrix: of a diagonal (lower None), or of the triangle that begins at it.

    A lower triangle is read row by row, an upper one column by column.
    """
    row, col = np.indices((n, n))
    if lower is None:
        return np.flatnonzero(col - row == offset)
    if offset > 0 or (offset == 0 and not lower):
        by_column = np.flatnonzero((col - row >= offset).T)
        return by_column % n * n + by_column // n
    return np.flatnonzero(col - row <= offset)


class Places(OperatorProperty):
    """Base class: selected elements of each matrix as a vector."""

    linear: ClassVar[bool] = True

    taken: ClassVar[bool] = True  # False: a matrix from a vector
    triangle: ClassVar[bool | None] = None  # None for a diagonal, True for a lower triangle, False for an upper one
    offset: int = 0
    gradient_arguments = (0,)
    backward_reads = ("dy",)
    argument_names = ("A",)

    def _count(self, n: int) -> int:
        """Return the number of selected elements of an n × n matrix."""
        k = abs(self.offset)
        return max(n - k, 0) if self.triangle is None else max(n - k, 0) * (max(n - k, 0) + 1) // 2

    def _size(self, count: int, x: Shape) -> int:
        """Return the n for which an n × n matrix has this many selected elements."""
        k = abs(self.offset)
        m = count if self.triangle is None else (math.isqrt(8 * count + 1) - 1) // 2
        if self._count(m + k) != count:
            raise ShapeError(f"{self.name}: {count} elements, the last axis of A {x}, do not fill a triangle.")
        return m + k

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if not self.taken:
            if not x:
                raise ShapeError(f"{self.name}: A {x} must have an axis.")
            n = self._size(x[-1], x)
            return [(*x[:-1], n, n)]
        if len(x) < 2 or x[-1] != x[-2]:
            raise ShapeError(f"{self.name}: A {x} must end in two equal axes, the matrix.")
        count = self._count(x[-1])
        if not count:
            raise ShapeError(f"{self.name}: offset={self.offset} is outside the matrices of A {x}.")
        return [(*x[:-2], count)]

    def _kernel(self, matrix: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, take: bool) -> KernelFunction:
        n, outer = matrix[-1], math.prod(matrix[:-2])
        place = _places(n, self.offset, self.triangle)
        large, small, table = (outer, n * n), (outer, len(place)), place.shape
        read = [*ins, Spec(table, place.dtype)]
        if take:
            inner = index_kernel(lambda at, x, place: x[at[0], place[at[1]]], read, outs, reqs, target, self.name,
                                 views=[large, table], results=[small])
        else:
            inner = scatter_kernel(lambda at, x, place: put(x[at], at[0], place[at[1]]), small, read, outs, reqs, target,
                                   self.name, views=[small, table], results=[large], distinct=True)
        return lambda run, inputs, outputs: inner(run, [inputs[0], run.constant(place) if target == "gpu" else place], outputs)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._kernel((ins if self.taken else outs)[0].shape, ins, outs, reqs, target, self.taken)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._kernel((outs if self.taken else ins)[0].shape, ins, outs, reqs, target, not self.taken)


@register_operator("_linalg_extractdiag", aliases=("linalg_extractdiag",))
class ExtractDiag(Places):
    """The diagonal of each matrix A [..., n, n] as a vector [..., n - |offset|]; offset above 0: above the main one."""


@register_operator("_linalg_makediag", aliases=("linalg_makediag",))
class MakeDiag(Places):
    """Matrices [..., n + |offset|, n + |offset|] of zeros, with A [..., n] on the diagonal `offset`."""

    taken: ClassVar[bool] = False


class Triangle(Places):
    """Base class: a triangle. A lower one is read row by row, an upper one column by column."""

    offset: int = 0
    lower: bool = True

    @property
    def triangle(self) -> bool:
        return self.lower


@register_operator("_linalg_extracttrian", aliases=("linalg_extracttrian",))
class ExtractTriangle(Triangle):
    """A triangle of each matrix A [..., n, n] as a vector: a lower one row by row, an upper one column by column.

    offset: the diagonal it begins at: above 0, an upper one; below, a lower one; at 0, as `lower` says.
    """


@register_operator("_linalg_maketrian", aliases=("linalg_maketrian",))
class MakeTriangle(Triangle):
    """Matrices of zeros with A [..., n (n + 1) / 2] in a triangle; the order, offset and lower as in extracttrian."""

    taken: ClassVar[bool] = False
