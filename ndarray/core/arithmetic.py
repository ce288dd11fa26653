"""Python's operators on arrays. Each runs an operator of the registry: elemwise_* for equal shapes, else broadcast_*.

For an array of four numbers everything around the arithmetic takes ten times as long as the arithmetic. So the methods for
`a + b` and its like look a call up by the layouts alone. If NumPy can compute the result with one function, and no task, tape
or profiler is concerned, they call it at once.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ...cache import key_of
from ...engine import current
from ...errors import DTypeError, ShapeError, describe
from ...kernels.cpu.errstate import prepared
from ...kernels.op import Op, builtin
from ...kernels.params import Params
from ..autograd.tape import Seen, state
from ..dispatch.copy import store_host
from ..dispatch.invoke import invoke, overwritten, record, run_new, run_plan
from ..dispatch.plan import CACHE, plan_of
from ..functions.namespace import function_of
from .array_core import ArrayCore
from .chunk import Chunk, layout_of
from .sparse_core import SparseCore

if TYPE_CHECKING:
    from .ndarray import NDArray

_NUMBERS = frozenset((int, float))

#: Gives two arrays of different dtypes a common one, while mixed precision is on.
unify: Callable[[Any, Any], tuple[Any, Any]] | None = None


@cache
def _without_parameters(name: str) -> tuple[Op, Params]:
    op = builtin(name)
    return op, op.parse({})


def array_op(name: str, *inputs: ArrayCore, out: ArrayCore | None = None) -> NDArray:
    """Run the operator called name, without parameters, on arrays."""
    op, p = _without_parameters(name)
    return invoke(op, inputs, p, out)[0]


def is_number(x: Any) -> bool:
    """Return True for one number: Python's, NumPy's, or a NumPy array without axes."""
    return isinstance(x, (int, float, np.number, np.bool_, numbers.Real)) or (isinstance(x, np.ndarray) and x.ndim == 0)


def like(x: ArrayLike, a: ArrayCore) -> NDArray:
    """Return a NumPy array (or list) as an array with the dtype and context of a."""
    values = np.asarray(x)
    layout = layout_of(values.shape, a.layout.dtype, a.ctx)
    array = a.array_class(layout, chunk=Chunk.new(layout.nbytes, layout.ctx))
    store_host(array, values)
    return array


class BinaryOperator:
    """a ∘ b for an array a and an array, NumPy array or number b.

    same, spread, scalar:  the names of the operators for equal shapes, for shapes that broadcast, and for a number b.
    from_scalar:           the name of the operator for b ∘ a, where b is a number; by default scalar.
    """

    def __init__(self, same: str, spread: str, scalar: str, from_scalar: str = ""):
        self.same, self.spread, self.scalar, self.from_scalar = same, spread, scalar, from_scalar or scalar

    def __call__(self, a: Any, b: Any, out: Any = None) -> NDArray:
        """Return a ∘ b; NotImplemented if b is neither an array nor a number."""
        if isinstance(b, ArrayCore):
            key = self.same, a.layout, b.layout
            call = CACHE.get(key)
            if call is None:
                if unify is not None and a.layout.dtype != b.layout.dtype:
                    return self(*unify(a, b), out)
                op, p = _without_parameters(self.same if a.layout.shape == b.layout.shape else self.spread)
                plan = plan_of(op, p, (a.layout, b.layout), False)
                call = CACHE[key] = plan.direct, plan.outs[0], None, None, plan, p
            return run_new(call[4], (a, b), call[5]) if out is None else run_plan(call[4], (a, b), call[5], out)[0]
        if is_number(b):
            return _with_number(self.scalar, a, b, out)
        return self(a, like(b, a), out) if isinstance(b, np.ndarray) else NotImplemented

    def reflected(self, a: ArrayCore, b: Any) -> NDArray:
        """Return b ∘ a, where b is not an array; NotImplemented if it is neither a NumPy array nor a number."""
        if is_number(b):
            return _with_number(self.from_scalar, a, b)
        return self(like(b, a), a) if isinstance(b, np.ndarray) else NotImplemented

    def method(self, reflected: bool = False) -> Callable[[Any, Any], NDArray]:
        """Return the method for a ∘ b, or for b ∘ a. It computes tiny results at once where that is possible."""
        same, scalar, ordinary = self.same, self.scalar, self.__call__
        if reflected:
            same, scalar, ordinary = "", self.from_scalar, self.reflected
        get = CACHE.get

        def operator(a: Any, b: Any) -> NDArray:
            kind = b.__class__
            if kind is a.__class__:
                call = get((same, a.layout, b.layout))
                if call is not None and not (Seen.overwrites and overwritten(a, b)):
                    function, layout, _, _, plan, p = call
                    x, y = a._view, b._view
                    if function is not None and x is not None and y is not None:
                        view = current().try_call_inline((a, b), prepared.leaf, function, x, y)
                        if view is not None:
                            result = ArrayCore.array_class(layout, view)
                            if (a._grad_edge is not None or b._grad_edge is not None) and state.recording:
                                record(plan, p, (a, b), (result,))
                            return result
                    return run_new(plan, (a, b), p)
            elif kind in _NUMBERS and b:
                call = get((scalar, a.layout, kind, b))
                if call is not None and not (Seen.overwrites and overwritten(a, a)):
                    function, layout, left, right, plan, p = call
                    x = a._view
                    if function is not None and x is not None:
                        view = current().try_call_inline((a,), prepared.leaf, function, x if left is None else left,
                                                         x if right is None else right)
                        if view is not None:
                            result = ArrayCore.array_class(layout, view)
                            if a._grad_edge is not None and state.recording:
                                record(plan, p, (a,), (result,))
                            return result
                    return run_new(plan, (a,), p)
            return ordinary(a, b)

        return operator

    def in_place(self) -> Callable[[Any, Any], NDArray]:
        """Return the method for a ∘= b."""
        return lambda a, b: self(a, b, a)


def broadcasting(name: str, from_scalar: str = "") -> BinaryOperator:
    """Return the BinaryOperator of broadcast_NAME and _NAME_scalar."""
    return BinaryOperator(f"broadcast_{name}", f"broadcast_{name}", f"_{name}_scalar", from_scalar)


def _with_number(name: str, a: Any, b: Any, out: Any = None) -> NDArray:
    """Run the operator called name, whose parameter `scalar` is the number b, on a."""
    number = b if isinstance(b, (int, np.integer)) else float(b)
    key = (name, a.layout, number.__class__, number) if number else (name, a.layout, key_of(number))  # 0.0 and -0.0 differ
    call = CACHE.get(key)
    if call is None:
        op = builtin(name)
        p = op.parse({"scalar": number})
        plan = plan_of(op, p, (a.layout,), False)
        direct = plan.direct_call(number) if isinstance(number, (int, float)) else None
        function, left, right = direct or (None, None, None)
        call = CACHE[key] = function, plan.outs[0], left, right, plan, p
    return run_new(call[4], (a,), call[5]) if out is None else run_plan(call[4], (a,), call[5], out)[0]


ADD = BinaryOperator("elemwise_add", "broadcast_add", "_plus_scalar")
SUBTRACT = BinaryOperator("elemwise_sub", "broadcast_sub", "_minus_scalar", "_rminus_scalar")
MULTIPLY = BinaryOperator("elemwise_mul", "broadcast_mul", "_mul_scalar")
DIVIDE = BinaryOperator("elemwise_div", "broadcast_div", "_div_scalar", "_rdiv_scalar")
MODULO = broadcasting("mod", "_rmod_scalar")
FLOOR_DIVIDE = BinaryOperator("_floor_divide", "_floor_divide", "_floor_divide_scalar", "_rfloor_divide_scalar")
POWER = broadcasting("power", "_rpower_scalar")
EQUAL, NOT_EQUAL = broadcasting("equal"), broadcasting("not_equal")


def _logic(name: str) -> Callable[[Any, Any], NDArray]:
    """Return the method for a ∘ b of two masks; it returns NotImplemented for anything else."""

    def method(a: Any, b: Any) -> NDArray:
        if not (isinstance(b, ArrayCore) and is_mask(a) and is_mask(b)):
            return NotImplemented
        if a.layout.dtype != b.layout.dtype:
            b = _mask_of(b.astype(a.layout.dtype))  # type: ignore[attr-defined]
        return array_op(name, a, b)

    return method


class Arithmetic(ArrayCore):
    """The operators, for NDArray."""

    __slots__ = ()

    __add__ = __radd__ = ADD.method()
    __iadd__ = ADD.in_place()
    __sub__ = SUBTRACT.method()
    __isub__ = SUBTRACT.in_place()
    _subtract_from = SUBTRACT.method(reflected=True)
    __mul__ = __rmul__ = MULTIPLY.method()
    __imul__ = MULTIPLY.in_place()
    __truediv__ = DIVIDE.method()
    __rtruediv__ = DIVIDE.method(reflected=True)
    __itruediv__ = DIVIDE.in_place()
    __div__, __rdiv__, __idiv__ = __truediv__, __rtruediv__, __itruediv__  # MXNet's names, from Python 2
    __mod__ = MODULO.method()
    __rmod__ = MODULO.method(reflected=True)
    __imod__ = MODULO.in_place()
    __floordiv__ = FLOOR_DIVIDE.method()
    __rfloordiv__ = FLOOR_DIVIDE.method(reflected=True)
    __ifloordiv__ = FLOOR_DIVIDE.in_place()
    __pow__ = POWER.method()
    __rpow__ = POWER.method(reflected=True)
    __ipow__ = POWER.in_place()
    __gt__ = broadcasting("greater").method()
    __ge__ = broadcasting("greater_equal").method()
    __lt__ = broadcasting("lesser").method()
    __le__ = broadcasting("lesser_equal").method()
    __and__, __or__, __xor__ = _logic("broadcast_minimum"), _logic("broadcast_maximum"), _logic("broadcast_not_equal")

    def __rsub__(self, other: Any) -> NDArray:
        result = self._subtract_from(other)
        return _mask_of(result) if self.layout.mask and is_number(other) and other == 1 else result  # 1 - mask: not

    def __eq__(self, other: Any) -> NDArray:  # type: ignore[override]
        return _compared(EQUAL(self, other), other)

    def __ne__(self, other: Any) -> NDArray:  # type: ignore[override]
        return _compared(NOT_EQUAL(self, other), other)

    def __neg__(self) -> NDArray:
        return array_op("negative", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> NDArray:
        return array_op("abs", self)

    def __invert__(self) -> NDArray:
        if not is_mask(self):
            raise DTypeError(f"~: {describe(self)} is not a mask. Use it on a comparison or a bool array, or 1 - a.")
        return EQUAL(self, 0)

    def __matmul__(self, other: Any) -> NDArray:
        if isinstance(other, np.ndarray):
            other = like(other, self)
        if not isinstance(other, ArrayCore):
            return NotImplemented
        if self.ndim == other.ndim == 3:
            return array_op("batch_dot", self, other)
        if max(self.ndim, other.ndim) > 2:
            raise ShapeError(f"@: {describe(self)} and {describe(other)}: both must have two axes, or both three.")
        return function_of("dot", builtin("dot"))(self, other)

    def __rmatmul__(self, other: Any) -> NDArray:
        return like(other, self) @ self if isinstance(other, np.ndarray) else NotImplemented

    __hash__ = object.__hash__


def _compared(result: Any, other: Any) -> Any:
    if result is NotImplemented and not isinstance(other, SparseCore):
        raise DTypeError(f"==: an NDArray cannot be compared with a {type(other).__name__}. "
                         f"Compare with an array or a number; `is None` tests for None.")
    return result


def _mask_of(a: Any) -> NDArray:
    """Make a, a new array of 0 and 1, a mask, and return it."""
    a.layout = layout_of(a.shape, a.layout.dtype, a.ctx, True)
    return a


def is_mask(a: ArrayCore) -> bool:
    """Return True if a is bool or the result of comparisons. As an index it selects, although its elements are 0.0 and 1.0."""
    return a.layout.dtype.kind == "b" or a.layout.mask
