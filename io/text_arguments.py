"""accepts_text: constructors that also take their values as text, as MXNet's do, where every value becomes text."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from ..kernels.params import Param, parse_value

_KINDS = {bool: "bool", int: "int", float: "float"}
_NAMED = {"data_shape": "shape", "label_shape": "shape", "batch_size": "int", "preprocess_threads": "int", "seed_aug": "int"}


P = ParamSpec("P")


def accepts_text(init: Callable[P, None]) -> Callable[P, None]:
    """An `__init__` whose arguments may be text: "(3, 32, 32)", "4", "True", "0". Only text is changed.

    What a parameter is, its default says; text for one of **more becomes the number, truth value or tuple that it spells.
    Raises ParameterError where it spells nothing that the parameter can be.
    """
    declared = inspect.signature(init).parameters

    @functools.wraps(init)
    def wrapper(*args: P.args, **given: P.kwargs) -> None:
        iterator = type(args[0]).__name__  # the first is self
        values: Any = [_parsed(iterator, name, declared[name], value) for name, value in zip(declared, args)]
        named: Any = {name: _parsed(iterator, name, declared.get(name), value) for name, value in given.items()}
        make: Any = init
        make(*values, *args[len(values):], **named)

    return wrapper


def _parsed(iterator: str, name: str, declared: inspect.Parameter | None, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if declared is None:
        return _spelled(value)
    kind = _NAMED.get(name) or _KINDS.get(type(declared.default))
    return value if kind is None else parse_value(iterator, Param(name, kind, declared.default), value)


def _spelled(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text.strip()) if len(text) <= 4096 else text
    except (ValueError, SyntaxError):
        return text  # a name, such as crop_emit_mode="center"
