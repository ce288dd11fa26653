"""Calling an operator with a user's arguments: which are arrays, which parameters, and the parsed parameters kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...context import Context
from ...errors import DTypeError, MXNetError, OperatorError
from ...kernels.op import Op, Req
from ...kernels.params import REQUIRED, Params
from ..core.array_core import ArrayCore
from .invoke import invoke

_KEPT = 8192
_parsed: dict[tuple, Params] = {}
_plain: dict[tuple, Params] = {}  # calls with all arrays by position and all parameters by name, as most are
_variadic: dict[Op, bool] = {}
_names: dict[Op, tuple[str, ...]] = {}


def parse(op: Op, given: Mapping[str, Any]) -> Params:
    """op.parse, remembered by the values' types and values."""
    try:
        key = (op, *[(k, type(v), v) for k, v in given.items()])
        found = _parsed.get(key)
    except TypeError:  # a list among them
        return op.parse(given)
    if found is None:
        found = op.parse(given)
        if any(isinstance(v, float) and v == 0 for v in given.values()):
            return found  # 0.0 and -0.0 are one key
        if len(_parsed) >= _KEPT:
            _parsed.clear()
        _parsed[key] = found
    return found


def is_variadic(op: Op) -> bool:
    """Whether op takes any number of arrays, counted by its parameter num_args."""
    found = _variadic.get(op)
    if found is None:
        found = _variadic[op] = any(d.name == "num_args" for d in op.params)
    return found


#: A value of each kind of parameter, to ask an operator for its arrays; numbers rise (low < high).
_SAMPLES: dict[str, Any] = {"bool": False, "shape": (1, 1), "bounds": (1, 1), "floats": (1.0,),
                            "dtype": "float32", "str": "", "any": None}


def array_names(op: Op) -> tuple[str, ...]:
    """Names of op's arrays, auxiliary states last, under its default parameters; () if it takes any number."""
    found = _names.get(op)
    if found is None:
        found = _names[op] = () if is_variadic(op) else _names_by_default(op)
    return found


def sample(op: Op) -> Params | None:
    """Parameters op can be asked with: defaults, and something plausible for what is required; None if it refuses them."""
    given = {d.name: d.choices[0] if d.choices else _SAMPLES.get(d.kind, i + 1)
             for i, d in enumerate(op.params) if d.default is REQUIRED}
    try:
        return op.parse(given)
    except MXNetError:
        return None


def _names_by_default(op: Op) -> tuple[str, ...]:
    p = sample(op)
    return (op.input_names or ("data",)) if p is None else (*op.arguments(p), *op.auxiliaries(p))


def call_op(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """op on NDArrays: arrays by position or by name, then parameters, likewise; `out` to write into.

    Returns: an NDArray, or a list if op has several visible outputs.
    Raises: what `invoke` raises; OperatorError for an array that is missing, doubled or unknown.
    """
    plain = _plain_key(op, args, kwargs)
    p = _plain.get(plain) if plain is not None else None
    if p is not None:
        outputs = invoke(op, args, p)
        return outputs[0] if len(outputs) == 1 else outputs
    params = dict(kwargs)
    out = params.pop("out", None)
    params.pop("name", None)
    req = params.pop("req", Req.WRITE)
    ctx = as_context(params.pop("ctx", None))  # where inputs are, the operator runs; without any, here
    if is_variadic(op):
        arrays, rest = _leading(args)
        _positional(op, rest, params, skip="num_args")
        params.setdefault("num_args", len(arrays))
        p = parse(op, params)
        return _result(invoke(op, arrays, p, out, req, ctx), out)
    count, most = 0, len(array_names(op))
    while count < len(args) and (isinstance(args[count], ArrayCore) or (args[count] is None and count < most)):
        count += 1
    named = {k: params.pop(k) for k in kwargs if isinstance(kwargs[k], ArrayCore) and k != "out"}
    for k in [k for k, v in params.items() if v is None and not any(d.name == k for d in op.params)]:
        del params[k]  # bias=None
    _positional(op, args[count:], params)
    p = parse(op, params)
    names = (*op.arguments(p), *op.auxiliaries(p))
    arrays = list(args[:count])
    while arrays and arrays[-1] is None and len(arrays) > len(names):
        arrays.pop()
    if len(arrays) > len(names):
        raise OperatorError(f"{op.name}: takes {len(names)} arrays ({', '.join(names) or 'none'}), {len(arrays)} given.")
    if named or len(arrays) < len(names):
        arrays = _by_name(op, names, arrays, named)
    elif plain is not None and len(args) == len(arrays):
        if len(_plain) >= _KEPT:
            _plain.clear()
        _plain[plain] = p
    return _result(invoke(op, arrays, p, out, req, ctx), out)


_SIMPLE = frozenset((bool, int, str, tuple))
_SPECIAL = frozenset(("out", "name", "req", "ctx"))


def _plain_key(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple | None:
    """What the parsed parameters of a plain call are kept under; None for other calls."""
    for a in args:
        if not isinstance(a, ArrayCore):
            return None
    if not kwargs:
        return op, len(args)
    for k, v in kwargs.items():
        if v.__class__ not in _SIMPLE or k in _SPECIAL:
            return None
    return op, len(args), *[(k, v.__class__, v) for k, v in kwargs.items()]


def as_context(spelling: Any) -> Context | None:
    """A Context from one, from "gpu(0)" or "cpu", or None."""
    if isinstance(spelling, Context):
        return spelling
    if spelling is None or spelling == "":
        return None
    kind, _, number = str(spelling).partition("(")
    return Context(kind, int(number.rstrip(")") or 0))


def _by_name(op: Op, names: Sequence[str], arrays: list[Any], named: dict[str, Any]) -> list[Any]:
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
    if args and isinstance(args[0], (list, tuple)) and all(isinstance(a, ArrayCore) for a in args[0]):
        return list(args[0]), args[1:]
    n = 0
    while n < len(args) and isinstance(args[n], ArrayCore):
        n += 1
    return list(args[:n]), args[n:]


def _positional(op: Op, rest: Sequence[Any], params: dict[str, Any], skip: str = "") -> None:
    """Parameters given by position, in the order of op.params."""
    declared = [d.name for d in op.params if d.name != skip]
    if len(rest) > len(declared):
        raise DTypeError(f"{op.name}: {rest[len(declared)]!r} is neither an array nor one of its parameters "
                         f"({', '.join(declared) or 'it has none'}).")
    for k, v in zip(declared, rest):
        if k in params:
            raise OperatorError(f"{op.name}: parameter {k!r} is given twice.")
        params[k] = v


def _result(outputs: list[Any], out: Any) -> Any:
    if out is not None:
        return out
    return outputs[0] if len(outputs) == 1 else outputs
