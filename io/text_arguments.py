"""accepts_text: constructors whose arguments may be text, as in MXNet, which passes every argument as text."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from ..errors import warn_ignored
from ..kernels.params import Param, parse_value

_KIND_OF_DEFAULT = {bool: "bool", int: "int", float: "float"}
_KIND_OF_NAME = {"data_shape": "shape", "label_shape": "shape", "batch_size": "int", "preprocess_threads": "int",
                 "seed_aug": "int"}

P = ParamSpec("P")


def accepts_text(init: Callable[P, None]) -> Callable[P, None]:
    """Wrap an `__init__` so that its arguments may be text: "(3, 32, 32)", "4", "True", "0".

    A parameter's default gives its type. Text for one of **kwargs becomes the number, bool or tuple that it spells.
    Arguments that are not text are passed on unchanged. Keywords that `__init__` does not have are ignored with a warning, as
    MXNet ignores them silently. Raises ParameterError for text that does not parse.
    """
    declared = inspect.signature(init).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in declared.values())

    @functools.wraps(init)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        iterator = type(args[0]).__name__  # args[0] is self
        values: Any = [_parsed(iterator, name, declared[name], value) for name, value in zip(declared, args)]
        known = kwargs if takes_any else {k: v for k, v in kwargs.items() if k in declared}
        if len(known) < len(kwargs):
            warn_ignored(iterator, [k for k in kwargs if k not in known], list(declared)[1:])
        named: Any = {name: _parsed(iterator, name, declared.get(name), value) for name, value in known.items()}
        call: Any = init
        call(*values, *args[len(values):], **named)

    return wrapper


def _parsed(iterator: str, name: str, declared: inspect.Parameter | None, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if declared is None:
        return _literal(value)
    kind = _KIND_OF_NAME.get(name) or _KIND_OF_DEFAULT.get(type(declared.default))
    return value if kind is None else parse_value(iterator, Param(name, kind, declared.default), value)


def _literal(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text.strip()) if len(text) <= 4096 else text
    except (ValueError, SyntaxError):
        return text  # a plain string, such as crop_emit_mode="center"
