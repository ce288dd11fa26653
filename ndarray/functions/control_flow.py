"""mx.nd.contrib.foreach, while_loop and cond: plain Python over arrays, recorded by autograd as other Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import OperatorError, ShapeError, describe
from ...kernels.op import builtin
from ..core.array_core import ArrayCore
from ..dispatch.arguments import call_op
from .creation import zeros

Nested = ArrayCore | Sequence["Nested"]  # an array, or lists of arrays, which may nest


def foreach(body: Callable[[Any, Any], tuple[Any, Any]], data: Nested, init_states: Nested) -> tuple[Any, Any]:
    """Run body(rows, states) -> (results, new states) for every row of data. Return (stacked results, the last states).

    data, init_states: an array, or a list of them (lists may nest); body sees the same structure, one row of data at a time,
    and the states that it returned for the row before.
    Raises: ShapeError where the data have different numbers of rows, or none.
    """
    arrays, states = flatten(data, "foreach: data"), init_states
    lengths = {a.shape[0] for a in arrays}
    if len(lengths) != 1 or not min(lengths):
        raise ShapeError(f"foreach: data must have one number of rows, at least 1: {', '.join(map(describe, arrays)) or 'none'}.")
    collected: list[Any] = []
    for t in range(arrays[0].shape[0]):
        results, states = body(mapped(data, lambda a, t=t: a[t]), states)
        collected.append(results)
    return _stacked(collected, "foreach"), states


def while_loop(cond: Callable[..., Any], func: Callable[..., tuple[Any, Any]], loop_vars: Nested,
               max_iterations: int | None = None) -> tuple[Any, Any]:
    """Run func(*variables) -> (results, new variables) while cond(*variables) is not zero. Return (stacked results, variables).

    A list of one variable and a bare variable are the same for func; the last variables come as loop_vars came.
    Results have max_iterations rows, zero beyond the last iteration; [] if there was no iteration.
    """
    if max_iterations is None or int(max_iterations) != max_iterations or max_iterations < 0:
        raise OperatorError(f"while_loop: max_iterations is {max_iterations!r}. Give the number of rows of the results.")
    if not flatten(loop_vars, "while_loop: loop_vars"):
        raise OperatorError("while_loop: loop_vars is empty. Give the variables that change from one iteration to the next.")
    form, variables = nesting(loop_vars), loop_vars
    collected: list[Any] = []
    while len(collected) < max_iterations and _holds(_call(cond, variables), "while_loop: what cond returns"):
        results, variables = _call(func, variables)
        if form == "_" and nesting(variables) == "[_]":
            variables, = variables
        elif form == "[_]" and nesting(variables) == "_":
            variables = [variables]
        if nesting(variables) != form:
            raise OperatorError(f"while_loop: func was given variables {form} and returned {nesting(variables)}. Return as many.")
        collected.append([] if results is None else results)
    if not collected:
        return [], variables
    return _stacked(collected, "while_loop", int(max_iterations)), variables


def cond(pred: ArrayCore | float, then_func: Callable[[], Any], else_func: Callable[[], Any]) -> Any:
    """Return then_func() if pred, an array of one element, is not zero, else else_func()."""
    return then_func() if _holds(pred, "cond: pred") else else_func()


def _holds(value: Any, name: str) -> bool:
    if isinstance(value, ArrayCore):
        if value.size != 1:
            raise ShapeError(f"{name} is {describe(value)}, not one element.")
        return bool(value.asnumpy().reshape(()))
    return bool(value)


def _call(f: Callable[..., Any], variables: Any) -> Any:
    return f(*variables) if isinstance(variables, (list, tuple)) else f(variables)


def _stacked(collected: list[Any], name: str, rows: int | None = None) -> Any:
    """Return the results of all iterations stacked along a new first axis, followed by zeros up to `rows` rows."""
    first, form = collected[0], nesting(collected[0])
    columns = []
    for i, results in enumerate(collected):
        if nesting(results) != form:
            raise OperatorError(f"{name}: iteration {i} returned results {nesting(results)}, the first {form}. Return as many.")
        columns.append(flatten(results, f"{name}: results"))
    stacked = []
    for parts in zip(*columns):
        column = call_op(builtin("stack"), parts, {"axis": 0})
        if rows is not None and rows > len(parts):
            rest = zeros((rows - len(parts), *parts[0].shape), parts[0].ctx, parts[0].dtype)
            column = call_op(builtin("Concat"), (column, rest), {"dim": 0})
        stacked.append(column)
    remaining = iter(stacked)
    return mapped(first, lambda _: next(remaining))


def flatten(value: Any, name: str) -> list[ArrayCore]:
    """Return the arrays in value, an array or nested lists of arrays."""
    if isinstance(value, ArrayCore):
        return [value]
    if not isinstance(value, (list, tuple)):
        raise OperatorError(f"{name}: {value!r} is neither an NDArray nor a list of them.")
    return [a for v in value for a in flatten(v, name)]


def mapped(value: Any, f: Callable[[Any], Any]) -> Any:
    """Return value with f(array) for every array in it; tuples become lists."""
    return f(value) if isinstance(value, ArrayCore) else [mapped(v, f) for v in value]


def nesting(value: Any) -> str:
    """Return how arrays are grouped: `_` for one, `[_, [_]]` for lists."""
    return "_" if isinstance(value, ArrayCore) else f"[{', '.join(map(nesting, value))}]" if isinstance(value, (list, tuple)) \
        else type(value).__name__
