"""New arrays: from values, filled with one value, and ranges."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ... import engine
from ...context import Context, context_of, cpu
from ...dtype import DTYPES, as_dtype, float32
from ...errors import ParameterError, ShapeError
from ...kernels.op import builtin
from ...kernels.ops.tensor.data_movement import FILLED
from ...kernels.params import parse_shape
from ..autograd.tape import any_taped, state
from ..core.array_core import ArrayCore, allocate, run_ahead
from ..core.chunk import Layout, ShapeLike, layout_of
from ..core.indexing import copy_recorded
from ..core.ndarray import NDArray
from ..core.sparse_core import STORAGE_TYPES, SparseCore, storage_type
from ..dispatch.arguments import call_op, operator_function
from ..dispatch.copy import fill, filled, store_host
from ..dispatch.invoke import run_new
from ..dispatch.plan import CACHE, plan_of
from ..interop import dlpack as capsules
from ..interop.numpy_protocol import arrays_in

_FILLERS = {0: "_zeros", 1: "_ones"}


def array(source_array: NDArray | ArrayLike, ctx: Context | str | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """Return an array with the values of source_array: an NDArray, a NumPy array, or (nested) lists of numbers.

    dtype:  default: that of an NDArray; float32 for everything else, as in MXNet.
    """
    if isinstance(source_array, SparseCore):
        return STORAGE_TYPES[source_array.stype].convert(source_array, ctx, dtype)
    if hasattr(source_array, "tocsr"):  # a matrix of SciPy
        return STORAGE_TYPES["csr"].convert(source_array, ctx, dtype)
    if isinstance(source_array, ArrayCore):
        wanted = source_array.layout.dtype if dtype is None else as_dtype(dtype)
        keeps = source_array.layout.mask and wanted == source_array.layout.dtype
        out = allocate(layout_of(source_array.shape, wanted, context_of(ctx), keeps))
        return copy_recorded(source_array, out, "array")
    if state.recording and any_taped(arrays_in(source_array), "array"):
        return _stacked(source_array, as_dtype(dtype), context_of(ctx))
    wanted = float32 if dtype is None else as_dtype(dtype)
    given: Any = source_array
    if isinstance(given, (list, tuple)) and any(isinstance(e, ArrayCore) for e in given):
        given = [e.asnumpy() if isinstance(e, ArrayCore) else e for e in given]
    try:
        values = np.asarray(given)
        if values.dtype.kind == "U" and values.ndim:  # numbers as text
            values = values.astype(np.float64)
        if values.dtype.kind in "OUSMmc":
            raise ValueError(f"its elements are {values.dtype}")
    except ValueError as e:
        raise ShapeError(f"array: a {type(source_array).__name__} is not an array of numbers: {e}.") from None
    layout = layout_of(values.shape, wanted, context_of(ctx))
    run_ahead(layout.nbytes)
    out = allocate(layout, now=not layout.ctx.is_gpu)
    store_host(out, values)  # no other thread uses the memory yet, so nothing needs to be queued
    return out


def _stacked(x: Any, dtype: np.dtype, ctx: Context) -> NDArray:
    """Return the array of nested lists of arrays; derivatives flow back to them."""
    if not isinstance(x, (list, tuple)):
        return array(x, ctx, dtype)
    return call_op(builtin("stack"), [_stacked(e, dtype, ctx) for e in x], {})


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True, array_cls: type = NDArray) -> NDArray:
    """Return an array with the values and the dtype of a NumPy array, on the CPU.

    array_cls:  accepted for MXNet's sake: there is one class of dense arrays.
    zero_copy:  share its memory if it is contiguous; it becomes read-only for NumPy, as in MXNet, since the engine writes
                there later. Of any other array it takes a copy, with a warning (MXNet refuses it). False: a copy.
    """
    shareable = ndarray.flags.c_contiguous and ndarray.flags.writeable and ndarray.dtype in DTYPES.values()
    if zero_copy and not shareable:
        warnings.warn("from_numpy: the array is not contiguous, not writable, or of a dtype that arrays do not have, so its "
                      "values are copied. Pass zero_copy=False.", stacklevel=2)
    if not zero_copy or not shareable:
        return array(ndarray, cpu(), ndarray.dtype)
    shared = capsules.over(ndarray.view())
    ndarray.flags.writeable = False
    return shared


def from_dlpack(dlpack: Any) -> NDArray:
    """Return an array on the memory of an object with `__dlpack__` or of a capsule; a copy if it is strided or read-only."""
    return capsules.adopt(dlpack)


def to_dlpack_for_read(data: NDArray) -> capsules.CapsuleType:
    """Return data.to_dlpack_for_read()."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> capsules.CapsuleType:
    """Return data.to_dlpack_for_write()."""
    return data.to_dlpack_for_write()


def empty(shape: ShapeLike, ctx: Context | str | None = None, dtype: DTypeLike | None = None, stype: str | None = None
          ) -> NDArray:
    """Return an array with undefined values. stype: "default", or a sparse one, whose array is zeros."""
    if stype not in (None, "default"):
        return storage_type("empty", stype).zeros(shape, ctx, dtype)
    return allocate(layout_of(_shape("empty", shape), as_dtype(dtype), context_of(ctx)))


