"""NDArray: the array users hold. Its values are computed asynchronously; `asnumpy` and `wait_to_read` wait for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from ...context import Context, context_of, current_context
from ...dtype import as_dtype
from ...errors import ContextError, FileError, NotAvailableError, ShapeError, describe
from ...kernels.op import Op, builtin
from ..autograd import attach_grad, backward
from ..autograd.tape import Leaf, computed, detached, written
from ..dispatch.arguments import call_op
from ..dispatch.copy import allocate_like_host, push
from ..functions.binary import split_v2
from ..functions.namespace import function_of
from ..interop import dlpack
from ..interop.numpy_protocol import apply_function, apply_ufunc, plain
from ..interop.safetensors import read_tensors, write_tensors
from .arithmetic import Arithmetic
from .array_core import ArrayCore, allocate
from .chunk import layout_of
from .indexing import Indexing, copy_over, copy_recorded
from .methods import OperatorMethods
from .repr_html import to_html
from .sparse_core import SparseCore, storage_type


class NDArray(Arithmetic, Indexing, OperatorMethods):
    """A dense, row-major array on a context; users make one with mx.nd.array.

    Operations return at once. `a[0]`, `a[1:3]` and `reshape` are views that write through; other parts are copies.
    """

    __slots__ = ()
    __array_priority__ = 1000.0

    # ---- conversion ----
    def asscalar(self) -> Any:
        """Return the one element as a NumPy scalar. Raises ShapeError if there is not exactly one."""
        if self.size != 1:
            raise ShapeError(f"asscalar: {describe(self)} is not one element.")
        return self.asnumpy().reshape(())[()]

    def item(self) -> Any:
        """Return the one element as a Python number."""
        return self.asscalar().item()

    def tolist(self) -> Any:
        """Return the values as nested lists."""
        return self.asnumpy().tolist()

    def astype(self, dtype: DTypeLike, copy: bool = True) -> NDArray:
        """Return the values as dtype; self if it has that dtype already and copy is False."""
        wanted = as_dtype(dtype)
        if wanted == self.layout.dtype and not copy:
            return self
        if wanted != self.layout.dtype and not self.layout.mask:
            return call_op(builtin("Cast"), (self,), {"dtype": wanted})
        keeps = self.layout.mask and wanted.kind not in "iu"  # integers are wanted as indices
        return copy_recorded(self, allocate(layout_of(self.shape, wanted, self.ctx, keeps)), "astype")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("NDArray: NumPy gets a copy of the values. Leave copy=False out, or use np.from_dlpack.")
        values = self.asnumpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_ufunc(self, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, args, kwargs)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        """Wait for queued writes, and return a DLPack capsule of this array's memory; of a copy only if copy is True."""
        return dlpack.export(self, max_version, copy, stream, dl_device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.device_of(self)

    def to_dlpack_for_read(self) -> dlpack.CapsuleType:
        """Wait for queued writes, and return a DLPack capsule (of before version 1) to read from."""
        return dlpack.export(self, None, None, None, None)

    def to_dlpack_for_write(self) -> dlpack.CapsuleType:
        """Return a DLPack capsule (of before version 1) whose consumer may write; this counts as a write now."""
        written(self, "to_dlpack_for_write")
        push("to_dlpack_for_write", self.ctx, lambda run: None, (), self)
        return dlpack.export(self, None, None, None, None)

    # ---- copies ----
    def copy(self) -> NDArray:
        """Return a new array with the same values, on the same context."""
        if self.layout.mask or self.ctx.is_gpu:  # a GPU has engines of its own for copies
            return self.copyto(self.ctx)
        return call_op(builtin("_copy"), (self,), {})

    def copyto(self, other: Any) -> Any:
        """Copy to another array of the same size, cast to its dtype; or to a context, as a new array. Return the copy.

        A sparse array keeps its storage type.
        """
        if isinstance(other, ArrayCore):
            if other is not self:
                node = copy_over(self, other, "copyto")
                if node is not None:
                    computed(other, node, 0)
            return other
        if isinstance(other, SparseCore):
            other[:] = self
            return other
        if not isinstance(other, Context):
            raise TypeError(f"copyto: a {type(other).__name__} is neither an NDArray nor a Context.")
        return copy_recorded(self, allocate(layout_of(self.shape, self.layout.dtype, other, self.layout.mask)), "copyto")

    def as_in_context(self, context: Context) -> NDArray:
        """Return self if it is on context, else a copy there."""
        return self if context == self.ctx else self.copyto(context)

    as_in_ctx = as_in_context

    @property
    def writable(self) -> bool:
        """True: every array can be written."""
        return True

    def as_nd_ndarray(self) -> NDArray:
        """Return self."""
        return self

    def as_np_ndarray(self) -> NoReturn:
        """Raise NotAvailableError: there are no arrays with NumPy's semantics."""
        raise NotAvailableError("NDArray.as_np_ndarray: the NumPy interface of MXNet 1.6 and later is not available. Use the "
                                "array itself, which NumPy's own functions accept, or asnumpy().")

    def tostype(self, stype: str) -> Any:
        """Return self for "default", else a copy as "row_sparse" or "csr", which waits for the values."""
        return self if stype == "default" else storage_type("tostype", stype).convert(self)

    # ---- gradient ----
    @property
    def grad(self) -> NDArray | None:
        """The gradient that backward writes, or None."""
        return self._grad

    @property
    def _fresh_grad(self) -> bool:
        """True if backward has written the gradient since this was last set to False."""
        leaf = None if self._grad_edge is None else self._grad_edge[0]
        return isinstance(leaf, Leaf) and leaf.fresh

    @_fresh_grad.setter
    def _fresh_grad(self, state: bool) -> None:
        leaf = None if self._grad_edge is None else self._grad_edge[0]
        if isinstance(leaf, Leaf):
            leaf.fresh = bool(state)

    @property
    def handle(self) -> ctypes.c_void_p:
        """The address of this object, for scripts that print or compare MXNet's handles."""
        return ctypes.c_void_p(id(self))

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Make this a variable, with a gradient of zeros. grad_req: "write", "add" or "null"."""
        attach_grad(self, grad_req)

    def detach(self) -> NDArray:
        """Return an array on the same memory through which no gradient flows."""
        return detached(self, self.chunk.twin())

    def backward(self, out_grad: NDArray | None = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Compute the derivatives of this array (times out_grad, by default ones) into the gradients of all variables."""
        backward([self], None if out_grad is None else [out_grad], retain_graph, train_mode)

    # ---- shape ----
    @property
    def T(self) -> NDArray:
        """The array with its axes in reverse order."""
        return self if self.ndim < 2 else self.transpose()

    def split_v2(self, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
                 ) -> NDArray | list[NDArray]:
        """See mx.nd.split_v2."""
        return split_v2(self, indices_or_sections, axis, squeeze_axis)

    # ---- Python's protocols ----
    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self)):
            yield self[i]

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError(f"bool: {describe(self)} has several elements, so it is neither true nor false. "
                             f"Use one element, or (a != 0).sum().")
        return bool(self.size) and bool(self.asscalar())

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __index__(self) -> int:
        if self.layout.dtype.kind not in "iu":
            raise TypeError(f"an array of {self.layout.dtype} cannot be an index")
        return int(self.asscalar())

    def __contains__(self, value: Any) -> bool:
        return bool((self.asnumpy() == plain(value)).any())

    def __deepcopy__(self, memo: Any) -> NDArray:
        return self.copy()

    __copy__ = copy

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"\n{self.asnumpy()!s}\n<{type(self).__name__} {size} @{self.ctx}>"

    def _repr_html_(self) -> str:
        sizes = ", ".join(map(str, self.shape))
        return to_html(self.asnumpy(), f"{type(self).__name__} {self.layout.dtype.name} ({sizes}) @{self.ctx}")

    def __reduce__(self) -> Any:
        """Pickle the bytes of a safetensors file and the context's name. The gradient is left out."""
        data = b"".join(write_tensors(["array"], [self.asnumpy()]))
        return restore, (data, str(self.ctx), *([True] if self.layout.mask else ()))

    def __getstate__(self) -> dict[str, Any]:
        """Return {"handle": the bytes of the array in a .params file}, as MXNet does."""
        from ..interop.params_file import write_record  # it reads NDArrays, so it imports this module

        return {"handle": bytearray().join(write_record(self.asnumpy()))}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Become the array in `state["handle"]`, in new memory on the current context. Raises FileError if it is damaged."""
        from ..interop.params_file import read_array

        made = allocate_like_host(read_array(bytes(state["handle"]), "pickle", "the array")[0], current_context())
        NDArray.__init__(self, made.layout, chunk=made.chunk)

    def _tritium_call_(self, op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run op, which was called with arrays."""
        return function_of(op.name, op)(*args, **kwargs)


def restore(data: bytes, context: str, mask: bool = False) -> NDArray:
    """Return the array of a pickle, on its context if that exists here, else on the current one. Raises FileError."""
    values = read_tensors(data, "pickle")[0].get("array")
    if values is None:
        raise FileError("load: pickle: it does not hold an array.")
    try:
        array = allocate_like_host(values, context_of(context))
    except ContextError:
        array = allocate_like_host(values, current_context())
    array.layout = layout_of(array.shape, values.dtype, array.ctx, mask)
    return array
