"""Composition: an operator applied to symbols makes a node; missing inputs become variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ...errors import GraphError, OperatorError, ParameterError, nearest
from ...kernels.op import Op, ShapeLike
from ...kernels.params import IGNORED, NULL, Params, format_value
from ...ndarray.dispatch.arguments import array_names, switch_on
from .naming import AttrScope, NameManager
from .node import HIDDEN_KEYS, Entry, Node, hidden_form

#: What MXNet's Python operators (`a + b`) call their nodes. A function calls them by its own name: mx.sym.elemwise_add0.
HINTS = {
    "elemwise_add": "_plus", "elemwise_sub": "_minus", "elemwise_mul": "_mul", "elemwise_div": "_div",
    "_plus_scalar": "_plusscalar", "_minus_scalar": "_minusscalar", "_rminus_scalar": "_rminusscalar",
    "_mul_scalar": "_mulscalar", "_div_scalar": "_divscalar", "_rdiv_scalar": "_rdivscalar",
    "_power_scalar": "_powerscalar", "_mod_scalar": "_modscalar", "_rmod_scalar": "_rmodscalar",
}  # fmt: skip

#: How a variable starts where nothing else says so, by what the operator calls it; for some, of one operator alone.
INIT = {"moving_mean": '["zero", {}]', "moving_var": '["one", {}]', "moving_avg": '["zero", {}]',
        "LeakyReLU gamma": '["Constant", {"value": 0.25}]', "UpSampling weight": '["bilinear", {}]',
        "UpSampling arg1": '["bilinear", {}]'}


def starts(op: Op, name: str) -> str | None:
    """Return the `__init__` attribute of op's input called name; None if the initializer decides by its name."""
    return INIT.get(name, INIT.get(f"{op.name} {name}"))


def split_arguments(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], is_input: type
                    ) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return (positional inputs, inputs by name, parameters) of a call.

    Positional values are inputs as long as they are symbols (None: not given), then parameters in declared order.
    """
    given: list[Any] = []
    rest: list[Any] = []
    for a in args:
        if not rest and isinstance(a, (list, tuple)) and a and all(isinstance(s, is_input) for s in a):
            given.extend(a)
        elif not rest and (isinstance(a, is_input) or a is None):
            given.append(a)
        else:
            rest.append(a)
    most = len(array_names(op)) + len(op.optional_names)
    while most and len(given) > most and given[-1] is None:
        rest.insert(0, given.pop())  # the default of a parameter, as in x.sum(None)
    if len(rest) > len(op.params):
        raise ParameterError(f"{op.name}: {len(rest)} positional parameters were given, it has {len(op.params)}: "
                             f"{', '.join(d.name for d in op.params) or 'none'}.")
    params = {d.name: value for d, value in zip(op.params, rest)}
    named: dict[str, Any] = {}
    for key, value in kwargs.items():
        if isinstance(value, is_input):
            named[key] = value
        elif params.get(key) is not None:
            raise ParameterError(f"{op.name}: parameter {key!r} was given twice.")
        elif value is not None or any(d.name == key for d in op.params):
            params[key] = value
    return given, named, params


def clean_attrs(op: str, attrs: Mapping[str, object] | None) -> dict[str, str]:
    """Return a user's attributes as in files: strings, hidden keys in their `__x__` form."""
    clean: dict[str, str] = {}
    for key, value in (attrs or {}).items():
        if hidden_form(key) == "__init__" and isinstance(value, Dumps):
            value = value.dumps()  # an initializer
        if not isinstance(value, str):
            raise GraphError(f"{op}: attribute {key}={value!r} is not a string. Write {str(value)!r}.")
        clean[hidden_form(key)] = value
    return clean


