"""mx.nd.add, maximum, equal, ...: functions of two arguments, each an array or a number, that broadcast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DTypeError
from ...kernels.op import builtin
from ..core.arithmetic import array_op, broadcasting
from ..core.array_core import ArrayCore
from ..core.sparse_core import SparseCore, find_sparse
from ..dispatch.arguments import call_op

if TYPE_CHECKING:
    from ..core.ndarray import NDArray


def _binary(name: str, says: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(lhs: Any, rhs: Any) -> Any:
        return compute(lhs, rhs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{says} of arrays or numbers, broadcast."
    return call


def _comparison(name: str, says: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function whose result for two numbers is 1 or 0, as the elements of its results for arrays are."""
    def result(lhs: Any, rhs: Any) -> Any:
        found = compute(lhs, rhs)
        return int(found) if isinstance(found, (bool, np.bool_)) else found

    return _binary(name, says, result)


def _symmetric(name: str, numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function for which Python has no operator. numbers: the same function of two numbers."""
    of_arrays = broadcasting(name)

    def compute(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, (int, float, np.number)) and isinstance(rhs, (int, float, np.number)):
            return numbers(lhs, rhs)
        if find_sparse((lhs, rhs), {}) is not None:
            lhs, rhs = (a.tostype("default") if isinstance(a, SparseCore) else a for a in (lhs, rhs))
        result = NotImplemented
        if isinstance(lhs, ArrayCore):
            result = of_arrays(lhs, rhs)
        elif isinstance(rhs, ArrayCore):
            result = of_arrays.reflected(rhs, lhs)
        if result is NotImplemented:
            raise DTypeError(f"{name}: {type(lhs).__name__} and {type(rhs).__name__}: one must be an NDArray, the "
                             f"other an NDArray, a numpy array or a number.")
        return result

    return compute


def split_v2(ary: NDArray, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
             ) -> NDArray | list[NDArray]:
    """Return parts of ary along axis: equal ones, their number an int, or cut at ascending indices."""
    equal = isinstance(indices_or_sections, int)
    indices = () if equal else tuple(indices_or_sections)
    return call_op(builtin("_split_v2"), (ary,), {
        "indices": indices if equal else (0, *indices), "axis": axis, "squeeze_axis": squeeze_axis,
        "sections": indices_or_sections if equal else 0})


def histogram(a: NDArray, bins: int | NDArray = 10, range: tuple[float, float] | None = None) -> list[NDArray]:
    """Return the number of values of a in each bin, int64, and the edges of the bins.

    bins: the number of bins of equal width, over range or from the smallest to the largest value; or an array of edges.
    """
    if isinstance(bins, ArrayCore):
        return call_op(builtin("_histogram"), (a, bins), {})
    if range is None:
        low, high = float(a.min().asscalar()), float(a.max().asscalar())
        range = (low - 0.5, high + 0.5) if low == high else (low, high)
    return call_op(builtin("_histogram"), (a,), {"bin_cnt": bins, "range": tuple(range)})


def power(base: float | NDArray, exp: float | NDArray) -> float | NDArray:
    """Return base to the power exp, for arrays or numbers, broadcast."""
    return base**exp


def negative(data: NDArray, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Return -data. kwargs, such as a name, are those of symbols: ignored."""
    return array_op("negative", data, out=out)


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Set out[i] to 1 at indices[i] and 0 elsewhere, and return out."""
    out[:] = indices.one_hot(out.shape[1])
    return out


#: The functions of `mx.nd` besides operators and those listed in its `__init__`.
FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (
    _binary("add", "Sum", operator.add),
    _binary("subtract", "Difference", operator.sub),
    _binary("multiply", "Product", operator.mul),
    _binary("divide", "Quotient", operator.truediv),
    _binary("true_divide", "Quotient", operator.truediv),
    _binary("modulo", "Remainder, with the divisor's sign,", operator.mod),
    _comparison("equal", "1 where equal, else 0,", operator.eq),
    _comparison("not_equal", "1 where different, else 0,", operator.ne),
    _comparison("greater", "1 where lhs > rhs, else 0,", operator.gt),
    _comparison("greater_equal", "1 where lhs ≥ rhs, else 0,", operator.ge),
    _comparison("lesser", "1 where lhs < rhs, else 0,", operator.lt),
    _comparison("lesser_equal", "1 where lhs ≤ rhs, else 0,", operator.le),
    _binary("maximum", "The larger", _symmetric("maximum", max)),
    _binary("minimum", "The smaller", _symmetric("minimum", min)),
    _binary("logical_and", "1 where both are not 0, else 0,", _symmetric("logical_and", lambda a, b: int(bool(a and b)))),
    _binary("logical_or", "1 where either is not 0, else 0,", _symmetric("logical_or", lambda a, b: int(bool(a or b)))),
    _binary("logical_xor", "1 where one of the two is 0, else 0,",
            _symmetric("logical_xor", lambda a, b: int(bool(a) != bool(b)))),
    split_v2, histogram, power, negative, onehot_encode,
)}
