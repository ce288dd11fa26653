"""OptimizerList: the optimizers that a job's servers have been given, one after the other."""

from __future__ import annotations

from typing import Any


class OptimizerList:
    """specs: a description of each optimizer, or None. installed: so many of them are on the servers, or were rejected by one."""

    def __init__(self) -> None:
        self.specs: list[Any] = []
        self.installed = 0
        self._errors: dict[int, str] = {}  # number of an optimizer -> why servers cannot use it

    def last(self) -> dict[str, Any]:
        """Return the last optimizer and its number, as fields of messages to servers.

        A server that has that number ignores it.
        """
        return {"optimizer": self.specs[-1] if self.specs else None, "optimizers": len(self.specs)}

    def settle(self, number: int, error: str) -> None:
        """Note that all servers have an optimizer, or why one cannot use it. Servers that start later do not get it then."""
        self.installed = max(self.installed, number)
        if error:
            self.specs[number - 1] = self.specs[number - 2] if number > 1 else None
            self._errors[number] = error

    def result(self, number: int) -> dict[str, str]:
        """Return the error of an optimizer, as the field of an answer."""
        return {"error": self._errors[number]} if number in self._errors else {}

    def resume(self, specs: list[Any]) -> None:
        """Restore `specs`. They are installed, or will be before a worker is answered."""
        self.specs, self.installed = specs, len(specs)
