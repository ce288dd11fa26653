"""NDArray: the array users hold. Values arrive asynchronously; `asnumpy` and `wait_to_read` wait for them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..context import Context, current_context
from ..dtype import as_dtype
from ..errors import ShapeError, describe
from ..kernels.op import Op
from .arithmetic import Arithmetic, like
from .autograd import attach_grad, backward
from .call import call_op
from .chunk import layout
from .core import ArrayCore, allocate, use_class
from .fluent import Fluent
from .indexing import Indexing
from .move import copy_to
from .tape import CallNode, bare, state, written


class NDArray(Arithmetic, Indexing, Fluent):
    """A dense, row-major array on a context: `NDArray(chunk, offset, shape, dtype)`; users make one with mx.nd.array.

    Operations return at once. `a[0]`, `a[1:3]` and `reshape` are views that write through; other parts are copies.
    """

    __slots__ = ()
    __array_priority__ = 1000.0

    # ---- conversion ----
    def asscalar(self) -> Any:
        """The one element, as a numpy scalar. Raises ShapeError if there are more or none."""
        if self.size != 1:
            raise ShapeError(f"asscalar: {describe(self)} is not one element.")
        return self.asnumpy().reshape(())[()]

    def item(self) -> Any:
        """The one element, as a Python number."""
        return self.asscalar().item()

    def tolist(self) -> Any:
        """The values as nested lists."""
        return self.asnumpy().tolist()

    def astype(self, dtype: Any, copy: bool = True) -> NDArray:
        """The values as dtype; self if it has that dtype already and copy is False."""
        wanted = as_dtype(dtype)
        if wanted == self._layout.dtype and not copy:
            return self
        out = allocate(layout(self.shape, wanted, self.ctx))
        copy_to(self, out)
        return _recorded(self, out, "astype", lambda dy: dy.astype(self.dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.asnumpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and ufunc in _UFUNCS and not kwargs and len(inputs) == 2:
            a, b = (x if isinstance(x, NDArray) else like(x, self) if np.ndim(x) else np.asarray(x).item() for x in inputs)
            return _UFUNCS[ufunc](a, b)
        return getattr(ufunc, method)(*map(_plain, inputs), **{k: _plain(v) for k, v in kwargs.items()})

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return func(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.asnumpy().__dlpack__(**kwargs)  # a copy: the consumer may outlive our memory

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    # ---- copies ----
    def copy(self) -> NDArray:
        """A fresh array with the same values, on the same context."""
        return self.copyto(self.ctx)

    def copyto(self, other: Any) -> Any:
        """Copy into another array of the same size, casting; or to a context, as a fresh array. Returns the copy."""
        if isinstance(other, ArrayCore):
            if other is self:
                return other
            written(other, "copyto")
            copy_to(self, other)
            return other
        if not isinstance(other, Context):
            raise TypeError(f"copyto: a {type(other).__name__} is neither an NDArray nor a Context.")
        out = allocate(layout(self.shape, self._layout.dtype, other))
        copy_to(self, out)
        return _recorded(self, out, "copyto", lambda dy: dy.copyto(self.ctx))

    def as_in_context(self, context: Context) -> Any:
        """self if it lives on context, else a copy there."""
        return self if context == self.ctx else self.copyto(context)

    as_in_ctx = as_in_context

    def as_nd_ndarray(self) -> NDArray:
        """self."""
        return self

    def tostype(self, stype: str) -> NDArray:
        """self; "default" (dense) is the one storage type there is."""
        if stype != "default":
            raise ShapeError(f"tostype: storage type {stype!r} does not exist: arrays are dense.")
        return self

    # ---- gradient ----
    @property
    def grad(self) -> Any:
        """The gradient that backward fills, or None."""
        return self._grad

    def attach_grad(self, grad_req: str = "write", stype: Any = None) -> None:
        """Make this a variable, with a gradient of zeros. grad_req: "write", "add" or "null"."""
        attach_grad(self, grad_req)

    def detach(self) -> NDArray:
        """The same memory, off the tape: no gradient flows through it."""
        return bare(self)

    def backward(self, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Put derivatives of this array (times out_grad, by default ones) into the gradients of all variables."""
        backward([self], None if out_grad is None else [out_grad], retain_graph, train_mode)

    # ---- shape ----
    @property
    def T(self) -> Any:
        """Axes in reverse order."""
        return self if self.ndim < 2 else self.transpose()  # type: ignore[attr-defined]

    # ---- being a Python object ----
    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self)):
            yield self[i]

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError(f"bool: {describe(self)} has several elements: its truth is ambiguous. "
                             f"Ask for one element, or for (a != 0).sum().")
        return bool(self.size) and bool(self.asscalar())

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __index__(self) -> int:
        if self._layout.dtype.kind not in "iu":
            raise TypeError(f"an array of {self._layout.dtype} cannot be an index")
        return int(self.asscalar())

    def __contains__(self, value: Any) -> bool:
        return bool((self.asnumpy() == _plain(value)).any())

    def __deepcopy__(self, memo: Any) -> NDArray:
        return self.copy()

    __copy__ = copy

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"\n{self.asnumpy()!s}\n<{type(self).__name__} {size} @{self.ctx}>"

    def __reduce__(self) -> Any:
        raise TypeError("NDArray cannot be pickled. Use mx.nd.save, or asnumpy().")

    def _tritium_call_(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What an operator does with arrays: it runs."""
        return call_op(op, args, kwargs)


use_class(NDArray)

_UFUNCS = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.power: operator.pow, np.equal: operator.eq,
    np.not_equal: operator.ne, np.greater: operator.gt, np.greater_equal: operator.ge, np.less: operator.lt,
    np.less_equal: operator.le,
}


def _plain(x: Any) -> Any:
    """x with arrays as numpy arrays, also inside lists and tuples."""
    if isinstance(x, ArrayCore):
        return x.asnumpy()
    if isinstance(x, (list, tuple)) and any(isinstance(e, (ArrayCore, list, tuple)) for e in x):
        return type(x)(map(_plain, x))
    return x


def _recorded(a: NDArray, out: NDArray, name: str, backward: Callable[[Any], Any]) -> NDArray:
    if state.recording and a._entry is not None:
        out._entry = (CallNode(name, [a._entry], [out._layout], lambda dys: [backward(dys[0])]), 0)
    return out


def context_or_current(ctx: Context | None) -> Context:
    """ctx, or the current context for None."""
    return current_context() if ctx is None else ctx
