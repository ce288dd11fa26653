"""Indices with one number per axis: gather_nd, scatter_nd, _backward_gather_nd, ravel_multi_index and unravel_index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs, is_known
from .data_movement import fill
from .take import add_slices

INT64 = np.dtype(np.int64)
AXES = 8  # largest number of axes of the GPU kernels


def truncated_indices(given: np.ndarray, axes: int) -> np.ndarray:
    """Return given as int64 [axes, count], truncated."""
    with np.errstate(invalid="ignore"):
        return given.reshape(axes, -1).astype(np.int64)


def rows_at(name: str, given: np.ndarray, dims: Shape) -> np.ndarray:
    """Return the flat index, in an array of sizes dims, of each column of given [axes, ...]. Negative indices count from the end.

    Raises ShapeError for an index out of range.
    """
    at, flat = truncated_indices(given, len(dims)), np.zeros((), np.int64)
    for axis, d in enumerate(dims):
        v = at[axis]
        if v.size and (v.min() < -d or v.max() >= d):
            wrong = v[(v < -d) | (v >= d)][0]
            raise ShapeError(f"{name}: index {wrong} is out of range for axis {axis} of size {d}.")
        flat = flat * d + np.where(v < 0, v + d, v)
    return np.broadcast_to(flat, at.shape[1:])


class AtPlaces(OperatorProperty):
    """Base class: a large array and slices of it. indices [axes, ...] holds one index per axis for each slice."""

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

    def gather(self, large: Shape, indices: Shape, req: Req, target: str) -> KernelFunction:
        """Return the kernel (large, indices) -> slices."""
        m = self.axes_of(indices, large)
        dims, inner, k = large[:m], math.prod(large[m:]), math.prod(indices[1:])
        if target == "gpu":
            module, take, n = gpu_module("tensor.triton_gather_nd"), gpu_module("tensor.triton_pick"), math.prod(dims)

            def kernel_gpu(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
                at = run.workspace((k,), INT64)
                module.flatten(run, inputs[1], at, k, dims, clip=True)
                take.take(run, (1, n, inner), k, inputs[0], at, outputs[0], wrap=False, add=req == Req.ADD)

            return kernel_gpu

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            at = rows_at(self.name, inputs[1], dims)
            assign(outputs[0].reshape(k, inner), req, inputs[0].reshape(-1, inner)[at])

        return kernel

    def scatter(self, large: Shape, indices: Shape, req: Req, target: str, *, add_up: bool) -> KernelFunction:
        """Return the kernel (slices, indices) -> large, zero elsewhere. For equal indices add up, or keep the last."""
        m = self.axes_of(indices, large)
        dims, inner, k = large[:m], math.prod(large[m:]), math.prod(indices[1:])
        if target == "gpu":
            module, take, n = gpu_module("tensor.triton_gather_nd"), gpu_module("tensor.triton_take"), math.prod(dims)
            put_last = gpu_module("tensor.triton_index").put_last

            def kernel_gpu(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
                at = run.workspace((max(k, 1),), INT64)
                if k:
                    module.flatten(run, inputs[1], at, k, dims, clip=True)
                if add_up:
                    take.put(run, (1, n, inner), k, inputs[0], at, outputs[0], wrap=False, add=req == Req.ADD)
                else:
                    if req != Req.ADD:
                        fill(run, outputs[0], 0)
                    if k and inner:
                        put_last(run, (1, n, k, 1, inner), inputs[0], at, outputs[0], add=req == Req.ADD)

            return kernel_gpu

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            at, y = rows_at(self.name, inputs[1], dims), outputs[0].reshape(-1, inner)
            if req != Req.ADD:
                y.fill(0)
            if add_up:
                add_slices(y[None], at, inputs[0].reshape(1, k, inner))
            elif req == Req.ADD:
                alone = np.zeros_like(y)
                alone[at] = inputs[0].reshape(k, inner)
                y += alone
            else:
                y[at] = inputs[0].reshape(k, inner)

        return kernel


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
        return self.gather(ins[0].shape, ins[1].shape, reqs[0], target)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self.scatter(outs[0].shape, ins[1].shape, reqs[0], target, add_up=True)


@register_operator("scatter_nd")
class ScatterNd(AtPlaces):
    """Zeros of `shape` with the slices of data put at [indices[0, i], indices[1, i], ...]; of equal indices the last counts.

    Indices as in gather_nd, whose inverse this is.
    """

    add_up: ClassVar[bool] = False
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
        return self.scatter(self.shape, ins[1].shape, reqs[0], target, add_up=self.add_up)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self.gather(self.shape, ins[1].shape, reqs[0], target)


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
        dims, n, req = self.sizes(), outs[0].size, reqs[0]
        if target == "gpu":
            module = gpu_module("tensor.triton_gather_nd")
            return lambda run, inputs, outputs: module.flatten(run, inputs[0], outputs[0], n, dims, clip=False,
                                                               add=req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            at, flat = truncated_indices(inputs[0], len(dims)), np.zeros(n, np.int64)
            for axis, d in enumerate(dims):
                flat = flat * d + at[axis]
            assign(outputs[0], req, flat)

        return kernel


@register_operator("_unravel_index", aliases=("unravel_index",))
class UnravelIndex(Raveled):
    """The index per axis, in an array of sizes shape, of each flat index in data. Returns: (axes,) + data.shape."""

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is None:
            return [None if y is None else y[1:]], [y], []
        return [x], [(len(self.sizes()), *x)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        dims, n, req = self.sizes(), ins[0].size, reqs[0]
        if target == "gpu":
            module = gpu_module("tensor.triton_gather_nd")
            return lambda run, inputs, outputs: module.unravel(run, inputs[0], outputs[0], n, dims, add=req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            rest, y = truncated_indices(inputs[0], 1)[0], outputs[0].reshape(len(dims), n)
            for axis in range(len(dims) - 1, 0, -1):
                rest, part = np.sign(rest) * (abs(rest) // dims[axis]), rest
                assign(y[axis], req, part - rest * dims[axis])
            assign(y[0], req, rest)

        return kernel
