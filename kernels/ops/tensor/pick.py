"""pick and batch_take: one element of each line along an axis, by index; with kernels that the sequence operators share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import DTypeError, ShapeError
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...kernel import NOTHING, KernelFunction
from ...op import Req, Reqs, Shape, Specs, is_known, merge_shapes
from .data_movement import fill
from .reshape import check_axis, lines_of

INT32 = np.dtype(np.int32)


def places(given: np.ndarray, n: int, m: int, how: str) -> np.ndarray:
    """Return given [outer, m, groups] as indices below n, int64, truncated.

    how: "clip" or "wrap" indices out of range; "last": subtract one, then clip; "reverse": given [outer, 1, groups] is the
    number of reversed steps of the m = n.
    """
    with np.errstate(invalid="ignore"):
        at = given.astype(np.int64)
    if how == "reverse":
        count, step = np.minimum(at, n), np.arange(n)[None, :, None]
        return np.where(step < count, count - 1 - step, step)
    return at % n if how == "wrap" else np.clip(at - 1 if how == "last" else at, 0, n - 1)


def pick_kernel(lines: tuple[int, int, int, int, int], how: str, req: Req, target: str) -> KernelFunction:
    """Return the kernel (x, index) -> y: y [outer, m, groups, rest] = x [outer, n, groups, rest] at index."""
    outer, n, m, groups, rest = lines
    if req == Req.NULL or not outer * m * groups * rest:
        return NOTHING
    if target == "gpu":
        module = gpu_module("tensor.triton_pick")
        return lambda run, inputs, outputs: module.pick(run, lines, *inputs, outputs[0], how, add=req == Req.ADD)

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        at = places(inputs[1].reshape(outer, -1, groups), n, m, how)[..., None]
        found = np.take_along_axis(inputs[0].reshape(outer, n, groups, rest), at, axis=1)
        assign(outputs[0].reshape(found.shape), req, found)

    return kernel


def put_kernel(lines: tuple[int, int, int, int, int], how: str, req: Req, target: str) -> KernelFunction:
    """Return the kernel (dy, index) -> dx, the derivative of pick_kernel: dy at index, zero elsewhere."""
    outer, n, m, groups, rest = lines
    if req == Req.NULL or not outer * n * groups * rest:
        return NOTHING
    if target == "gpu":
        module = gpu_module("tensor.triton_pick")

        def kernel_gpu(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            if req != Req.ADD:
                fill(run, outputs[0], 0)
            module.pick(run, lines, *inputs, outputs[0], how, put=True, add=req == Req.ADD)

        return kernel_gpu

    def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        dx, dy = outputs[0].reshape(outer, n, groups, rest), inputs[0].reshape(outer, m, groups, rest)
        at = places(inputs[1].reshape(outer, -1, groups), n, m, how)[..., None]
        if req == Req.ADD:
            dy = dy + np.take_along_axis(dx, at, axis=1)
        else:
            dx.fill(0)
        np.put_along_axis(dx, at, dy, axis=1)

    return kernel


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
        return pick_kernel(self.lines(ins[0].shape), self.mode, reqs[0], target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return put_kernel(self.lines(outs[0].shape), self.mode, reqs[0], target)


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