def make_node(op: Op, given: Sequence[Entry | None], named: Mapping[str, Entry], params: Mapping[str, object], *,
              name: str | None = None, attrs: Mapping[str, str] | None = None, hint: str | None = None) -> Node:
    """Make a node of op. Missing inputs become variables `NAME_input`; `x_lr_mult` in attrs moves to the variable of x.

    params: as the user gave them; None means the default. hint: the name of an unnamed node, before its number; None: the
    operator's name.
    """
    params = dict(params)
    switch_on(op, params, given, named)
    parsed, texts = _parse(op, params, len(given) + len(named))
    arguments, states = op.arguments(parsed), op.auxiliaries(parsed)
    names = (*arguments, *states)
    while len(given) > len(names) and given[-1] is None:
        given = given[:-1]  # an array that is not given, as in FullyConnected(data, weight, None, no_bias=True)
    while len(given) > len(names) and given[-1] is None:
        given = given[:-1]
    if len(given) > len(names):
        raise GraphError(f"{op.name}: {len(given)} inputs were given, it takes {len(names)}: {', '.join(names) or 'none'}.")
    name = NameManager.current().get(name, hint or op.name.lower())
    inputs: list[Entry | None] = [*given, *[None] * (len(names) - len(given))]
    for key, entry in named.items():
        if key not in names and key == "data" and names[:1] == ("x",):
            key = "x"  # MXNet's name for the input of elementwise operators
        if key not in names:
            raise OperatorError(f"{name} ({op.name}): no input is called {key!r}.{nearest(key, names)} "
                                f"Inputs: {', '.join(names) or 'none'}.")
        at = names.index(key)
        if inputs[at] is not None:
            raise GraphError(f"{name} ({op.name}): input {key!r} was given twice.")
        inputs[at] = entry
    own = {hidden_form(k): v for k, v in AttrScope.current().get(clean_attrs(op.name, attrs)).items()}
    for key in [k for k in texts if k in HIDDEN_KEYS]:
        own[hidden_form(key)] = texts.pop(key)
    for_inputs = input_attributes(own, names)
    inherited = {**texts, **own}
    node = Node(op, name, parsed, dict(inherited))
    for at, entry in enumerate(inputs):
        init = starts(op, names[at])
        if entry is None:
            extra = for_inputs.get(names[at], {})
            if init is not None:
                extra = {"__init__": init, **extra}
            entry = (Node(None, f"{name}_{names[at]}", None, {**inherited, **extra}), 0)
        elif init is not None and entry[0].op is None:
            entry[0].attrs.setdefault("__init__", init)
        node.inputs.append(entry)
    return node


def _parse(op: Op, params: Mapping[str, object], n_inputs: int) -> tuple[Params, dict[str, str]]:
    known = {d.name: d for d in op.params}
    params = {k: v for k, v in params.items() if v is not NULL}
    given = {k: v for k, v in params.items() if v is not None or (k in known and known[k].default is not None)}
    if "num_args" in known and given.get("num_args") is None:
        given["num_args"] = n_inputs
    parsed = op.parse(given)
    counted = "num_args" in known and known["num_args"].default is None  # by us alone: MXNet has no such parameter there
    texts = {k: format_value(v) for k, v in given.items()
             if (k in parsed or k in IGNORED or k.startswith("__") or not op.params) and not (counted and k == "num_args")}
    texts |= {k: "None" for k, v in params.items() if v is None and k in known and known[k].default is None}
    return parsed, texts


def input_attributes(attrs: dict[str, str], inputs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Take `weight_lr_mult` and the like out of attrs: {"weight": {"__lr_mult__": ...}}."""
    found: dict[str, dict[str, str]] = {}
    for key in list(attrs):
        plain = key[2:-2] if key.startswith("__") and key.endswith("__") else key
        for hidden in HIDDEN_KEYS:
            target = plain[: -len(hidden) - 1]
            if plain.endswith(f"_{hidden}") and target in inputs:
                found.setdefault(target, {})[f"__{hidden}__"] = attrs.pop(key)
                break
    return found


@runtime_checkable
class Dumps(Protocol):
    """An initializer."""

    def dumps(self) -> str: ...


STORAGE_TYPES: dict[Any, int] = {"default": 0, "row_sparse": 1, "csr": 2}  # MXNet's numbers


def variable_attrs(attr: Mapping[str, str] | None, shape: ShapeLike | None, init: Dumps | str | None, stype: str | int | None,
                   given: Mapping[str, object], more: Mapping[str, object]) -> dict[str, str]:
    """Return the attributes for the keywords of `Variable(...)`, as strings. given: other attributes, None if not given."""
    attrs = {hidden_form(k): v for k, v in AttrScope.current().get(clean_attrs("Variable", attr)).items()}
    for key, value in more.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise GraphError(f"Variable: unknown keyword {key!r}. "
                             f"Attributes of your own go into attr={{...}} or are spelled __{key}__.")
        attrs[key] = str(value)
    if shape is not None:
        attrs["__shape__"] = format_value((shape,) if isinstance(shape, int) else tuple(int(d) for d in shape))
    attrs |= {f"__{key}__": str(value) for key, value in given.items() if value is not None}
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        number = STORAGE_TYPES.get(stype, stype)
        if number not in STORAGE_TYPES.values():
            raise GraphError(f"Variable: stype={stype!r} is not one of {', '.join(map(repr, STORAGE_TYPES))}.")
        attrs["__storage_type__"] = str(number)  # kept for files; the arrays of an executor are dense
    return attrs
