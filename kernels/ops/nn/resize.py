"""Layers that apply a sparse matrix along each axis: Pad (edge, reflect), BilinearResize2D, AdaptiveAvgPooling2D.

Each gives, per axis, the input elements and weights of every output element. forward applies this matrix axis by axis, and
the derivative applies its transpose.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any, Literal

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.index_kernel import At, IndexedArray, index_kernel
from ...declare.operator_property import KnownShapes, OperatorProperty, Shapes, math_dtype
from ...declare.property_op import register_operator
from ...ir.expr import Expr, typed
from ...ir.lang import sum as total
from ...kernel import NOTHING, KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs
from .pooling import Pooling

FEW_TERMS = 4  # of a row that are added without a loop


@dataclass(frozen=True, eq=False)
class Taps:
    """A sparse matrix [m, n]: row r is the sum of weight[r, t] · element place[r, t]; place -1 marks an unused term.

    n:  size of the axis. place: int64 [m, terms]. weight: float64 [m, terms].
    """

    n: int
    place: np.ndarray
    weight: np.ndarray

    @property
    def m(self) -> int:
        return len(self.place)

    def transposed(self) -> Taps:
        """Return the transposed matrix, for derivatives."""
        used = self.place >= 0
        row, col, w = np.nonzero(used)[0], self.place[used], self.weight[used]
        order = np.argsort(col, kind="stable")
        row, col, w = row[order], col[order], w[order]
        count = np.bincount(col, minlength=self.n)
        terms = max(int(count.max(initial=0)), 1)
        slot = np.arange(len(col)) - (np.cumsum(count) - count)[col]
        place, weight = np.full((self.n, terms), -1), np.zeros((self.n, terms))
        place[col, slot], weight[col, slot] = row, w
        return Taps(self.m, place, weight)

    @property
    def selects(self) -> bool:
        """Return whether each row is one element or none."""
        return self.place.shape[1] == 1 and bool((self.weight == 1).all())


def applied(t: Taps, x: np.ndarray) -> np.ndarray:
    """Apply a matrix along axis 1 of x [outer, n, inner], on the host."""
    if t.selects and (t.place >= 0).all():
        return x[:, t.place[:, 0]]
    summed = np.zeros((x.shape[0], t.m, x.shape[2]), x.dtype)
    for place, weight in zip(t.place.T, t.weight.T):
        rows = np.flatnonzero(place >= 0)
        summed[:, rows] += x[:, place[rows]] * weight[rows, None].astype(x.dtype)
    return summed


def taps_at(n: int, place: np.ndarray) -> Taps:
    """Return the matrix whose row r selects element place[r]."""
    at = place.astype(np.int64).reshape(-1, 1)
    return Taps(n, at, np.ones(at.shape))


def along_axes(shape: Shape, taps: Sequence[tuple[int, Taps]], source: np.dtype, out: Spec, req: Req, target: str, name: str
               ) -> KernelFunction:
    """Return the kernel that applies each matrix along its axis, one after the other. source: the dtype of the input."""
    if req == Req.NULL or not out.size:
        return NOTHING
    steps, at = [], shape
    for i, (axis, t) in enumerate(taps):
        outer, inner = math.prod(at[:axis]), math.prod(at[axis + 1:])
        at = (*at[:axis], t.m, *at[axis + 1:])
        last = i + 1 == len(taps)
        y = out if last else Spec(at, math_dtype(out.dtype))
        tables = [np.ascontiguousarray(t.place.T)]
        if not t.selects:
            tables.append(np.ascontiguousarray(t.weight.T, math_dtype(out.dtype)))
        ins = [Spec(shape, source if not i else math_dtype(out.dtype)), *(Spec(a.shape, a.dtype) for a in tables)]
        views = [(outer, t.n, inner), *(a.shape for a in tables)]
        body = partial(_weighted, whole=bool((t.place >= 0).all()))
        steps.append((index_kernel(body, ins, [y], [req if last else Req.WRITE], target, name, views=views,
                                   results=[(outer, t.m, inner)]), tables, None if last else y))
    assert at == out.shape, (shape, at, out)

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        x = inputs[0]
        for step, tables, space in steps:
            y = outputs[0] if space is None else run.workspace(space.shape, space.dtype)
            step(run, [x, *(run.constant(a) if target == "gpu" else a for a in tables)], [y])
            x = y

    return kernel


def _weighted(at: At, x: IndexedArray, place: IndexedArray, weight: IndexedArray | None = None, *, whole: bool) -> Expr:
    """Return an element of the product with a matrix: the sum of its terms, or without weights its one element.

    place, weight: [terms, rows]. whole: no term is unused.
    """
    outer, row, inner = at

    def term(t: Expr | int) -> Expr:
        there = place[t, row]
        e = x[outer, there, inner] if whole else x.at(outer, there, inner, inside=there >= 0)
        return e if weight is None else e * weight[t, row].astype(typed(e))

    terms = place.sizes[0]
    return reduce(operator.add, map(term, range(terms))) if terms <= FEW_TERMS else total(terms, term)


class Resampled(OperatorProperty):
    """Base class: one matrix per axis applied to data."""

    gradient_arguments = (0,)
    backward_reads = ("dy",)

    def taps(self, x: Shape, y: Shape) -> list[tuple[int, Taps]]:
        """Return (axis, matrix) for every axis that changes, at least one."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return along_axes(ins[0].shape, self.taps(ins[0].shape, outs[0].shape), ins[0].dtype, outs[0], reqs[0], target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        back = [(axis, t.transposed()) for axis, t in reversed(self.taps(outs[0].shape, ins[0].shape))]
        return along_axes(ins[0].shape, back, ins[0].dtype, outs[0], reqs[0], target, self.name)

    def planes(self, x: Shape) -> Shape:
        """Return x after checking that it is [n, c, h, w]."""
        if len(x) != 4:
            raise ShapeError(f"{self.name}: data {x} must be [n, c, h, w].")
        return x


