"""Converters of ONNX's elementwise operators, comparisons, reductions and products."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....graph.symbol import namespace
from ....graph.symbol.symbol import Symbol
from ..library import Unsupported, onnx
from .graph import Use, converts

_UNARY = {
    "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh", "Atan": "arctan",
    "Atanh": "arctanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Identity": "identity", "Log": "log", "Neg": "negative", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu",
    "Round": "rint", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softsign": "softsign",
    "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh"}
_BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Add": ("broadcast_add", lambda a, b: a + b), "Sub": ("broadcast_sub", lambda a, b: a - b),
    "Mul": ("broadcast_mul", lambda a, b: a * b), "Div": ("broadcast_div", lambda a, b: a / b),
    "Pow": ("broadcast_power", lambda a, b: a**b), "Less": ("broadcast_lesser", lambda a, b: a < b),
    "LessOrEqual": ("broadcast_lesser_equal", lambda a, b: a <= b), "Greater": ("broadcast_greater", lambda a, b: a > b),
    "GreaterOrEqual": ("broadcast_greater_equal", lambda a, b: a >= b), "Equal": ("broadcast_equal", lambda a, b: a == b)}
_LOGIC = {"And": "broadcast_logical_and", "Or": "broadcast_logical_or", "Xor": "broadcast_logical_xor"}
_FOLDED = {"Add": "broadcast_add", "Sum": "broadcast_add", "Mean": "broadcast_add", "Max": "broadcast_maximum",
           "Min": "broadcast_minimum"}
_REDUCE = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}

S: Any = namespace  # its functions, by the names of operators


def _function(name: str) -> Callable[..., Symbol]:
    return getattr(S, name)


@converts(*_UNARY)
def _unary(use: Use) -> Symbol:
    return _function(_UNARY[use.op])(use.sym(), name=use.name)


def _number(use: Use, i: int) -> float | None:
    """Return an input that is a constant without axes as a number, else None."""
    return use.const(i).item() if use.is_const(i) and use.const(i).ndim == 0 else None


@converts(*_BINARY)
def _binary(use: Use) -> Symbol:
    name, compute = _BINARY[use.op]
    left, right = _number(use, 0), _number(use, 1)
    if right is not None:
        return compute(use.sym(0), right)
    if left is not None:
        return compute(left, use.sym(1))
    return _function(name)(use.sym(0), use.sym(1), name=use.name)


@converts(*_LOGIC)
def _logic(use: Use) -> Symbol:
    return _function(_LOGIC[use.op])(*use.syms(), name=use.name)


@converts("Sum", "Mean", "Max", "Min")
def _folded(use: Use) -> Symbol:
    def join(a: Any, b: Any) -> Symbol:
        if not (isinstance(a, Symbol) and isinstance(b, Symbol)):
            return {"Max": S.maximum, "Min": S.minimum}.get(use.op, lambda x, y: x + y)(a, b)
        return _function(_FOLDED[use.op])(a, b)

    numbers = [_number(use, i) for i in range(len(use.inputs))]
    total = functools.reduce(join, [use.sym(i) if n is None else n for i, n in enumerate(numbers)])
    return S.identity(total / len(use.inputs) if use.op == "Mean" else total, name=use.name)


@converts("Mod")
def _mod(use: Use) -> Symbol:
    if use.attr("fmod", 0):
        raise Unsupported("fmod=1 has no equivalent")
    return S.broadcast_mod(*use.syms(), name=use.name)


@converts("Clip")
def _clip(use: Use) -> Symbol:
    low, high = use.scalar("min", 1, -np.inf), use.scalar("max", 2, np.inf)
    return S.clip(use.sym(), a_min=low, a_max=high, name=use.name)


@converts("Cast")
def _cast(use: Use) -> Symbol:
    dtype = onnx().helper.tensor_dtype_to_np_dtype(use.attr("to"))
    return S.Cast(use.sym(), dtype=np.dtype(dtype).name, name=use.name)


@converts("Where")
def _where(use: Use) -> Symbol:
    arrays = use.syms()
    if len({use.shape(i) for i in range(3)}) > 1:
        zero = S.zeros_like(functools.reduce(S.broadcast_add, [S.Cast(a, dtype="float32") for a in arrays]))
        arrays = [S.broadcast_add(a, S.Cast(zero, dtype=use.dtype(i).name)) for i, a in enumerate(arrays)]
    return S.where(*arrays, name=use.name)


# ---- activations -----------------------------------------------------------------------------------------------------
@converts("LeakyRelu")
def _leaky(use: Use) -> Symbol:
    return S.LeakyReLU(use.sym(), act_type="leaky", slope=use.attr("alpha", 0.01), name=use.name)


@converts("Elu")
def _elu(use: Use) -> Symbol:
    return S.LeakyReLU(use.sym(), act_type="elu", slope=use.attr("alpha", 1.0), name=use.name)


@converts("Selu")
def _selu(use: Use) -> Symbol:
    return S.LeakyReLU(use.sym(), act_type="selu", name=use.name)


@converts("PRelu")
def _prelu(use: Use) -> Symbol:
    slope = use.const(1) if use.is_const(1) else None
    if slope is None or slope.size != max(slope.shape or (1,)):
        raise Unsupported("the slope must be a constant, one number per channel")
    return S.LeakyReLU(use.sym(), use.param("gamma", slope.reshape(-1)), act_type="prelu", name=use.name)


@converts("Softplus")
def _softplus(use: Use) -> Symbol:
    return S.Activation(use.sym(), act_type="softrelu", name=use.name)


@converts("HardSigmoid")
def _hard_sigmoid(use: Use) -> Symbol:
    return S.hard_sigmoid(use.sym(), alpha=use.attr("alpha", 0.2), beta=use.attr("beta", 0.5), name=use.name)


@converts("HardSwish")
def _hard_swish(use: Use) -> Symbol:
    return use.sym() * S.hard_sigmoid(use.sym(), alpha=1 / 6, beta=0.5)


@converts("Gelu")
def _gelu(use: Use) -> Symbol:
    return S.LeakyReLU(use.sym(), act_type="gelu", name=use.name)


@converts("Softmax", "LogSoftmax")
def _softmax(use: Use) -> Symbol:
    function = S.softmax if use.op == "Softmax" else S.log_softmax
    if use.reader.opset >= 13:
        return function(use.sym(), axis=use.attr("axis", -1), name=use.name)
    axis = use.attr("axis", 1)
    if axis % use.ndim() == use.ndim() - 1:
        return function(use.sym(), axis=-1, name=use.name)
    flat = S.reshape(use.sym(), shape=(0,) * axis + (-1,))  # before opset 13, over all axes from this one on
    return S.reshape_like(function(flat, axis=-1), use.sym(), name=use.name)


@converts("Hardmax")
def _hardmax(use: Use) -> Symbol:
    axis = use.attr("axis", -1 if use.reader.opset >= 13 else 1) % use.ndim()
    depth = use.shape()[axis]
    if axis != use.ndim() - 1 or not depth:
        raise Unsupported("only along the last axis, of fixed size")
    return S.one_hot(S.argmax(use.sym(), axis=axis), depth=depth, name=use.name)


# ---- reductions ------------------------------------------------------------------------------------------------------
def _axes(use: Use) -> tuple[int, ...]:
    given = use.ints("axes", 1)
    return tuple(range(use.ndim())) if not given else tuple(given)


def _reduce(use: Use, function: str, data: Symbol, **settings: Any) -> Symbol:
    return _function(function)(data, axis=_axes(use), keepdims=bool(use.attr("keepdims", 1)), name=use.name, **settings)


@converts(*_REDUCE)
def _plain_reduce(use: Use) -> Symbol:
    return _reduce(use, _REDUCE[use.op], use.sym())


@converts("ReduceL1")
def _l1(use: Use) -> Symbol:
    return _reduce(use, "sum", S.abs(use.sym()))


@converts("ReduceL2")
def _l2(use: Use) -> Symbol:
    return S.sqrt(_reduce(use, "sum", S.square(use.sym())))


@converts("ReduceSumSquare")
def _sum_square(use: Use) -> Symbol:
    return _reduce(use, "sum", S.square(use.sym()))


@converts("ReduceLogSum")
def _log_sum(use: Use) -> Symbol:
    return S.log(_reduce(use, "sum", use.sym()))


@converts("ReduceLogSumExp")
def _log_sum_exp(use: Use) -> Symbol:
    top = S.BlockGrad(S.max(use.sym(), axis=_axes(use), keepdims=True))
    total = S.log(S.sum(S.exp(S.broadcast_sub(use.sym(), top)), axis=_axes(use), keepdims=True)) + top
    return total if use.attr("keepdims", 1) else S.squeeze(total, axis=_axes(use))


@converts("ArgMax", "ArgMin")
def _arg(use: Use) -> Symbol:
    found = _function(use.op.lower())(use.sym(), axis=use.attr("axis", 0), keepdims=bool(use.attr("keepdims", 1)))
    return S.Cast(found, dtype="int64", name=use.name)


@converts("CumSum")
def _cumsum(use: Use) -> Symbol:
    if use.attr("exclusive", 0) or use.attr("reverse", 0):
        raise Unsupported("exclusive and reverse have no equivalent")
    return S.cumsum(use.sym(), axis=int(use.const(1).reshape(-1)[0]), name=use.name)


# ---- products --------------------------------------------------------------------------------------------------------
@converts("Gemm")
def _gemm(use: Use) -> Symbol:
    alpha, beta = use.attr("alpha", 1.0), use.attr("beta", 1.0)
    turn_a, turn_b = bool(use.attr("transA", 0)), bool(use.attr("transB", 0))
    plain = alpha == beta == 1.0 and not turn_a and use.is_const(1)
    if plain and (not use.has(2) or (use.is_const(2) and use.const(2).ndim == 1)):
        weight = use.const(1)
        matrix = use.sym(1) if turn_b else use.param("weight", np.ascontiguousarray(weight.T))
        width = weight.shape[0 if turn_b else 1]
        bias = [use.sym(2)] if use.has(2) and use.const(2).shape == (width,) else []
        if bool(bias) == use.has(2):
            return S.FullyConnected(use.sym(), matrix, *bias, num_hidden=width, no_bias=not bias, flatten=False, name=use.name)
    product = S.dot(use.sym(0), use.sym(1), transpose_a=turn_a, transpose_b=turn_b) * alpha
    return S.broadcast_add(product, use.sym(2) * beta, name=use.name) if use.has(2) else product


@converts("MatMul")
def _matmul(use: Use) -> Symbol:
    left, right = use.ndim(0), use.ndim(1)
    if right == 2:
        return S.dot(*use.syms(), name=use.name)
    if left == right == 3:
        return S.batch_dot(*use.syms(), name=use.name)
    if left == right > 3:
        return S.linalg.gemm2(*use.syms(), name=use.name)
    raise Unsupported(f"the product of arrays with {left} and {right} axes has no equivalent")


