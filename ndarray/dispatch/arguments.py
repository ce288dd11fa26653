"""Call an operator with a user's arguments: separate arrays from parameters, and parse the parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from math import copysign
from typing import Any, NamedTuple

import numpy as np

from ...cache import key_of
from ...context import Context, as_context, current_context
from ...errors import DTypeError, MXNetError, OperatorError
from ...kernels.configs import float32_matmul
from ...kernels.declare.composite import TracedValue
from ...kernels.op import Op, Req
from ...kernels.params import REQUIRED, Param, Params
from ..autograd.tape import state
from ..core.array_core import ArrayCore
from ..core.sparse_core import find_sparse
from .invoke import invoke, run_new, run_plan
from .plan import CACHE, DispatchPlan, plan_of

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
                            "dtype": "float32", "str": "", "context": None, "any": None}


@cache
def array_names(op: Op) -> tuple[str, ...]:
    """Return the names of op's arrays, auxiliary states last, under its default parameters; () if it takes any number."""
    if is_variadic(op):
        return ()
    p = sample(op)
    return (op.input_names or ("data",)) if p is None else (*op.arguments(p), *op.auxiliaries(p))


@cache
def switched_names(op: Op) -> dict[str, str]:
    """Return op's optional arrays that a call asks for by giving them: {array: the parameter that says so}, in their order."""
    switches = {d.name for d in op.params if d.default is None and d.kind == "bool"}
    return {n: switch for n in op.optional_names if (switch := f"use_{n}") in switches}


def switch_on(op: Op, params: dict[str, Any], given: Sequence[Any], named: Collection[str]) -> None:
    """Set the parameters of the optional arrays that a call gives, by position or by name; see `switched_names`."""
    for at, (name, switch) in enumerate(switched_names(op).items(), len(array_names(op))):
        if params.get(switch) is None and (name in named or (at < len(given) and given[at] is not None)):
            params[switch] = True


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
    """Return a new function that runs op on NDArrays: arrays by position or by name, then parameters, likewise, then `out`.

    It returns an NDArray, or a list if op has several visible outputs; `out` if it was given. It raises what `invoke` does, and
    OperatorError for an array that is missing, given twice or unknown. A call as one before, but for the values of its arrays,
    finds its plan in the cache.
    """
    get, multiplies = CACHE.get, op.multiplies

    def key_of_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple:
        array_class, key = ArrayCore.array_class, (op, state.training)
        for a in args:  # a comprehension is a call, and takes 0.1 us more
            key += (a.layout,) if a.__class__ is array_class else ((a.__class__, a),)
        for name, value in kwargs.items():  # two comprehensions, or `map`, take 0.2 us more
            key += name, value, value.__class__  # 1 and 1.0 are equal
        if multiplies:
            key += (float32_matmul.other(),)
        if args:
            return key
        ctx = current_context()
        return (*key, ctx.device_type, ctx.device_id)  # a context's hash is a function in Python

    def call(*args: Any, **kwargs: Any) -> Any:
        out = None
        if kwargs:
            if "out" in kwargs:
                out = kwargs.pop("out")
            kwargs.pop("name", None)  # of a symbol
        try:
            found = get(key := key_of_call(args, kwargs))
        except TypeError:  # there is a list among them
            key, found = _key_with_lists(key_of_call, args, kwargs), None
            if key is not None:
                found = get(key)
        if found is None or (found.zeros and found.zeros != _signs(args, kwargs)):
            return _call_anew(op, args, kwargs, out, key)
        arrays = args if found.count == len(args) else args[:found.count]
        if out is None and len(found.plan.outs) == 1:
            return run_new(found.plan, arrays, found.p)
        return _result(run_plan(found.plan, arrays, found.p, out), out)

    return call


def _key_with_lists(key_of_call: Callable[..., tuple], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple | None:
    """Return the key of a call with lists of numbers, such as the rates of several weights; None for one with other lists."""
    key = key_of_call(args, {k: key_of(tuple(v)) if v.__class__ is list and _SIMPLE.issuperset(map(type, v)) else v
                             for k, v in kwargs.items()})
    try:
        hash(key)
    except TypeError:
        return None
    return key


class _Call(NamedTuple):
    """A call without the values of its arrays.

    count:  the number of its arrays, which come first.
    zeros:  the signs of the zeros among its floating-point parameters: 0.0 equals -0.0.
    """

    plan: DispatchPlan
    p: Params
    count: int
    zeros: list[float]


def _signs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[float]:
    """Return the signs of all zeros among the floating-point numbers of a call."""
    return [copysign(1, v) for v in (*args, *kwargs.values()) if v.__class__ is float and not v]


_caller = cache(operator_function)


def call_op(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run op on NDArrays, as `operator_function` says."""
    return _caller(op)(*args, **kwargs)


def _call_anew(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, key: tuple | None) -> Any:
    """Run op, and keep what the call does by this key, if it is of simple values and of arrays by position."""
    if (sparse := find_sparse((*args, out), kwargs)) is not None:
        return sparse.call_sparse(op, args, {**kwargs, "out": out})
    params = dict(kwargs)
    req = params.pop("req", Req.WRITE)
    place = params.pop("ctx", None)
    if is_variadic(op):
        arrays, rest = _leading(args)
        _positional(op, rest, params, skip="num_args")
        params.setdefault("num_args", len(arrays))
        p = parse(op, params)
    else:
        count, most = 0, len(array_names(op)) + len(op.optional_names)
        while count < len(args) and (isinstance(args[count], _ARRAYS) or (args[count] is None and count < most)):
            count += 1
        named = {k: params.pop(k) for k in kwargs if isinstance(kwargs[k], _ARRAYS)}
        for k in [k for k, v in params.items() if v is None and not any(d.name == k for d in op.params)]:
            del params[k]  # bias=None
        _positional(op, args[count:], params)
        switch_on(op, params, args[:count], named)
        p = parse(op, params)
        arrays = _arrange(op, (*op.arguments(p), *op.auxiliaries(p)), list(args[:count]), named)
    traced = next((a for a in arrays if isinstance(a, TracedValue)), None)
    if traced is not None:
        return traced.trace.call(op, arrays, p)
    ctx = None if arrays else as_context(place)  # an operator with inputs runs where these are
    if key is None or "req" in kwargs or not _is_simple(args, kwargs, arrays):
        return _result(invoke(op, arrays, p, out, req, ctx), out)
    if not arrays and ctx is None:
        ctx = current_context()
    plan = plan_of(op, p, [a.layout for a in arrays], state.training, ctx)
    CACHE[key] = _Call(plan, p, len(arrays), _signs(args, kwargs))
    return _result(run_plan(plan, arrays, p, out), out)


_SIMPLE = frozenset((bool, int, float, str, tuple, type, type(None)))


def _is_simple(args: Sequence[Any], kwargs: Mapping[str, Any], arrays: Sequence[Any]) -> bool:
    """Return True if a call has these arrays, all of the one class, by position, and else numbers, text, dtypes and contexts."""
    n = len(arrays)
    return (all(a is b for a, b in zip(args[:n], arrays)) and n <= len(args)
            and all(a.__class__ is ArrayCore.array_class for a in arrays)
            and all(v.__class__ in _SIMPLE or isinstance(v, (Context, list, np.dtype)) for v in (*args[n:], *kwargs.values())))


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
