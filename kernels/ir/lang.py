"""The vocabulary of bodies: exp, log, where, maximum … On traced values they add to the trace; on numbers they
compute; on an NDArray or Symbol they call the operator of the same name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtype import float64
from ...errors import ParameterError
from .. import op as _op
from .draws import recorder
from .expr import Expr, Operand, _evaluate, as_expr, cast, const, prim, reduce, typed
from .expr import row_index as row_index
from .loops import argmax as argmax
from .loops import argmin as argmin
from .loops import fold as fold
from .loops import max as max
from .loops import min as min
from .loops import prod as prod
from .loops import sum as sum
from .primitives import PRIMITIVES

__all__ = [
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "bernoulli", "cast",
    "cast_like", "cbrt", "ceil", "cos", "cosh", "digamma", "erf", "erfinv", "exp", "exp2", "expm1", "floor", "fold", "gamma",
    "gammaln", "hypot", "integers", "is_whole", "log", "log10", "log1p", "log2", "logaddexp", "logical_not", "max", "maximum",
    "min", "minimum", "mod", "nearest", "normal", "power", "prod", "quotient", "reciprocal", "relu", "row_index", "row_max",
    "row_sum", "rsqrt", "sigmoid", "sign", "sin", "sinh", "softplus", "sqrt", "square", "sum", "tan", "tanh", "training",
    "trigamma", "trunc", "uniform", "where", "whole_pow", "widest",
]

_NUMBERS = (bool, int, float)


def _function(primitive: str, operator: str = "") -> Callable[..., Any]:
    """Return the function of a primitive. operator: the operator of the same formula; "" for the one of that name."""
    name = operator or primitive

    def f(*args: Any) -> Any:
        for a in args:
            if isinstance(a, Expr):
                return prim(primitive, *args)
        if all(isinstance(a, _NUMBERS) for a in args):
            return _evaluate(primitive, list(args))
        return _op.builtin(name)(*args)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = PRIMITIVES[primitive].doc
    return f


exp, exp2, expm1 = map(_function, ("exp", "exp2", "expm1"))
log, log2, log10, log1p = map(_function, ("log", "log2", "log10", "log1p"))
sqrt, rsqrt, cbrt, square, reciprocal = map(_function, ("sqrt", "rsqrt", "cbrt", "square", "reciprocal"))
sin, cos, tan = map(_function, ("sin", "cos", "tan"))
arcsin, arccos, arctan, arctan2 = map(_function, ("arcsin", "arccos", "arctan", "arctan2"))
sinh, cosh, tanh, arcsinh, arccosh, arctanh = map(_function, ("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"))
erf, erfinv, gamma, gammaln, digamma = map(_function, ("erf", "erfinv", "gamma", "gammaln", "digamma"))
floor, ceil, trunc, where = map(_function, ("floor", "ceil", "trunc", "where"))
power = _function("pow", "broadcast_power")
hypot = _function("hypot", "broadcast_hypot")
maximum = _function("maximum", "broadcast_maximum")
minimum = _function("minimum", "broadcast_minimum")
mod = _function("mod", "broadcast_mod")
quotient = _function("quotient", "broadcast_div")
whole_pow = _function("whole_pow", "broadcast_power")
logical_not = _function("not", "logical_not")


def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN, as MXNet has it."""
    if not isinstance(x, (Expr, *_NUMBERS)):
        return _op.builtin("sign")(x)
    return where(x > 0, 1, where(x < 0, -1, cast_like(0, x)))


def sigmoid(x: Any) -> Any:
    """1 / (1 + e⁻ˣ)"""
    return 1 / (1 + exp(-x)) if isinstance(x, (Expr, *_NUMBERS)) else _op.builtin("sigmoid")(x)


def relu(x: Any) -> Any:
    """max(x, 0); NaN stays NaN."""
    return maximum(x, 0) if isinstance(x, (Expr, *_NUMBERS)) else _op.builtin("relu")(x)


def softplus(x: Operand) -> Operand:
    """log(1 + eˣ), in a form where neither tail overflows."""
    return maximum(x, 0) + log1p(exp(-abs(x)))


def trigamma(x: Operand) -> Operand:
    """The derivative of digamma, by its series at x + 8; below 1/2 by reflection. Abramowitz and Stegun 6.4.7, 6.4.12."""
    z = where(x < 0.5, 1 - x, x)
    total = 0
    for _ in range(8):
        total = total + 1 / (z * z)
        z = z + 1
    r = 1 / (z * z)
    series = 1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * 5 / 66)))
    total = total + 1 / z + 0.5 * r + r / z * series
    turn = np.pi / sin(np.pi * (x - floor(x)))
    return where(x < 0.5, turn * turn - total, total)


