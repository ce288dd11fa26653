"""Registry: classes found by a lower-case name. Optimizers, metrics and initializers each have one."""

from __future__ import annotations

from typing import Any

from ..errors import ParameterError, nearest


class Registry:
    """Names to classes, for one kind of thing. A later class of the same name replaces the earlier one."""

    def __init__(self, kind: str):
        self.kind = kind
        self._classes: dict[str, type] = {}

    def register(self, cls: type, *names: str) -> type:
        """Make cls known by its own name and by `names`, all in lower case. Returns cls, so it can decorate."""
        for name in (cls.__name__, *names):
            self._classes[name.lower()] = cls
        return cls

    def alias(self, *names: str):
        """Decorator: register under the class's own name and these."""
        return lambda cls: self.register(cls, *names)

    def find(self, name: str) -> type:
        """The class called name, in any case. Raises ParameterError that proposes the nearest names."""
        found = self._classes.get(name.lower())
        if found is None:
            raise ParameterError(
                f"{self.kind}.create: no {self.kind} is called {name!r}.{nearest(name.lower(), self._classes)} "
                f"Known: {', '.join(sorted(self._classes))}."
            )
        return found

    def create(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """An instance of the class called name."""
        return self.find(name)(*args, **kwargs)

    def names(self) -> list[str]:
        return sorted(self._classes)
