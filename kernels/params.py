"""Operator parameters: typed, checked, hashable; parsed from Python values and from the strings of a symbol JSON."""

from __future__ import annotations

import ast
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..context import Context, as_context
from ..dtype import as_dtype
from ..errors import MXNetError, OperatorError, ParameterError, nearest, warn_ignored

#: MXNet's value for a parameter that is not given, which wrappers of operators pass on (`mx.base._Null`).
NULL: Any = type("_NullType", (), {"__repr__": lambda self: "_Null", "__bool__": lambda self: False})()
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "required"})()

#: Attributes that any node may carry and that are not parameters of its operator (MXNet's own, and switches of old back ends).
IGNORED = frozenset({"is_int", "workspace", "cudnn_off", "cudnn_tune", "ctx_group", "lr_mult", "wd_mult", "force_mirroring",
                     "name"})


class Range:
    """The allowed values of a number, ends included: `p: Range(0, 1) = 0.5`, `k: Annotated[int, Range(1, 100), "neighbours"]`.

    low, high: None for no end. NaN is in no range.
    """

    __slots__ = ("high", "low")

    def __init__(self, low: float | None = None, high: float | None = None):
        ends = [e for e in (low, high) if e is not None]
        numbers = all(isinstance(e, (int, float)) and not isinstance(e, bool) and e == e for e in ends)
        if not ends or not numbers or ends != sorted(ends):
            raise ParameterError(f"Range: {low!r}, {high!r} are not the ends of a range. Give the smallest number, the largest "
                                 f"one, or None for one of them.")
        self.low, self.high = low, high

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and value == value and (self.low is None or value >= self.low) and (
            self.high is None or value <= self.high)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and (self.low, self.high) == (other.low, other.high)

    def __hash__(self) -> int:
        return hash((self.low, self.high))

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"at most {self.high}" if self.low is None else f"at least {self.low}"
        return f"from {self.low} to {self.high}"

    def __repr__(self) -> str:
        return f"Range({self.low!r}, {self.high!r})"


@dataclass(frozen=True, slots=True)
class Param:
    """One keyword parameter of an operator.

    kind:     "int", "float", "bool", "str", "shape" (a tuple of ints; a lone int n means (n,)), "bounds" (the same,
              and None may be in it), "dtype", "floats", "context" (a Context, or text such as "gpu(0)"; "" is None), "any";
              "scalar" is a number handed to the compiled kernel at run time, so that a new value needs no new kernel.
    default:  REQUIRED if it must be given. None is always allowed where it is the default.
    choices:  the allowed strings, if they are few.
    range:    the allowed numbers; of each in a tuple.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    doc: str = ""
    range: Range | None = None


_KINDS: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str", tuple: "shape", np.dtype: "dtype",
                          Context: "context", Any: "any"}


def declared_param(op: str, name: str, hint: Any, default: Any = REQUIRED) -> Param:
    """Return the parameter that a type hint declares. Raises OperatorError for a type that is not supported."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    base: Any = next(o for o in options if o is not type(None))
    notes: list[Any] = []
    if isinstance(base, Range):
        notes, base = [base], int if isinstance(default, int) else float
    while typing.get_origin(base) is typing.Annotated and base.__metadata__[0] not in list(_PARSERS):
        notes += base.__metadata__
        base = base.__origin__
    if typing.get_origin(base) is typing.Annotated:
        notes += base.__metadata__[1:]
    elif typing.get_origin(base) in (typing.Union, types.UnionType):  # Annotated[float | None, …]
        base = next(o for o in typing.get_args(base) if o is not type(None))
    ranges = [n for n in notes if isinstance(n, Range)]
    doc = " ".join(inspect.cleandoc(n) for n in notes if isinstance(n, str))
    unknown = [n for n in notes if not isinstance(n, (Range, str))]
    if len(ranges) > 1 or unknown:
        raise OperatorError(f"{op}: parameter {name!r} is annotated with {(unknown or ranges)[-1]!r}. Annotate it with one Range "
                            f"and a description.")
    origin, inside = typing.get_origin(base), typing.get_args(base)
    choices: tuple[str, ...] = ()
    if origin is typing.Annotated:
        kind = base.__metadata__[0]
    elif origin is typing.Literal:
        kind, choices = "str", inside
    elif origin is tuple:
        kind = "floats" if float in inside else "bounds" if int | None in inside else "shape"
    elif base in _KINDS:
        kind = _KINDS[base]
    else:
        raise OperatorError(f"{op}: parameter {name!r} has the type {hint}. Use int, float, bool, str, a Literal of strings, a "
                            f"tuple of ints or floats, np.dtype, Context, Any, or Scalar; each may be `| None`.")
    made = Param(name, kind, default, choices, doc, ranges[0] if ranges else None)
    if made.range is not None and kind not in _NUMBERS:
        raise OperatorError(f"{op}: parameter {name!r} is no number, and has the range {made.range}. A range goes with int, "
                            f"float, Scalar, or a tuple of them.")
    if made.range is not None and default is not REQUIRED and default is not None:
        _check_range(op, made, default)
    return made


