"""mx.sym: a function for every operator and alias, made at its first use, so that later registrations appear too."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ...dtype import as_dtype
from ...errors import GraphError
from ...kernels import op as ops
from ...kernels.op import Op
from ...kernels.params import REQUIRED, format_value
from ..control_flow import ops as _loops  # noqa: F401  declares its operators
from ..control_flow.compose import cond, foreach, while_loop
from ..executor.executor import Executor as Executor
from .naming import AttrScope as AttrScope
from .random import DISTRIBUTIONS
from .symbol import Group as Group
from .symbol import Number, Symbol, create
from .symbol import Variable as Variable
from .symbol import fromjson as fromjson
from .symbol import load as load
from .symbol import load_json as load_json
from .symbol import var as var

_made: dict[tuple[str, str], tuple[Op, Callable[..., Symbol]]] = {}


def function(name: str, called: str = "") -> Callable[..., Symbol]:
    """Return the function that makes symbols of the operator called name, with its real signature.

    called: what it is called where its prefix is understood, as in `contrib`; unnamed nodes are called so.
    """
    op, key = ops.get(name), (name, called or name)
    found = _made.get(key)
    if found is None or found[0] is not op:
        found = _made[key] = (op, _function(op, called or name))
    return found[1]


def _function(op: Op, name: str) -> Callable[..., Symbol]:
    def make(*args: Any, **kwargs: Any) -> Symbol:
        return create(op, args, kwargs, hint=name.lower())

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{op.doc or op.name}\n\nname, attr: of the node. Returns: a Symbol."
    make.__signature__ = signature(op)  # type: ignore[attr-defined]
    return make


def signature(op: Op) -> inspect.Signature:
    """Inputs, then parameters, then name and attr."""
    kind = inspect.Parameter
    parts: list[inspect.Parameter] = []
    variadic = any(d.name == "num_args" for d in op.params)
    if variadic:
        parts.append(kind("data", kind.VAR_POSITIONAL))
    else:
        parts += [kind(n, kind.POSITIONAL_OR_KEYWORD, default=None) for n in _inputs(op)]
    taken = {p.name for p in parts} | {"name", "attr", "out", "kwargs"}
    where = kind.KEYWORD_ONLY if variadic else kind.POSITIONAL_OR_KEYWORD
    for d in op.params:
        if d.name not in taken and d.name.isidentifier():
            default = inspect.Parameter.empty if d.default is REQUIRED else d.default
            parts.append(kind(d.name, where if default is not inspect.Parameter.empty or variadic else kind.KEYWORD_ONLY,
                              default=default))
    parts.sort(key=lambda p: p.kind)
    parts += [kind("name", kind.KEYWORD_ONLY, default=None), kind("attr", kind.KEYWORD_ONLY, default=None),
              kind("kwargs", kind.VAR_KEYWORD)]
    return inspect.Signature(parts, return_annotation=Symbol)


def _inputs(op: Op) -> tuple[str, ...]:
    if op.input_names:
        return op.input_names
    try:
        p = op.parse({d.name: d.choices[0] if d.choices else _sample(d.kind) for d in op.params if d.default is REQUIRED})
        return (*op.arguments(p), *op.auxiliaries(p))
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError):
        return ()


def _sample(kind: str) -> Any:
    return {"shape": (1, 1), "str": "", "dtype": "float32", "bool": False, "floats": (1.0,)}.get(kind, 1)


class _Prefixed:
    """`mx.sym.random`, `mx.sym.linalg`, ...: operators whose names begin with a prefix.

    short: whether unnamed nodes are called without it, `quadratic0`.
    """

    def __init__(self, *prefixes: str, short: bool = False, extra: Mapping[str, Callable[..., Any]] | None = None):
        self._prefixes, self._short, self._extra = prefixes, short, dict(extra or {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self._extra:
            return self._extra[name]
        known = ops.registered()
        for prefix in self._prefixes:
            if prefix + name in known:
                return function(prefix + name, name if self._short else "")
        raise AttributeError(f"mx.sym: no operator {self._prefixes[0]}{name}.")

    def __dir__(self) -> list[str]:
        return sorted({*self._extra, *(n[len(p):] for p in self._prefixes for n in ops.registered() if n.startswith(p))})


def _boolean_mask(data: Symbol, index: Symbol, axis: int = 0, **_: Any) -> Symbol:
    """Raise GraphError: graphs are planned from shapes, and the number of rows here depends on values."""
    raise GraphError("mx.sym.contrib.boolean_mask: how many rows it gives depends on values, and a graph is planned from shapes. "
                     "Use mx.nd.contrib.boolean_mask on an output, or sym.where or sym.SequenceMask, which keep the shape.")


random = _Prefixed("_random_", "random_", "_sample_", "sample_", "_", extra=DISTRIBUTIONS)
linalg = _Prefixed("_linalg_", "linalg_", short=True)
contrib = _Prefixed("_contrib_", short=True, extra={"foreach": foreach, "while_loop": while_loop, "cond": cond,
                                                          "boolean_mask": _boolean_mask})
image = _Prefixed("_image_", short=True)
sparse = _internal = op = _Prefixed("", "_")


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A node that gives zeros [shape]."""
    return _filled("_zeros", shape, dtype, kwargs)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A node that gives ones [shape]."""
    return _filled("_ones", shape, dtype, kwargs)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A node that gives val everywhere [shape]."""
    return _filled("_full", shape, dtype, {"value": float(val), **kwargs})


