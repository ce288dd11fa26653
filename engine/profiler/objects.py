"""User-made objects in a profile: tasks, frames, events, counters, markers, in domains, as in MXNet's `mx.profiler`.

They are recorded while the profiler runs, and cost next to nothing otherwise.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from ...errors import EngineError
from .recorder import Recorder

_ids = itertools.count(1)


#: The profiler's, while it runs.
active_recorder: Recorder | None = None


def _mark(phase: str, category: str, name: str, arguments: dict[str, Any] | None = None) -> None:
    if active_recorder is not None:
        active_recorder.mark(phase, category, name, arguments)


class Domain:
    """A group of objects; the category in the trace."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> UserTask:
        return UserTask(self, name)

    def new_frame(self, name: str) -> Frame:
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        return Marker(self, name)


class _Interval:
    """From start() to stop(), which may be on different threads, or a `with` block."""

    kind: ClassVar[str]  # in messages

    def __init__(self, domain: Domain | None, name: str):
        self.domain, self.name = domain, name
        self._id: int | None = None

    def start(self) -> None:
        """Begin now. Raises EngineError if it was started before."""
        if self._id is not None:
            raise EngineError(f"profiler: {self.kind} {self.name!r} was started twice. Call stop() between.")
        self._id = next(_ids)
        self._mark("b")

    def stop(self) -> None:
        """End now. Raises EngineError if it was not started."""
        if self._id is None:
            raise EngineError(f"profiler: {self.kind} {self.name!r} was not started.")
        self._mark("e")
        self._id = None

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.name

    def _mark(self, phase: str) -> None:
        _mark(phase, str(self.domain or self.kind.lower()), self.name, {"id": self._id})


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


class Counter:
    """A number over time. `counter += 1` works."""

    def __init__(self, domain: Domain, name: str, value: float | None = None):
        self.domain, self.name, self.value = domain, name, 0 if value is None else value
        if value is not None:
            self.set_value(value)

    def set_value(self, value: float) -> None:
        self.value = value
        _mark("C", self.domain.name, self.name, {self.name: value})

    def increment(self, delta: float = 1) -> None:
        self.set_value(self.value + delta)

    def decrement(self, delta: float = 1) -> None:
        self.set_value(self.value - delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self

    def __str__(self) -> str:
        return self.name


_SCOPES = {"process": "p", "thread": "t", "global": "g", "task": "t", "marker": "t"}


class Marker:
    """A moment in time."""

    def __init__(self, domain: Domain, name: str):
        self.domain, self.name = domain, name

    def mark(self, scope: str = "process") -> None:
        """Record that it is now. scope: length of the line in the trace: "global", "process" or "thread"."""
        if scope not in _SCOPES:
            raise EngineError(f"profiler.Marker: unknown scope {scope!r}. Known: {', '.join(_SCOPES)}.")
        _mark("i", self.domain.name, self.name, {"scope": _SCOPES[scope]})
