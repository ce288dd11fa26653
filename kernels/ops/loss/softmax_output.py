"""SoftmaxOutput: softmax whose derivative is that of the cross-entropy with a label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....errors import ShapeError
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.lang import maximum, row_index, trunc, where
from ...kernel import Kernel, KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs, is_known, merge_shapes
from ..nn.softmax import Rows, by_row, need_float, softmax_of


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
        rows = self.rows(ins[0].shape)
        return row_kernel(softmax_of, [rows], [rows], by_row(rows), ins[:1], outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, label = self.rows(outs[0].shape), ins[1]
        soft, labels, ignored = label.shape == outs[0].shape, math.prod(label.shape), int(self.ignore_label)
        scale = self.grad_scale if soft else self.scale(rows, labels)
        counts = self.normalization == "valid" and not soft
        spread = self.smoothing / max(1, rows[1] - 1)

        def body(y: Any, label: Any, count: Any = 1) -> Any:
            k = trunc(label)
            if soft:
                d = (y - label) * scale
            else:
                d = y - spread if spread else y
                d = where(k == row_index(), d - (1 - self.smoothing - spread), d) * scale
            if counts:
                d = d / maximum(count, 1)
            if self.use_ignore and not soft:
                d = where(k == ignored, 0, d)
            return d * y if self.out_grad else d

        used = rows if soft else by_row(rows)  # of more labels than rows the first ones
        seen = Spec((math.prod(used),), label.dtype)
        one = Spec((1,), np.dtype(np.int32))
        inner = row_kernel(body, [rows, used, (1, 1, 1)][:2 + counts], [rows], by_row(rows), [ins[0], seen, one][:2 + counts],
                           outs, reqs, target, f"{self.name}_backward")
        count = row_kernel(lambda label: where(trunc(label) != ignored, 1, 0), [(labels,)], [(1,)], (labels,), [label], [one],
                           [Req.WRITE], target, f"{self.name}_count") if counts else None

        def first(label: Any) -> Any:
            return label if labels == math.prod(used) else label.reshape((labels,))[:math.prod(used)]

        if count is None:
            return Kernel(lambda run, inputs, outputs: inner(run, [inputs[0], first(inputs[1])], outputs),
                          lambda inputs, outputs: inner.bind([inputs[0], first(inputs[1])], outputs), ahead=inner.ahead)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            valid = run.workspace(one.shape, one.dtype)
            count(run, inputs[1:], [valid])
            inner(run, [inputs[0], first(inputs[1]), valid], outputs)

        return kernel
