"""Losses with class labels: SVMOutput and softmax_cross_entropy. IdentityAttachKLSparseReg: a penalty on activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import OperatorProperty, Shapes, math_dtype
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.lang import exp, log, row_index, row_max, row_sum, trunc, where
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs, merge_shapes
from .regression_output import Unchanged


class LabelLoss(OperatorProperty):
    """Base class: data [n, c] and class labels [n]."""

    argument_names = ("data", "label")
    gradient_arguments = (0,)
    own_dtypes = True

    def match(self, x: Shape | None, label: Shape | None) -> Shape | None:
        """Return the shape of the label for data x."""
        if x is None:
            return label
        if len(x) < 2:
            raise ShapeError(f"{self.name}: data {x} needs a batch and a class axis.")
        return merge_shapes(self.name, "label", label, x[:-1])


@register_operator("SVMOutput")
class SVMOutput(Unchanged, LabelLoss):
    """The data unchanged, as class scores; the derivative is that of the hinge loss. The head gradient is ignored.

    margin:      the score of the label must exceed it, all other scores must be below -margin.
    use_linear:  the hinge, else its square. The derivative is multiplied by regularization_coefficient.
    data: [n, c], label: [n]; further leading axes of data are axes of the label too. Source: Tang 2013, arXiv:1306.0239.
    """

    margin: float = 1.0
    regularization_coefficient: float = 1.0
    use_linear: bool = False
    backward_reads = ("x1", "y0")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0])
        return [x, self.match(x, in_shape[1])], [x], []

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        n, c = math.prod(outs[0].shape[:-1]), outs[0].shape[-1]
        margin, factor, linear = self.margin, self.regularization_coefficient, self.use_linear

        def body(label: Any, y: Any) -> Any:
            side = where(trunc(label) == row_index(), 1, where(y == y, -1, 0 * y))  # the sign of the wanted score
            short = margin - side * y
            return where(short > 0, -side * factor * (1 if linear else 2 * short), 0)

        return row_kernel(body, [(n, 1), (n, c)], [(n, c)], (n, 1), ins, outs, reqs, target, self.name)


@register_operator("softmax_cross_entropy")
class SoftmaxCrossEntropy(LabelLoss):
    """Σ over the batch of -log softmax(data)[label]. data: [n, c], label: [n], class indices. Returns: [1].

    A label out of range adds the logarithm of the sum of exponentials, and its derivative is that of softmax alone.
    """

    backward_reads = ("dy0", "x")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is not None and len(x) != 2:
            raise ShapeError(f"{self.name}: data {x} must be [batch, classes].")
        return [x, self.match(x, in_shape[1])], [(1,)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        n, c = ins[0].shape

        def body(x: Any, label: Any) -> Any:
            k, top = row_index(), row_max(x)
            picked = row_sum(where(trunc(label) == k, x - top, 0 * x))
            return where(k == 0, log(row_sum(exp(x - top))) - picked, 0)

        return row_kernel(body, [(n, c), (n, 1)], [(1, 1)], (n, 1), ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        n, c = outs[0].shape

        def body(dy: Any, x: Any, label: Any) -> Any:
            e = exp(x - row_max(x))
            return dy * (e / row_sum(e) - where(trunc(label) == row_index(), 1, 0))

        return row_kernel(body, [(1, 1), (n, c), (n, 1)], [(n, c)], (n, 1), ins, outs, reqs, target, self.name)


@register_operator("IdentityAttachKLSparseReg")
class IdentityAttachKLSparseReg(Unchanged):
    """The data unchanged; backward adds the derivative of a penalty on units that are often active.

    data: [n, c], between 0 and 1. The penalty is the Kullback-Leibler divergence between sparseness_target and the moving average
    of each unit's activation. backward first updates moving_avg [c]: momentum · moving_avg + (1 - momentum) · mean.
    """

    sparseness_target: float = 0.1
    penalty: float = 0.001
    momentum: float = 0.9
    state_names = ("moving_avg",)
    backward_reads = ("dy0", "x0")

    def validate(self) -> None:
        if not 0 < self.sparseness_target < 1 or not 0 <= self.momentum <= 1:
            raise ParameterError(f"{self.name}: sparseness_target={self.sparseness_target} and momentum={self.momentum} "
                                 f"must be between 0 and 1.")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0])
        if x is None:
            return [x], [x], [None]
        if len(x) < 2:
            raise ShapeError(f"{self.name}: data {x} needs a batch and a unit axis.")
        return [x], [x], [(x[1],)]

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        x, average = ins[1], ins[2]
        view, row = (x.shape[0], x.shape[1], math.prod(x.shape[2:])), (1, x.shape[1], 1)
        count, momentum, rho, penalty = max(1, view[0] * view[2]), self.momentum, self.sparseness_target, self.penalty
        wide = Spec(average.shape, math_dtype(average.dtype))
        update = row_kernel(lambda x, a: momentum * a + (1 - momentum) * row_sum(x) / count, [view, row], [row], row,
                            [x, average], [wide], [Req.WRITE], target, f"{self.name}_average")
        keep = row_kernel(lambda a: a, [row], [row], row, [wide], [average], [Req.WRITE], target, f"{self.name}_keep")
        add = row_kernel(lambda dy, a: dy + penalty * ((1 - rho) / (1 - a) - rho / a), [view, row], [view], view,
                         [ins[0], wide], outs, reqs, target, f"{self.name}_backward")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            fresh = run.workspace(wide.shape, wide.dtype)
            update(run, [inputs[1], inputs[2]], [fresh])
            keep(run, [fresh], [inputs[2]])
            add(run, [inputs[0], fresh], outputs)

        return kernel