def arange(start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1, dtype: Any = None,
           **kwargs: Any) -> Symbol:
    """A node that gives start, start + step, ... below stop, each `repeat` times."""
    given = {"start": start, "stop": "None" if stop is None else stop, "step": step, "repeat": repeat, "infer_range": False,
             "dtype": as_dtype(dtype).name, **kwargs}
    return create(ops.builtin("_arange"), (), given)


def linspace(start: float, stop: float, num: int, endpoint: bool = True, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A node that gives num values from start to stop, at equal distances."""
    given = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": as_dtype(dtype).name, **kwargs}
    return create(ops.builtin("_linspace"), (), given)


def split_v2(ary: Symbol, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False, **kwargs: Any) -> Symbol:
    """Split ary along axis: into a number of equal parts, or at ascending positions."""
    return ary.split_v2(indices_or_sections, axis, squeeze_axis, **kwargs)


def histogram(a: Symbol, bins: Any = 10, range: Any = None, **kwargs: Any) -> Symbol:
    """Count the values of a in each bin, int64, and return the edges too. bins: a number of equal bins in range, or edges."""
    if isinstance(bins, Symbol):
        return create(ops.builtin("_histogram"), (a, bins), kwargs)
    if range is None:
        raise GraphError("histogram: a number of bins needs range=(low, high) in a graph.")
    return create(ops.builtin("_histogram"), (a,), {"bin_cnt": bins, "range": tuple(range), **kwargs})


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A node that gives ones on diagonal k of [N, M], zeros elsewhere."""
    return create(ops.builtin("_eye"), (), {"N": N, "M": M, "k": k, "dtype": as_dtype(dtype).name, **kwargs})


def _filled(name: str, shape: Any, dtype: Any, kwargs: dict[str, Any]) -> Symbol:
    return create(ops.builtin(name), (), {"shape": format_value(shape), "dtype": as_dtype(dtype).name, **kwargs})


def _either(both: str, scalar: str, reverse: str, numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(left: Any, right: Any) -> Any:
        if isinstance(left, Symbol) and isinstance(right, Symbol):
            made = create(ops.builtin(both), (left, right), {})
        elif isinstance(left, Symbol) and isinstance(right, Number):
            made = create(ops.builtin(scalar), (left,), {"scalar": right}, hint=scalar.replace("_scalar", "scalar"))
        elif isinstance(right, Symbol) and isinstance(left, Number):
            made = create(ops.builtin(reverse), (right,), {"scalar": left}, hint=reverse.replace("_scalar", "scalar"))
        elif isinstance(left, Number) and isinstance(right, Number):
            made = numbers(left, right)
        else:
            raise GraphError(f"{both.lstrip('_')}: one side must be a Symbol, the other a Symbol or a number: "
                             f"{type(left).__name__}, {type(right).__name__}.")
        return made

    call.__name__ = both.lstrip("_")
    call.__doc__ = f"{both.lstrip('_')} of symbols or numbers, element by element."
    return call


pow = power = _either("_power", "_power_scalar", "_rpower_scalar", operator.pow)
maximum = _either("_maximum", "_maximum_scalar", "_maximum_scalar", max)
minimum = _either("_minimum", "_minimum_scalar", "_minimum_scalar", min)
hypot = _either("_hypot", "_hypot_scalar", "_hypot_scalar", math.hypot)


def __getattr__(name: str) -> Any:
    if name in ops.registered():
        return function(name)
    close = ops.nearest(name, ops.registered())
    raise AttributeError(f"mx.sym: no operator is called {name!r}.{close}")


def __dir__() -> list[str]:
    return sorted({*globals(), *ops.registered()})
