"""take and Embedding: slices of an array selected by index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....dtype import float32, is_half
from ....errors import ParameterError, ShapeError
from ...cpu.c_moving import ReboundKernel
from ...cpu.c_take import added, adds, selected, selects
from ...cpu.index_limits import Limits
from ...declare.index_kernel import At, IndexedArray, index_kernel
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import maximum, minimum
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs, merge_shapes
from .reshape import check_axis, lines_of

_OFTEN = 64  # rows with one index from which on they are added up by themselves


def add_slices(target: np.ndarray, at: np.ndarray, given: np.ndarray) -> None:
    """Add given [outer, k, inner] to target [outer, n, inner] at indices at [k]; those with equal indices add up in their order.

    Half precision adds them up in float32, and adds the sum.
    """
    if not at.size or not target.size:
        return
    order = np.argsort(at, kind="stable")
    placed = at[order]
    starts = np.flatnonzero(np.r_[True, placed[1:] != placed[:-1]])
    if is_half(target.dtype):
        sums = np.add.reduceat(given[:, order].astype(math_dtype(given.dtype), copy=False), starts, axis=1)
        target[:, placed[starts]] += sums.astype(target.dtype, copy=False)
        return
    counts = np.diff(np.r_[starts, len(at)])
    for start, count in zip(starts[counts >= _OFTEN], counts[counts >= _OFTEN]):
        row = target[:, placed[start]]
        terms = np.concatenate([row[:, None], given[:, order[start:start + count]]], axis=1)
        row[...] = np.add.accumulate(terms, axis=1)[:, -1]  # a running sum has one order, a sum has not
    few = counts < _OFTEN
    starts, counts = starts[few], counts[few]
    for i in range(max(counts, default=0)):  # the row that comes as number i of those with its index
        here = starts[counts > i] + i
        target[:, placed[here]] += given[:, order[here]]


class Picked(OperatorProperty):
    """Base class: output [outer, k, inner] = source [outer, n, inner] at k indices."""

    linear: ClassVar[bool] = True

    axis, mode = 0, "clip"  # of the source, of indices out of range; not annotated: parameters of take alone
    source: ClassVar[int] = 0  # position of the source among the arguments; the other one holds the indices

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        d = in_type[self.source] or out_type[0]
        types = [in_type[0] or d, in_type[1] or d]
        types[self.source] = d
        return types, [d], []

    @property
    def gradient_arguments(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def backward_reads(self) -> tuple[str, ...]:
        return ("dy", f"x{1 - self.source}")

    def numbers(self, given: np.ndarray, n: int) -> np.ndarray:
        """Return given as indices below n, int64 [k]."""
        with np.errstate(invalid="ignore"):
            at = given.reshape(-1).astype(np.int64)
        return at % n if self.mode == "wrap" else np.clip(at, 0, n - 1)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        source, k = self.source, ins[1 - self.source].size
        outer, n, inner = lines_of(self.name, self.axis, ins[source].shape)

        def element(at: At, *arrays: IndexedArray) -> Expr:
            x, i = arrays[source], arrays[1 - source][at[1]].astype("int64")
            place = i % x.shape[1] if self.mode == "wrap" else minimum(maximum(i, 0), x.shape[1] - 1)
            return x[at[0], place, at[2]]

        if target == "cpu" and reqs[0] in (Req.WRITE, Req.INPLACE) and self.mode != "raise" and \
                ins[source].dtype == outs[0].dtype and selects(outer, n, k, inner, ins[source].dtype, ins[1 - source].dtype):
            rows = selected(outer, n, k, inner, ins[source].dtype, ins[1 - source].dtype, self.mode == "wrap")
            return ReboundKernel(lambda inputs, outputs: rows(inputs[source], inputs[1 - source], outputs[0]))
        views = [(outer, n, inner), (k,)]
        text = "index {index} is out of range for an axis of size {size}. Use mode='clip' or 'wrap'."
        limits = Limits(1 - source, (n,), text=text)
        return index_kernel(element, ins, outs, reqs, target, self.name, views=views[::-1] if source else views,
                            results=[(outer, k, inner)], limits=limits if self.mode == "raise" else None)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, req, k = lines_of(self.name, self.axis, outs[0].shape), reqs[0], ins[1].size
        if target == "gpu":
            module, wrap = gpu_module("tensor.triton_take"), self.mode == "wrap"
            return lambda run, inputs, outputs: module.put(run, rows, k, *inputs, outputs[0], wrap=wrap,
                                                           add=req == Req.ADD)
        outer, n, inner = rows
        if adds(outer, n, k, inner, outs[0].dtype, ins[1].dtype) and ins[0].dtype == outs[0].dtype:
            in_c = added(outer, n, k, inner, outs[0].dtype, ins[1].dtype, self.mode == "wrap", req == Req.ADD)
            return ReboundKernel(lambda inputs, outputs: in_c(inputs[0], inputs[1], outputs[0]))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dx = outputs[0].reshape(rows)
            if req != Req.ADD:
                dx.fill(0)
            if k and dx.size:
                add_slices(dx, self.numbers(inputs[1], n), inputs[0].reshape(outer, k, inner))

        return kernel


@register_operator("take")
class Take(Picked):
    """Slices of a along axis at indices (truncated).

    mode: indices out of range are clipped ("clip"), wrap around ("wrap") or raise an error ("raise"; a GPU clips).
    Returns: a.shape[:axis] + indices.shape + a.shape[axis + 1:].
    """

    axis: int = 0
    mode: Literal["clip", "wrap", "raise"] = "clip"
    argument_names = ("a", "indices")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        a, i = in_shape
        if a is None or i is None:
            return list(in_shape), list(out_shape), []
        axis = check_axis(self.name, self.axis, len(a))
        if a[axis] == 0 and math.prod(i):
            raise ShapeError(f"{self.name}: axis {axis} of a {a} is empty. It must have at least one element.")
        return [a, i], [(*a[:axis], *i, *a[axis + 1:])], []


@register_operator("Embedding", aliases=("_contrib_SparseEmbedding",))
class Embedding(Picked):
    """The rows of weight [input_dim, output_dim] at the indices in data; indices out of range are clipped.

    Returns: data.shape + (output_dim,).
    """

    source: ClassVar[int] = 1

    input_dim: int
    output_dim: int
    dtype: np.dtype = float32
    sparse_grad: bool = False
    argument_names = ("data", "weight")

    def validate(self) -> None:
        if self.input_dim < 1 or self.output_dim < 1:
            raise ParameterError(f"{self.name}: input_dim={self.input_dim} and output_dim={self.output_dim} must be "
                                 f"at least 1.")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        (x, w), y = in_shape, out_shape[0]
        want = (self.input_dim, self.output_dim)
        if w is not None and (len(w) != 2 or any(-1 != d != e for d, e in zip(w, want))):
            raise ShapeError(f"{self.name}: weight {w} must be {want}: input_dim by output_dim.")
        if x is None and y is None:
            return list(in_shape), list(out_shape), []
        if x is not None:
            y = merge_shapes(self.name, "the output", y, (*x, self.output_dim))
        if y is not None:
            x = y[:-1]
        return [x, want], [y], []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        weight = in_type[1] or out_type[0] or self.dtype
        return [in_type[0] or weight, weight], [weight], []
