"""mx.nd.add, maximum, equal, ...: functions of two arguments, each an array or a number, that broadcast."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...errors import DTypeError
from ...kernels.op import builtin
from ..core.arithmetic import array_op, broadcasting
from ..core.array_core import ArrayCore
from ..dispatch.arguments import call_op


def _binary(name: str, by_operator: Callable[[Any, Any], Any], says: str) -> Callable[[Any, Any], Any]:
    def call(lhs: Any, rhs: Any) -> Any:
        return by_operator(lhs, rhs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{says} of arrays or numbers, broadcast."
    return call


def _symmetric(name: str, says: str, numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    by_operator = broadcasting(name)

    def call(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, (int, float)) and isinstance(rhs, (int, float)):
            return numbers(lhs, rhs)
        result = NotImplemented
        if isinstance(lhs, ArrayCore):
            result = by_operator(lhs, rhs)
        elif isinstance(rhs, ArrayCore):
            result = by_operator.reflected(rhs, lhs)
        if result is NotImplemented:
            raise DTypeError(f"{name}: {type(lhs).__name__} and {type(rhs).__name__}: one must be an NDArray, the "
                             f"other an NDArray, a numpy array or a number.")
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{says} of arrays or numbers, broadcast."
    return call


def split_v2(ary: Any, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Any:
    """Return parts of ary along axis: equal ones, their number an int, or cut at ascending indices."""
    equal = isinstance(indices_or_sections, int)
    indices = () if equal else tuple(indices_or_sections)
    return call_op(builtin("_split_v2"), (ary,), {
        "indices": indices if equal else (0, *indices), "axis": axis, "squeeze_axis": squeeze_axis,
        "sections": indices_or_sections if equal else 0})


def histogram(a: Any, bins: Any = 10, range: Any = None) -> Any:
    """Return the number of values of a in each bin, int64, and the edges of the bins.

    bins: the number of bins of equal width, over range or from the smallest to the largest value; or an array of edges.
    """
    if isinstance(bins, ArrayCore):
        return call_op(builtin("_histogram"), (a, bins), {})
    if range is None:
        low, high = float(a.min().asscalar()), float(a.max().asscalar())
        range = (low - 0.5, high + 0.5) if low == high else (low, high)
    return call_op(builtin("_histogram"), (a,), {"bin_cnt": bins, "range": tuple(range)})


def power(base: Any, exp: Any) -> Any:
    """Return base to the power exp, for arrays or numbers, broadcast."""
    return base**exp


def negative(data: Any, out: Any = None) -> Any:
    """Return -data."""
    return array_op("negative", data, out=out)


def onehot_encode(indices: Any, out: Any) -> Any:
    """Set out[i] to 1 at indices[i] and 0 elsewhere, and return out."""
    out[:] = indices.one_hot(out.shape[1])
    return out


#: The functions of `mx.nd` besides operators and those listed in its `__init__`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        _binary("add", operator.add, "Sum"),
        _binary("subtract", operator.sub, "Difference"),
        _binary("multiply", operator.mul, "Product"),
        _binary("divide", operator.truediv, "Quotient"),
        _binary("true_divide", operator.truediv, "Quotient"),
        _binary("modulo", operator.mod, "Remainder, with the divisor's sign,"),
        _binary("equal", operator.eq, "1 where equal, else 0,"),
        _binary("not_equal", operator.ne, "1 where different, else 0,"),
        _binary("greater", operator.gt, "1 where lhs > rhs, else 0,"),
        _binary("greater_equal", operator.ge, "1 where lhs ≥ rhs, else 0,"),
        _binary("lesser", operator.lt, "1 where lhs < rhs, else 0,"),
        _binary("lesser_equal", operator.le, "1 where lhs ≤ rhs, else 0,"),
        _symmetric("maximum", "The larger", max),
        _symmetric("minimum", "The smaller", min),
        _symmetric("logical_and", "1 where both are not 0, else 0,",
                   lambda a, b: int(bool(a and b))),
        _symmetric("logical_or", "1 where either is not 0, else 0,",
                   lambda a, b: int(bool(a or b))),
        _symmetric("logical_xor", "1 where one of the two is 0, else 0,",
                   lambda a, b: int(bool(a) != bool(b))),
        split_v2,
        histogram,
        power,
        negative,
        onehot_encode,
    )
}
