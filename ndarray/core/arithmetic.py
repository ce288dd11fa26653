"""Python's operators on arrays: each becomes an operator of the registry. Equal shapes take elemwise_*, others broadcast."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import DTypeError, ShapeError, describe
from ...kernels.op import Op, builtin
from ...kernels.params import Params
from ..dispatch.copy import store_host
from ..dispatch.fast_path import method
from ..dispatch.invoke import invoke
from ..functions.namespace import function_of
from .array_core import ArrayCore
from .chunk import Chunk, layout_of

_ops: dict[str, tuple[Op, Params]] = {}
_scalars: dict[tuple[str, Any, type], tuple[Op, Params]] = {}
_SCALARS_KEPT = 4096


def array_op(name: str, *inputs: Any, out: Any = None) -> Any:
    """The operator called name, without parameters, on arrays."""
    found = _ops.get(name)
    if found is None:
        op = builtin(name)
        found = _ops[name] = (op, op.parse({}))
    return invoke(found[0], inputs, found[1], out)[0]


def scalar_op(name: str, a: Any, scalar: Any, out: Any = None) -> Any:
    """The operator called name with parameter `scalar`, on one array."""
    key = (name, scalar, type(scalar))
    found = _scalars.get(key)
    if found is None:
        op = builtin(name)
        if len(_scalars) >= _SCALARS_KEPT:
            _scalars.clear()
        found = (op, op.parse({"scalar": scalar if isinstance(scalar, (int, np.integer)) else float(scalar)}))
        if scalar or isinstance(scalar, int):  # 0.0 and -0.0 are one key
            _scalars[key] = found
    return invoke(found[0], (a,), found[1], out)[0]


def is_number(x: Any) -> bool:
    """Whether x is one number: Python's, numpy's, or a numpy array without axes."""
    return isinstance(x, (int, float, np.number, np.bool_, numbers.Real)) or (isinstance(x, np.ndarray) and x.ndim == 0)


def like(x: Any, a: ArrayCore) -> Any:
    """A numpy array (or list) as an array with the dtype and context of a."""
    values = np.asarray(x)
    what = layout_of(values.shape, a.layout.dtype, a.ctx)
    made = a.array_class(what, chunk=Chunk.new(what.nbytes, what.ctx))
    store_host(made, values)
    return made


def combine(a: Any, b: Any, same: str, spread: str, scalar: str, out: Any = None) -> Any:
    """a ∘ b for an array a and an array, numpy array or number b; NotImplemented for anything else."""
    if isinstance(b, ArrayCore):
        return array_op(same if a.layout.shape == b.layout.shape else spread, a, b, out=out)
    if is_number(b):
        return scalar_op(scalar, a, b, out)
    if isinstance(b, np.ndarray):
        return combine(a, like(b, a), same, spread, scalar, out)
    return NotImplemented


def reflected(a: Any, b: Any, same: str, spread: str, scalar: str) -> Any:
    """b ∘ a, where a is the array and b is not one."""
    if is_number(b):
        return scalar_op(scalar, a, b)
    if isinstance(b, np.ndarray):
        return combine(like(b, a), a, same, spread, scalar)
    return NotImplemented


def _method(same: str, spread: str, scalar: str) -> Callable[[Any, Any], Any]:
    """The method for a ∘ b."""
    return method(lambda a, b: combine(a, b, same, spread, scalar), same, spread, scalar)


def _swapped(same: str, spread: str, scalar: str) -> Callable[[Any, Any], Any]:
    """The method for b ∘ a, where b is no array."""
    return method(lambda a, b: reflected(a, b, same, spread, scalar), same, spread, scalar)


class Arithmetic(ArrayCore):
    """The operators, for NDArray."""

    __slots__ = ()

    __add__ = __radd__ = _method("elemwise_add", "broadcast_add", "_plus_scalar")

    def __iadd__(self, other: Any) -> Any:
        return combine(self, other, "elemwise_add", "broadcast_add", "_plus_scalar", self)

    __sub__ = _method("elemwise_sub", "broadcast_sub", "_minus_scalar")
    _from = _swapped("elemwise_sub", "broadcast_sub", "_rminus_scalar")

    def __rsub__(self, other: Any) -> Any:
        made = self._from(other)
        return _mask_of(made) if self.layout.mask and is_number(other) and other == 1 else made  # 1 - mask: not

    def __isub__(self, other: Any) -> Any:
        return combine(self, other, "elemwise_sub", "broadcast_sub", "_minus_scalar", self)

    __mul__ = __rmul__ = _method("elemwise_mul", "broadcast_mul", "_mul_scalar")

    def __imul__(self, other: Any) -> Any:
        return combine(self, other, "elemwise_mul", "broadcast_mul", "_mul_scalar", self)

    __truediv__ = _method("elemwise_div", "broadcast_div", "_div_scalar")
    __rtruediv__ = _swapped("elemwise_div", "broadcast_div", "_rdiv_scalar")

    def __itruediv__(self, other: Any) -> Any:
        return combine(self, other, "elemwise_div", "broadcast_div", "_div_scalar", self)

    __mod__ = _method("broadcast_mod", "broadcast_mod", "_mod_scalar")
    __rmod__ = _swapped("broadcast_mod", "broadcast_mod", "_rmod_scalar")

    def __imod__(self, other: Any) -> Any:
        return combine(self, other, "broadcast_mod", "broadcast_mod", "_mod_scalar", self)

    __floordiv__ = _method("_floor_divide", "_floor_divide", "_floor_divide_scalar")
    __rfloordiv__ = _swapped("_floor_divide", "_floor_divide", "_rfloor_divide_scalar")

    def __ifloordiv__(self, other: Any) -> Any:
        return combine(self, other, "_floor_divide", "_floor_divide", "_floor_divide_scalar", self)

    __pow__ = _method("broadcast_power", "broadcast_power", "_power_scalar")
    __rpow__ = _swapped("broadcast_power", "broadcast_power", "_rpower_scalar")

    def __ipow__(self, other: Any) -> Any:
        return combine(self, other, "broadcast_power", "broadcast_power", "_power_scalar", self)

    def __neg__(self) -> Any:
        return array_op("negative", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return array_op("abs", self)

    def __eq__(self, other: Any) -> Any:  # type: ignore[override]
        return _compared(combine(self, other, "broadcast_equal", "broadcast_equal", "_equal_scalar"), other)

    def __ne__(self, other: Any) -> Any:  # type: ignore[override]
        return _compared(combine(self, other, "broadcast_not_equal", "broadcast_not_equal", "_not_equal_scalar"), other)

    def __gt__(self, other: Any) -> Any:
        return combine(self, other, "broadcast_greater", "broadcast_greater", "_greater_scalar")

    def __ge__(self, other: Any) -> Any:
        return combine(self, other, "broadcast_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar")

    def __lt__(self, other: Any) -> Any:
        return combine(self, other, "broadcast_lesser", "broadcast_lesser", "_lesser_scalar")

    def __le__(self, other: Any) -> Any:
        return combine(self, other, "broadcast_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar")

    def __and__(self, other: Any) -> Any:
        return _logic(self, other, "broadcast_minimum")

    def __or__(self, other: Any) -> Any:
        return _logic(self, other, "broadcast_maximum")

    def __xor__(self, other: Any) -> Any:
        return _logic(self, other, "broadcast_not_equal")

    def __invert__(self) -> Any:
        if not is_mask(self):
            raise DTypeError(f"~: {describe(self)} is no mask. Use it on a comparison or a bool array, or 1 - a.")
        return scalar_op("_equal_scalar", self, 0)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            other = like(other, self)
        if not isinstance(other, ArrayCore):
            return NotImplemented
        if self.ndim == other.ndim == 3:
            return array_op("batch_dot", self, other)
        if max(self.ndim, other.ndim) > 2:
            raise ShapeError(f"@: {describe(self)} and {describe(other)}: both must have two axes, or both three.")
        return function_of("dot", builtin("dot"))(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return like(other, self) @ self if isinstance(other, np.ndarray) else NotImplemented

    __hash__ = object.__hash__


def _compared(result: Any, other: Any) -> Any:
    if result is NotImplemented:
        raise DTypeError(f"==: an NDArray cannot be compared with a {type(other).__name__}. "
                             f"Compare with an array or a number; `is None` asks for None.")
    return result


def _mask_of(a: Any) -> Any:
    """a, fresh and of 0 and 1, known as a mask."""
    a.layout = layout_of(a.shape, a.layout.dtype, a.ctx, True)
    return a


def is_mask(a: Any) -> bool:
    """Whether a is bool, or made of comparisons: as an index it selects, though its elements are 0.0 and 1.0."""
    return a.layout.dtype.kind == "b" or a.layout.mask


def _logic(a: Any, b: Any, name: str) -> Any:
    """a ∘ b for two masks; NotImplemented for anything else."""
    if not (isinstance(b, ArrayCore) and is_mask(a) and is_mask(b)):
        return NotImplemented
    if a.layout.dtype != b.layout.dtype:
        b = _mask_of(b.astype(a.layout.dtype))  # type: ignore[attr-defined]
    return array_op(name, a, b)