def cast_like(value: Operand, x: Operand) -> Operand:
    """Return value in the dtype of x."""
    return cast(as_expr(value), x.dtype) if isinstance(x, Expr) and x.dtype is not None else value


def logaddexp(a: Operand, b: Operand) -> Any:
    """ln(eᵃ + eᵇ), without overflow; -inf beside -inf gives -inf. Inside bodies only."""
    high, low = maximum(a, b), minimum(a, b)
    return high + log1p(exp(where(high == low, 0, low - high)))


def is_whole(*xs: Operand) -> bool:
    """Return whether the traced values among xs that have a dtype are integers. At least one has."""
    kinds = [x.dtype.kind for x in xs if isinstance(x, Expr) and x.dtype is not None]
    return bool(kinds) and all(k in "iu" for k in kinds)


def widest(x: Expr) -> Expr:
    """Return x; an integer is cast to 64 bits."""
    return cast(x, np.dtype("uint64" if typed(x).kind == "u" else "int64")) if is_whole(x) else x


def nearest(number: Operand, x: Expr) -> Operand:
    """Return number without its fraction, limited to the range of the integer dtype of x; NaN becomes its minimum.

    Return number itself if x is not an integer.
    """
    if not is_whole(x):
        return number
    given, held, ends = cast(as_expr(number), float64), cast(as_expr(number), typed(x)), np.iinfo(typed(x))
    end = where(given > 0, cast_like(int(ends.max), x), cast_like(int(ends.min), x))
    return where(cast(held, float64) == trunc(given), held, end)


def row_sum(x: Operand) -> Expr:
    """Σ x over the row: the elements of the result's shape that differ in the last axis alone. Inside bodies only.

    A value that is constant along the row, a number or an array broadcast along it, counts once per element.
    """
    return reduce("sum", as_expr(x))


def row_max(x: Operand) -> Expr:
    """The largest x of the row: of the elements of the result's shape that differ in the last axis alone. Inside bodies only.

    The elements equal to it share its derivative.
    """
    return reduce("max", as_expr(x))


def training() -> bool:
    """Return whether the body is traced for a training step; it may branch on that. Inside bodies only."""
    calls = recorder("training")
    calls.asked = True
    return calls.train


# ---- random numbers -------------------------------------------------------------------------------------------------
def uniform(low: Operand = 0.0, high: Operand = 1.0, *, shared: Sequence[int] = ()) -> Expr:
    """A random number in [low, high), a fresh one for every element and every call in the body. Inside bodies only.

    low, high: numbers or traced values. shared: axes along which all elements get one number.
    """
    drawn = recorder("uniform").draw("uniform", shared)
    plain = not isinstance(low, Expr) and not isinstance(high, Expr) and (low, high) == (0, 1)
    span = high - low
    if isinstance(span, Expr) and span.dtype is None:  # of run-time scalars: rounded once, as numbers are
        span = cast(cast(span, float64), typed(drawn))
    return drawn if plain else drawn * span + low


def normal(loc: Operand = 0.0, scale: Operand = 1.0, *, shared: Sequence[int] = ()) -> Expr:
    """A normally distributed random number with mean loc and standard deviation scale; otherwise as `uniform`."""
    drawn = recorder("normal").draw("normal", shared)
    plain = not isinstance(loc, Expr) and not isinstance(scale, Expr) and (loc, scale) == (0, 1)
    return drawn if plain else drawn * scale + loc


def integers(low: Operand, high: Operand, *, shared: Sequence[int] = ()) -> Expr:
    """A random integer (int64) in [low, high), each equally likely; otherwise as `uniform`. high - low: at most 2³²."""
    first, end = (cast(as_expr(x), np.dtype("int64")) for x in (low, high))
    word = cast(recorder("integers").draw("word", shared), np.dtype("uint64"))
    place = prim("quotient", word * cast(end - first, np.dtype("uint64")), 2**32)
    return cast(place, np.dtype("int64")) + first


def bernoulli(p: Operand = 0.5, *, shared: Sequence[int] = ()) -> Expr:
    """True with probability p, a number or a traced value; otherwise as `uniform`. Exact to 2⁻³² where p is a number."""
    calls = recorder("bernoulli")
    if isinstance(p, Expr):
        calls.drawn[-1] = result = calls.draw("uniform", shared, bits=24) < p
        return result
    if not 0 <= p <= 1:
        raise ParameterError(f"bernoulli: p={p} is not a probability. Give a number from 0 to 1.")
    word, threshold = calls.draw("word", shared), round(p * 2**32)
    result = word < const(threshold, word.dtype) if threshold < 2**32 else word >= const(0, word.dtype)
    calls.drawn[-1] = result
    return result
