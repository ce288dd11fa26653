"""Operators on csr and row-sparse arrays: those with a sparse result, and dense arrays for all others.

Which results are sparse is MXNet's choice, and stated by the tables below.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...context import Context
from ...errors import NotAvailableError, ParameterError, ShapeError
from ...kernels.op import Op, builtin
from ..dispatch.arguments import call_op
from ..functions.creation import array, full, zeros
from .csr import CSRNDArray, csr_matrix
from .ndarray import NDArray
from .row_sparse import RowSparseNDArray, row_sparse_array
from .sparse import BaseSparseNDArray
from .sparse_core import storage_type

#: Operators of one array whose zeros stay zeros: the result has the storage type of the input.
_KEEP_ZEROS = frozenset((
    "abs", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "degrees", "expm1", "fix", "floor", "log1p", "negative",
    "radians", "relu", "rint", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "_copy", "Cast",
    "_mul_scalar", "_div_scalar", "BlockGrad", "zeros_like"))
#: Comparisons with a number: likewise where 0 compares false.
_COMPARE = {"_equal_scalar": operator.eq, "_not_equal_scalar": operator.ne, "_greater_scalar": operator.gt,
            "_greater_equal_scalar": operator.ge, "_lesser_scalar": operator.lt, "_lesser_equal_scalar": operator.le}
_COMBINE = frozenset(("elemwise_add", "elemwise_sub", "elemwise_mul"))  # operators of two arrays of one storage type


def call_sparse(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run op, of which an argument is sparse. `out` gets the result in its own storage type."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    kwargs.pop("name", None)
    recorded = any(isinstance(a, BaseSparseNDArray) and a.is_recorded for a in (*args, *kwargs.values()))
    rule = None if recorded else _RULES.get(op.name)
    result = NotImplemented if rule is None else rule(op, args, kwargs)
    if result is NotImplemented:
        result = call_op(op, _dense(args), {k: _dense(v) for k, v in kwargs.items()})
    if out is None:
        return result
    out[:] = result
    return out


def _dense(a: Any) -> Any:
    """Return a with all sparse arrays, also in lists, converted to dense ones."""
    if isinstance(a, (list, tuple)):
        return type(a)(_dense(e) for e in a) if any(isinstance(e, BaseSparseNDArray) for e in a) else a
    return a.tostype("default") if isinstance(a, BaseSparseNDArray) else a


# ---- one array -------------------------------------------------------------------------------------------------------
def _on_data(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if not args or not isinstance(args[0], BaseSparseNDArray):
        return NotImplemented
    return args[0].with_data(call_op(op, (args[0].data, *args[1:]), kwargs)) if args[0].data.size else args[0].copy()


def _compare(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return NotImplemented if _COMPARE[op.name](0, op.parse(kwargs).scalar) else _on_data(op, args, kwargs)


def _clip(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    low, high = (*args[1:], kwargs.get("a_min"), kwargs.get("a_max"))[:2] if len(args) != 2 else (args[1], kwargs.get("a_max"))
    return _on_data(op, args, kwargs) if low is not None and high is not None and low <= 0 <= high else NotImplemented


def _slice(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    p = op.parse({**dict(zip(("begin", "end", "step"), args[1:])), **kwargs})
    if not isinstance(args[0], CSRNDArray) or any(s not in (None, 1) for s in p.step or ()):
        return NotImplemented
    ends = [slice(b, e).indices(n)[:2] for b, e, n in zip(p.begin, p.end, args[0].shape)]
    part = args[0].part(ends[0][0], max(ends[0]))
    if len(ends) == 1:
        return part
    first, last = ends[1][0], max(ends[1])
    kept = np.flatnonzero((part.columns >= first) & (part.columns < last))
    return csr_matrix((_take(part.data, kept), part.columns[kept] - first,
                       np.searchsorted(part.rows[kept], np.arange(part.shape[0] + 1))), (part.shape[0], last - first))


def _total(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The sum or the mean of a csr matrix along one axis or both, as products with ones."""
    a, p = args[0], op.parse({**dict(zip(("axis", "keepdims", "exclude"), args[1:])), **kwargs})
    if not isinstance(a, CSRNDArray) or p.exclude:
        return NotImplemented
    given = (0, 1) if p.axis in (None, ()) else p.axis if isinstance(p.axis, tuple) else (p.axis,)
    axes = sorted({axis % 2 for axis in given})
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(a.shape))
    along = max(axes)  # the matrix is added up along this axis first
    total = _csr_dot(a, full((a.shape[along], 1), 1, a.context, a.dtype), along == 0)
    total = total.sum(axis=0, keepdims=True) if len(axes) == 2 else total
    total = total / math.prod(a.shape[axis] for axis in axes) if op.name == "mean" else total
    return total.reshape(kept if p.keepdims else tuple(n for axis, n in enumerate(kept) if axis not in axes) or (1,))


