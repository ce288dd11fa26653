"""Arithmetic, comparison and logic of two arrays, and of an array and a number.

Each formula is written once and declared for equal shapes (elemwise_*), for broadcasting (broadcast_*) and with a scalar
on either side (_*_scalar), as far as MXNet has these forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....dtype import float64
from ... import op as registry
from ...declare.simple_op import Array, Scalar, SimpleOp
from ...ir import lang
from ...ir.expr import BOOL, Expr, cast, const, typed


def _declare(formula: Callable[[Any, Any], Any], text: str, *, elemwise: tuple[str, ...] = (), broadcast: tuple[str, ...] = (),
             scalar: tuple[str, ...] = (), reverse: tuple[str, ...] = (), differentiable: bool = True) -> None:
    """Register formula in each form that has names: the first is the name, the rest are aliases."""

    def two(lhs: Array, rhs: Array) -> Array:
        return formula(lhs, rhs)

    def right(data: Array, *, scalar: Scalar = 1.0) -> Array:
        return formula(data, scalar)

    def left(data: Array, *, scalar: Scalar = 1.0) -> Array:
        return formula(scalar, data)

    forms = (
        (elemwise, two, False, f"{text}, element by element.\n\nlhs, rhs: one shape and dtype, which the result has."),
        (broadcast, two, True, f"{text}, with broadcasting.\n\nlhs, rhs: sizes equal or 1, axis by axis from the right."),
        (scalar, right, False, f"{text}, where lhs is data and rhs is scalar."),
        (reverse, left, False, f"{text}, where lhs is scalar and rhs is data."),
    )
    for names, body, wide, doc in forms:
        if names:
            registry.register(SimpleOp(body, name=names[0], aliases=names[1:], broadcast=wide, doc=doc,
                                       differentiable=differentiable))


_declare(lambda a, b: a + b, "lhs + rhs",
         elemwise=("elemwise_add", "_plus", "_Plus", "_add", "_grad_add"), broadcast=("broadcast_add", "broadcast_plus"),
         scalar=("_plus_scalar", "_PlusScalar"))
_declare(lambda a, b: a - b, "lhs - rhs",
         elemwise=("elemwise_sub", "_minus", "_Minus", "_sub"), broadcast=("broadcast_sub", "broadcast_minus"),
         scalar=("_minus_scalar", "_MinusScalar"), reverse=("_rminus_scalar", "_RMinusScalar"))
_declare(lambda a, b: a * b, "lhs · rhs",
         elemwise=("elemwise_mul", "_mul", "_Mul"), broadcast=("broadcast_mul",), scalar=("_mul_scalar", "_MulScalar"))
def _divided(a: Any, b: Any) -> Any:
    return lang.quotient(a, b) if lang.is_whole(a, b) else a / b


def _floor_divided(a: Any, b: Any) -> Any:
    if not lang.is_whole(a, b):
        near = (a - lang.mod(a, b)) / b  # whole, but for rounding
        low = lang.floor(near)
        return low + (near - low > 0.5)
    cut = lang.quotient(a, b)
    return cut - lang.where(((a < 0) ^ (b < 0)) & (lang.mod(a, b) != 0), 1, lang.cast_like(0, cut))


def _raised(a: Any, b: Any) -> Any:
    return lang.whole_pow(a, b) if lang.is_whole(a, b) else lang.power(a, b)


_declare(_divided, "lhs / rhs; of integers truncated, and 0 where rhs is 0",
         elemwise=("elemwise_div", "_div", "_Div"), broadcast=("broadcast_div",), scalar=("_div_scalar", "_DivScalar"),
         reverse=("_rdiv_scalar", "_RDivScalar"))
_declare(lang.mod, "lhs modulo rhs, with the sign of rhs; 0 where rhs is 0",
         elemwise=("_mod", "_Mod"), broadcast=("broadcast_mod",), scalar=("_mod_scalar", "_ModScalar"),
         reverse=("_rmod_scalar", "_RModScalar"))
_declare(_floor_divided, "⌊lhs / rhs⌋; of integers 0 where rhs is 0",
         broadcast=("_floor_divide",), scalar=("_floor_divide_scalar",), reverse=("_rfloor_divide_scalar",))
_declare(_raised, "lhs to the power rhs; integers wrap around",
         elemwise=("_power", "_Power"), broadcast=("broadcast_power",), scalar=("_power_scalar", "_PowerScalar"),
         reverse=("_rpower_scalar", "_RPowerScalar"))
_declare(lang.maximum, "the larger of lhs and rhs; of equal ones the derivative goes to lhs",
         elemwise=("_maximum", "_Maximum"), broadcast=("broadcast_maximum",), scalar=("_maximum_scalar", "_MaximumScalar"))
_declare(lang.minimum, "the smaller of lhs and rhs; of equal ones the derivative goes to lhs",
         elemwise=("_minimum", "_Minimum"), broadcast=("broadcast_minimum",), scalar=("_minimum_scalar", "_MinimumScalar"))
_declare(lang.hypot, "√(lhs² + rhs²)",
         elemwise=("_hypot", "_Hypot"), broadcast=("broadcast_hypot",), scalar=("_hypot_scalar", "_HypotScalar"))


def _relation(relation: Callable[[Any, Any], Any], beyond: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the formula of a comparison.

    A scalar beside an integer array is first cast to its dtype, as in MXNet: it is truncated and may wrap. For an infinite or NaN
    scalar, beyond(scalar) is the result for all elements.
    """

    def compared(a: Any, b: Any) -> Any:
        if not _beside(a, b):
            return relation(a, b)
        number = cast(b, float64)
        finite = abs(number) < math.inf
        return (relation(a, cast(b, typed(a))) & finite) | (beyond(number) & ~finite)

    return compared