_NUMBERS = ("int", "float", "scalar", "shape", "floats")


def _check_range(op: str, d: Param, value: Any) -> None:
    """Raise ParameterError unless value, or each in it, is in the range of d."""
    if d.range is not None and any(v not in d.range for v in (value if isinstance(value, tuple) else (value,))):
        raise ParameterError(f"{op}: {d.name}={value!r} is out of its range: {d.range}.")


_SPOKEN = {"shape": "shape (a tuple of ints, or one)", "bounds": "tuple of ints and None", "floats": "tuple of floats",
           "scalar": "float", "any": "value"}


#: The meaning of parameters of many operators, where neither the declaration nor the operator's docstring gives one.
_USUAL = {
    "act_type": "the function",
    "beta1": "share of the old mean of gradients",
    "beta2": "share of the old mean of their squares",
    "bias_correction": "divide the means by 1 - beta ** t",
    "clip_grad": "bound of the rescaled gradient's elements; negative: none",
    "clip_gradient": "bound of the rescaled gradient's elements; negative: none",
    "ctx": "the device of the result, such as 'cpu(0)'; None: the current one",
    "cudnn_off": "ignored",
    "dilate": "distance between the elements of a window, by axis; (): 1",
    "dtype": "of the result",
    "epsilon": "added to a divisor, so that it is not 0",
    "forward_stype": "ignored",
    "is_ascend": "the smallest first",
    "keepdims": "keep the reduced axis, with size 1",
    "layout": "order of the axes; None: channels before positions",
    "lazy_update": "with a row-sparse gradient: change only the rows that it has",
    "lr": "learning rate",
    "momentum": "share of the previous step",
    "no_bias": "there is no bias",
    "pad": "positions of zeros at both ends, by axis; (): 0",
    "pool_type": "the number that a window becomes",
    "rescale_grad": "factor of the gradient, applied first",
    "shape": "of the result",
    "spatial_scale": "factor from the coordinates of boxes to positions of the data",
    "stride": "distance between windows, by axis; (): 1",
    "t": "the number of the update, from 1 on",
    "transpose_a": "transpose the matrices of the first input",
    "transpose_b": "transpose the matrices of the second input",
    "use_length": "a further input gives the length of each row",
    "use_sequence_length": "a further input gives the length of each sequence",
    "wd": "weight decay: wd · weight is added to the gradient",
    "workspace": "ignored",
}


def meaning(d: Param, text: str | None = None) -> str:
    """Return the description of a parameter: its own, or the usual one of its name.

    text: the operator's docstring. Where that mentions the parameter, there is no usual description.
    """
    return d.doc or ("" if re.search(rf"\b{d.name}\b", text or "") else _USUAL.get(d.name, ""))


def describe(d: Param, text: str | None = None) -> str:
    """Return a line about a parameter: its type, the allowed values, its default and its description.

    text: the operator's docstring, as for `meaning`.
    """
    default, about = "required" if d.default is REQUIRED else f"default {d.default!r}", meaning(d, text)
    choices = f", one of {', '.join(map(repr, d.choices))}" if d.choices else ""
    limits = f" {d.range}" if d.range is not None else ""
    return f"{d.name}: {_SPOKEN.get(d.kind, d.kind)}{limits}{choices}, {default}.{' ' + about if about else ''}"


class Params(Mapping[str, Any]):
    """Parsed parameters: `p.kernel`, `p["kernel"]`; equal and hashable by value.

    static:   every (name, value) except the run-time scalars: a compiled kernel depends on these. Key caches by this; so -0.0,
              which equals 0.0, is text.
    scalars:  the values of the "scalar" parameters, in declared order: handed to the kernel at each run. scalar_names: theirs.
    """

    __slots__ = ("_hash", "_values", "scalar_names", "scalars", "static")

    def __init__(self, values: dict[str, Any], scalar_names: tuple[str, ...] = ()):
        self._values = values
        self._hash: int | None = None
        self.scalar_names = scalar_names
        self.scalars: tuple[float, ...] = tuple(values[n] for n in scalar_names)
        self.static = tuple((k, "-0.0" if v.__class__ is float and not v and math.copysign(1, v) < 0 else v)
                            for k, v in values.items() if k not in scalar_names)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self):
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._values.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Params) and self._values == other._values

    def __repr__(self) -> str:
        return f"Params({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def parse_params(op: str, declared: Sequence[Param], given: Mapping[str, object]) -> Params:
    """Check the given values against the declared parameters and parse them.

    An operator without parameters ignores what is given, with a warning, as in MXNet.
    Raises ParameterError for an unknown name, a missing value or a wrong type.
    """
    given = {k: v for k, v in given.items() if v is not NULL}
    known = {d.name for d in declared}
    unknown = [n for n in given if n not in known and n not in IGNORED and not (n.startswith("__") and n.endswith("__"))]
    if unknown and not declared:
        warn_ignored(op, unknown, known, stacklevel=7)
    elif unknown:
        listed = ", ".join(d.name for d in declared)
        raise ParameterError(f"{op}: unknown parameter {unknown[0]!r}.{nearest(unknown[0], known)} Parameters: {listed}.")
    values: dict[str, Any] = {}
    for d in declared:
        if d.name not in given:
            if d.default is REQUIRED:
                raise ParameterError(f"{op}: parameter {d.name!r} ({d.kind}) is required.")
            values[d.name] = d.default
        else:
            values[d.name] = parse_value(op, d, given[d.name])
    return Params(values, tuple(d.name for d in declared if d.kind == "scalar"))


