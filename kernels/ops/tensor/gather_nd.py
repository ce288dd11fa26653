"""Indices with one number per axis: gather_nd, scatter_nd, _backward_gather_nd, ravel_multi_index and unravel_index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ....errors import ParameterError, ShapeError
from ...cpu.index_limits import Limits
from ...declare.index_kernel import At, IndexedArray, Put, index_kernel, put, scatter_kernel
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import maximum, minimum, quotient, where
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs, is_known

AXES = 8  # largest number of indexed axes


class AtPlaces(OperatorProperty):
    """Base class: a large array and slices of it. indices [axes, ...] holds one index per axis for each slice."""

    multiplies = False
    argument_names = ("data", "indices")
    gradient_arguments = (0,)
    backward_reads = ("dy0", "x1")
    own_dtypes = True

    def axes_of(self, indices: Shape, large: Shape) -> int:
        """Return the number of indexed axes. Raises ShapeError if there are too many, or indices has fewer than two axes."""
        if len(indices) < 2:
            raise ShapeError(f"{self.name}: indices {indices} must have at least two axes: [indexed axes, ...].")
        if not 1 <= indices[0] <= min(len(large), AXES):
            raise ShapeError(f"{self.name}: indices {indices} holds {indices[0]} indices per slice, but {large} has "
                             f"{len(large)} axes (at most {AXES} are supported).")
        return indices[0]

    def _split(self, large: Shape, indices: Shape) -> tuple[Shape, int, int]:
        """Return the sizes of the indexed axes, the number of slices, and the elements of a slice."""
        m = self.axes_of(indices, large)
        return large[:m], math.prod(indices[1:]), math.prod(large[m:])

    def gather(self, large: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str) -> KernelFunction:
        """Return the kernel (large, indices) -> slices."""
        dims, k, inner = self._split(large, ins[1].shape)

        def element(at: At, x: IndexedArray, indices: IndexedArray) -> Expr:
            return x[(*_places(indices, at[0], x.shape), at[1])]

        return index_kernel(element, ins, outs, reqs, target, self.name, views=[(*dims, inner), (len(dims), k)],
                            results=[(k, inner)], limits=Limits(1, dims, wraps=True))

    def scatter(self, large: Shape, ins: Specs, outs: Specs, reqs: Reqs, target: str, *, add_up: bool) -> KernelFunction:
        """Return the kernel (slices, indices) -> large, zero elsewhere. For equal indices add up, or keep the last."""
        dims, k, inner = self._split(large, ins[1].shape)

        def element(at: At, x: IndexedArray, indices: IndexedArray, **sizes: Expr) -> Put:
            return put(x[at], *_places(indices, at[0], list(sizes.values())), at[1])

        return scatter_kernel(element, (k, inner), ins, outs, reqs, target, self.name, views=[(k, inner), (len(dims), k)],
                              results=[(*dims, inner)], scalars={f"size{i}": d for i, d in enumerate(dims)},
                              combine="add" if add_up else "put", limits=Limits(1, dims, wraps=True))


def _places(indices: IndexedArray, i: Expr, sizes: Sequence[Expr]) -> list[Expr]:
    """Return the index of slice i along each axis: negative ones count from the end, and all are within the sizes."""
    found = []
    for axis, size in zip(range(indices.sizes[0]), sizes):
        at = indices[axis, i].astype("int64")
        found.append(minimum(maximum(where(at < 0, at + size, at), 0), size - 1))
    return found


@register_operator("gather_nd")
class GatherNd(AtPlaces):
    """The slices data[indices[0, i], indices[1, i], ...] for each i. indices: [axes, ...], truncated.

    Negative indices count from the end; an index out of range is an error on the CPU and clipped on a GPU. Derivatives of a slice
    that is taken several times add up. Returns: indices.shape[1:] + data.shape[axes:].
    """

    linear: ClassVar[bool] = True

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, i = in_shape
        if x is None or i is None or not i or i[0] < 0:
            return [x, i], list(out_shape), []
        return [x, i], [(*i[1:], *x[self.axes_of(i, x):])], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self.gather(ins[0].shape, ins, outs, reqs, target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self.scatter(outs[0].shape, ins, outs, reqs, target, add_up=True)


@register_operator("scatter_nd")
class ScatterNd(AtPlaces):
    """Zeros of `shape` with the slices of data put at [indices[0, i], indices[1, i], ...]; of equal indices the last counts.

    Indices as in gather_nd, whose inverse this is.
    """

    add_up: ClassVar[bool] = False
    linear: ClassVar[bool] = True
    shape: tuple

    def validate(self) -> None:
        if not self.shape or any(d is None or d < 1 for d in self.shape):
            raise ParameterError(f"{self.name}: all sizes of shape={self.shape} must be at least 1.")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, i = in_shape
        if i is not None and is_known(i):
            want = (*i[1:], *self.shape[self.axes_of(i, self.shape):])
            if x is not None and is_known(x) and x != want:
                raise ShapeError(f"{self.name}: for indices {i} and shape={self.shape}, data must be {want}, not {x}.")
            x = want
        return [x, i], [self.shape], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self.scatter(self.shape, ins, outs, reqs, target, add_up=self.add_up)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self.gather(self.shape, ins, outs, reqs, target)


@register_operator("_backward_gather_nd")
class ScatterAddNd(ScatterNd):
    """scatter_nd in which slices with equal indices add up: the derivative of gather_nd."""

    add_up: ClassVar[bool] = True


class Raveled(OperatorProperty):
    """Base class: indices in an array of sizes `shape`; the first size is not needed and may be -1."""

    shape: tuple | None = None
    gradient_arguments = ()

    def sizes(self) -> Shape:
        """Return `shape` after checking it."""
        if not self.shape or len(self.shape) > AXES or any(d is None or d < 1 for d in self.shape[1:]):
            raise ParameterError(f"{self.name}: shape={self.shape} must be 1 to {AXES} sizes of at least 1; the first may be -1.")
        return self.shape

    def validate(self) -> None:
        self.sizes()


@register_operator("_ravel_multi_index", aliases=("ravel_multi_index",))
class RavelMultiIndex(Raveled):
    """The flat index, in an array of sizes shape, of each column of data [axes, n]. Indices are not checked."""

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is None:
            return [None if y is None else (len(self.sizes()), *y)], [y], []
        if len(x) != 2 or x[0] not in (-1, len(self.sizes())):
            raise ShapeError(f"{self.name}: data {x} must be ({len(self.sizes())}, n): one index per axis of {self.shape}.")
        return [(len(self.sizes()), x[1])], [(x[1],)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        dims = self.sizes()

        def element(at: At, x: IndexedArray, **sizes: Expr) -> Any:
            flat: Any = 0
            for axis, size in enumerate(sizes.values()):
                flat = flat * size + x[axis, at[0]].astype("int64")
            return flat

        return index_kernel(element, ins, outs, reqs, target, self.name, scalars={f"size{i}": d for i, d in enumerate(dims)})


@register_operator("_unravel_index", aliases=("unravel_index",))
class UnravelIndex(Raveled):
    """The index per axis, in an array of sizes shape, of each flat index in data. Returns: (axes,) + data.shape."""

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is None:
            return [None if y is None else y[1:]], [y], []
        return [x], [(len(self.sizes()), *x)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        dims, n = self.sizes(), ins[0].size

        def element(at: At, x: IndexedArray, **sizes: Expr) -> Expr:
            rest, parts = x[at[1]].astype("int64"), list[Expr]()
            for size in list(sizes.values())[:0:-1]:
                whole = quotient(rest, size)
                parts.append(rest - whole * size)
                rest = whole
            found = rest
            for axis, part in enumerate(reversed(parts), 1):
                found = where(at[0] == axis, part, found)
            return found

        return index_kernel(element, ins, outs, reqs, target, self.name, views=[(n,)], results=[(len(dims), n)],
                            scalars={f"size{i}": d for i, d in enumerate(dims)})