def _beside(a: Any, b: Any) -> bool:
    """Return True if b is a scalar and a an integer array."""
    return isinstance(a, Expr) and isinstance(b, Expr) and b.dtype is None and lang.is_whole(a)


def _true(b: Any, a: Any) -> Any:
    """Return b != 0. Beside an integer array a scalar is truncated first: 0.5 is false."""
    if not _beside(a, b):
        return b != 0
    return (cast(b, typed(a)) != 0) | ~(abs(cast(b, float64)) < math.inf)


_COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "equal": (_relation(lambda a, b: a == b, lambda n: const(False, BOOL)), "lhs = rhs"),
    "not_equal": (_relation(lambda a, b: a != b, lambda n: const(True, BOOL)), "lhs ≠ rhs"),
    "greater": (_relation(lambda a, b: a > b, lambda n: n < 0), "lhs > rhs"),
    "greater_equal": (_relation(lambda a, b: a >= b, lambda n: n < 0), "lhs ≥ rhs"),
    "lesser": (_relation(lambda a, b: a < b, lambda n: n > 0), "lhs < rhs"),
    "lesser_equal": (_relation(lambda a, b: a <= b, lambda n: n > 0), "lhs ≤ rhs"),
    "logical_and": (lambda a, b: (a != 0) & _true(b, a), "lhs ≠ 0 and rhs ≠ 0"),
    "logical_or": (lambda a, b: (a != 0) | _true(b, a), "lhs ≠ 0 or rhs ≠ 0"),
    "logical_xor": (lambda a, b: (a != 0) ^ _true(b, a), "one of lhs and rhs is 0, the other not"),
}
for _name, (_formula, _text) in _COMPARISONS.items():
    _old = _name.title()  # in symbols of MXNet before 1.0
    _declare(_formula, f"1 where {_text}, else 0, in the dtype of the inputs", elemwise=(f"_{_name}", f"_{_old}"),
             broadcast=(f"broadcast_{_name}",), scalar=(f"_{_name}_scalar", f"_{_old.replace('_', '')}Scalar"),
             differentiable=False)
