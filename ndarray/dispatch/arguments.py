"""Call an operator with a user's arguments: separate arrays from parameters, and parse the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import copysign
from typing import Any

from ...cache import key_of
from ...context import Context, current_context
from ...engine import current
from ...errors import DTypeError, MXNetError, OperatorError
from ...kernels.configs import float32_matmul
from ...kernels.cpu.errstate import prepared
from ...kernels.declare.composite import TracedValue
from ...kernels.op import Op, Req
from ...kernels.params import REQUIRED, Param, Params
from ..autograd.tape import Seen, state
from ..core.array_core import ArrayCore
from ..core.sparse_core import find_sparse
from .invoke import invoke, overwritten, record, run_new, run_plan
from .plan import CACHE, plan_of

_ARRAYS = (ArrayCore, TracedValue)  # a composite's body may call the functions of mx.nd, too


def parse(op: Op, given: Mapping[str, Any]) -> Params:
    """Return op.parse(given), from the cache if possible."""
    try:
        key = (op, *[(k, key_of(v)) for k, v in given.items()])
        p = CACHE.get(key)
    except TypeError:  # there is a list among the values
        return op.parse(given)
    if p is None:
        p = CACHE[key] = op.parse(given)
    return p


@cache
def is_variadic(op: Op) -> bool:
    """Return True if op takes any number of arrays, counted by its parameter num_args."""
    return any(d.name == "num_args" for d in op.params)


#: A value for each kind of parameter, to ask an operator for its arrays; numbers rise (low < high).
_SAMPLES: dict[str, Any] = {"bool": False, "shape": (1, 1), "bounds": (1, 1), "floats": (1.0,),
                            "dtype": "float32", "str": "", "any": None}


@cache
def array_names(op: Op) -> tuple[str, ...]:
    """Return the names of op's arrays, auxiliary states last, under its default parameters; () if it takes any number."""
    if is_variadic(op):
        return ()
    p = sample(op)
    return (op.input_names or ("data",)) if p is None else (*op.arguments(p), *op.auxiliaries(p))


def _within(d: Param, value: Any) -> Any:
    """Return value, or an end of the parameter's range if it is outside of that."""
    ends = [] if d.range is None or isinstance(value, tuple) or value in d.range else [d.range.low, d.range.high]
    return next((e for e in ends if e is not None), value)


def sample(op: Op) -> Params | None:
    """Return parameters of op: its defaults, and plausible values for required ones; None if op refuses them."""
    given = {d.name: d.choices[0] if d.choices else _within(d, _SAMPLES.get(d.kind, i + 1))
             for i, d in enumerate(op.params) if d.default is REQUIRED}
    try:
        return op.parse(given)
    except MXNetError:
        return None


def operator_function(op: Op) -> Callable[..., Any]:
    """Return a new function of op's arguments that does what `call_op` does, and computes tiny results of one or two arrays at
    once.

    It finds those by the layouts, if only flags are given beside two arrays, and nothing beside one.
    Training does not change what NumPy computes.
    """
    get = CACHE.get

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and (a := args[0]).__class__ is (b := args[1]).__class__ is ArrayCore.array_class:
            direct = None
            if not kwargs:
                direct = get((op, a.layout, b.layout))
            else:
                for value in kwargs.values():
                    if value.__class__ is not bool:  # 1 and 1.0 would have the key of True
                        break
                else:
                    direct = get((op, a.layout, b.layout, *kwargs.items()))
            if direct is not None and not (Seen.overwrites and overwritten(a, b)):
                plan, p = direct
                x, y = a._view, b._view
                if x is not None and y is not None:
                    view = current().try_call_inline(a, b, prepared.leaf, plan.direct, x, y)
                    if view is not None:
                        result = a.__class__(plan.outs[0], view)
                        if (a._grad_edge is not None or b._grad_edge is not None) and state.recording:
                            record(plan, p, args, (result,))
                        return result
        elif len(args) == 1 and not kwargs and (a := args[0]).__class__ is ArrayCore.array_class:
            found = get((op, a.layout, state.training))
            if found is not None:
                plan, p = found
                x = a._view
                if plan.direct is not None and x is not None and not (Seen.overwrites and overwritten(a, a)):
                    view = current().try_call_inline(a, a, prepared.leaf, plan.direct, x)
                    if view is not None:
                        result = a.__class__(plan.outs[0], view)
                        if a._grad_edge is not None and state.recording:
                            record(plan, p, args, (result,))
                        return result
                return run_new(plan, args, p)
        return call_op(op, args, kwargs)

    return call


