"""The primitives: one row each. A printer prints them, `differentiate.py` differentiates them, `lang.py` offers them to bodies.

Columns:
  arity       number of arguments
  rule        dtype of the result: "same" (the promoted dtype of the arguments), "whole" (that, for integers alone),
              "float" (integers become float32 first), "compare" (bool), "logic" (arguments become bool; bool),
              "where" (first argument bool; dtype of the others)
  numpy       a NumPy ufunc, or a function f(*args, out) that writes out
  triton      spelling with {0} {1} {2}; a spelling that starts with "_" calls a helper that the Triton printer defines
  c           spelling in C99; one that starts with "_" calls a function of `c_math.py`, which has it for some dtypes. ""
              where C's own library would take the elements one by one: such groups are printed as NumPy
  derivative  f(L, dy, y, *args) -> one expression per argument, None where the derivative is zero; L is `lang`
  cost        rough cost of one element, in additions: decides what is cheap enough to compute twice
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import cast_into, is_float
from .special import digamma as _digamma
from .special import erf as _erf
from .special import erfinv as _erfinv
from .special import gamma as _gamma
from .special import gammaln as _gammaln
from .special import select as _where


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str
    arity: int
    rule: str
    numpy: Callable[..., Any]
    triton: str
    c: str
    derivative: Callable[..., tuple] | None
    cost: int
    doc: str


def _rsqrt(x: np.ndarray, out: np.ndarray) -> None:
    np.sqrt(x, out=out)
    np.reciprocal(out, out=out)


def _mod(a: Any, b: Any, out: np.ndarray) -> None:
    np.mod(a, b, out=out)
    np.copyto(out, 0, where=np.equal(b, 0))


def _quotient(a: Any, b: Any, out: np.ndarray) -> None:
    if out.dtype.kind == "u":
        np.floor_divide(a, b, out=out)
    elif out.dtype.itemsize < 8:  # exact: a float of twice the digits does not round a quotient up to the next integer
        cast_into(out, np.true_divide(a, b, dtype=np.float32 if out.dtype.itemsize < 4 else np.float64))
        np.copyto(out, 0, where=np.equal(b, 0))
    else:
        np.subtract(a, np.fmod(a, b, out=out), out=out)
        np.floor_divide(out, b, out=out)


def _int_pow(a: Any, b: Any, out: np.ndarray) -> None:
    a, b = np.asarray(a, out.dtype), np.asarray(b, out.dtype)
    np.power(a, np.maximum(b, out.dtype.type(0)), out=out)
    below = np.less(b, 0)
    if np.any(below):  # 1 / aⁿ without its fraction
        odd = np.not_equal(np.remainder(b, 2), 0)
        np.copyto(out, np.where(np.equal(a, 1) | np.equal(a, -1), np.where(np.equal(a, -1) & odd, -1, 1), 0), where=below,
                  casting="unsafe")


def _flat(language: Any, dy: Any, y: Any, *arguments: Any) -> tuple[None, ...]:
    """The derivative of steps and comparisons: none."""
    return (None,) * len(arguments)


_ROWS: list[tuple] = [
    # arithmetic
    ("add", 2, "same", np.add, "{0} + {1}", "{0} + {1}", lambda L, dy, y, a, b: (dy, dy), 1, "a + b"),
    ("sub", 2, "same", np.subtract, "{0} - {1}", "{0} - {1}", lambda L, dy, y, a, b: (dy, -dy), 1, "a - b"),
    ("mul", 2, "same", np.multiply, "{0} * {1}", "{0} * {1}", lambda L, dy, y, a, b: (dy * b, dy * a), 1, "a b"),
    ("div", 2, "float", np.true_divide, "{0} / {1}", "{0} / {1}", lambda L, dy, y, a, b: (dy / b, -dy * a / (b * b)), 4, "a / b"),
    ("quotient", 2, "whole", _quotient, "_quotient({0}, {1})", "_quotient({0}, {1})",
     lambda L, dy, y, a, b: (L.quotient(dy, b), -L.quotient(dy * a, b * b)), 8,
     "a / b of integers, without its fraction; 0 where b is 0"),
    ("mod", 2, "same", _mod, "_mod({0}, {1})", "_mod({0}, {1})",
     lambda L, dy, y, a, b: (dy, -dy * L.floor(a / b)) if is_float(y.dtype) else (None, None), 8,
     "a - floor(a / b) b, with the sign of b; 0 where b is 0; integers have no gradient, as in MXNet"),
    ("pow", 2, "float", np.power, "_pow({0}, {1})", "",
     lambda L, dy, y, a, b: (dy * b * L.power(a, b - 1), dy * y * L.log(a)), 20, "a to the power b"),
    ("whole_pow", 2, "whole", _int_pow, "_int_pow({0}, {1})", "",
     lambda L, dy, y, a, b: (dy * b * L.whole_pow(a, b - 1), dy * y * L.log(a)), 20,
     "a to the power b, of integers: wraps around as their product does; a fraction is cut, and 0 to less than 0 is 0"),
    ("maximum", 2, "same", np.maximum, "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "_max({0}, {1})",
     lambda L, dy, y, a, b: (L.where(a >= b, dy, 0), L.where(a < b, dy, 0)), 1, "the larger; NaN if either is"),
    ("minimum", 2, "same", np.minimum, "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "_min({0}, {1})",
     lambda L, dy, y, a, b: (L.where(a <= b, dy, 0), L.where(a > b, dy, 0)), 1, "the smaller; NaN if either is"),
    ("hypot", 2, "float", np.hypot, "_hypot({0}, {1})", "", lambda L, dy, y, a, b: (dy * a / y, dy * b / y), 8, "√(a² + b²)"),
    ("arctan2", 2, "float", np.arctan2, "_arctan2({0}, {1})", "",
     lambda L, dy, y, a, b: (dy * b / (a * a + b * b), -dy * a / (a * a + b * b)), 20, "angle of (b, a)"),
    ("neg", 1, "same", np.negative, "-{0}", "-{0}", lambda L, dy, y, x: (-dy,), 1, "-x"),
    ("abs", 1, "same", np.absolute, "tl.abs({0})", "_abs({0})", lambda L, dy, y, x: (dy * L.sign(x),), 1, "|x|"),
    ("reciprocal", 1, "float", np.reciprocal, "1 / {0}", "1 / {0}", lambda L, dy, y, x: (-dy * y * y,), 4, "1 / x"),
    ("square", 1, "same", np.square, "{0} * {0}", "{0} * {0}", lambda L, dy, y, x: (2 * dy * x,), 1, "x²"),
    # roots, exponentials, logarithms
    ("sqrt", 1, "float", np.sqrt, "_sqrt({0})", "_sqrt({0})", lambda L, dy, y, x: (dy * 0.5 / y,), 4, "√x"),
    ("rsqrt", 1, "float", _rsqrt, "_rsqrt({0})", "1 / _sqrt({0})", lambda L, dy, y, x: (-0.5 * dy * y * y * y,), 6, "1 / √x"),
    ("cbrt", 1, "float", np.cbrt, "_cbrt({0})", "", lambda L, dy, y, x: (dy / (3 * y * y),), 20, "∛x"),
    ("exp", 1, "float", np.exp, "tl.exp({0})", "_exp({0})", lambda L, dy, y, x: (dy * y,), 10, "eˣ"),
    ("exp2", 1, "float", np.exp2, "tl.exp2({0})", "", lambda L, dy, y, x: (dy * y * 0.6931471805599453,), 10, "2ˣ"),
    ("expm1", 1, "float", np.expm1, "_expm1({0})", "_expm1({0})", lambda L, dy, y, x: (dy * (y + 1),), 12, "eˣ - 1"),
    ("log", 1, "float", np.log, "tl.log({0})", "_log({0})", lambda L, dy, y, x: (dy / x,), 10, "ln x"),
    ("log2", 1, "float", np.log2, "tl.log2({0})", "", lambda L, dy, y, x: (dy / (x * 0.6931471805599453),), 10, "log₂ x"),
    ("log10", 1, "float", np.log10, "_log10({0})", "", lambda L, dy, y, x: (dy / (x * 2.302585092994046),), 10, "log₁₀ x"),
    ("log1p", 1, "float", np.log1p, "_log1p({0})", "_log1p({0})", lambda L, dy, y, x: (dy / (1 + x),), 12, "ln(1 + x)"),
    # trigonometry
    ("sin", 1, "float", np.sin, "tl.sin({0})", "_sin({0})", lambda L, dy, y, x: (dy * L.cos(x),), 15, "sin x"),
    ("cos", 1, "float", np.cos, "tl.cos({0})", "_cos({0})", lambda L, dy, y, x: (-dy * L.sin(x),), 15, "cos x"),
    ("tan", 1, "float", np.tan, "_tan({0})", "", lambda L, dy, y, x: (dy * (1 + y * y),), 20, "tan x"),
    ("arcsin", 1, "float", np.arcsin, "_arcsin({0})", "", lambda L, dy, y, x: (dy * L.rsqrt(1 - x * x),), 20, "arcsin x"),
    ("arccos", 1, "float", np.arccos, "_arccos({0})", "", lambda L, dy, y, x: (-dy * L.rsqrt(1 - x * x),), 20, "arccos x"),
    ("arctan", 1, "float", np.arctan, "_arctan({0})", "", lambda L, dy, y, x: (dy / (1 + x * x),), 20, "arctan x"),
    ("sinh", 1, "float", np.sinh, "_sinh({0})", "", lambda L, dy, y, x: (dy * L.cosh(x),), 20, "sinh x"),
    ("cosh", 1, "float", np.cosh, "_cosh({0})", "", lambda L, dy, y, x: (dy * L.sinh(x),), 20, "cosh x"),
    ("tanh", 1, "float", np.tanh, "_tanh({0})", "_tanh({0})", lambda L, dy, y, x: (dy * (1 - y * y),), 15, "tanh x"),
    ("arcsinh", 1, "float", np.arcsinh, "_arcsinh({0})", "", lambda L, dy, y, x: (dy * L.rsqrt(x * x + 1),), 20, "arcsinh x"),
    ("arccosh", 1, "float", np.arccosh, "_arccosh({0})", "", lambda L, dy, y, x: (dy * L.rsqrt(x * x - 1),), 20, "arccosh x"),
    ("arctanh", 1, "float", np.arctanh, "_arctanh({0})", "", lambda L, dy, y, x: (dy / (1 - x * x),), 20, "arctanh x"),
    ("erf", 1, "float", _erf, "tl.erf({0})", "_erf({0})",
     lambda L, dy, y, x: (dy * 1.1283791670955126 * L.exp(-x * x),), 25, "2/√π ∫₀ˣ e^(-t²) dt"),
    ("erfinv", 1, "float", _erfinv, "_erfinv({0})", "",
     lambda L, dy, y, x: (dy * 0.8862269254527580 * L.exp(y * y),), 40, "the number whose erf is x"),
    ("gamma", 1, "float", _gamma, "_gamma({0})", "", lambda L, dy, y, x: (dy * y * L.digamma(x),), 60, "Γ(x)"),
    ("gammaln", 1, "float", _gammaln, "_gammaln({0})", "", lambda L, dy, y, x: (dy * L.digamma(x),), 60, "ln |Γ(x)|"),
    ("digamma", 1, "float", _digamma, "_digamma({0})", "",
     lambda L, dy, y, x: (dy * L.trigamma(x),), 60, "the derivative of ln Γ(x)"),
    # rounding
    ("floor", 1, "same", np.floor, "_floor({0})", "_floor({0})", _flat, 2, "⌊x⌋"),
    ("ceil", 1, "same", np.ceil, "_ceil({0})", "_ceil({0})", _flat, 2, "⌈x⌉"),
    ("trunc", 1, "same", np.trunc, "_trunc({0})", "_trunc({0})", _flat, 2, "x without its fraction"),
    # comparison, logic, choice
    ("eq", 2, "compare", np.equal, "{0} == {1}", "{0} == {1}", _flat, 1, "a = b"),
    ("ne", 2, "compare", np.not_equal, "{0} != {1}", "{0} != {1}", _flat, 1, "a ≠ b"),
    ("lt", 2, "compare", np.less, "{0} < {1}", "{0} < {1}", _flat, 1, "a < b"),
    ("le", 2, "compare", np.less_equal, "{0} <= {1}", "{0} <= {1}", _flat, 1, "a ≤ b"),
    ("gt", 2, "compare", np.greater, "{0} > {1}", "{0} > {1}", _flat, 1, "a > b"),
    ("ge", 2, "compare", np.greater_equal, "{0} >= {1}", "{0} >= {1}", _flat, 1, "a ≥ b"),
    ("and", 2, "logic", np.logical_and, "{0} & {1}", "({0} != 0) & ({1} != 0)", _flat, 1, "a and b"),
    ("or", 2, "logic", np.logical_or, "{0} | {1}", "({0} != 0) | ({1} != 0)", _flat, 1, "a or b"),
    ("xor", 2, "logic", np.logical_xor, "{0} ^ {1}", "({0} != 0) != ({1} != 0)", _flat, 1, "a or b, not both"),
    ("not", 1, "logic", np.logical_not, "{0} == 0", "{0} == 0", _flat, 1, "not x"),
    ("where", 3, "where", _where, "tl.where({0}, {1}, {2})", "{0} ? {1} : {2}",
     lambda L, dy, y, c, a, b: (None, L.where(c, dy, 0), L.where(c, 0, dy)), 1, "a where c, else b"),
]

PRIMITIVES: dict[str, Primitive] = {row[0]: Primitive(*row) for row in _ROWS}
