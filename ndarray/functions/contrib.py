"""The functions of mx.nd.contrib that are not operators: the shape of a result depends on values, or numbers become arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...context import Context
from ...errors import ParameterError, ShapeError, check_choice
from ...kernels.op import builtin
from ..core.advanced import marked
from ..core.array_core import ArrayCore
from ..core.csr import CSRNDArray
from ..core.ndarray import NDArray
from ..dispatch.arguments import call_op
from . import random
from .creation import array


def boolean_mask(data: NDArray, index: NDArray, axis: int = 0, out: NDArray | None = None, name: str | None = None) -> NDArray:
    """Return the slices of data along axis where index is not 0; waits for index. Differentiable by data. name is ignored."""
    if len(index.shape) != 1 or not -len(data.shape) <= axis < len(data.shape) or index.shape[0] != data.shape[axis]:
        raise ShapeError(f"boolean_mask: index {index.shape} must be one axis, as long as axis {axis} of data {data.shape}.")
    kept = marked(index != 0) if index.layout.target == "gpu" else None
    if kept is None or kept.ctx != data.ctx:
        kept = array(np.flatnonzero(index.asnumpy()), ctx=data.ctx, dtype="int64")
    return call_op(builtin("take"), (data, kept), {"axis": axis, "out": out})


def _rescaled(name: str) -> Callable[..., Any]:
    def update(weight: Any, grad: Any, mean: Any, var: Any, *more: Any, **kwargs: Any) -> Any:
        *states, scale = (*more, *([kwargs.pop("rescale_grad")] if "rescale_grad" in kwargs else []))
        if not isinstance(scale, ArrayCore):
            scale = array([float(scale)], ctx=weight.ctx, dtype="float32")
        return call_op(builtin(name), (weight, grad, mean, var, *states, scale), kwargs)

    update.__name__ = update.__qualname__ = name[1:]
    update.__doc__ = f"The operator `{name}`; rescale_grad may be a number."
    return update


def _many(name: str, states: int, more: tuple[str, ...], counted: str) -> Callable[..., Any]:
    """Return a function that runs the operator called name on `states` lists of arrays (weights, grads, ...), then `more`."""

    def update(*given: Any, out: Any = None, **kwargs: Any) -> Any:
        lists, rest = given[:states], dict(zip(more, given[states:]), **{k: kwargs.pop(k) for k in more if k in kwargs})
        arrays = [a for one in zip(*lists) for a in one]
        if "rescale_grad" in rest:
            scale = rest.pop("rescale_grad")
            arrays.append(scale if isinstance(scale, ArrayCore) else array([float(scale)], ctx=arrays[0].ctx, dtype="float32"))
        if "lrs" in rest and counted == "num_tensors":
            rest["learning_rates"] = rest.pop("lrs")
        count = kwargs.pop("size", 0) or kwargs.pop(counted, 0) or len(lists[0])
        return call_op(builtin(name), tuple(arrays), {**rest, **kwargs, counted: count, "out": out})

    update.__name__ = update.__qualname__ = name[1:]
    update.__doc__ = f"The operator `{name}` on lists of arrays, one element a weight; then {', '.join(more)}."
    return update


def batch_norm_with_relu(data: NDArray, gamma: NDArray, beta: NDArray, moving_mean: NDArray, moving_var: NDArray,
                         output_mean_var: bool = False, min_calib_range: float | None = None,
                         max_calib_range: float | None = None, **kwargs: Any) -> Any:
    """max(BatchNorm, 0), with BatchNorm's parameters. The ranges, for quantization, are ignored."""
    out = kwargs.pop("out", None)
    arrays = (data, gamma, beta, moving_mean, moving_var)
    normed = call_op(builtin("BatchNorm"), arrays, {**kwargs, "output_mean_var": output_mean_var})
    y, *more = normed if output_mean_var else [normed]
    y = call_op(builtin("relu"), (y,), {"out": out})
    return [y, *more] if output_mean_var else y


