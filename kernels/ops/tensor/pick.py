"""pick and batch_take: one element of each line along an axis, by index; with kernels that the sequence operators share."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import DTypeError, ShapeError
from ...declare.composite import composite, ops
from ...declare.index_kernel import At, IndexedArray, Put, index_kernel, put, scatter_kernel
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import maximum, minimum, where
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs, is_known, merge_shapes
from .reshape import check_axis, lines_of

INT32 = np.dtype(np.int32)


Lines = tuple[int, int, int, int, int]  # outer, n, m, groups, rest


def _place(index: IndexedArray, at: At, n: Expr, how: str) -> Expr:
    """Return the index below n that element at = (outer, j, group, rest) is picked at.

    how: "clip" or "wrap" indices out of range; "last": subtract one, then clip; "reverse": index [outer, 1, groups] is the
    number of reversed steps of the m = n.
    """
    o, j, g, _ = at
    if how == "reverse":
        count = minimum(index[o, 0, g].astype("int64"), n)
        return where(j < count, count - 1 - j, j)
    i = index[o, j, g].astype("int64")
    return i % n if how == "wrap" else minimum(maximum(i - 1 if how == "last" else i, 0), n - 1)


def _views(lines: Lines, how: str) -> tuple[Shape, Shape, Shape]:
    """Return the shapes of what is picked from, of the indices, and of what is picked."""
    outer, n, m, groups, rest = lines
    return (outer, n, groups, rest), (outer, 1 if how == "reverse" else m, groups), (outer, m, groups, rest)


def pick_kernel(lines: Lines, how: str, ins: Specs, outs: Specs, reqs: Reqs, target: str, name: str) -> KernelFunction:
    """Return the kernel (x, index) -> y: y [outer, m, groups, rest] = x [outer, n, groups, rest] at index."""
    x, index, y = _views(lines, how)

    def element(at: At, x: IndexedArray, index: IndexedArray) -> Expr:
        return x[at[0], _place(index, at, x.shape[1], how), at[2], at[3]]

    return index_kernel(element, ins, outs, reqs, target, name, views=[x, index], results=[y])


def put_kernel(lines: Lines, how: str, ins: Specs, outs: Specs, reqs: Reqs, target: str, name: str) -> KernelFunction:
    """Return the kernel (dy, index) -> dx, the derivative of pick_kernel: dy at index, zero elsewhere.

    No index appears twice in a line.
    """
    x, index, y = _views(lines, how)

    def element(at: At, dy: IndexedArray, index: IndexedArray, *, n: Expr) -> Put:
        return put(dy[at], at[0], _place(index, at, n, how), at[2], at[3])

    return scatter_kernel(element, y, ins, outs, reqs, target, name, views=[y, index], results=[x], distinct=True,
                          scalars={"n": lines[1]})


class PickedAlong(OperatorProperty):
    """Base class: input 0 at the indices in input 1, along one axis."""

    linear: ClassVar[bool] = True

    mode = "clip"  # see `places`; not annotated: a parameter of pick alone
    gradient_arguments = (0,)
    backward_reads = ("dy", "x1")
    own_dtypes = True

    def lines(self, x: Shape) -> tuple[int, int, int, int, int]:
        """Return outer, n, m, groups, rest for a first input of shape x."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return pick_kernel(self.lines(ins[0].shape), self.mode, ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return put_kernel(self.lines(outs[0].shape), self.mode, ins, outs, reqs, target, self.name)


@register_operator("pick", aliases=("choose_element_0index",))
class Pick(PickedAlong):
    """One element of each line of data along axis, at the index in `index` (truncated).

    index: data's shape without axis, or with size 1 there. mode: indices out of range are clipped, or wrap around.
    Returns: data's shape without axis; with keepdims, size 1 there. Only data has a derivative.
    """

    axis: int = -1
    keepdims: bool = False
    mode: Literal["clip", "wrap"] = "clip"
    argument_names = ("data", "index")

    def lines(self, x: Shape) -> tuple[int, int, int, int, int]:
        outer, n, inner = lines_of(self.name, self.axis, x)
        return outer, n, 1, inner, 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, i = in_shape
        if x is None:
            return [x, i], list(out_shape), []
        axis = check_axis(self.name, self.axis, len(x))
        if x[axis] == 0:
            raise ShapeError(f"{self.name}: axis {axis} of data {x} is empty. It must have at least one element.")
        flat, kept = (*x[:axis], *x[axis + 1:]) or (1,), (*x[:axis], 1, *x[axis + 1:])
        if i is None or len(i) != len(x):
            want = flat
        else:
            want = flat if len(x) == 1 else kept
        try:
            i = merge_shapes(self.name, "index", i, want)
        except ShapeError:
            raise ShapeError(f"{self.name}: for data {x} and axis {axis}, index must be {flat} "
                             f"or {kept}, not {i}.") from None
        return [x, i], [kept if self.keepdims else flat], []


@register_operator("batch_take")
class BatchTake(PickedAlong):
    """a[i, indices[i]] for each row i; indices out of range are clipped. indices: int32, one per row. No derivative."""

    argument_names = ("a", "indices")
    gradient_arguments = ()

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        a, i = in_type
        if i is not None and i != INT32:
            raise DTypeError(f"{self.name}: indices is {i}, but must be int32. Convert it with astype.")
        return [a or out_type[0], INT32], [a or out_type[0]], []

    def lines(self, x: Shape) -> tuple[int, int, int, int, int]:
        return math.prod(x[:-1]), x[-1], 1, 1, 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        a, i = in_shape
        if a is not None and len(a) < 2:
            raise ShapeError(f"{self.name}: a {a} must have at least two axes.")
        if a is not None and i is not None and is_known(a) and is_known(i) and math.prod(a[:-1]) != math.prod(i):
            raise ShapeError(f"{self.name}: indices {i} must hold one index for each of the {math.prod(a[:-1])} rows of a {a}.")
        return [a, i], [i], []


@composite("fill_element_0index")
def fill_element_0index(lhs: Any, mhs: Any, rhs: Any) -> Any:
    """lhs with the value mhs[i] at the index rhs[i] of each row i. lhs: [rows, n]. mhs, rhs: [rows]."""
    chosen = ops.one_hot(rhs, depth=lhs.shape[1])
    return ops.where(chosen, ops.broadcast_to(ops.expand_dims(mhs, axis=1), shape=lhs.shape), lhs)
