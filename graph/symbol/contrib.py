"""The functions of mx.sym.contrib that are not operators: several nodes, and what a graph cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import GraphError, check_choice
from ...kernels import op as ops
from ..control_flow.compose import cond, foreach, while_loop
from .compose import starts
from .naming import NameManager
from .random import rand_zipfian
from .symbol import Group, Symbol, Variable, create


def boolean_mask(data: Symbol, index: Symbol, axis: int = 0, **_: Any) -> Symbol:
    """Raise GraphError: graphs are planned from shapes, and the number of rows here depends on values."""
    raise GraphError("mx.sym.contrib.boolean_mask: how many rows it gives depends on values, and a graph is planned from shapes. "
                     "Use mx.nd.contrib.boolean_mask on an output, or sym.where or sym.SequenceMask, which keep the shape.")


def edge_id(data: Symbol, u: Symbol, v: Symbol, **_: Any) -> Symbol:
    """Raise GraphError: arrays of a graph are dense, in which an edge with the number 0 is no different from none."""
    raise GraphError("mx.sym.contrib.edge_id: the arrays of a graph are dense, where an edge numbered 0 is the same as no edge. "
                     "Use mx.nd.contrib.edge_id, and pass its result to the graph.")


def getnnz(data: Symbol, axis: int | None = None, name: str | None = None, **kwargs: Any) -> Symbol:
    """Return the number of elements of data [rows, columns] that are not 0: int64[1], of each column (axis=0), of each row (1).

    A stored zero of a csr array is not counted, because the arrays of a graph are dense.
    """
    check_choice("getnnz", "axis", axis, (None, 0, 1))
    counted = create(ops.builtin("Cast"), (data != 0,), {"dtype": "int64"})  # type: ignore[arg-type]
    return create(ops.builtin("sum"), (counted,), {**({} if axis is None else {"axis": axis}), "name": name, **kwargs},
                  hint="getnnz")


def batch_norm_with_relu(*args: Any, name: str | None = None, output_mean_var: bool = False, min_calib_range: float | None = None,
                         max_calib_range: float | None = None, **kwargs: Any) -> Symbol:
    """max(BatchNorm, 0), with BatchNorm's arguments. The ranges, for quantization, are ignored."""
    called = NameManager.current().get(name, "batchnormwithrelu")
    op = ops.builtin("BatchNorm")
    names = ("data", "gamma", "beta", "moving_mean", "moving_var")
    inputs = {**dict(zip(names, args)), **{n: kwargs.pop(n) for n in names if kwargs.get(n) is not None}}
    for n in names:
        if n not in inputs:
            inputs[n] = Variable(f"{called}_{n}", init=starts(op, n))
    with NameManager():  # `called` has the prefix of the current one
        params = {**kwargs, "output_mean_var": output_mean_var, "name": f"{called}_norm"}
        normed = create(op, tuple(inputs[n] for n in names), params)
        y = create(ops.builtin("relu"), (normed[0],), {"name": called})
    return Group([y, normed[1], normed[2]]) if output_mean_var else y


def _rescaled(name: str) -> Callable[..., Symbol]:
    def update(weight: Symbol, grad: Symbol, mean: Symbol, var: Symbol, *more: Any, **kwargs: Any) -> Symbol:
        *states, scale = (*more, *([kwargs.pop("rescale_grad")] if "rescale_grad" in kwargs else []))
        if not isinstance(scale, Symbol):
            scale = create(ops.builtin("_full"), (), {"shape": (1,), "value": float(scale), "dtype": "float32"})
        return create(ops.builtin(name), (weight, grad, mean, var, *states, scale), kwargs)

    update.__name__ = update.__qualname__ = name[1:]
    update.__doc__ = f"The operator `{name}`; rescale_grad may be a number."
    return update


#: name -> function, found in mx.sym.contrib before the operators.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "foreach": foreach, "while_loop": while_loop, "cond": cond,
    "boolean_mask": boolean_mask, "rand_zipfian": rand_zipfian, "edge_id": edge_id, "getnnz": getnnz,
    "BatchNormWithReLU": batch_norm_with_relu,
    "adamw_update": _rescaled("_adamw_update"), "mp_adamw_update": _rescaled("_mp_adamw_update"),
}
