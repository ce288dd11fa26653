"""mx.nd.X: a function with a full signature for every registered operator, made on first access."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

from ...errors import nearest
from ...kernels import op as registry
from ...kernels.op import Op
from ...kernels.params import REQUIRED, describe
from ..dispatch.arguments import array_names, is_variadic, operator_function, sample, switched_names

Intercept = Callable[[Op, Callable[..., Any]], Callable[..., Any]]

_intercept: Intercept | None = None


def intercept(by: Intercept | None) -> None:
    """Replace the functions of operators while mixed precision is on: by(op, function) -> function. None: no more."""
    global _intercept
    _intercept = by
    _Published.forget()


def function_of(name: str, op: Op) -> Callable[..., Any]:
    """Return the function that runs op on NDArrays, with the name `name`."""
    call = _function_of(name, op)
    return call if _intercept is None else _intercept(op, call)


class _Published:
    """The functions that were put in a module's dictionary, (dictionary, name, function), until operators change.

    version: counts the changes.
    """

    functions: ClassVar[list[tuple[dict[str, Any], str, Callable[..., Any]]]] = []
    version = 0

    @classmethod
    def forget(cls) -> None:
        """Take them out again, unless something else was put there."""
        cls.version += 1
        while cls.functions:
            into, name, function = cls.functions.pop()
            if into.get(name) is function:
                del into[name]


registry.after_register.append(_Published.forget)


def publish(into: dict[str, Any], where: str, name: str) -> Callable[..., Any]:
    """Return the function of an operator, as `attribute` does, and put it in a module's dictionary until operators change.

    Python finds it there in a twentieth of the time that a call of `__getattr__` takes.
    """
    version, function = _Published.version, attribute(where, name)
    into[name] = function
    _Published.functions.append((into, name, function))
    if version != _Published.version:  # another thread declared an operator meanwhile
        _Published.forget()
    return function


@cache
def _function_of(name: str, op: Op) -> Callable[..., Any]:
    call = operator_function(op)
    call.__name__ = call.__qualname__ = name
    call.__signature__ = signature(op)  # type: ignore[attr-defined]
    call.__doc__ = document(op)
    return call


def signature(op: Op) -> inspect.Signature:
    """Return the signature: arrays, then parameters in their declared order with their defaults, then out and name.

    Parameters may be given by position, except after a variable number of arrays, and except required ones declared after
    one with a default.
    """
    kinds = inspect.Parameter
    variadic = is_variadic(op)
    bias = any(d.name == "no_bias" for d in op.params)
    some = [kinds("data", kinds.VAR_POSITIONAL)] if variadic else [
        kinds(n if n.isidentifier() else f"{n}_", kinds.POSITIONAL_OR_KEYWORD,
              default=None if n == "bias" and bias else kinds.empty) for n in array_names(op)]
    some += [kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=None) for n in switched_names(op)]
    taken = {*(p.name for p in some), *switched_names(op).values()}
    declared = [d for d in op.params if d.name != "num_args" and d.name not in taken and d.name.isidentifier()]
    where = kinds.KEYWORD_ONLY if variadic else kinds.POSITIONAL_OR_KEYWORD
    for i, d in enumerate(declared):
        required = d.default is REQUIRED
        if required and (bias or switched_names(op) or any(e.default is not REQUIRED for e in declared[:i])):
            where = kinds.KEYWORD_ONLY
        some.append(kinds(d.name, where, default=kinds.empty if required else d.default))
    some += [kinds(n, kinds.KEYWORD_ONLY, default=None) for n in ("out", "name") if n not in taken]
    return inspect.Signature(some)


def document(op: Op) -> str:
    """Return the operator's docstring, then its arrays, parameters and results."""
    lines = [op.doc or f"The operator {op.name}.", ""]
    p = sample(op)
    states = () if p is None else op.auxiliaries(p)
    spoken = ", ".join(f"{n} (a state: changed in place)" if n in states else n for n in array_names(op))
    lines.append(f"Arrays: {'any number, of one dtype, by position or as a list' if is_variadic(op) else spoken or 'none'}.")
    hidden = {"num_args", *switched_names(op).values()}
    lines += [describe(d, op.doc) for d in op.params if d.name not in hidden]
    lines.append("out: the array (or list of them) to write to instead of a new one. name: ignored, for MXNet's sake.")
    results = result_names(op)
    several = f"a list: {', '.join(results)}" if results else "one array or a list, as the parameters say"
    lines.append(f"Returns: {'an array' if len(results) == 1 else several}.")
    return "\n".join(lines).rstrip()


def result_names(op: Op) -> tuple[str, ...]:
    """Return the names of the results under default parameters; () if their number depends on the parameters."""
    p = sample(op)
    if p is None or any(d.name == "num_outputs" for d in op.params):
        return ()
    return tuple(op.outputs(p))[:op.visible_outputs(p)]


_dictionary: Any = vars(ModuleType)["__dict__"]  # the descriptor of a module's own dictionary


class Namespace(ModuleType):
    """A module whose attribute X is the function of the operator `prefix + X`, also of one registered later.

    `vars(namespace)` has all functions, and what is taken out of it is gone.
    extra:  functions that are not operators; they come first.
    make:   makes the function from the operator's name and X.
    """

    def __init__(self, name: str, prefixes: tuple[str, ...] = ("",), extra: Mapping[str, Any] | None = None,
                 make: Callable[[str, str], Callable[..., Any]] | None = None):
        super().__init__(name)
        self._prefixes, self._extra, self._make = prefixes, dict(extra or {}), make
        self._listed: set[str] = set()  # names that were put in the dictionary

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self._listed:
            raise AttributeError(name)
        if name in self._extra:
            return self._extra[name]
        return attribute(self.__name__, name, self._prefixes, self._make)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """The dictionary of the module, with a function for every operator."""
        found = _dictionary.__get__(self)
        for name in dir(self):
            if name not in found and name not in found["_listed"]:
                found[name] = getattr(self, name)
                found["_listed"].add(name)
        return found

    def __dir__(self) -> list[str]:
        own = [n.removeprefix(p) for p in self._prefixes for n in registry.registered() if n.startswith(p)]
        return sorted({*own, *self._extra})

    def __repr__(self) -> str:
        return f"<operators of {self.__name__}>"


def attribute(where: str, name: str, prefixes: tuple[str, ...] = ("",),
              make: Callable[[str, str], Callable[..., Any]] | None = None) -> Callable[..., Any]:
    """Return the function of an operator. Raises AttributeError with the nearest names."""
    for prefix in prefixes:
        op = registry.find(prefix + name)
        if op is None:
            continue
        return function_of(prefix + name, op) if make is None else make(prefix + name, name)
    known = [n.removeprefix(p) for p in prefixes for n in registry.registered() if n.startswith(p)]
    raise AttributeError(f"{where}.{name}: no such operator or function.{nearest(name, known)}")
