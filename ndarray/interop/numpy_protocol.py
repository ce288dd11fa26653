"""NumPy's functions on NDArrays: np.exp(a), np.concatenate([a, b]), np.mean(a, axis=0), np.add(a, b, out=c).

A NumPy function for which there is an operator runs as that operator: asynchronously, on the array's context, recorded by
autograd. It returns an NDArray with the dtype and shape of that operator. Any other function, and any call with an option
that the operator lacks (where=, dtype=, ...), gets the values as NumPy arrays and returns NumPy's result; while recording
that is an error if a derivative would be lost. `out=` may be an NDArray in both cases.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtype import as_dtype, is_float
from ...errors import DTypeError, MXNetError, describe
from ...kernels.op import builtin
from ..autograd.tape import is_taped, state
from ..core.arithmetic import array_op, broadcasting, is_number, like
from ..core.array_core import ArrayCore
from ..core.indexing import reshape_view
from ..dispatch.arguments import call_op

if TYPE_CHECKING:
    from ..core.ndarray import NDArray

# ---- ufuncs ---------------------------------------------------------------------------------------------------------
#: Operators of one array with fractional results: integers become float32 first, as everywhere in MXNet.
_FLOATS = {f: f.__name__ for f in (
    np.exp, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.cbrt, np.sin, np.cos, np.tan, np.arcsin, np.arccos,
    np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh, np.degrees, np.radians)}
_FLOATS |= {np.rad2deg: "degrees", np.deg2rad: "radians"}
_SAME = {f: f.__name__ for f in (np.negative, np.sign, np.floor, np.ceil, np.trunc, np.rint, np.square, np.reciprocal)}
_SAME |= {np.absolute: "abs", np.fabs: "abs"}
_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.power: operator.pow, np.equal: operator.eq,
    np.not_equal: operator.ne, np.greater: operator.gt, np.greater_equal: operator.ge, np.less: operator.lt,
    np.less_equal: operator.le, np.matmul: operator.matmul,
}
_PAIRS = {f: broadcasting(f.__name__) for f in (np.maximum, np.minimum, np.hypot)}


def apply_ufunc(a: NDArray, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of `__array_ufunc__` of the array a."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    result = NotImplemented
    if method == "__call__" and not kwargs:
        result = _operator_of(a, ufunc, inputs)
    if result is NotImplemented:
        result = getattr(ufunc, method)(*map(plain, inputs), **{k: plain(v) for k, v in kwargs.items()})
        _check_lost(ufunc, result, (inputs, tuple(kwargs.values())))
    return _stored(result, out)


def _operator_of(a: Any, ufunc: Any, inputs: Sequence[Any]) -> Any:
    if len(inputs) == 1:
        if ufunc in _FLOATS:
            x = a if is_float(a.layout.dtype) else a.astype("float32")
            return array_op(_FLOATS[ufunc], x)
        return array_op(_SAME[ufunc], a) if ufunc in _SAME and a.layout.dtype.kind != "b" else NotImplemented
    if len(inputs) != 2 or (ufunc not in _BINARY and ufunc not in _PAIRS):
        return NotImplemented
    x, y = (v if isinstance(v, ArrayCore) else np.asarray(v).item() if is_number(v) else like(v, a) for v in inputs)
    if ufunc in _BINARY:
        return _BINARY[ufunc](x, y)
    pair = _PAIRS[ufunc]
    return pair(x, y) if isinstance(x, ArrayCore) else pair.reflected(y, x)


_CONSTANT = (np.full_like, np.empty_like)  # their derivative is zero


def _check_lost(func: Any, result: Any, given: Any) -> None:
    """Raise MXNetError if result has fractions that depend on an array whose derivative is recorded."""
    if not state.recording or func in _CONSTANT or not _has_fractions(result):
        return
    for a in arrays_in(given):
        if is_taped(a, f"np.{func.__name__}"):
            raise MXNetError(f"np.{func.__name__}: {describe(a)} is part of a recorded computation, and this call, which NumPy "
                             f"computes, would lose its derivative. Use an operator of mx.nd, or give it a.detach().")


def _has_fractions(result: Any) -> bool:
    if isinstance(result, (list, tuple)):
        return any(map(_has_fractions, result))
    return isinstance(result, (float, complex, np.ndarray, np.generic)) and np.asarray(result).dtype.kind not in "biuSUMmO"


def arrays_in(x: Any) -> Iterator[ArrayCore]:
    """Yield the arrays in x, also those inside lists and tuples."""
    if isinstance(x, ArrayCore):
        yield x
    elif isinstance(x, (list, tuple)):
        for e in x:
            yield from arrays_in(e)


def _stored(result: Any, out: Any) -> Any:
    if out is None:
        return result
    if isinstance(out, np.ndarray):
        np.copyto(out, plain(result), casting="same_kind")
    elif isinstance(out, ArrayCore):
        out[...] = result  # type: ignore[index]
    else:
        raise DTypeError(f"out= is a {type(out).__name__}, not an array.")
    return out


# ---- functions ------------------------------------------------------------------------------------------------------
def apply_function(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of `__array_function__`."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    ours = _FUNCTIONS.get(func)
    result = NotImplemented
    if ours is not None:
        try:
            result = ours(*args, **kwargs)
        except TypeError as e:
            if e.__traceback__ is None or e.__traceback__.tb_next is not None:  # not raised by the call of the function itself
                raise
    if result is NotImplemented:
        result = func(*plain(tuple(args)), **{k: plain(v) for k, v in kwargs.items()})
        _check_lost(func, result, (args, tuple(kwargs.values())))
    return _stored(result, out)


def _op(name: str, *arrays: Any, **params: Any) -> Any:
    return call_op(builtin(name), arrays, params)


def _joined(name: str, key: str) -> Callable[..., Any]:
    def call(arrays: Any, axis: Any = 0) -> Any:
        ours = isinstance(arrays, (list, tuple)) and all(isinstance(a, ArrayCore) for a in arrays)
        if not ours or axis is None or len({a.layout.dtype for a in arrays}) != 1:
            return NotImplemented
        return call_op(builtin(name), arrays, {key: axis})

    return call


def _reduction(name: str) -> Callable[..., Any]:
    def call(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
        if not isinstance(a, ArrayCore) or axis == () or a.size == 0:
            return NotImplemented
        return _op(name, a, axis=axis, keepdims=bool(keepdims))

    return call


def _position(name: str) -> Callable[..., Any]:
    def call(a: Any, axis: Any = None) -> Any:
        if not isinstance(a, ArrayCore) or a.size == 0:
            return NotImplemented
        return _op(name, a if axis is not None else reshape_view(a, (a.size,)), axis=0 if axis is None else axis).astype("int64")

    return call


def _transpose(a: Any, axes: Any = None) -> Any:
    return _op("transpose", a, axes=() if axes is None else tuple(x % a.ndim for x in axes))


def _reshape(a: Any, shape: Any) -> Any:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if 0 in sizes:  # in NumPy a size, in MXNet a code
        return NotImplemented
    return a.reshape(sizes)


def _clip(a: Any, a_min: Any, a_max: Any) -> Any:
    if not isinstance(a, ArrayCore) or not (is_number(a_min) and is_number(a_max)) or a_min > a_max:  # NumPy gives a_max then
        return NotImplemented
    return _op("clip", a, a_min=a_min, a_max=a_max)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    arrays = [v for v in (condition, x, y) if isinstance(v, ArrayCore)]
    if len(arrays) < 3 or not condition.shape == x.shape == y.shape or x.layout.dtype != y.layout.dtype:
        return NotImplemented
    return _op("where", condition, x, y)


def _dot(a: Any, b: Any) -> Any:
    fits = isinstance(a, ArrayCore) and isinstance(b, ArrayCore) and a.ndim == b.ndim == 2
    return _op("dot", a, b) if fits else NotImplemented


def _like(value: float) -> Callable[..., Any]:
    def call(a: Any, dtype: Any = None) -> Any:
        array = _op("ones_like" if value else "zeros_like", a)
        return array if dtype is None else array.astype(as_dtype(dtype))

    return call


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return _op("repeat", a, repeats=repeats, axis=axis) if isinstance(repeats, int) else NotImplemented


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: _joined("Concat", "dim"), np.stack: _joined("stack", "axis"),
    np.sum: _reduction("sum"), np.mean: _reduction("mean"), np.prod: _reduction("prod"), np.max: _reduction("max"),
    np.amax: _reduction("max"), np.min: _reduction("min"), np.amin: _reduction("min"),
    np.argmax: _position("argmax"), np.argmin: _position("argmin"),
    np.squeeze: lambda a, axis=None: _op("squeeze", a, axis=axis), np.transpose: _transpose, np.reshape: _reshape,
    np.clip: _clip, np.where: _where, np.dot: _dot,
    np.ravel: lambda a: a.reshape((-1,)), np.expand_dims: lambda a, axis: _op("expand_dims", a, axis=axis),
    np.swapaxes: lambda a, axis1, axis2: _op("SwapAxis", a, dim1=axis1, dim2=axis2),
    np.tile: lambda A, reps: _op("tile", A, reps=reps), np.repeat: _repeat,
    np.zeros_like: _like(0.0), np.ones_like: _like(1.0), np.copy: lambda a: a.copy(),
    np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim, np.size: lambda a: a.size,
}


def plain(x: Any) -> Any:
    """Return x with its arrays as NumPy arrays, also inside lists and tuples."""
    if isinstance(x, ArrayCore):
        return x.asnumpy()
    if isinstance(x, (list, tuple)) and any(isinstance(e, (ArrayCore, list, tuple)) for e in x):
        return type(x)(map(plain, x))
    return x