def call_op(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run op on NDArrays: arrays by position or by name, then parameters, likewise; `out` to write into.

    Returns: an NDArray, or a list if op has several visible outputs.
    Raises: as `invoke`; OperatorError for an array that is missing, given twice or unknown.
    """
    key = _call_key(op, args, kwargs)
    call = CACHE.get(key) if key is not None else None
    if call is not None:
        plan, p, count = call
        out = kwargs.get("out") if kwargs else None
        arrays = args if count == len(args) else args[:count]
        if out is None and len(plan.outs) == 1:
            return run_new(plan, arrays, p)
        outputs = run_plan(plan, arrays, p, out)
        return out if out is not None else outputs[0] if len(outputs) == 1 else outputs
    if key is None and (sparse := find_sparse(args, kwargs)) is not None:
        return sparse.call_sparse(op, args, kwargs)
    params = dict(kwargs)
    out = params.pop("out", None)
    params.pop("name", None)
    req = params.pop("req", Req.WRITE)
    ctx = as_context(params.pop("ctx", None))  # for an operator without inputs; others run where their inputs are
    if is_variadic(op):
        arrays, rest = _leading(args)
        _positional(op, rest, params, skip="num_args")
        params.setdefault("num_args", len(arrays))
        p = parse(op, params)
    else:
        count, most = 0, len(array_names(op)) + len(op.optional_names)
        while count < len(args) and (isinstance(args[count], _ARRAYS) or (args[count] is None and count < most)):
            count += 1
        named = {k: params.pop(k) for k in kwargs if isinstance(kwargs[k], _ARRAYS) and k != "out"}
        for k in [k for k, v in params.items() if v is None and not any(d.name == k for d in op.params)]:
            del params[k]  # bias=None
        _positional(op, args[count:], params)
        p = parse(op, params)
        arrays = _arrange(op, (*op.arguments(p), *op.auxiliaries(p)), list(args[:count]), named)
    traced = next((a for a in arrays if isinstance(a, TracedValue)), None) if key is None else None
    if traced is not None:
        return traced.trace.call(op, arrays, p)
    if key is None or not arrays:
        return _result(invoke(op, arrays, p, out, req, ctx), out)
    plan = plan_of(op, p, [a.layout for a in arrays], state.training)
    CACHE[key] = plan, p, len(arrays)
    if plan.direct is not None and len(args) == 2 and out is None:
        CACHE[(op, *plan.ins, *kwargs.items())] = plan, p
    elif len(args) == 1 and not kwargs and len(plan.outs) == 1 and not (plan.target == "gpu" and op.multiplies):
        CACHE[(op, plan.ins[0], state.training)] = plan, p
    return _result(run_plan(plan, arrays, p, out), out)


_SIMPLE = frozenset((bool, int, float, str, tuple, type(None)))
_SPECIAL = frozenset(("name", "req", "ctx"))


def _call_key(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple | None:
    """Return the key of a call with all arrays by position, `out` apart, and simple parameters. Return None for other calls."""
    array_class = ArrayCore.array_class
    key = [op, state.training]
    if float32_matmul.Chosen.ever:
        key.append(float32_matmul.other())
    for a in args:
        kind = a.__class__
        if kind is array_class:
            key.append(a.layout)
        elif kind in _SIMPLE:
            key += (kind, a) if a or kind is not float else (kind, a, copysign(1, a))  # 0.0 equals -0.0
        else:
            return None
    for k, v in kwargs.items() if kwargs else ():
        kind = v.__class__
        if kind in _SIMPLE and k not in _SPECIAL:
            key += (k, kind, v) if v or kind is not float else (k, kind, v, copysign(1, v))
        elif kind is list and k != "out" and _SIMPLE.issuperset(map(type, v)):  # as the rates of several weights
            key += (k, key_of(tuple(v)))
        elif k != "out" and k != "name":  # a name is of a symbol
            return None
    return tuple(key)


def as_context(spelling: Context | str | None) -> Context | None:
    """Return a Context for a Context, or for text such as "gpu(0)" and "cpu"; None for None and ""."""
    if isinstance(spelling, Context):
        return spelling
    if spelling is None or spelling == "":
        return None
    kind, _, number = str(spelling).partition("(")
    return Context(kind, int(number.rstrip(")") or 0))


def context_of(spelling: Context | str | None) -> Context:
    """Return the context of a spelling as in `as_context`, by default the current one."""
    return as_context(spelling) or current_context()


def _arrange(op: Op, names: Sequence[str], arrays: list[Any], named: dict[str, Any]) -> list[Any]:
    """Return the arrays given by position, then those given by name, in the order of names."""
    if len(arrays) > len(names):
        arrays = [*arrays[:len(names)], *(a for a in arrays[len(names):] if a is not None)]
    if len(arrays) > len(names):
        raise OperatorError(f"{op.name}: takes {len(names)} arrays ({', '.join(names) or 'none'}), {len(arrays)} given.")
    if not named and len(arrays) == len(names):
        return arrays
    placed = dict(zip(names, arrays))
    for k, a in named.items():
        if k not in names:
            raise OperatorError(f"{op.name}: {k!r} is not one of its arrays: {', '.join(names) or 'none'}.")
        if placed.get(k) is not None:
            raise OperatorError(f"{op.name}: array {k!r} is given twice.")
        placed[k] = a
    missing = [n for n in names if placed.get(n) is None]
    if missing:
        raise OperatorError(f"{op.name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing. "
                            f"Its arrays: {', '.join(names)}.")
    return [placed[n] for n in names]


def _leading(args: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
    if args and isinstance(args[0], (list, tuple)) and all(isinstance(a, _ARRAYS) for a in args[0]):
        return list(args[0]), args[1:]
    n = 0
    while n < len(args) and isinstance(args[n], _ARRAYS):
        n += 1
    return list(args[:n]), args[n:]


def _positional(op: Op, rest: Sequence[Any], params: dict[str, Any], skip: str = "") -> None:
    """Put the parameters given by position into params, in the order of op.params."""
    declared = [d.name for d in op.params if d.name != skip]
    if len(rest) > len(declared):
        raise DTypeError(f"{op.name}: {rest[len(declared)]!r} is neither an array nor one of its parameters "
                         f"({', '.join(declared) or 'it has none'}).")
    for k, v in zip(declared, rest):
        if v is None and k in params:
            continue  # an array that is not given, as in CTCLoss(data, label, None, None, use_data_lengths=False)
        if k in params:
            raise OperatorError(f"{op.name}: parameter {k!r} is given twice.")
        params[k] = v


def _result(outputs: list[Any], out: Any) -> Any:
    if out is not None:
        return out
    return outputs[0] if len(outputs) == 1 else outputs