def parse_value(op: str, d: Param, value: object) -> Any:
    """Return value with the type of parameter d. Raises ParameterError that names op, parameter, value and the expected type."""
    if value is None or (isinstance(value, str) and value == "None"):
        if d.default is None or d.kind == "any":
            return None
        if d.kind == "dtype" and value is None and d.default is not REQUIRED:
            return d.default
        raise _wrong(op, d, value)
    try:
        result = _PARSERS[d.kind](value)
    except (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError, MXNetError):
        raise _wrong(op, d, value) from None
    if d.choices and result not in d.choices:
        raise ParameterError(f"{op}: {d.name}={result!r} is not one of {', '.join(map(repr, d.choices))}.")
    if d.range is not None:
        _check_range(op, d, result)
    return result


def _wrong(op: str, d: Param, value: object) -> ParameterError:
    return ParameterError(f"{op}: {d.name}={value!r} is not {_WANTED.get(d.kind, f'a {d.kind}')}.")


_WANTED = {"shape": "a tuple of integers", "bounds": "a tuple of integers and None", "int": "an integer",
           "float": "a number", "scalar": "a number", "floats": "a tuple of numbers"}


def format_value(value: object) -> str:
    """Return the string that MXNet writes for a parameter value in a symbol JSON."""
    if isinstance(value, (np.dtype, type)):
        return as_dtype(value).name
    if isinstance(value, list):
        return f"[{', '.join(format_value(v) for v in value)}]"
    if isinstance(value, tuple):
        inner = ", ".join(format_value(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return str(value)


def _parse_int(v: Any) -> int:
    if isinstance(v, str):
        return int(v.strip().rstrip("L"))
    if isinstance(v, (float, np.floating)):
        if v != int(v):
            raise ValueError
        return int(v)
    if isinstance(v, (int, np.integer, np.bool_)):
        return int(v)
    raise TypeError


def _parse_float(v: Any) -> float:
    if isinstance(v, (str, int, float, np.number, np.bool_)):
        return float(v)
    if isinstance(v, np.ndarray) and v.size == 1:
        return float(v.reshape(()))
    raise TypeError


def _parse_scalar(v: Any) -> float | int:
    """Return a float; but an integer of 64 bits that no float represents exactly stays an integer."""
    if isinstance(v, str):
        try:
            v = int(v)
        except ValueError:
            return float(v)
    near = _parse_float(v)
    if isinstance(v, (int, np.integer)) and near != int(v) and -(2**63) <= v < 2**64:
        return int(v)
    return near


def _parse_bool(v: Any) -> bool:
    if isinstance(v, str):
        word = v.strip().lower()
        if word in ("true", "1"):
            return True
        if word in ("false", "0"):
            return False
        raise ValueError
    if isinstance(v, (bool, np.bool_, int, np.integer)):
        return bool(v)
    raise TypeError


def _parse_str(v: Any) -> str:
    if isinstance(v, (type, np.dtype)):  # dtype=np.float32 where the parameter is the name of a dtype
        return as_dtype(v).name
    if not isinstance(v, str):
        raise TypeError
    return v


def parse_shape(v: Any) -> tuple[int, ...]:
    """Return the sizes in a sequence, in text such as "(2, 3)", or one integer. Raises ValueError, TypeError or SyntaxError."""
    return tuple(_parse_int(e) for e in _sequence(v))


def _sequence(v: Any) -> list[Any]:
    if isinstance(v, str):
        if len(v) > 4096:
            raise ValueError
        v = ast.literal_eval(v.strip().replace("L", ""))
    if isinstance(v, np.ndarray):
        v = v.tolist()
    return list(v) if isinstance(v, (list, tuple)) else [v]


_PARSERS = {
    "int": _parse_int,
    "float": _parse_float,
    "scalar": _parse_scalar,
    "bool": _parse_bool,
    "str": _parse_str,
    "shape": parse_shape,
    "bounds": lambda v: tuple(None if e is None else _parse_int(e) for e in _sequence(v)),
    "floats": lambda v: tuple(_parse_float(e) for e in _sequence(v)),
    "dtype": as_dtype,
    "context": as_context,
    "any": lambda v: tuple(v) if isinstance(v, list) else v,
}
