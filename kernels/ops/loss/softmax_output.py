"""SoftmaxOutput: softmax whose derivative is that of the cross-entropy with a label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....errors import ShapeError
from ...cpu.errstate import no_fp_warnings
from ...declare.operator_property import OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import BoundKernel, Kernel, KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs, is_known, merge_shapes
from ..nn.softmax import Rows, blocks, need_float, softmax_into

_SMALL = 1 << 18  # bytes


@register_operator("SoftmaxOutput", aliases=("Softmax",))
class SoftmaxOutput(OperatorProperty):
    """p = softmax(data); the derivative is grad_scale · (p - onehot(label)). The head gradient is ignored.

    data:  [n, c], label [n], class indices, or [n, c], probabilities.
           multi_output: data [n, c, ...], label [n, ...], or probabilities [n, c, ...]; softmax over axis 1.
           preserve_shape: data [..., c], label [...]; softmax over the last axis.
    use_ignore:     rows whose label is ignore_label get no derivative.
    normalization:  "batch" divides by the number of labels (multi_output: by n), "valid" by how many labels are not ignore_label.
    smooth_alpha:   this much of the label's weight is spread over the other classes; not with multi_output.
    out_grad:       multiply by p, as MXNet 1.9.1 does (and not by the head gradient, as the name says).
    """

    costly = True

    grad_scale: float = 1.0
    ignore_label: float = -1.0
    multi_output: bool = False
    use_ignore: bool = False
    preserve_shape: bool = False
    normalization: Literal["null", "batch", "valid"] = "null"
    out_grad: bool = False
    smooth_alpha: float = 0.0
    argument_names = ("data", "label")
    gradient_arguments = (0,)
    backward_reads = ("y0", "x1")
    forward_inplace = ((0, 0),)
    backward_inplace = (("y0", 0),)
    own_dtypes = True

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        label = in_shape[1]
        x = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0])
        if x is None:
            return [x, label], [x], []
        if len(x) < 2:
            raise ShapeError(f"{self.name}: data {x} needs a batch and a class axis.")
        if self.multi_output:
            rest = math.prod(x[2:]) if is_known(x) else -1
            allowed = [(x[0], rest), (x[0], *x[2:]), (x[0], 1, *x[2:]), x]
        else:
            allowed = [tuple(x[:-1]), x]
        if label is None:
            return [x, allowed[0]], [x], []
        for s in allowed:
            if len(s) == len(label) and all(-1 in p or p[0] == p[1] for p in zip(s, label)):
                label = tuple(max(p) for p in zip(s, label))
                if len(label) == len(x) - 1 and self.multi_output:
                    x = (label[0], x[1], *label[1:])
                return [x, label], [x], []
        hint = "" if self.multi_output or len(x) < 3 else " For a label a position, set multi_output=True."
        raise ShapeError(f"{self.name}: for data {x} the label must be {allowed[0]}, not {label}.{hint}")

    def rows(self, x: Shape) -> Rows:
        """Return the shape of the data as [outer, classes, inner]."""
        if self.multi_output:
            return x[0], x[1], math.prod(x[2:])
        if self.preserve_shape:
            return math.prod(x[:-1]), x[-1], 1
        return x[0], math.prod(x[1:]), 1

    @property
    def smoothing(self) -> float:
        """The share of the label's weight that each other class gets."""
        return 0.0 if self.multi_output else self.smooth_alpha

    def scale(self, rows: Rows, labels: int) -> float:
        """Return the factor of p - onehot, without the division for "valid". labels: their number."""
        if self.normalization == "valid":
            return self.grad_scale
        batch = (rows[0] if self.multi_output else labels) if self.normalization == "batch" else 1
        return self.grad_scale / max(1, rows[2] * batch)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        need_float(self.name, ins[0])
        rows, req = self.rows(ins[0].shape), reqs[0]
        if target == "gpu":
            soft = gpu_module("nn.triton_softmax")
            return lambda run, inputs, outputs: soft.forward(run, rows, inputs[0], outputs[0], add=req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, y = inputs[0].reshape(rows), outputs[0].reshape(rows)
            blocks(run, rows, x.itemsize, lambda a, z: softmax_into(y[a:z], req, x[a:z]))

        if not _is_small(ins[0], outs[0], rows, req):
            return kernel

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            """The same with one NumPy call per step."""
            x, y = (a.reshape(rows[:2]) for a in (inputs[0], outputs[0]))
            row = np.empty((rows[0], 1), y.dtype)

            def softmax() -> None:
                np.maximum.reduce(x, axis=1, out=row, keepdims=True)
                np.subtract(x, row, out=y)
                np.exp(y, out=y)
                np.add.reduce(y, axis=1, out=row, keepdims=True)
                np.divide(y, row, out=y)

            return lambda run: no_fp_warnings(softmax)

        return Kernel(kernel, bind)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, req = self.rows(outs[0].shape), reqs[0]
        soft_label = ins[1].shape == outs[0].shape
        scale = self.grad_scale if soft_label else self.scale(rows, math.prod(ins[1].shape))
        if target == "gpu":
            soft, p = gpu_module("nn.triton_softmax"), self
            return lambda run, inputs, outputs: soft.loss_gradient(run, rows, p, scale, soft_label, inputs, outputs[0],
                                                                   add=req == Req.ADD)
        dtype, (outer, n, inner) = math_dtype(outs[0].dtype), rows

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            y, dx = inputs[0].reshape(rows), outputs[0].reshape(rows)
            d = y.astype(dtype)
            if soft_label:
                d -= inputs[1].reshape(rows)
                d *= dtype.type(scale)
            else:
                every = inputs[1].reshape(-1).astype(np.int64)
                label = every[:outer * inner].reshape(outer, 1, inner)
                factor, ignored = scale, label == int(self.ignore_label)
                if self.normalization == "valid":
                    factor /= max(1, int((every != int(self.ignore_label)).sum()))
                smooth = self.smoothing
                spread = smooth / max(1, n - 1)
                if spread:
                    d -= dtype.type(spread)
                o, _, i = np.nonzero((label >= 0) & (label < n))
                d[o, label[o, 0, i], i] -= dtype.type(1 - smooth - spread)
                d *= dtype.type(factor)
                if self.use_ignore:
                    d *= ~ignored
            if self.out_grad:
                d *= y
            assign(dx, req, d)

        plain = not (soft_label or self.smooth_alpha or self.use_ignore or self.out_grad or self.normalization == "valid")
        if not plain or not _is_small(ins[0], outs[0], rows, req) or ins[1].size < outer:
            return kernel

        def bind(inputs: Sequence[Any], outputs: Sequence[Any]) -> BoundKernel:
            """The same with one NumPy call per step."""
            y, d, label = inputs[0].reshape(-1), outputs[0].reshape(-1), inputs[1].reshape(-1)[:outer]
            first = np.arange(outer) * n
            one, factor = dtype.type(1), dtype.type(scale)

            def derive() -> None:
                classes = label.astype(np.int64)
                real = classes.view(np.uint64) < n  # neither negative nor too large
                at = first + classes
                if not real.all():
                    at = at[real]
                np.copyto(d, y)
                d[at] -= one
                np.multiply(d, factor, out=d)

            return lambda run: no_fp_warnings(derive)

        return Kernel(kernel, bind)


def _is_small(x: Spec, y: Spec, rows: Rows, req: Req) -> bool:
    """Return True if call overhead dominates, and every step has an array to write to."""
    return x.dtype == y.dtype == math_dtype(y.dtype) and rows[2] == 1 and req != Req.ADD and y.nbytes <= _SMALL
