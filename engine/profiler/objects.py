"""User-made objects in a profile: tasks, frames, events, counters, markers, in domains, as in MXNet's `mx.profiler`.

They are recorded while the profiler runs, and cost next to nothing otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import EngineError
from ...show import Shown
from .recorder import Recorder

_ids = itertools.count(1)


#: The profiler's, while it runs.
active_recorder: Recorder | None = None


class Domain(Shown):
    """A group of objects; the category in the trace."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> UserTask:
        """Return a new Task of this domain."""
        return UserTask(self, name)

    def new_frame(self, name: str) -> Frame:
        """Return a new Frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """Return a new Counter of this domain, which begins with value."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """Return a new Marker of this domain."""
        return Marker(self, name)


class _Marked(Shown):
    """Base class: it is recorded by its name in a domain, or among its kind if it has none."""

    kind: ClassVar[str] = ""

    def __init__(self, domain: Domain | None, name: str):
        self.domain, self.name = domain, name

    def _facts(self) -> Mapping[str, Any]:
        return {"domain": str(self.domain), "name": self.name}

    def __str__(self) -> str:
        return self.name

    def _mark(self, phase: str, details: dict[str, Any]) -> None:
        if active_recorder is not None:
            active_recorder.mark(phase, str(self.domain or self.kind.lower()), self.name, details)


class _Interval(_Marked):
    """From start() to stop(), which may be on different threads, or a `with` block."""

    _id: int | None = None

    def start(self) -> None:
        """Begin now. Raises EngineError if it was started before."""
        if self._id is not None:
            raise EngineError(f"profiler: {self.kind} {self.name!r} was started twice. Call stop() between.")
        self._id = next(_ids)
        self._mark("b", {"id": self._id})

    def stop(self) -> None:
        """End now. Raises EngineError if it was not started."""
        if self._id is None:
            raise EngineError(f"profiler: {self.kind} {self.name!r} was not started.")
        self._mark("e", {"id": self._id})
        self._id = None

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class UserTask(_Interval):
    """An interval of the user's work: `mx.profiler.Task`, which is not a task of the engine."""

    kind = "Task"


class Frame(_Interval):
    """One of many equal intervals: a batch, an epoch, an image."""

    kind = "Frame"


class Event(_Interval):
    """An interval outside any domain."""

    kind = "Event"

    def __init__(self, name: str):
        super().__init__(None, name)


class Counter(_Marked):
    """A number over time. `counter += 1` works."""

    def __init__(self, domain: Domain, name: str, value: float | None = None):
        super().__init__(domain, name)
        self.value: float = 0
        if value is not None:
            self.set_value(value)

    def set_value(self, value: float) -> None:
        """Set the value, and mark it in the profile at the present time."""
        self.value = value
        self._mark("C", {self.name: value})

    def increment(self, delta: float = 1) -> None:
        """Add delta to the value."""
        self.set_value(self.value + delta)

    def decrement(self, delta: float = 1) -> None:
        """Subtract delta from the value."""
        self.set_value(self.value - delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self


_SCOPES = {"process": "p", "thread": "t", "global": "g", "task": "t", "marker": "t"}


class Marker(_Marked):
    """A moment in time."""

    def mark(self, scope: str = "process") -> None:
        """Record that it is now. scope: length of the line in the trace: "global", "process" or "thread"."""
        if scope not in _SCOPES:
            raise EngineError(f"profiler.Marker: unknown scope {scope!r}. Known: {', '.join(_SCOPES)}.")
        self._mark("i", {"scope": _SCOPES[scope]})
