"""mx.sym: a function for every operator and alias, made at its first use, so that later registrations appear too."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from numpy.typing import DTypeLike

from ...dtype import as_dtype
from ...errors import GraphError
from ...kernels import op as ops
from ...kernels.op import Op, ShapeLike
from ...kernels.params import describe, format_value
from ...ndarray.dispatch.arguments import array_names
from ...ndarray.functions.namespace import Namespace, attribute
from ...ndarray.functions.namespace import signature as array_signature
from ..control_flow import ops as _loops  # noqa: F401  declares its operators
from ..executor.executor import Executor as Executor
from .contrib import FUNCTIONS as contrib_functions
from .naming import AttrScope as AttrScope
from .random import DISTRIBUTIONS
from .symbol import Group as Group
from .symbol import Number, create
from .symbol import Symbol as Symbol
from .symbol import Variable as Variable
from .symbol import fromjson as fromjson
from .symbol import load as load
from .symbol import load_json as load_json
from .symbol import var as var


def function(name: str, called: str = "") -> Callable[..., Symbol]:
    """Return the function that makes symbols of the operator called name, with its real signature.

    called: what it is called where its prefix is understood, as in `contrib`; unnamed nodes are called so.
    """
    return _function(ops.get(name), called or name)


@cache
def _function(op: Op, name: str) -> Callable[..., Symbol]:
    def make(*args: Any, **kwargs: Any) -> Symbol:
        return create(op, args, kwargs, hint=name.lower())

    make.__name__ = make.__qualname__ = name
    lines = [op.doc or op.name, "", *(describe(d, op.doc) for d in op.params if d.name != "num_args")]
    make.__doc__ = "\n".join([*lines, "name, attr: of the node. Returns: a Symbol."])
    make.__signature__ = signature(op)  # type: ignore[attr-defined]
    return make


def signature(op: Op) -> inspect.Signature:
    """Return the signature: inputs, then parameters, then name and attr. Inputs may be left out."""
    kind, inputs = inspect.Parameter, array_names(op)
    parts = []
    for p in array_signature(op).parameters.values():
        if p.name in inputs:
            p = p.replace(default=None)
        elif p.default is kind.empty and p.kind is kind.POSITIONAL_OR_KEYWORD:
            p = p.replace(kind=kind.KEYWORD_ONLY)
        if p.name not in ("out", "name"):
            parts.append(p)
    parts += [kind("name", kind.KEYWORD_ONLY, default=None), kind("attr", kind.KEYWORD_ONLY, default=None),
              kind("kwargs", kind.VAR_KEYWORD)]
    return inspect.Signature(sorted(parts, key=lambda p: p.kind), return_annotation=Symbol)


def _retain(data: Symbol, indices: Symbol, **kwargs: Any) -> Symbol:
    """Return data with zeros in all rows but those of indices [n], as nd.sparse.retain; an executor's arrays are dense.

    A row may be among indices more than once, in any order.
    """
    rows = create(ops.builtin("_contrib_arange_like"), (data,), {"axis": 0}).reshape((-1, 1))
    kept = create(ops.builtin("broadcast_equal"), (rows, indices.astype("float32").reshape((1, -1))), {}).max(axis=1)
    zeros_of_data = create(ops.builtin("zeros_like"), (data,), {})
    return create(ops.builtin("where"), (kept, data, zeros_of_data), kwargs, hint="retain")


def _whole_name(name: str, called: str) -> Callable[..., Symbol]:
    return function(name)


def _random_name(name: str, called: str) -> Callable[..., Symbol]:
    return function(name, called if name.startswith("_random_") else "")


random = Namespace("mx.sym.random", ("_random_", "random_", "_sample_", "sample_", "_"), DISTRIBUTIONS, _random_name)
linalg = Namespace("mx.sym.linalg", ("_linalg_", "linalg_"), make=function)
contrib = Namespace("mx.sym.contrib", ("_contrib_",), contrib_functions, function)
image = Namespace("mx.sym.image", ("_image_",), make=function)
sparse = Namespace("mx.sym.sparse", ("", "_"), {"retain": _retain}, _whole_name)
_internal = op = Namespace("mx.sym.op", ("", "_"), make=_whole_name)


def zeros(shape: ShapeLike, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """A node that gives zeros [shape]."""
    return _filled("_zeros", shape, dtype, kwargs)


def ones(shape: ShapeLike, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """A node that gives ones [shape]."""
    return _filled("_ones", shape, dtype, kwargs)


def full(shape: ShapeLike, val: float, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """A node that gives val everywhere [shape]."""
    return _filled("_full", shape, dtype, {"value": float(val), **kwargs})


def arange(start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1, dtype: DTypeLike = None,
           **kwargs: Any) -> Symbol:
    """A node that gives start, start + step, ... below stop, each `repeat` times."""
    given = {"start": start, "stop": "None" if stop is None else stop, "step": step, "repeat": repeat, "infer_range": False,
             "dtype": as_dtype(dtype).name, **kwargs}
    return create(ops.builtin("_arange"), (), given)


def linspace(start: float, stop: float, num: int, endpoint: bool = True, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """A node that gives num values from start to stop, at equal distances."""
    given = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": as_dtype(dtype).name, **kwargs}
    return create(ops.builtin("_linspace"), (), given)


def split_v2(ary: Symbol, indices_or_sections: ShapeLike, axis: int = 0, squeeze_axis: bool = False, **kwargs: Any) -> Symbol:
    """Split ary along axis: into a number of equal parts, or at ascending positions."""
    return ary.split_v2(indices_or_sections, axis, squeeze_axis, **kwargs)


def histogram(a: Symbol, bins: int | Symbol = 10, range: Sequence[float] | None = None, **kwargs: Any) -> Symbol:
    """Count the values of a in each bin, int64, and return the edges too. bins: a number of equal bins in range, or edges."""
    if isinstance(bins, Symbol):
        return create(ops.builtin("_histogram"), (a, bins), kwargs)
    if range is None:
        raise GraphError("histogram: a number of bins needs range=(low, high) in a graph.")
    return create(ops.builtin("_histogram"), (a,), {"bin_cnt": bins, "range": tuple(range), **kwargs})


def eye(N: int, M: int = 0, k: int = 0, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """A node that gives ones on diagonal k of [N, M], zeros elsewhere."""
    return create(ops.builtin("_eye"), (), {"N": N, "M": M, "k": k, "dtype": as_dtype(dtype).name, **kwargs})


def _filled(name: str, shape: ShapeLike, dtype: DTypeLike, kwargs: dict[str, Any]) -> Symbol:
    return create(ops.builtin(name), (), {"shape": format_value(shape), "dtype": as_dtype(dtype).name, **kwargs})


def _either(both: str, scalar: str, reverse: str, numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function of two symbols or numbers, for which Python has no operator. numbers: the same of two numbers."""

    def call(left: Any, right: Any) -> Any:
        if isinstance(left, Number) and isinstance(right, Number):
            return numbers(left, right)
        one, other, name = (left, right, scalar) if isinstance(left, Symbol) else (right, left, reverse)
        if not isinstance(one, Symbol) or not isinstance(other, (Symbol, *Number)):
            raise GraphError(f"{both.lstrip('_')}: one side must be a Symbol, the other a Symbol or a number: "
                             f"{type(left).__name__}, {type(right).__name__}.")
        if isinstance(other, Symbol):
            return create(ops.builtin(both), (one, other), {})
        return create(ops.builtin(name), (one,), {"scalar": other}, hint=name.replace("_scalar", "scalar"))

    call.__name__ = both.lstrip("_")
    call.__doc__ = f"{both.lstrip('_')} of symbols or numbers, element by element."
    return call


_power = _either("_power", "_power_scalar", "_rpower_scalar", operator.pow)


def power(base: float | Symbol, exp: float | Symbol) -> Any:
    """base to the power exp, of symbols or numbers, element by element."""
    return _power(base, exp)


pow = power
maximum = _either("_maximum", "_maximum_scalar", "_maximum_scalar", max)
minimum = _either("_minimum", "_minimum_scalar", "_minimum_scalar", min)
hypot = _either("_hypot", "_hypot_scalar", "_hypot_scalar", math.hypot)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return attribute("mx.sym", name, make=_whole_name)


def __dir__() -> list[str]:
    return sorted({*globals(), *ops.registered()})
