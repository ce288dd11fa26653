"""Elementwise operators of one array: mathematics, rounding, activations."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ... import op as registry
from ...declare.simple_op import Array, Float, Scalar, SimpleOp, simple_op
from ...ir import lang
from ...ir.lang import exp, maximum, sign, softplus, tanh, where
from ...ir.primitives import PRIMITIVES
from ...op import Gradient
from ...params import Params

# ---- single primitives: formula, derivative and text are in their table ----------------------------------------------
_PRIMITIVE = ("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "square", "reciprocal", "sin", "cos",
              "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "erf", "erfinv",
              "gamma", "gammaln", "digamma", "floor", "ceil", "trunc", "abs")


def _declare(name: str) -> None:
    primitive = getattr(lang, name, abs)

    def body(data: Float) -> Float:
        return primitive(data)

    doc = f"{PRIMITIVES[name].doc}, element by element.\n\ndata: any shape. Returns: the shape and dtype of data."
    registry.register(SimpleOp(body, name=name, doc=doc))


for _name in _PRIMITIVE:
    _declare(_name)

_rsqrt = registry.builtin("rsqrt")
assert isinstance(_rsqrt, SimpleOp)


@_rsqrt.gradient
def _(dy, data):  # uses data instead of the result, so that the sign at -0 is MXNet's
    return -0.5 * dy / (data * lang.sqrt(data))


@simple_op(name="_copy", aliases=("identity",))
def identity(data: Array) -> Array:
    """data unchanged."""
    return data


@simple_op(aliases=("_np_negative",))
def negative(data: Array) -> Array:
    """-data"""
    return -data


@simple_op(name="sign")
def sign_(data: Array) -> Array:
    """-1, 0 or 1; 0 for NaN."""
    return sign(data)


@sign_.gradient
def _(dy):
    return dy * 0


@simple_op(name="round")
def round_(data: Array) -> Array:
    """Round to the nearest integer, halves away from zero."""
    whole = lang.trunc(data)
    return whole + where(abs(data - whole) >= 0.5, sign(data), 0)


@simple_op
def rint(data: Array) -> Array:
    """Round to the nearest integer, halves down, as in MXNet."""
    low, high = lang.floor(data), lang.ceil(data)
    return where(data - low <= high - data, low, high)


@simple_op
def fix(data: Array) -> Array:
    """Round towards zero."""
    return lang.trunc(data)


@simple_op
def rcbrt(data: Float) -> Float:
    """1 / ∛data"""
    return 1 / lang.cbrt(data)


@simple_op
def radians(data: Float) -> Float:
    """Convert degrees to radians."""
    return data * (np.pi / 180)


@simple_op
def degrees(data: Float) -> Float:
    """Convert radians to degrees."""
    return data * (180 / np.pi)


@simple_op(differentiable=False)
def logical_not(data: Array) -> Array:
    """1 where data is 0, else 0."""
    return data == 0


# ---- activations -------------------------------------------------------------------------------------------------------
@simple_op
def relu(data: Float) -> Float:
    """max(data, 0); NaN stays NaN."""
    return maximum(data, 0)


@relu.gradient
def _relu_gradient(dy, y):
    return where(y > 0, dy, y * 0)  # y is 0 or NaN here


@simple_op
def sigmoid(data: Float) -> Float:
    """1 / (1 + e⁻ˣ)"""
    return 1 / (1 + exp(-data))


@sigmoid.gradient
def _sigmoid_gradient(dy, y):
    return dy * y * (1 - y)


@simple_op
def softsign(data: Float) -> Float:
    """data / (1 + |data|)"""
    return data / (1 + abs(data))


@softsign.gradient
def _softsign_gradient(dy, data):
    d = 1 + abs(data)
    return dy / (d * d)


@simple_op
def hard_sigmoid(data: Float, *, alpha: float = 0.2, beta: float = 0.5) -> Float:
    """clip(alpha data + beta, 0, 1)"""
    return lang.minimum(maximum(alpha * data + beta, 0), 1)


@hard_sigmoid.gradient
def _(dy, y, *, alpha):
    return where((y > 0) & (y < 1), alpha * dy, 0)


#: An activation by name, and its derivative from (dy, y): computed from the result, so backward keeps y alone. softsign keeps its
#: input, since its output is the same for all large inputs.
_ACTIVATIONS = {"relu": (relu, _relu_gradient), "sigmoid": (sigmoid, _sigmoid_gradient),
                "tanh": (tanh, lambda dy, y: dy * (1 - y * y)), "softrelu": (softplus, lambda dy, y: dy * -lang.expm1(-y)),
                "softsign": (softsign, _softsign_gradient)}


def _activation(data: Float, *, act_type: Literal["relu", "sigmoid", "tanh", "softrelu", "softsign"]) -> Float:
    """An activation by name: relu max(x, 0), sigmoid 1/(1+e⁻ˣ), tanh, softrelu log(1+eˣ), softsign x/(1+|x|).

    data: any shape. Returns: the shape and dtype of data.
    """
    return _ACTIVATIONS[act_type][0](data)


class ActivationOp(SimpleOp):
    """Activation, whose derivative depends on act_type."""

    def make_gradient(self, p: Params) -> Gradient | None:
        self._gradient_body = _ACTIVATIONS[p.act_type][1]
        return super().make_gradient(p)


Activation = registry.register(ActivationOp(_activation, name="Activation"))


@simple_op
def smooth_l1(data: Float, *, scalar: float = 1.0) -> Float:
    """Smooth L1: quadratic where |data| < 1/scalar², linear outside. scalar 0: zeros."""
    s2 = scalar * scalar
    if s2 == 0:
        return data * 0
    return where(abs(data) < 1 / s2, 0.5 * s2 * data * data, abs(data) - 0.5 / s2)


@smooth_l1.gradient
def _(dy, data, *, scalar):
    s2 = scalar * scalar
    if s2 == 0:
        return dy * 0
    return dy * where(data > 1 / s2, 1, where(data < -1 / s2, -1, s2 * data))


@simple_op
def clip(data: Array, *, a_min: Scalar, a_max: Scalar) -> Array:
    """a_max above it, else a_min below it, else data; NaN stays NaN. Bounds beyond the dtype become its nearest value."""
    largest = lang.nearest(a_max, data)
    return where(data > largest, largest, maximum(data, lang.nearest(a_min, data)))


@clip.gradient
def _(dy, data, *, a_min, a_max):
    return where((data < lang.nearest(a_min, data)) | (data > lang.nearest(a_max, data)), 0, dy)  # at NaN dy passes


@simple_op(differentiable=False)
def zeros_like(data: Array) -> Array:
    """Zeros in the shape and dtype of data."""
    return lang.cast_like(0, data)


@simple_op(differentiable=False)
def ones_like(data: Array) -> Array:
    """Ones in the shape and dtype of data."""
    return lang.cast_like(1, data)


@simple_op
def cast_storage(data: Array, *, stype: Literal["default", "row_sparse", "csr"] = "default") -> Array:
    """data itself: arrays of a graph are dense. `mx.nd.cast_storage` converts arrays.

    stype: the storage type, which MXNet's graphs would give the result.
    """
    return data
