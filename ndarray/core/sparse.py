"""BaseSparseNDArray: common to csr and row-sparse arrays. Their operators are in sparse_ops.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ...context import Context
from ...errors import NotAvailableError, ParameterError, ShapeError, check_choice
from ...kernels.op import Op, builtin
from ..autograd import is_recording
from ..dispatch.arguments import call_op
from ..functions.creation import array
from .arithmetic import ADD, DIVIDE, EQUAL, MODULO, MULTIPLY, NOT_EQUAL, POWER, SUBTRACT, BinaryOperator, broadcasting, is_number
from .array_core import ArrayCore
from .methods import NAMES
from .ndarray import NDArray
from .sparse_core import STORAGE_TYPES, SparseCore

_Method = Callable[[Any, Any], Any]


def _operator(kind: BinaryOperator, reflected: bool = False) -> _Method:
    """Return the method for a ∘ b, or for b ∘ a."""

    def method(a: Any, b: Any) -> Any:
        if is_number(b):
            return call_op(builtin(kind.from_scalar if reflected else kind.scalar), (a,), {"scalar": b})
        if isinstance(b, np.ndarray):
            b = array(b, a.context, b.dtype)
        if not isinstance(b, (ArrayCore, SparseCore)):
            return NotImplemented
        op = builtin(kind.same if a.shape == b.shape else kind.spread)
        return call_op(op, (b, a) if reflected else (a, b), {})

    return method


class BaseSparseNDArray(SparseCore):
    """An array of which only some elements are stored, in `data`; the others are 0. Their places are on the host.

    Operators give a sparse result where zeros stay zeros and MXNet does, too: `abs`, `sqrt`, `a * 2`, `a + b` of equal storage
    types, `dot`. All others convert to dense arrays first, and give a dense result.
    """

    __array_priority__ = 1001.0
    compute: ClassVar[Callable[[Op, Sequence[Any], Mapping[str, Any]], Any]]  # set by sparse_ops

    def __init__(self, data: NDArray, shape: Sequence[int]):
        self.data, self.shape, self.ctx = data, tuple(map(int, shape)), data.context
        self._variable: NDArray | None = None  # after attach_grad, what is recorded instead of this array
        self._grad_stype = self.stype

    # ---- a subclass has these ----
    def with_data(self, data: NDArray) -> Any:
        """Return an array with other stored elements in the same places."""
        raise NotImplementedError

    def _dense(self) -> NDArray:
        raise NotImplementedError

    def assign(self, other: Any) -> None:
        """Take the elements and places of another array of this class."""
        raise NotImplementedError

    # ---- properties ----
    @property
    def context(self) -> Context:
        """The context of the stored elements."""
        return self.ctx

    @property
    def dtype(self) -> type[np.generic]:
        """The element type as NumPy's class."""
        return self.data.dtype

    @property
    def size(self) -> int:
        """The number of elements of the dense array."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """The bytes of the stored elements."""
        return self.data.nbytes

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def grad(self) -> Any:
        """The gradient that backward computes, in the storage type of attach_grad; None before attach_grad.

        One that is not "default" has the elements of this moment; `a.grad[:] = 0` changes the gradient itself.
        """
        gradient = None if self._variable is None else self._variable.grad
        if gradient is None or self._grad_stype == "default":
            return gradient
        found = gradient.tostype(self._grad_stype)
        found._variable = gradient  # which an assignment to all of `found` changes too
        return found

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make this a variable, with a gradient of zeros: operators that are recorded take it as a dense array.

        stype: the storage type of `grad`; None: that of this array.
        """
        check_choice("attach_grad", "stype", stype or self.stype, ("default", *STORAGE_TYPES))
        self._grad_stype = stype or self.stype
        self._variable = self._dense()
        self._variable.attach_grad(grad_req)

    @property
    def is_recorded(self) -> bool:
        """True for a variable while autograd records."""
        return self._variable is not None and is_recording()

    # ---- conversion ----
    def tostype(self, stype: str) -> Any:
        """Return a dense array ("default"), or self for its own storage type. Autograd records the conversion of a variable."""
        if stype == self.stype:
            return self
        if stype != "default":
            raise ParameterError(f"tostype: {stype!r} is not 'default' or {self.stype!r}. Convert to 'default' first.")
        return self._variable if self.is_recorded and self._variable is not None else self._dense()

    def asnumpy(self) -> np.ndarray:
        """Return the dense array as a NumPy array."""
        return self._dense().asnumpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.asnumpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def asscalar(self) -> Any:
        """Return the one element as a NumPy scalar."""
        return self._dense().asscalar()

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Any:
        """Return the array with elements of dtype; self if it has that dtype already and copy is False."""
        data = self.data.astype(dtype, copy)
        return self if data is self.data else self.with_data(data)

    def copy(self) -> Any:
        """Return a copy."""
        return self.with_data(self.data.copy())

    def copyto(self, other: Any) -> Any:
        """Copy to a context, as a new array, or to a dense or sparse array of the same shape. Return the copy."""
        if isinstance(other, Context):
            return self.with_data(self.data.copyto(other))
        if self.shape != other.shape:
            raise ShapeError(f"copyto: a {self.stype} array {self.shape} does not fit in an array {other.shape}.")
        if isinstance(other, NDArray):
            return self._dense().copyto(other)
        other[:] = self
        return other

    def as_in_context(self, context: Context) -> Any:
        """Return self if it is on context, else a copy there."""
        return self if context == self.context else self.copyto(context)

    as_in_ctx = as_in_context

    def detach(self) -> Any:
        """Return the array without the derivatives of its elements."""
        return self.with_data(self.data.detach())

    def wait_to_read(self) -> None:
        """Block until all writes pushed so far are done."""
        self.data.wait_to_read()

    def check_format(self, full_check: bool = True) -> None:
        """Do nothing: the places were checked when the array was made."""

    # ---- Python's protocols ----
    def call_sparse(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return BaseSparseNDArray.compute(op, args, kwargs)

    __add__ = __radd__ = _operator(ADD)
    __sub__, __rsub__ = _operator(SUBTRACT), _operator(SUBTRACT, True)
    __mul__ = __rmul__ = _operator(MULTIPLY)
    __truediv__, __rtruediv__ = _operator(DIVIDE), _operator(DIVIDE, True)
    __mod__, __rmod__ = _operator(MODULO), _operator(MODULO, True)
    __pow__, __rpow__ = _operator(POWER), _operator(POWER, True)
    __eq__, __ne__ = _operator(EQUAL), _operator(NOT_EQUAL)
    __gt__, __ge__ = _operator(broadcasting("greater")), _operator(broadcasting("greater_equal"))
    __lt__, __le__ = _operator(broadcasting("lesser")), _operator(broadcasting("lesser_equal"))
    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return call_op(builtin("negative"), (self,), {})

    def __abs__(self) -> Any:
        return call_op(builtin("abs"), (self,), {})

    @property
    def T(self) -> NDArray:
        """The dense array with its axes in reverse order."""
        return self.tostype("default").T

    def __setitem__(self, key: Any, value: Any) -> None:
        """Replace the whole array: a[:] = an array of any storage type, or, for a row-sparse array, a number."""
        if not (isinstance(key, slice) and key == slice(None)):
            raise NotAvailableError(f"{self.stype}: only a[:] = value is available. Convert with tostype('default') to assign a "
                                    f"part.")
        if is_number(value):
            if self.stype == "csr":
                raise NotAvailableError("csr: a number cannot be assigned. Assign an array, or convert with tostype('default').")
            value = np.full(self.shape, value)
        if isinstance(value, BaseSparseNDArray) and value.stype != self.stype:
            value = value.tostype("default")
        if not isinstance(value, BaseSparseNDArray):
            dense = value if isinstance(value, NDArray) else array(value, self.context, self.dtype)
            value = dense.tostype(self.stype)
        if value.shape != self.shape:
            raise ShapeError(f"{self.stype}: an array {value.shape} cannot be assigned to one of shape {self.shape}.")
        self.assign(value.as_in_context(self.context).astype(self.dtype).copy())
        if self._variable is not None:
            self._variable[:] = self._dense()

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self._dense())

    def __repr__(self) -> str:
        return f"\n<{type(self).__name__} {'x'.join(map(str, self.shape))} @{self.context}>"

    def _unavailable(self, name: str) -> NotAvailableError:
        return NotAvailableError(f"{name}: not available for a {self.stype} array. Convert it with tostype('default').")

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """Raise NotAvailableError, as MXNet does."""
        raise self._unavailable("reshape")


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call_op(builtin(name), (self, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"The operator `{name}` on this array; see `mx.nd.{name}`."
    return method


for _name in set(NAMES) - set(vars(BaseSparseNDArray)):
    setattr(BaseSparseNDArray, _name, _method(_name))
