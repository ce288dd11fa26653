"""a.sum(), a.exp(), ...: the operators that MXNet offers as methods of arrays, looked up by name when called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...kernels.op import builtin
from ..functions.namespace import function_of
from .array_core import ArrayCore
from .chunk import ShapeLike

if TYPE_CHECKING:
    from .ndarray import NDArray

#: MXNet's methods that are operators of the same name with the array as first input.
NAMES = [
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "argmax", "argmax_channel", "argmin",
    "argsort", "broadcast_axes", "broadcast_like", "broadcast_to", "cbrt", "ceil", "clip", "cos", "cosh", "degrees",
    "depth_to_space", "diag", "dot", "erf", "exp", "expand_dims", "expm1", "fix", "flatten", "flip", "floor",
    "gamma", "gammaln", "log", "log10", "log1p", "log2", "log_softmax", "max", "mean", "min", "nanprod", "nansum",
    "norm", "one_hot", "ones_like", "pad", "pick", "prod", "radians", "rcbrt", "reciprocal", "relu", "repeat",
    "reshape_like", "rint", "round", "rsqrt", "shape_array", "sigmoid", "sign", "sin", "sinh", "size_array",
    "slice", "slice_axis", "slice_like", "softmax", "softmin", "softsign", "sort", "space_to_depth", "split",
    "sqrt", "square", "squeeze", "sum", "swapaxes", "take", "tan", "tanh", "tile", "topk", "transpose",
    "trunc", "zeros_like",
]


class OperatorMethods(ArrayCore):
    """The operators as methods, for NDArray."""

    __slots__ = ()

    def broadcast_to(self, shape: ShapeLike) -> NDArray:
        """Return this array repeated to shape. Axes of size 1 are repeated; the first axes may be missing.

        Raises: ShapeError for sizes that neither agree nor are 1.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        missing = len(shape) - len(self.shape)
        array = self.reshape((1,) * missing + self.shape) if missing > 0 else self  # type: ignore[attr-defined]
        return function_of("broadcast_to", builtin("broadcast_to"))(array, shape=shape)

    def broadcast_like(self, other: ArrayCore) -> NDArray:
        """Return this array repeated to the shape of other."""
        return self.broadcast_to(other.shape)

    def expand_dims(self, axis: int, inplace: bool = False, **kwargs: Any) -> NDArray:
        """Return this array with one more axis of size 1. inplace: on the same memory."""
        return self._in_another_shape("expand_dims", {"axis": axis, **kwargs}, inplace)

    def flatten(self, inplace: bool = False, **kwargs: Any) -> NDArray:
        """Return this array as a matrix with a row for each index of the first axis. inplace: on the same memory."""
        return self._in_another_shape("flatten", kwargs, inplace)

    def squeeze(self, axis: int | Sequence[int] | None = None, inplace: bool = False, **kwargs: Any) -> NDArray:
        """Return this array without its axes of size 1, or without those given. inplace: on the same memory."""
        return self._in_another_shape("squeeze", {"axis": axis, **kwargs}, inplace)

    def _in_another_shape(self, name: str, params: dict[str, Any], inplace: bool) -> NDArray:
        if not inplace:
            return function_of(name, builtin(name))(self, **params)
        op = builtin(name)
        (shape,) = op.infer_shape(op.parse(params), [self.shape])[1]
        return self.reshape(shape)  # type: ignore[attr-defined]


def _method(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "transpose" and args and all(isinstance(a, int) for a in args):
            args = (args,)
        return function_of(name, builtin(name))(self, *args, **kwargs)

    method.__name__ = name
    method.__qualname__ = f"NDArray.{name}"
    method.__doc__ = f"The operator `{name}` on this array; see `mx.nd.{name}`."
    return method


for _name in set(NAMES) - set(vars(OperatorMethods)):
    setattr(OperatorMethods, _name, _method(_name))