# ---- several arrays --------------------------------------------------------------------------------------------------
def _combine(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Two arrays of one storage type; or csr times dense, which has the places of the csr matrix."""
    if len(args) != 2:
        return NotImplemented
    a, b = args
    if a.shape == b.shape and type(a) is type(b) and op.name in _COMBINE:
        return _unite(op, a, b)
    if op.name in ("elemwise_mul", "broadcast_mul") and isinstance(b, CSRNDArray):
        a, b = b, a
    if isinstance(a, CSRNDArray) and isinstance(b, NDArray) and op.name in ("elemwise_mul", "broadcast_mul", "broadcast_div"):
        other = b.broadcast_to(a.shape).reshape((-1,))
        values = _take(other, a.rows * a.shape[1] + a.columns)
        return a.with_data(a.data / values if op.name.endswith("div") else a.data * values)
    return NotImplemented


def _unite(op: Op, a: Any, b: Any) -> Any:
    """Return a ∘ b on the union of their places."""
    if isinstance(a, RowSparseNDArray):
        if np.array_equal(a.rows, b.rows):
            return a.with_data(call_op(op, (a.data, b.data), {}))
        rows = _merge(a.rows, b.rows)
        return RowSparseNDArray(rows, call_op(op, [_spread(x.data, x.rows, rows) for x in (a, b)], {}), a.shape)
    if np.array_equal(a.columns, b.columns) and np.array_equal(a.row_ends, b.row_ends):
        return a.with_data(call_op(op, (a.data, b.data), {}))
    places = [x.rows * x.shape[1] + x.columns for x in (a, b)]
    union = _merge(*places)
    width = max(a.shape[1], 1)
    data = call_op(op, [_spread(x.data, at, union) for x, at in zip((a, b), places)], {})
    return CSRNDArray(data, union % width, np.searchsorted(union, np.arange(a.shape[0] + 1) * width), a.shape)


def _merge(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the union of two ascending arrays. The stable sort merges their two runs, which takes linear time."""
    both = np.concatenate([a, b])
    both.sort(kind="stable")
    return both[np.append(True, both[1:] != both[:-1])] if len(both) else both


def _spread(data: NDArray, places: np.ndarray, union: np.ndarray) -> NDArray:
    """Return data for the places of union, 0 where data has none."""
    if not len(places):
        return zeros((len(union), *data.shape[1:]), data.context, data.dtype)
    at = np.minimum(np.searchsorted(places, union), len(places) - 1)
    found = (places[at] == union).reshape(-1, *[1] * (data.ndim - 1))
    return _take(data, at) * array(found, data.context, data.dtype)


def _take(data: NDArray, at: np.ndarray) -> NDArray:
    return data.take(array(at, data.context, "int64")) if len(at) else data[0:0]


def _add_n(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    arrays = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    if not all(isinstance(a, RowSparseNDArray) for a in arrays):
        return NotImplemented
    total = arrays[0]
    for a in arrays[1:]:
        total = total + a
    return total


def _concat(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    arrays = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    if kwargs.get("dim", 1) != 0 or not all(isinstance(a, CSRNDArray) for a in arrays):
        return NotImplemented
    if len({a.shape[1] for a in arrays}) > 1:
        raise ShapeError(f"concat: csr matrices of {', '.join(str(a.shape[1]) for a in arrays)} columns: they must be equal.")
    starts = np.cumsum([0, *(len(a.columns) for a in arrays)])
    ends = [a.row_ends[1:] + start for a, start in zip(arrays, starts)]
    full = [a.data for a in arrays if a.data.size] or [arrays[0].data]
    return CSRNDArray(call_op(op, full, {"dim": 0}), np.concatenate([a.columns for a in arrays]), np.concatenate([[0], *ends]),
                      (sum(a.shape[0] for a in arrays), arrays[0].shape[1]))


# ---- products --------------------------------------------------------------------------------------------------------
def _dot(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Products with one csr matrix. csr · dense is dense; csrᵀ · dense has a row for each column in use; dense · csr is csr."""
    given = dict(zip(("lhs", "rhs", "transpose_a", "transpose_b", "forward_stype"), args)) | dict(kwargs)
    a, b, forward = given.pop("lhs"), given.pop("rhs"), given.pop("forward_stype", None)
    turn_a, turn_b = bool(given.pop("transpose_a", False)), bool(given.pop("transpose_b", False))
    if isinstance(a, CSRNDArray) == isinstance(b, CSRNDArray) or len(a.shape) != 2 or len(b.shape) != 2:
        return NotImplemented
    dense = b if isinstance(a, CSRNDArray) else a
    dense = dense.tostype("default") if isinstance(dense, BaseSparseNDArray) else dense
    if isinstance(a, CSRNDArray):
        result = _csr_dot(a, dense.T if turn_b else dense, turn_a)
        used = np.unique(a.columns) if turn_a else None
        return _rows_of(result, used) if used is not None and forward in (None, "row_sparse") else result
    result = _csr_dot(b, dense if turn_a else dense.T, not turn_b).T  # (A · B)ᵀ = Bᵀ · Aᵀ
    if forward not in (None, "csr"):
        return result
    used = np.unique(b.rows if turn_b else b.columns)
    height = result.shape[0]
    data = result.take(array(used, result.context, "int64"), axis=1).reshape((-1,)) if len(used) else zeros((0,), result.context)
    return CSRNDArray(data.astype(result.dtype), np.tile(used, height), np.arange(height + 1) * len(used), result.shape)


def _csr_dot(a: CSRNDArray, b: NDArray, transpose: bool) -> NDArray:
    """Return a · b, or aᵀ · b. The derivative reaches b and the elements of a."""
    height, inner = a.shape[::-1] if transpose else a.shape
    if b.shape[0] != inner:
        raise ShapeError(f"dot: a csr matrix {(height, inner)} and a matrix {b.shape}: inner sizes differ.")
    to, of = (a.columns, a.rows) if transpose else (a.rows, a.columns)
    if not len(to) or not height or not b.shape[1]:
        return zeros((height, b.shape[1]), b.context, b.dtype)
    terms = _take(b, of) * a.data.expand_dims(1)
    return call_op(builtin("_backward_gather_nd"), (terms, array(to[None], b.context, "int64")), {"shape": (height, b.shape[1])})


def _rows_of(dense: NDArray, rows: np.ndarray) -> RowSparseNDArray:
    return RowSparseNDArray(rows, _take(dense, rows), dense.shape)


_RULES: dict[str, Callable[[Op, Sequence[Any], Mapping[str, Any]], Any]] = {
    **dict.fromkeys(_KEEP_ZEROS, _on_data), **dict.fromkeys(_COMPARE, _compare),
    **dict.fromkeys((*_COMBINE, "broadcast_mul", "broadcast_div"), _combine),
    **dict.fromkeys(("sum", "mean"), _total), "clip": _clip, "slice": _slice, "add_n": _add_n, "Concat": _concat, "dot": _dot}
BaseSparseNDArray.compute = staticmethod(call_sparse)


def result_stype(op: Op, p: Any, stypes: Sequence[str]) -> str:
    """Return the storage type of op's result for arrays of these, which are not all "default": that which call_sparse gives."""
    first, name = stypes[0], op.name
    alike, one_csr = len(set(stypes)) == 1, sorted(stypes) == ["csr", "default"]
    keeps = {
        "clip": lambda: p.a_min <= 0 <= p.a_max,
        "slice": lambda: first == "csr" and all(s in (None, 1) for s in p.step or ()),
        "add_n": lambda: alike and first == "row_sparse",
        "Concat": lambda: alike and first == "csr" and p.dim == 0,
        "broadcast_div": lambda: one_csr and first == "csr",
        "broadcast_mul": lambda: one_csr,
        "_square_sum": lambda: first == "row_sparse" and p.axis in (1, (1,)) and p.keepdims,
        **dict.fromkeys(_COMBINE, lambda: alike or (one_csr and name == "elemwise_mul")),
        **dict.fromkeys(_COMPARE, lambda: not _COMPARE[name](0, p.scalar)),
        **dict.fromkeys(_KEEP_ZEROS, lambda: True)}
    if name == "dot":
        if first == "csr" and stypes[1] != "csr":
            return "row_sparse" if p.transpose_a and p.forward_stype in (None, "row_sparse") else "default"
        return "csr" if one_csr and p.forward_stype in (None, "csr") else "default"
    return max(stypes, key="csr".__eq__) if name in keeps and keeps[name]() else "default"


# ---- functions of mx.nd.sparse ---------------------------------------------------------------------------------------
def sparse_array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> Any:
    """Return a sparse array with the elements of a sparse array, or of a matrix of scipy.sparse.csr_matrix."""
    if not isinstance(source_array, BaseSparseNDArray) and not hasattr(source_array, "tocsr"):
        raise ParameterError(f"sparse.array: a {type(source_array).__name__} is not sparse. Use mx.nd.array for dense arrays, or "
                             f"mx.nd.sparse.csr_matrix to find its nonzero elements.")
    return array(source_array, ctx, dtype)


def sparse_zeros(stype: str, shape: Sequence[int], ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> Any:
    """Return an array of zeros with a storage type: "default", "row_sparse" or "csr"."""
    return zeros(shape, ctx, dtype) if stype == "default" else storage_type("sparse.zeros", stype).zeros(shape, ctx, dtype)


def retain(data: RowSparseNDArray, indices: Any, out: Any = None) -> RowSparseNDArray:
    """Return the rows of data whose indices are among `indices`, which must ascend."""
    if not isinstance(data, RowSparseNDArray):
        raise NotAvailableError(f"sparse.retain: a {getattr(data, 'stype', type(data).__name__)} array has no stored rows. Use "
                                f"tostype('row_sparse') first.")
    kept = data.retain(indices)
    if out is None:
        return kept
    out[:] = kept
    return out


def cast_storage(data: Any, stype: str = "default", out: Any = None, name: str | None = None) -> Any:
    """Return data as an array of storage type "default", "row_sparse" or "csr". Waits for the values of a dense array."""
    result = data.tostype(stype)
    if out is None:
        return result
    out[:] = result
    return out


def _binary(name: str, method: str) -> Callable[[Any, Any], Any]:
    def call(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, (int, float)):
            lhs, rhs, name_of = rhs, lhs, method.replace("__", "__r", 1)
        else:
            name_of = method
        return getattr(lhs, name_of)(rhs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} of sparse or dense arrays, or of an array and a number, element by element."
    return call


FUNCTIONS = {
    "BaseSparseNDArray": BaseSparseNDArray, "CSRNDArray": CSRNDArray, "RowSparseNDArray": RowSparseNDArray,
    "csr_matrix": csr_matrix, "row_sparse_array": row_sparse_array, "array": sparse_array, "zeros": sparse_zeros,
    "empty": sparse_zeros, "retain": retain, "gs_retain": retain, "cast_storage": cast_storage,
    "add": _binary("add", "__add__"), "subtract": _binary("subtract", "__sub__"), "multiply": _binary("multiply", "__mul__"),
    "divide": _binary("divide", "__truediv__")}
