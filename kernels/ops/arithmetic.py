"""Arithmetic, comparison and logic of two arrays, and of an array and a number.

Each formula stands once; it is declared for equal shapes (elemwise_*), for broadcasting (broadcast_*) and with a number
on either side (_*_scalar), where MXNet has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import lang
from .. import op as registry
from ..expr import Expr
from ..simple_op import Array, Scalar, SimpleOp


def _declare(formula: Callable[[Any, Any], Any], text: str, *, elemwise: tuple[str, ...] = (), broadcast: tuple[str, ...] = (),
             scalar: tuple[str, ...] = (), reverse: tuple[str, ...] = (), differentiable: bool = True) -> None:
    """Register formula under each form that has names; the first is the name, the rest are aliases."""

    def two(lhs: Array, rhs: Array) -> Array:
        return formula(lhs, rhs)

    def right(data: Array, *, scalar: Scalar = 0.0) -> Array:
        return formula(data, scalar)

    def left(data: Array, *, scalar: Scalar = 0.0) -> Array:
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
         elemwise=("elemwise_add", "_plus", "_add", "_grad_add"), broadcast=("broadcast_add", "broadcast_plus"),
         scalar=("_plus_scalar", "_PlusScalar"))
_declare(lambda a, b: a - b, "lhs - rhs",
         elemwise=("elemwise_sub", "_minus", "_sub"), broadcast=("broadcast_sub", "broadcast_minus"),
         scalar=("_minus_scalar", "_MinusScalar"), reverse=("_rminus_scalar", "_RMinusScalar"))
_declare(lambda a, b: a * b, "lhs · rhs",
         elemwise=("elemwise_mul", "_mul"), broadcast=("broadcast_mul",), scalar=("_mul_scalar", "_MulScalar"))
_declare(lambda a, b: a / b, "lhs / rhs",
         elemwise=("elemwise_div", "_div"), broadcast=("broadcast_div",), scalar=("_div_scalar", "_DivScalar"),
         reverse=("_rdiv_scalar", "_RDivScalar"))
_declare(lang.mod, "lhs modulo rhs, with the sign of rhs; 0 where rhs is 0",
         elemwise=("_mod",), broadcast=("broadcast_mod",), scalar=("_mod_scalar", "_ModScalar"),
         reverse=("_rmod_scalar", "_RModScalar"))
_declare(lang.power, "lhs to the power rhs",
         elemwise=("_power", "_Power"), broadcast=("broadcast_power",), scalar=("_power_scalar", "_PowerScalar"),
         reverse=("_rpower_scalar", "_RPowerScalar"))
_declare(lang.maximum, "the larger of lhs and rhs; of equal ones the derivative goes to lhs",
         elemwise=("_maximum", "_Maximum"), broadcast=("broadcast_maximum",), scalar=("_maximum_scalar", "_MaximumScalar"))
_declare(lang.minimum, "the smaller of lhs and rhs; of equal ones the derivative goes to lhs",
         elemwise=("_minimum", "_Minimum"), broadcast=("broadcast_minimum",), scalar=("_minimum_scalar", "_MinimumScalar"))
_declare(lang.hypot, "√(lhs² + rhs²)",
         elemwise=("_hypot",), broadcast=("broadcast_hypot",), scalar=("_hypot_scalar",))


def _beside(number: Any, a: Any) -> Any:
    """Of a number beside whole numbers its whole part counts: 0.5 is false."""
    return lang.cast_like(number, a) if isinstance(a, Expr) and a.dtype is not None and a.dtype.kind in "iu" else number


_COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "equal": (lambda a, b: a == b, "lhs = rhs"),
    "not_equal": (lambda a, b: a != b, "lhs ≠ rhs"),
    "greater": (lambda a, b: a > b, "lhs > rhs"),
    "greater_equal": (lambda a, b: a >= b, "lhs ≥ rhs"),
    "lesser": (lambda a, b: a < b, "lhs < rhs"),
    "lesser_equal": (lambda a, b: a <= b, "lhs ≤ rhs"),
    "logical_and": (lambda a, b: (a != 0) & (_beside(b, a) != 0), "lhs ≠ 0 and rhs ≠ 0"),
    "logical_or": (lambda a, b: (a != 0) | (_beside(b, a) != 0), "lhs ≠ 0 or rhs ≠ 0"),
    "logical_xor": (lambda a, b: (a != 0) ^ (_beside(b, a) != 0), "one of lhs and rhs is 0, the other not"),
}
for _name, (_formula, _text) in _COMPARISONS.items():
    _declare(_formula, f"1 where {_text}, else 0, in the dtype of the inputs",
             elemwise=(f"_{_name}",), broadcast=(f"broadcast_{_name}",), scalar=(f"_{_name}_scalar",), differentiable=False)
