"""Checks of the arguments of a push."""

from __future__ import annotations

from operator import index
from typing import Any

from ..errors import EngineError
from .deps import Var
from .failure import text_of

#: `prop`, MXNet's hint at a push -> the kind of work, which has workers of its own. "inline": so short that the thread that
#: pushes or frees it may run it. "copy": moves data to or from a device. "io": waits for files or the network. "priority":
#: must not queue behind other work.
KINDS = {None: "compute", "normal": "compute", "inline": "compute", "copy": "copy", "io": "io", "priority": "priority"}


def kind_of(prop: str | None, name: str) -> str:
    """Return the kind of work that prop names. Raises EngineError for an unknown one."""
    try:
        return KINDS[prop]
    except KeyError:
        raise EngineError(f"{name or 'push'}: unknown prop {prop!r}. Known: {', '.join(map(str, KINDS))}.") from None


def integer(priority: Any, name: str) -> int:
    """Return priority as an int. A wrong one must be found here, because nothing may fail once a function is queued."""
    try:
        return index(priority)
    except TypeError:
        raise EngineError(f"{name or 'push'}: priority is {text_of(priority)!r}. Give an integer.") from None


def check_vars(const: tuple[Var, ...], mutable: tuple[Var, ...], name: str) -> None:
    """Raise EngineError unless both hold live variables, each once."""
    try:
        for v in const:
            if v.deleted:
                raise EngineError(f"{name or 'push'}: const_vars[{const.index(v)}] was deleted.")
        for v in mutable:
            if v.deleted:
                raise EngineError(f"{name or 'push'}: mutable_vars[{mutable.index(v)}] was deleted.")
    except AttributeError:
        bad = next(v for v in (*const, *mutable) if not isinstance(v, Var))
        raise EngineError(f"{name or 'push'}: {type(bad).__name__} is not a var. Use new_variable().") from None
    n = len(const) + len(mutable)
    if n > 1 and len({*const, *mutable}) != n:
        raise EngineError(_duplicate(const, mutable, name))


def _duplicate(const: tuple[Var, ...], mutable: tuple[Var, ...], name: str) -> str:
    for i, v in enumerate(mutable):
        if v in const:
            return (f"{name or 'push'}: a var is both read and mutated: mutable_vars[{i}] is const_vars"
                    f"[{const.index(v)}]. Leave it out of const_vars.")
    for label, vs in (("const_vars", const), ("mutable_vars", mutable)):
        for i, v in enumerate(vs):
            if v in vs[:i]:
                return f"{name or 'push'}: a var is listed twice: {label}[{vs.index(v)}] is {label}[{i}]."
    raise AssertionError((const, mutable))
