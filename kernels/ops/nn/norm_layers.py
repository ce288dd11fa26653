"""LayerNorm, GroupNorm, InstanceNorm, L2Normalization and moments: normalize an array by its own mean, variance or length.

Each is a body on a view of the data. backward computes the statistics again from the data, so nothing else is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ....errors import ParameterError, ShapeError
from ...declare.composite import TracedValue, composite, ops
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.expr import Expr, load
from ...ir.lang import row_sum, sqrt
from ...kernel import KernelFunction
from ...op import Formula, Reqs, Shape, Shaped, Specs, is_known, merge_shapes
from ..tensor.reshape import check_axis
from .softmax import rows_along

View = tuple[Shape, Shape, Shape]  # shapes of data, statistics, and gamma and beta


def differentiable_gradient(norm: Any, read: Mapping[tuple[str, int], Any], fixed: bool) -> list[Shaped] | None:
    """Return the derivatives of a normalisation by its own mean and variance; None where gamma has another dtype than the data.

    norm:   the property, with `view` and `eps`. read: as in OperatorProperty.differentiable_gradient.
    fixed:  gamma counts as 1 and gets the derivative 0.
    """
    dy, x, gamma = read["dy", 0], read["x", 0], read["x", 1]
    if gamma.dtype != x.dtype:
        return None
    full, kept, row = norm.view(x.shape)
    dx, d_gamma, d_beta = ops._norm_gradient(dy, x, ops.ones_like(gamma) if fixed else gamma, full=full, kept=kept, row=row,
                                             eps=norm.eps)
    return [dx, ops.zeros_like(gamma) if fixed else d_gamma, d_beta]


@composite("_norm_gradient", outputs=("data_grad", "gamma_grad", "beta_grad"))
def norm_gradient(dy: TracedValue, data: TracedValue, gamma: TracedValue, *, full: tuple[int, ...], kept: tuple[int, ...],
                  row: tuple[int, ...], eps: float) -> tuple[TracedValue, ...]:
    """The derivatives of gamma · (data - mean) / √(var + eps) + beta, by data, gamma and beta.

    full: the shape of data for the formula; kept: full with 1 on the reduced axes; row: the shape of gamma, which
    broadcasts to full.
    """
    axes = tuple(i for i, n in enumerate(kept) if n == 1)
    count = max(1, math.prod(full[i] for i in axes))
    spread = (1,) * (len(full) - len(row)) + tuple(row)
    others = tuple(i for i, n in enumerate(spread) if n == 1)

    def mean(v: TracedValue) -> TracedValue:
        return ops.sum(v, axis=axes, keepdims=True) / count

    def folded(v: TracedValue) -> TracedValue:
        return (ops.sum(v, axis=others, keepdims=True) if others else v).reshape(gamma.shape)

    x, g = data.reshape(full), dy.reshape(full)
    d = x - mean(x)
    std = ops.sqrt(mean(d * d) + eps)
    unit = d / std
    scaled = g * gamma.reshape(spread)
    dx = (scaled - mean(scaled) - unit * mean(scaled * unit)) / std
    return dx.reshape(data.shape), folded(g * unit), folded(g)


class Normalized(OperatorProperty):
    """y = gamma · (x - mean) / √(var + eps) + beta; subclasses define the axes of mean and variance."""

    eps: float = 1e-5
    output_mean_var: bool = False
    argument_names = ("data", "gamma", "beta")
    backward_reads = ("dy0", "x0", "x1")

    def view(self, shape: Shape) -> View:
        raise NotImplementedError(self.name)

    def channels(self, shape: Shape) -> int:
        """Return the size of gamma and beta; -1 if unknown."""
        raise NotImplementedError(self.name)

    def statistics(self, shape: Shape) -> Shape:
        """Return the shape of the outputs mean and std."""
        raise NotImplementedError(self.name)

    @property
    def output_names(self) -> tuple[str, ...]:
        return ("output", "mean", "std") if self.output_mean_var else ("output",)

    def differentiable_gradient(self, read: Mapping[tuple[str, int], Any], train: bool) -> list[Shaped] | None:
        return differentiable_gradient(self, read, fixed=False)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0])
        if x is None:
            return list(in_shape), list(out_shape), []
        c = (self.channels(x),)
        for what, s in zip(("gamma", "beta"), in_shape[1:]):
            if s is not None and (len(s) != 1 or (-1 not in (s + c) and s != c)):
                raise ShapeError(f"{self.name}: {what} {s} must be {c} for data {x}.")
        outs: Shapes = [x]
        if self.output_mean_var:
            outs += [self.statistics(x)] * 2
        return [x, c, c], outs, []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full, kept, row = self.view(ins[0].shape)
        return row_kernel(self.body(_count(full, kept)), [full, row, row], [full, kept, kept][:len(outs)], kept, ins, outs,
                          reqs, target, self.name)

    def body(self, count: int) -> Callable[..., tuple[Expr, ...]]:
        """Return the formula; count elements share one mean."""
        eps, statistics = self.eps, self.output_mean_var

        def body(x: Any, gamma: Any, beta: Any) -> Any:
            mean = row_sum(x) / count
            d = x - mean
            std = sqrt(row_sum(d * d) / count + eps)
            y = d / std * gamma + beta
            return (y, mean, std) if statistics else (y,)

        return body

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full, kept, row = self.view(ins[1].shape)
        return row_kernel(self.backward_body(_count(full, kept)), [full, full, row], [full, row, row], kept, ins, outs, reqs,
                          target, f"{self.name}_backward")

    def backward_body(self, count: int) -> Callable[..., tuple[Expr, ...]]:
        """Return the formula of the three derivatives."""
        eps = self.eps

        def body(dy: Any, x: Any, gamma: Any) -> Any:
            d = x - row_sum(x) / count
            std = sqrt(row_sum(d * d) / count + eps)
            unit, g = d / std, dy * gamma
            dx = (g - row_sum(g) / count - unit * (row_sum(g * unit) / count)) / std
            return dx, dy * unit, dy

        return body


def _count(full: Shape, kept: Shape) -> int:
    """Return the number of elements that share one mean."""
    return max(1, math.prod(n for n, k in zip(full, kept) if k == 1 or n != k))


@register_operator("LayerNorm")
class LayerNorm(Normalized):
    """y = gamma · (x - mean) / √(var + eps) + beta, with mean and variance along axis.

    data: any shape; gamma, beta: [size of axis].
    output_mean_var: also returns mean and √(var + eps), with size 1 along axis; they have no derivative.
    Source: Ba, Kiros, Hinton 2016, arXiv:1607.06450.
    """

    axis: int = -1

    def channels(self, shape: Shape) -> int:
        return shape[check_axis(self.name, self.axis, len(shape))]

    def statistics(self, shape: Shape) -> Shape:
        axis = check_axis(self.name, self.axis, len(shape))
        return (*shape[:axis], 1, *shape[axis + 1:])

    def view(self, shape: Shape) -> View:
        axis = check_axis(self.name, self.axis, len(shape))
        outer, n, inner = rows_along(shape, axis)
        if inner == 1:
            return (outer, n), (outer, 1), (n,)
        return (outer, n, inner), (outer, 1, inner), (n, 1)

    def formula(self, ins: Specs, outs: Specs) -> Formula | None:
        full = ins[0].shape
        if check_axis(self.name, self.axis, len(full)) != len(full) - 1 or {s.dtype for s in ins} != {outs[0].dtype}:
            return None
        roots = self.body(full[-1])(*(load(i, s.dtype) for i, s in enumerate(ins)))
        statistics = (*full[:-1], 1)
        return Formula(roots, (full, full[-1:], full[-1:]), (full, statistics, statistics)[:len(outs)])

    def backward_formula(self, ins: Specs, outs: Specs) -> Formula | None:
        full = ins[1].shape
        if check_axis(self.name, self.axis, len(full)) != len(full) - 1 or {s.dtype for s in ins} != {outs[0].dtype}:
            return None
        roots = self.backward_body(full[-1])(*(load(i, s.dtype) for i, s in enumerate(ins)))
        parameter = (*[1] * (len(full) - 1), full[-1])
        return Formula(roots, (full, full, full[-1:]), (full, parameter, parameter))


@register_operator("GroupNorm")
class GroupNorm(Normalized):
    """y = gamma · (x - mean) / √(var + eps) + beta, with mean and variance over each of num_groups parts of a sample.

    data: [n, c, ...], c a multiple of num_groups; gamma, beta: [num_groups], as MXNet has them.
    output_mean_var: also returns mean and √(var + eps), [n, num_groups]. Source: Wu, He 2018, arXiv:1803.08494.
    """

    num_groups: int = 1

    def validate(self) -> None:
        if self.num_groups < 1:
            raise ParameterError(f"{self.name}: num_groups={self.num_groups} must be at least 1.")

    def channels(self, shape: Shape) -> int:
        if len(shape) < 3:
            raise ShapeError(f"{self.name}: data {shape} needs a batch, channels and at least one more axis.")
        if shape[1] >= 0 and shape[1] % self.num_groups:
            raise ShapeError(f"{self.name}: data {shape} has {shape[1]} channels, not a multiple of "
                             f"num_groups={self.num_groups}.")
        return self.num_groups

    def statistics(self, shape: Shape) -> Shape:
        return shape[0], self.num_groups

    def view(self, shape: Shape) -> View:
        n, g = shape[0], self.num_groups
        return (n, g, math.prod(shape[1:]) // g), (n, g, 1), (g, 1)


@register_operator("InstanceNorm")
class InstanceNorm(Normalized):
    """y = gamma · (x - mean) / √(var + eps) + beta, with mean and variance over the positions of each channel of each sample.

    data: [n, c, ...]; gamma, beta: [c]. Source: Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022.
    """

    eps: float = 1e-3

    def channels(self, shape: Shape) -> int:
        if len(shape) < 3:
            raise ShapeError(f"{self.name}: data {shape} needs a batch, channels and at least one more axis.")
        return shape[1]

    def view(self, shape: Shape) -> View:
        n, c = shape[:2]
        return (n, c, math.prod(shape[2:])), (n, c, 1), (c, 1)


@register_operator("L2Normalization")
class L2Normalization(OperatorProperty):
    """x / √(Σ x² + eps).

    mode: "instance" sums over a sample, "channel" over axis 1, "spatial" over all axes after it.
    """

    eps: float = 1e-10
    mode: Literal["channel", "instance", "spatial"] = "instance"
    backward_reads = ("dy0", "x0")

    def view(self, shape: Shape) -> tuple[Shape, Shape]:
        if len(shape) < (1 if self.mode == "instance" else 3):
            raise ShapeError(f"{self.name}: data {shape} has too few axes for mode={self.mode!r}.")
        if self.mode == "instance":
            return (shape[0], math.prod(shape[1:])), (shape[0], 1)
        full = (shape[0], shape[1], math.prod(shape[2:]))
        return full, (full[0], 1, full[2]) if self.mode == "channel" else (full[0], full[1], 1)

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        found = super().infer_shape(in_shape, out_shape)
        x = found[0][0]
        if x is not None and is_known(x):
            self.view(x)
        return found

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (full, kept), eps = self.view(ins[0].shape), self.eps
        return row_kernel(lambda x: x / sqrt(row_sum(x * x) + eps), [full], [full], kept, ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (full, kept), eps = self.view(ins[1].shape), self.eps

        def body(dy: Any, x: Any) -> Any:
            length = sqrt(row_sum(x * x) + eps)
            y = x / length
            return (dy - y * row_sum(dy * y)) / length

        return row_kernel(body, [full, full], [full], kept, ins, outs, reqs, target, f"{self.name}_backward")


@register_operator("moments")
class Moments(OperatorProperty):
    """The mean of data along axes, and its (biased) variance.

    axes: None: all axes, which gives shape (1,). keepdims: keep them with size 1.
    """

    axes: tuple | None = None
    keepdims: bool = False
    output_names = ("output0", "output1")
    backward_reads = ("dy", "x0")

    def validate(self) -> None:
        if self.axes == ():
            raise ParameterError(f"{self.name}: axes=() is empty. Leave axes out for the moments of all elements.")

    def folded(self, shape: Shape) -> set[int]:
        """Return the axes of the mean."""
        return {check_axis(self.name, a, len(shape)) for a in self.axes or range(len(shape))}

    def kept(self, shape: Shape) -> Shape:
        """Return the shape with 1 for the axes of the mean."""
        folded = self.folded(shape)
        return tuple(1 if i in folded else n for i, n in enumerate(shape))

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = in_shape[0]
        if x is None:
            return [x], out_shape, []
        folded = self.folded(x)
        kept = self.kept(x) if self.keepdims else tuple(n for i, n in enumerate(x) if i not in folded) or (1,)
        return [x], [kept, kept], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full = ins[0].shape
        kept = self.kept(full)
        count = _count(full, kept)

        def body(x: Any) -> Any:
            mean = row_sum(x) / count
            d = x - mean
            return mean, row_sum(d * d) / count

        return row_kernel(body, [full], [kept, kept], kept, ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full = ins[2].shape
        kept = self.kept(full)
        count = _count(full, kept)

        def body(dmean: Any, dvar: Any, x: Any) -> Any:
            return (dmean + 2 * dvar * (x - row_sum(x) / count)) / count

        return row_kernel(body, [kept, kept, full], [full], kept, ins, outs, reqs, target, f"{self.name}_backward")
