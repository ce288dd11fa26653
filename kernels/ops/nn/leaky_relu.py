"""LeakyReLU: leaky, elu, selu, gelu, prelu (a learned slope per channel) and rrelu (a random slope per element)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....errors import ParameterError, ShapeError
from ...declare.dispatch_op import DispatchOp
from ...declare.operator_property import RANDOM, OperatorProperty, Shapes
from ...declare.property_op import PropertyOp
from ...declare.row_kernel import row_kernel
from ...declare.simple_op import Float, SimpleOp
from ...ir.lang import erf, expm1, where
from ...kernel import KernelFunction
from ...op import Op, Reqs, Shape, Specs, is_known, merge_shapes, register
from ...params import Param, Params
from ..random.uniform import fill_uniform

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def _kind(body: Callable[..., Any]) -> SimpleOp:
    return SimpleOp(body, name=f"LeakyReLU_{body.__name__}")


@_kind
def leaky(data: Float, *, slope: float = 0.25) -> Float:
    """x if x > 0, else slope · x."""
    return where(data > 0, data, slope * data)


@_kind
def elu(data: Float, *, slope: float = 0.25) -> Float:
    """x if x > 0, else slope · (eˣ - 1)."""
    return where(data > 0, data, slope * expm1(data))


@elu.gradient
def _(dy, y, *, slope):
    return dy * where(y > 0, 1, y + slope)


@_kind
def selu(data: Float) -> Float:
    """elu with the slope and scale that keep mean 0 and variance 1. Source: Klambauer et al. 2017, arXiv:1706.02515."""
    return _SELU_SCALE * where(data > 0, data, _SELU_ALPHA * expm1(data))


@selu.gradient
def _(dy, y):  # as in MXNet; the derivative of the formula below zero is y + scale · alpha
    return dy * where(y > 0, _SELU_SCALE, _SELU_SCALE * (y + _SELU_ALPHA))


@_kind
def gelu(data: Float) -> Float:
    """x Φ(x), Φ the normal distribution. Source: Hendrycks, Gimpel 2016, arXiv:1606.08415."""
    return 0.5 * data * (1 + erf(data * math.sqrt(0.5)))


class Prelu(OperatorProperty):
    """x if x > 0, else gamma · x, with one gamma per channel (axis 1) or a single one."""

    name = "LeakyReLU"
    argument_names = ("data", "gamma")
    backward_reads = ("dy0", "x")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, gamma = merge_shapes(self.name, "data and output", in_shape[0], out_shape[0]), in_shape[1]
        if x is None or not x:
            return [x, gamma], [x], []
        channels = x[min(1, len(x) - 1)]
        if gamma is None:
            gamma = (channels,)
        elif len(gamma) != 1 or (is_known(gamma) and channels >= 0 and gamma[0] not in (1, channels)):
            raise ShapeError(f"{self.name}: gamma {gamma} must be ({channels},) or (1,): data {x} has that many channels.")
        return [x, gamma], [x], []

    def views(self, x: Shape, gamma: Shape) -> tuple[Shape, Shape]:
        if len(x) < 2:
            return x or (1,), gamma
        return (x[0], x[1], math.prod(x[2:])), (gamma[0], 1)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full, row = self.views(ins[0].shape, ins[1].shape)
        return row_kernel(lambda x, g: where(x > 0, x, g * x), [full, row], [full], full, ins, outs, reqs, target, "prelu")

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full, row = self.views(ins[1].shape, ins[2].shape)

        def body(dy: Any, x: Any, g: Any) -> Any:
            return where(x > 0, dy, g * dy), where(x > 0, 0, x * dy)

        return row_kernel(body, [full, full, row], [full, row], full, ins, outs, reqs, target, "prelu_backward")


class Rrelu(OperatorProperty):
    """x if x > 0, else s · x. In training s is uniform in [lower_bound, upper_bound), at inference their mean."""

    name = "LeakyReLU"
    lower_bound: float = 0.125
    upper_bound: float = 0.334
    output_names = ("output", "mask")
    resources = (RANDOM,)
    backward_reads = ("dy0", "x0", "y1")
    visible_outputs = 1

    def validate(self) -> None:
        if not 0 <= self.lower_bound <= self.upper_bound <= 1:
            raise ParameterError(f"{self.name}: lower_bound={self.lower_bound} and upper_bound={self.upper_bound} must "
                                 f"satisfy 0 <= lower_bound <= upper_bound <= 1.")

    def num_random(self, outs: Specs) -> int:
        return outs[1].size

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        shape, low, span = ins[0].shape, self.lower_bound, self.upper_bound - self.lower_bound
        if not train:
            low, span = low + span / 2, 0.0
        apply = row_kernel(lambda x, s: where(x > 0, x, s * x), [shape] * 2, [shape], shape,
                           [ins[0], outs[1]], outs[:1], reqs[:1], target, "rrelu")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            fill_uniform(run, target, outputs[1], random, low, span)
            apply(run, [inputs[0], outputs[1]], outputs[:1])

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        shape = outs[0].shape
        return row_kernel(lambda dy, x, s: where(x > 0, dy, s * dy), [shape] * 3, [shape], shape, ins, outs, reqs, target,
                          "rrelu_backward")


_KINDS: dict[str, Op] = {"leaky": leaky, "elu": elu, "selu": selu, "gelu": gelu, "prelu": PropertyOp("LeakyReLU", Prelu),
                         "rrelu": PropertyOp("LeakyReLU", Rrelu)}


class LeakyReLUOp(DispatchOp):
    """LeakyReLU, which also checks the parameters of rrelu."""

    optional_names = ("gamma",)

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = super().parse(given)
        if p.act_type == "rrelu":
            Rrelu(lower_bound=p.lower_bound, upper_bound=p.upper_bound).validate()
        return p


LeakyReLU = register(LeakyReLUOp(
    "LeakyReLU",
    """An activation with a slope below zero, by act_type.

    leaky: slope x. elu: slope (eˣ - 1). selu: elu with fixed slope and scale (below zero its derivative
    is scale (y + alpha), as in MXNet, where the slope of the formula is y + scale alpha). gelu: x Φ(x) everywhere.
    prelu: gamma x, gamma learned, one per channel (axis 1) or one for all.
    rrelu: s x, in training s uniform in [lower_bound, upper_bound) for each element, otherwise their middle.
    data: any shape. Returns: the shape and dtype of data.
    """,
    (Param("act_type", "str", "leaky", ("elu", "gelu", "leaky", "prelu", "rrelu", "selu")), Param("slope", "float", 0.25),
     Param("lower_bound", "float", 0.125), Param("upper_bound", "float", 0.334)),
    lambda p: _KINDS[p.act_type]))
