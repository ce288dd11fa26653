"""Fused forms of BatchNorm, which the pass graph/passes/fuse_batch_norm.py puts in its place.

In training: BatchNorm, an optional sum with another array, and a rectifier in one pass over the data. At inference: an
elementwise formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ...cpu.numpy_printer import numpy_kernel
from ...declare.operator_property import gpu_module
from ...declare.property_op import PropertyOp
from ...declare.traced import TracedOp
from ...ir.expr import Expr
from ...ir.lang import sqrt
from ...kernel import InTurn, Kernel, KernelFunction, Prepared
from ...op import Op, Req, Reqs, Shape, Spec, Specs, builtin
from ...params import Params
from . import c_norm
from .softmax import Rows


class NormaliseOp(TracedOp):
    """BatchNorm's last step, from the statistics it has: y = (data - mean) · inverse · gamma + beta, per channel.

    Its parameters are BatchNorm's; the formula is the one BatchNorm computes with, so that the bits agree.
    """

    broadcast = True
    name = "_normalise"
    input_names = ("data", "gamma", "beta", "mean", "inverse")
    doc = "The normalised values of a BatchNorm whose statistics are known."

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        x, gamma, beta, mean, inverse = inputs
        scale = inverse if p.fix_gamma else inverse * gamma
        return (x * scale + (beta - mean * scale),)

    def views(self, p: Params, ins: Sequence[Shape], outs: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
        """The statistics as [1, channels, 1, ...]."""
        x, *others = ins
        axis = p.axis % len(x)
        one = tuple(n if i == axis else 1 for i, n in enumerate(x))
        return (x, *[one] * len(others)), outs

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        views, _ = self.views(p, [s.shape for s in ins], ())
        return super().kernel(p, [Spec(v, s.dtype) for v, s in zip(views, ins)], outs, reqs, target, train)


class NormTailOp(Op):
    """Base class of both directions. plus: another array is added before the rectifier. Parameters are those of BatchNorm."""

    def __init__(self, plus: bool):
        self.plus, self.params = plus, builtin("BatchNorm").params
        self.name = f"{self._prefix}BatchNorm+{'add+' if plus else ''}relu"

    _prefix = ""
    capturable = True

    @staticmethod
    def _norm(p: Params, x: Spec, train: bool) -> tuple[Any, Rows, bool]:
        """Return the BatchNorm of p, data as (outer, channels, inner), and True if the statistics are those of the batch."""
        op = builtin("BatchNorm")
        assert isinstance(op, PropertyOp)
        norm: Any = op.property(p)
        return norm, norm.rows(x.shape), train and not norm.use_global_stats


class NormTail(NormTailOp):
    """relu(BatchNorm(data) + other), or without other; then mean and 1 / √(var + eps), as in BatchNorm."""

    output_names = ("output", "mean", "var")

    def arguments(self, p: Params) -> tuple[str, ...]:
        return ("data", "gamma", "beta", *(("other",) if self.plus else ()))

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return ("moving_mean", "moving_var")

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (3, 0)) if self.plus else ((0, 0),)  # the sums are computed first, then each element by itself

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        norm, rows, batch = self._norm(p, ins[0], train)
        if target == "cpu":
            return c_norm.forward(rows, norm, batch, reqs, relu=True, plus=self.plus)
        gpu = gpu_module("nn.triton_norm")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, gamma, beta, *other, mean, var = inputs
            gpu.forward(run, rows, norm, batch, (x, gamma, beta, mean, var), outputs, reqs, relu=True,
                        other=other[0] if other else None)

        return kernel


class NormTailBackward(NormTailOp):
    """The derivatives by data, gamma, beta and other, from dy, data, gamma, mean, 1 / √(var + eps) and the output."""

    _prefix = "_backward_"

    def arguments(self, p: Params) -> tuple[str, ...]:
        return ("output_grad", "data", "gamma", "mean", "var", "output")

    def outputs(self, p: Params) -> tuple[str, ...]:
        return ("data_grad", "gamma_grad", "beta_grad", *(("other_grad",) if self.plus else ()))

    def inplace(self, p: Params) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0), *(((0, 3),) if self.plus else ()))

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        assert not self.plus or reqs[0] != Req.NULL, reqs
        norm, rows, batch = self._norm(p, ins[1], train)
        if target == "cpu":
            return c_norm.backward(rows, norm, batch, reqs, relu=True, plus=self.plus)
        gpu = gpu_module("nn.triton_norm")
        other = self.plus and reqs[3] != Req.NULL

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            gpu.backward(run, rows, norm, batch, inputs[:5], outputs[:3], reqs[:3], y=inputs[5],
                         d_other=outputs[3] if other else None, add_other=other and reqs[3] == Req.ADD)

        return kernel


@cache
def norm_tail(plus: bool, backward: bool) -> NormTail | NormTailBackward:
    """Return the operator; there is one for each pair of arguments."""
    return NormTailBackward(plus) if backward else NormTail(plus)


class NormaliseMoving(NormaliseOp):
    """BatchNorm with its moving statistics: an elementwise formula, which can be fused with its neighbours."""

    name = "_normalise_moving"
    input_names = ("data", "gamma", "beta", "moving_mean", "moving_var")
    doc = "The values of a BatchNorm normalised by its moving statistics."

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        x, gamma, beta, mean, var = inputs
        inverse = 1 / sqrt(var + p.eps)
        return ((x - mean) * (inverse if p.fix_gamma else inverse * gamma) + beta,)


class MovingScale(TracedOp):
    """The two numbers of each channel with which BatchNorm is x · scale + shift outside training.

    On a CPU they are computed first: in the formula above, each element would take the root again.
    """

    name = "_moving_scale"
    input_names = ("gamma", "beta", "moving_mean", "moving_var")
    output_names = ("scale", "shift")
    doc = "The scale and the shift of a BatchNorm that uses its moving statistics."

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        gamma, beta, mean, var = inputs
        inverse = 1 / sqrt(var + p.eps)
        scale = inverse if p.fix_gamma else inverse * gamma
        return scale, beta - mean * scale

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> Kernel:
        """Return a kernel whose results stay until the statistics or parameters change, where a graph knows that."""
        if target == "gpu":
            return super().kernel(p, ins, outs, reqs, target, train)
        inner = numpy_kernel(self.expression(p, [s.dtype for s in ins], train), ins, outs, reqs, name=self.name)
        return Kernel(inner.run, inner.bind, keep=lambda inputs, outputs: Prepared(inner.bind(inputs, outputs), InTurn([])),
                      keeps=range(len(ins)))


class ScaleShift(NormaliseOp):
    """x · scale + shift for each channel: an elementwise formula, which can be fused with its neighbours."""

    name = "_scale_shift"
    input_names = ("data", "scale", "shift")
    doc = "Data times a scale plus a shift, per channel."

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        x, scale, shift = inputs
        return (x * scale + shift,)