def rand_zipfian(true_classes: NDArray, num_sampled: int, range_max: int, ctx: Context | str | None = None
                 ) -> tuple[NDArray, NDArray, NDArray]:
    """Draw num_sampled classes below range_max with P(k) = log((k + 2) / (k + 1)) / log(range_max + 1).

    Returns: the classes, int64; the expected count of each of true_classes among them; the expected count of each class drawn.
    """
    draws = random.uniform(0, math.log(range_max + 1), shape=(num_sampled,), dtype="float64", ctx=ctx)
    sampled = np.expm1(draws.asnumpy()).astype(np.int64) % range_max

    def expected(classes: np.ndarray) -> NDArray:
        k = classes.astype(np.float64)
        return array(np.log((k + 2) / (k + 1)) / math.log(range_max + 1) * num_sampled, ctx=draws.ctx, dtype="float64")

    return array(sampled, ctx=draws.ctx, dtype="int64"), expected(true_classes.asnumpy()), expected(sampled)


def getnnz(data: CSRNDArray, axis: int | None = None, name: str | None = None) -> NDArray:
    """Return the number of elements a CSRNDArray stores, zeros among them: int64[1], of each column (axis=0), of each row (1).

    name is ignored.
    """
    _check_csr("getnnz", data)
    check_choice("getnnz", "axis", axis, (None, 0, 1))
    counted = {None: lambda: np.array([len(data.columns)]), 0: lambda: np.bincount(data.columns, minlength=data.shape[1]),
               1: lambda: np.diff(data.row_ends)}[axis]()
    return array(counted, ctx=data.context, dtype="int64")


def edge_id(data: CSRNDArray, u: NDArray, v: NDArray, name: str | None = None) -> NDArray:
    """Return data[u[i], v[i]] for each i, and -1 where a graph stored as a CSRNDArray has no edge from u[i] to v[i].

    u, v:    [n], nodes below the number of rows and columns.
    Returns: [n], of data's dtype.
    Raises:  ShapeError for u and v of different lengths or out of range; ParameterError for an array that is not csr.
    name is ignored.
    """
    _check_csr("edge_id", data)
    begins, ends = (a.asnumpy().astype(np.int64) for a in (u, v))
    if begins.ndim != 1 or begins.shape != ends.shape:
        raise ShapeError(f"edge_id: u {begins.shape} and v {ends.shape} must be one axis of the same length.")
    for which, nodes, size in (("u", begins, data.shape[0]), ("v", ends, data.shape[1])):
        if len(nodes) and not (nodes.min() >= 0 and nodes.max() < size):
            raise ShapeError(f"edge_id: {which} has nodes from {nodes.min()} to {nodes.max()}, the matrix is {data.shape}.")
    places, asked = data.rows * data.shape[1] + data.columns, begins * data.shape[1] + ends  # places ascend
    at = np.searchsorted(places, asked)
    found = at < len(places)
    found[found] = places[at[found]] == asked[found]
    ids = np.full(len(asked), -1, data.dtype)
    ids[found] = data.data.asnumpy()[at[found]]
    return array(ids, ctx=data.context, dtype=data.dtype)


def _check_csr(name: str, data: Any) -> None:
    if not isinstance(data, CSRNDArray):
        raise ParameterError(f"{name}: data is {type(data).__name__}, and must be a CSRNDArray. Use data.tostype('csr').")


_ADAMW, _LAMB = ("rescale_grad", "lrs", "wds", "etas"), ("step_count", "lrs", "wds")

#: name -> function, found in mx.nd.contrib before the operators.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "boolean_mask": boolean_mask,
    "BatchNormWithReLU": batch_norm_with_relu,
    "adamw_update": _rescaled("_adamw_update"),
    "mp_adamw_update": _rescaled("_mp_adamw_update"),
    "rand_zipfian": rand_zipfian,
    "getnnz": getnnz,
    "edge_id": edge_id,
    "multi_adamw_update": _many("_multi_adamw_update", 4, _ADAMW, "num_weights"),
    "multi_mp_adamw_update": _many("_multi_mp_adamw_update", 5, _ADAMW, "num_weights"),
    "multi_lamb_update": _many("_multi_lamb_update", 4, _LAMB, "num_tensors"),
    "multi_mp_lamb_update": _many("_multi_mp_lamb_update", 5, _LAMB, "num_tensors"),
}