def full(shape: ShapeLike, val: float | NDArray, ctx: Context | str | None = None, dtype: DTypeLike | None = None,
         out: NDArray | None = None) -> NDArray:
    """Return an array with every element val."""
    if out is None and not isinstance(val, ArrayCore):
        layout = layout_of(_shape("full", shape), as_dtype(dtype), context_of(ctx))
        if type(val) is int and val in _FILLERS and layout.target == "cpu" and not layout.tiny and layout.nbytes < FILLED:
            return _filled_in_c(layout, val)
        return filled(layout, val)
    target = empty(shape, ctx, dtype) if out is None else out
    if isinstance(val, ArrayCore):
        target[:] = val
    else:
        fill(target, val)
    return target


def _filled_in_c(layout: Layout, value: int) -> NDArray:
    """Return a new array of zeros or ones. NumPy, which `filled` uses, takes three times as long at 400 KB."""
    key = ("full", layout, value)
    found = CACHE.get(key)
    if found is None:
        op = builtin(_FILLERS[value])
        p = op.parse({"shape": layout.shape, "dtype": layout.dtype})
        found = CACHE[key] = plan_of(op, p, (), False, layout.ctx), p
    return run_new(found[0], (), found[1])


def zeros(shape: ShapeLike, ctx: Context | str | None = None, dtype: DTypeLike | None = None, stype: str | None = None,
          out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """Return an array of zeros. stype: "default", "row_sparse" or "csr"."""
    if stype not in (None, "default"):
        return storage_type("zeros", stype).zeros(shape, ctx, dtype)
    return full(shape, 0, ctx, dtype, out)


def ones(shape: ShapeLike, ctx: Context | str | None = None, dtype: DTypeLike | None = None, out: NDArray | None = None,
         **kwargs: Any) -> NDArray:
    """Return an array of ones."""
    return full(shape, 1, ctx, dtype, out)


def arange(start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1, infer_range: bool | None = None,
           ctx: Context | str | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """Return start, start + step, ... below stop, each `repeat` times. With one number: from 0 to that number."""
    if str in (type(start), type(stop), type(step)):
        start, step = _number(start), _number(step)
        stop = stop if stop is None else _number(stop)
    if step == 0 or repeat < 1:
        raise ParameterError(f"arange: step={step}, repeat={repeat}: step must not be 0, repeat at least 1.")
    first, last = (0, start) if stop is None else (start, stop)
    if math.isfinite(last) and (last - first) / step > 0:
        given = {"start": first, "stop": last}
        if step != 1 or repeat != 1:
            given |= {"step": step, "repeat": repeat}
        return _made(_arange, given, ctx, dtype)
    return array(np.repeat(np.arange(first, last, step, dtype=np.float64), repeat), ctx, as_dtype(dtype))


_arange, _eye = operator_function(builtin("_arange")), operator_function(builtin("_eye"))


def _made(function: Callable[..., NDArray], given: dict[str, Any], ctx: Context | str | None, dtype: DTypeLike | None) -> NDArray:
    """Call an operator without arrays. What is not said is not passed: each parameter takes 0.2 us, in the key of the call."""
    if ctx is not None:
        given["ctx"] = context_of(ctx)
    if dtype is not None:
        given["dtype"] = as_dtype(dtype)
    return function(**given)


def _number(n: float | str) -> float:
    """Return n, or the number that text says."""
    return float(n) if isinstance(n, str) else n


def linspace(start: float, stop: float, num: int, endpoint: bool = True, ctx: Context | str | None = None,
             dtype: DTypeLike | None = None) -> NDArray:
    """Return num values evenly spaced from start to stop."""
    return array(np.linspace(float(start), float(stop), int(num), endpoint=endpoint), ctx, as_dtype(dtype))


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | str | None = None, dtype: DTypeLike | None = None, **kwargs: Any
        ) -> NDArray:
    """Return an array [N, M or N] with ones on the k-th diagonal. kwargs, such as a name, are those of symbols: ignored."""
    return _made(_eye, {"N": N, "M": M, "k": k} if k else {"N": N, "M": M}, ctx, dtype)


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Return the arrays joined along axis. A single array is returned itself if always_copy is False."""
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return call_op(builtin("Concat"), arrays, {"dim": axis})


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> NDArray:
    """Return tensor with the axes `source` moved to the indices `destination`; the others keep their order."""
    try:
        order = np.moveaxis(np.empty(range(tensor.ndim)), source, destination).shape  # its sizes are the numbers of the axes
    except ValueError:
        raise ShapeError(f"moveaxis: axes {source} to {destination} in an array of {tensor.ndim} axes.") from None
    return call_op(builtin("transpose"), (tensor, order), {})


def waitall() -> None:
    """Wait until all functions pushed so far are done. Raises the first error."""
    engine.current().wait_for_all()


def _shape(name: str, shape: ShapeLike) -> tuple[int, ...]:
    try:
        if isinstance(shape, str):
            shape = parse_shape(shape)
        sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        return tuple(int(n.__index__()) for n in sizes)
    except (TypeError, AttributeError, ValueError, SyntaxError):
        raise ShapeError(f"{name}: shape {shape!r} is not a tuple of integers.") from None