@lru_cache(maxsize=512)
def bilinear_taps(n: int, m: int, align_corners: bool) -> Taps:
    """Interpolate n elements linearly at m points. align_corners: the first and last points coincide with elements."""
    out = np.arange(m)
    if align_corners:
        at = out * ((n - 1) / (m - 1) if m > 1 else 0.0)
    else:
        at = np.maximum((out + 0.5) * (n / m) - 0.5, 0.0)
    low = np.minimum(at.astype(np.int64), n - 1)
    share = np.where(low < n - 1, at - low, 0.0)
    return Taps(n, np.stack([low, np.minimum(low + 1, n - 1)], 1), np.stack([1 - share, share], 1))


@lru_cache(maxsize=512)
def mean_taps(n: int, m: int) -> Taps:
    """Return the matrix of m means over n elements, split as evenly as possible; neighbours may share an element."""
    begin = np.arange(m) * n // m
    end = -(-(np.arange(m) + 1) * n // m)
    place = begin[:, None] + np.arange(int((end - begin).max(initial=1)))
    inside = place < end[:, None]
    return Taps(n, np.where(inside, place, -1), np.where(inside, 1.0 / (end - begin)[:, None], 0.0))


Modes = Literal["size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"]
_ROUNDED: dict[str, Callable[[int], int]] = {
    "to_even_down": lambda n: n - n % 2,
    "to_even_up": lambda n: n + n % 2,
    "to_odd_down": lambda n: n - (n + 1) % 2,
    "to_odd_up": lambda n: n + (n + 1) % 2,
}


@register_operator("_contrib_BilinearResize2D")
class BilinearResize2D(Resampled):
    """The planes of data [n, c, h, w] in another size, by bilinear interpolation.

    mode:  "size": height by width, or with scale_height, the sizes times scale_height and scale_width; "odd_scale": these
           factors, and of an odd size one less is scaled, plus one; "like": the size of the second array; "to_even_down" ...:
           the nearest such size.
    align_corners: the corners of both planes coincide; else their edges do.
    """

    height: int = 1
    width: int = 1
    scale_height: float | None = None
    scale_width: float | None = None
    mode: Modes = "size"
    align_corners: bool = True
    own_dtypes = True
    optional_names = ("like",)

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "like") if self.mode == "like" else ("data",)

    def _size(self, n: int, given: int, scale: float | None) -> int:
        if self.mode in _ROUNDED:
            return _ROUNDED[self.mode](n)
        if self.mode == "odd_scale":
            factor = 1.0 if scale is None else scale
            return int((n - 1) * factor) + 1 if n % 2 else int(n * factor)
        return given if scale is None else int(n * scale)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        known = [self.planes(s) for s in in_shape if s is not None]
        x = known[0]
        alone = self.mode == "size" and self.scale_height is None  # MXNet then uses height and width
        scale_width = None if alone else self.scale_width
        size = known[1][2:] if self.mode == "like" else \
            (self._size(x[2], self.height, self.scale_height), self._size(x[3], self.width, scale_width))
        if min(size) < 1 or min(x[2:]) < 1:
            raise ShapeError(f"{self.name}: planes of {x[2:]} cannot be resized to {size}. Sizes must be at least 1.")
        return [(*x[:2], *size)]

    def taps(self, x: Shape, y: Shape) -> list[tuple[int, Taps]]:
        return [(axis, bilinear_taps(x[axis], y[axis], self.align_corners)) for axis in (2, 3)]


@register_operator("_contrib_AdaptiveAvgPooling2D")
class AdaptiveAvgPooling2D(Resampled):
    """Means over output_size parts of the planes of data [n, c, h, w]. output_size: one number for both axes, or two; (): 1."""

    output_size: tuple = ()

    def validate(self) -> None:
        if len(self.output_size) > 2 or any(d is None or d < 1 for d in self.output_size):
            raise ParameterError(f"{self.name}: output_size={self.output_size} must be one or two sizes of at least 1.")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        size = self.output_size or (1, 1)
        if min(self.planes(x)[2:]) < 1:
            raise ShapeError(f"{self.name}: the planes of data {x} are empty. They need at least one element.")
        return [(*x[:2], size[0], size[-1])]

    def taps(self, x: Shape, y: Shape) -> list[tuple[int, Taps]]:
        return [(axis, mean_taps(x[axis], y[axis])) for axis in (2, 3)]

    def _even(self, x: Shape, y: Shape) -> Pooling | None:
        """Return the pooling that computes the same, where all parts are as large and share no element."""
        kernel = tuple(size // parts for size, parts in zip(x[2:], y[2:]))
        even = all(k * parts == size for k, parts, size in zip(kernel, y[2:], x[2:]))
        return Pooling(kernel=kernel, stride=kernel, pool_type="avg") if even else None

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        made = self._even(ins[0].shape, outs[0].shape) or super()
        return made.forward_kernel(ins, outs, reqs, target, train)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        made = self._even(outs[0].shape, ins[0].shape) or super()
        return made.backward_kernel(ins, outs, reqs, target, train)
