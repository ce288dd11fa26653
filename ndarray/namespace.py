"""mx.nd.X: a function with a real signature for every registered operator, made when first asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import OperatorError, nearest
from ..kernels import op as registry
from ..kernels.op import Op
from ..kernels.params import REQUIRED
from .call import array_names, call_op, is_variadic

_made: dict[tuple[str, Op], Callable[..., Any]] = {}


def function(name: str) -> Callable[..., Any]:
    """The function that runs the operator called name on NDArrays. Raises OperatorError for an unknown name."""
    op = registry.get(name)
    found = _made.get((name, op))
    if found is None:
        found = _made[name, op] = _make(name, op)
    return found


def _make(name: str, op: Op) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return call_op(op, args, kwargs)

    call.__name__ = call.__qualname__ = name
    call.__signature__ = signature(op)  # type: ignore[attr-defined]
    call.__doc__ = document(op)
    return call


def signature(op: Op) -> inspect.Signature:
    """Arrays by position, then parameters with their defaults, out and name."""
    kinds = inspect.Parameter
    some = [kinds("data", kinds.VAR_POSITIONAL)] if is_variadic(op) else [
        kinds(_identifier(n), kinds.POSITIONAL_OR_KEYWORD) for n in array_names(op)]
    taken = {p.name for p in some}
    for d in sorted(op.params, key=lambda d: d.default is not REQUIRED):
        if d.name != "num_args" and d.name not in taken and d.name.isidentifier():
            default = kinds.empty if d.default is REQUIRED else d.default
            some.append(kinds(d.name, kinds.KEYWORD_ONLY, default=default))
    some += [kinds(n, kinds.KEYWORD_ONLY, default=None) for n in ("out", "name") if n not in taken]
    return inspect.Signature(some)


def document(op: Op) -> str:
    """The operator's docstring with its parameters."""
    lines = [op.doc or f"The operator {op.name}.", ""]
    for d in op.params:
        if d.name == "num_args":
            continue
        default = "required" if d.default is REQUIRED else f"default {d.default!r}"
        choices = f", one of {', '.join(map(repr, d.choices))}" if d.choices else ""
        lines.append(f"{d.name}: {d.kind}{choices}, {default}.{' ' + d.doc if d.doc else ''}")
    return "\n".join(lines).rstrip()


def _identifier(name: str) -> str:
    return name if name.isidentifier() else f"{name}_"


class Namespace:
    """Attributes are the functions of operators: `space.X` is the operator `prefix + X`; new ones appear by themselves.

    extra:  functions that are no operator, found first.
    """

    def __init__(self, name: str, prefixes: tuple[str, ...] = ("",), extra: Mapping[str, Any] | None = None):
        self.__name__, self._prefixes, self._extra = name, prefixes, dict(extra or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._extra:
            return self._extra[name]
        return attribute(self.__name__, name, self._prefixes)

    def __dir__(self) -> list[str]:
        own = [n.removeprefix(p) for p in self._prefixes for n in registry.registered() if n.startswith(p)]
        return sorted({*own, *self._extra})

    def __repr__(self) -> str:
        return f"<operators of {self.__name__}>"


def attribute(where: str, name: str, prefixes: tuple[str, ...] = ("",)) -> Callable[..., Any]:
    """The function of an operator as an attribute. Raises AttributeError that proposes the nearest names."""
    for prefix in prefixes:
        try:
            return function(prefix + name)
        except OperatorError:
            continue
    known = [n.removeprefix(p) for p in prefixes for n in registry.registered() if n.startswith(p)]
    raise AttributeError(f"{where}.{name}: no such operator or function.{nearest(name, known)}")
