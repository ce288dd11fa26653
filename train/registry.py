"""Registry: classes by lower-case names. Optimizers, metrics and initializers each have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ParameterError, nearest

_Kind = TypeVar("_Kind")


class Registry:
    """Classes of one kind by name. A later class of the same name replaces the earlier one."""

    def __init__(self, kind: str):
        self.kind = kind
        self.classes: dict[str, type] = {}

    def register(self, klass: type[_Kind], *names: str) -> type[_Kind]:
        """Register klass under its own name and `names`, all in lower case. Returns klass, so that this is a decorator."""
        for name in (klass.__name__, *names):
            self.add(name, klass)
        return klass

    def add(self, name: str, cls: type) -> None:
        """Register cls under this name alone."""
        self.classes[name.lower()] = cls

    def alias(self, *names: str) -> Callable[[type[_Kind]], type[_Kind]]:
        """Return a decorator that registers a class under its own name and these."""
        return lambda cls: self.register(cls, *names)

    def find(self, name: str) -> type:
        """Return the class called name, in any case. Raises ParameterError that proposes similar names."""
        cls = self.classes.get(name.lower())
        if cls is None:
            raise ParameterError(f"{self.kind}.create: no {self.kind} is called {name!r}."
                                 f"{nearest(name.lower(), self.classes)} Known: {', '.join(sorted(self.classes))}.")
        return cls

    def create(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return an instance of the class called name."""
        return self.find(name)(*args, **kwargs)

    def names(self) -> list[str]:
        return sorted(self.classes)
