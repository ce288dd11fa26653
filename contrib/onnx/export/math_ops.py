"""Converters of elementwise operators, comparisons and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import CONVERTERS, Use, converts

_UNARY = {
    "abs": "Abs", "arccos": "Acos", "arccosh": "Acosh", "arcsin": "Asin", "arcsinh": "Asinh", "arctan": "Atan",
    "arctanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log",
    "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "_copy": "Identity",
    "BlockGrad": "Identity", "make_loss": "Identity", "MakeLoss": "Identity", "LogisticRegressionOutput": "Sigmoid",
    "LinearRegressionOutput": "Identity", "MAERegressionOutput": "Identity"}
_BINARY = {
    "elemwise_add": "Add", "broadcast_add": "Add", "elemwise_sub": "Sub", "broadcast_sub": "Sub", "elemwise_mul": "Mul",
    "broadcast_mul": "Mul", "elemwise_div": "Div", "broadcast_div": "Div", "_power": "Pow", "broadcast_power": "Pow",
    "_maximum": "Max", "broadcast_maximum": "Max", "_minimum": "Min", "broadcast_minimum": "Min", "add_n": "Sum"}
_SCALAR = {"_plus_scalar": "Add", "_minus_scalar": "Sub", "_mul_scalar": "Mul", "_div_scalar": "Div", "_power_scalar": "Pow",
           "_maximum_scalar": "Max", "_minimum_scalar": "Min"}
_REVERSED = {"_rminus_scalar": "Sub", "_rdiv_scalar": "Div", "_rpower_scalar": "Pow"}
_COMPARE = {"equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "lesser": "Less",
            "lesser_equal": "LessOrEqual"}
_REDUCE = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
_LOGS = {"log2": 2.0, "log10": 10.0}


def _plain(op: str, inputs: int | None) -> None:
    def convert(use: Use) -> None:
        use.emit(op, *use.inputs[:inputs])

    for name in [n for n, o in (_UNARY if inputs == 1 else _BINARY).items() if o == op]:
        CONVERTERS[name] = convert


for _op in set(_UNARY.values()):
    _plain(_op, 1)
for _op in set(_BINARY.values()):
    _plain(_op, None)


@converts(*_SCALAR)
def _with_scalar(use: Use) -> None:
    use.emit(_SCALAR[use.op], use.inputs[0], use.number(use.p.scalar))


@converts(*_REVERSED)
def _from_scalar(use: Use) -> None:
    use.emit(_REVERSED[use.op], use.number(use.p.scalar), use.inputs[0])


@converts(*(f"broadcast_{n}" for n in _COMPARE), *(f"_{n}" for n in _COMPARE), *(f"_{n}_scalar" for n in _COMPARE))
def _compare(use: Use) -> None:
    name = use.op.removeprefix("broadcast").removeprefix("_").removesuffix("_scalar")
    right = use.number(use.p.scalar) if use.op.endswith("_scalar") else use.inputs[1]
    use.emit_cast(use.add(_COMPARE[name], use.inputs[0], right))


@converts("broadcast_not_equal", "_not_equal", "_not_equal_scalar")
def _differs(use: Use) -> None:
    right = use.number(use.p.scalar) if use.op.endswith("_scalar") else use.inputs[1]
    use.emit_cast(use.add("Not", use.add("Equal", use.inputs[0], right)))


@converts("broadcast_logical_and", "broadcast_logical_or", "broadcast_logical_xor")
def _logic(use: Use) -> None:
    op = {"and": "And", "or": "Or", "xor": "Xor"}[use.op.rsplit("_", 1)[1]]
    use.emit_cast(use.add(op, *(use.cast(i, bool) for i in use.inputs)))


@converts("logical_not")
def _not(use: Use) -> None:
    use.emit_cast(use.add("Not", use.cast(use.inputs[0], bool)))


@converts("broadcast_mod", "_mod_scalar")
def _mod(use: Use) -> None:
    right = use.number(use.p.scalar) if use.op == "_mod_scalar" else use.inputs[1]
    whole = use.add("Floor", use.add("Div", use.inputs[0], right))  # ONNX's Mod of floats has the sign of the dividend
    use.emit("Sub", use.inputs[0], use.add("Mul", whole, right))


@converts("square")
def _square(use: Use) -> None:
    use.emit("Mul", use.inputs[0], use.inputs[0])


@converts("rsqrt", "rcbrt", "cbrt")
def _root(use: Use) -> None:
    use.emit("Pow", use.inputs[0], use.number({"rsqrt": -0.5, "rcbrt": -1 / 3, "cbrt": 1 / 3}[use.op]))


@converts("expm1", "log1p")
def _near_zero(use: Use) -> None:
    if use.op == "expm1":
        use.emit("Sub", use.add("Exp", use.inputs[0]), use.number(1))
    else:
        use.emit("Log", use.add("Add", use.inputs[0], use.number(1)))


@converts(*_LOGS)
def _log(use: Use) -> None:
    use.emit("Div", use.add("Log", use.inputs[0]), use.number(np.log(_LOGS[use.op])))


@converts("clip")
def _clip(use: Use) -> None:
    use.emit("Clip", use.inputs[0], use.number(use.p.a_min), use.number(use.p.a_max))


@converts("Cast", "amp_cast")
def _cast(use: Use) -> None:
    use.emit_cast(use.inputs[0])


@converts("where")
def _where(use: Use) -> None:
    use.emit("Where", use.cast(use.inputs[0], bool), *use.inputs[1:])


@converts("hard_sigmoid")
def _hard_sigmoid(use: Use) -> None:
    use.emit("HardSigmoid", use.inputs[0], alpha=float(use.p.alpha), beta=float(use.p.beta))


@converts("_contrib_div_sqrt_dim")
def _div_sqrt_dim(use: Use) -> None:
    use.emit("Div", use.inputs[0], use.number(np.sqrt(use.known_shape()[-1])))


def _axes(use: Use) -> list[int]:
    """Return the reduced axes of a reduction."""
    axis = use.p.axis
    given = [] if axis in (None, ()) else [axis] if isinstance(axis, int) else list(axis)
    axes = sorted(use.axis(a) for a in given)
    if use.p.get("exclude"):
        axes = [a for a in range(use.ndim()) if a not in axes]
    return axes or list(range(use.ndim()))


def _reduced(use: Use, op: str, name: str, axes: Sequence[int], keepdims: bool) -> None:
    """Write a reduction. A full one has the shape (1,)."""
    full = len(axes) == use.ndim() and not keepdims
    given: dict[str, Any] = {} if op == "ReduceSum" else {"axes": list(axes)}
    more = [use.const(axes)] if op == "ReduceSum" else []
    if full:
        use.emit("Reshape", use.add(op, name, *more, keepdims=0, **given), use.const([1]))
    else:
        use.emit(op, name, *more, keepdims=int(keepdims), **given)


@converts(*_REDUCE)
def _reduce(use: Use) -> None:
    _reduced(use, _REDUCE[use.op], use.inputs[0], _axes(use), bool(use.p.keepdims))


@converts("norm")
def _norm(use: Use) -> None:
    _reduced(use, "ReduceL1" if use.p.ord == 1 else "ReduceL2", use.inputs[0], _axes(use), bool(use.p.keepdims))


@converts("argmax", "argmin")
def _arg_extreme(use: Use) -> None:
    op, axis = {"argmax": "ArgMax", "argmin": "ArgMin"}[use.op], use.p.axis
    data = use.inputs[0] if axis is not None else use.reshape(use.inputs[0], [-1])
    found = use.add(op, data, axis=0 if axis is None else use.axis(axis), keepdims=int(axis is None or bool(use.p.keepdims)))
    use.emit_cast(found)


@converts("_np_cumsum")
def _cumsum(use: Use) -> None:
    data = use.inputs[0] if use.p.axis is not None else use.reshape(use.inputs[0], [-1])
    use.emit("CumSum", data, use.const(0 if use.p.axis is None else use.axis(use.p.axis)))
