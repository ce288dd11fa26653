"""Operations that ran, and the reason why not earlier: dependencies derived afterwards from push order and variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import EngineError, nearest
from ..deps import Task, Var
from ..failure import format_call_site
from .recorder import Recorder


@dataclass(eq=False)
class Operation:
    """One function that ran. Times in nanoseconds of perf_counter.

    start, end:  of the function. done: when its variables were released, for an asynchronous one by on_complete.
    pushed:      when it was pushed; its start if that was not recorded.
    layer:       that it was pushed for, or "".
    holders:     (operation, variable) pairs that it waited for, the one that held it longest first.
    """

    index: int
    task: Task
    name: str
    thread: int
    start: int
    end: int
    done: int
    pusher: int | None
    pushed: int
    queued: int
    layer: str = ""
    holders: list[tuple[Operation, Var]] = field(default_factory=list)

    @property
    def ctx(self) -> Any:
        """The context it ran in."""
        return self.task.pool.ctx

    @property
    def ready(self) -> int:
        """The time when the last operation it waited for was done, or it was pushed, if that is later."""
        return max([self.pushed, *(h.done for h, _ in self.holders)])


def operations_of(recorder: Recorder) -> list[Operation]:
    """Return the operations that ran, in push order, each with those it waited for."""
    recorder.settle()
    flat = list(recorder.ran)
    rows = list(zip(flat[::4], flat[1::4], flat[2::4], flat[3::4]))
    ended = {id(t): end for t, _, start, end in rows if start < 0}
    result = []
    for task, thread, start, end in sorted((r for r in rows if r[2] >= 0), key=lambda r: r[0].seq):
        pusher, pushed, queued, layer = getattr(task, "times", (None, start, start, ""))
        result.append(Operation(len(result), task, task.name or "without a name", thread, start, end,
                              ended.get(id(task), end), pusher, min(pushed, start), queued, layer))
    _connect(result)
    return result


def _connect(operations: Sequence[Operation]) -> None:
    writer: dict[Var, Operation] = {}
    readers: dict[Var, list[Operation]] = {}
    for o in operations:
        before: dict[Operation, Var] = {}
        for v in o.task.const_vars:
            if v in writer:
                before.setdefault(writer[v], v)
            readers.setdefault(v, []).append(o)
        for v in o.task.mutable_vars:
            for h in readers.pop(v, []) or ([writer[v]] if v in writer else []):
                before.setdefault(h, v)
            writer[v] = o
        # an operation done before the push held nothing; one done after the start was really pushed later, by another thread
        late = [(h, v) for h, v in before.items() if o.pushed < h.done <= o.start]
        o.holders = sorted(late, key=lambda pair: -pair[0].done)


def find(operations: Sequence[Operation], what: str | int) -> Operation:
    """Return the operation with this index, or the one of this name that waited longest. Raises EngineError."""
    if isinstance(what, int):
        if not -len(operations) <= what < len(operations):
            raise EngineError(f"profiler.explain: operation {what} does not exist: {len(operations):,} were recorded.")
        return operations[what]
    named = [o for o in operations if o.name == what or o.name.rpartition(":")[2] == what]
    if not named:
        names = list(dict.fromkeys(o.name for o in operations))
        raise EngineError(f"profiler.explain: no operation {what!r} was recorded.{nearest(what, names)}")
    return max(named, key=lambda o: o.start - o.pushed)


@dataclass(frozen=True)
class WaitingTime:
    """The waiting time of one operation in microseconds. `str()` gives it in words.

    waited:   from push to start: held plus queued.
    held:     until the operations it depends on were done; `holders` has (name, index, microseconds until it was done).
    queued:   ready, until a thread was free; `busy` names the operations that ran there meanwhile.
    ran:      start to end.
    """

    name: str
    index: int
    pushed_at: str
    waited: float
    held: float
    queued: float
    ran: float
    holders: tuple[tuple[str, int, float], ...]
    busy: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.name} (operation {self.index}{f', pushed at {self.pushed_at}' if self.pushed_at else ''}) ran "
                f"{self.ran:,.1f} us, {self.waited:,.1f} us after it was pushed."]
        lines += [f"  {us:,.1f} us: held by {name} (operation {index}), which used a variable it needs."
                 for name, index, us in self.holders]
        if self.queued:
            behind = f" behind {', '.join(self.busy)}" if self.busy else ""
            lines.append(f"  {self.queued:,.1f} us: ready, waiting for a free thread{behind}.")
        return "\n".join(lines)


def explain(operations: Sequence[Operation], what: str | int) -> WaitingTime:
    """Explain why the operation did not start earlier."""
    o = find(operations, what)
    busy: Iterable[Operation] = (p for p in operations if p is not o and p.task.pool is o.task.pool
                                 and p.start < o.start and p.end > o.ready and p.thread == o.thread)
    return WaitingTime(
        o.name, o.index, format_call_site(o.task.origin), _us(o.start - o.pushed), _us(o.ready - o.pushed),
        _us(o.start - o.ready), _us(o.end - o.start), tuple((h.name, h.index, _us(h.done - o.pushed)) for h, _ in o.holders),
        tuple(dict.fromkeys(p.name for p in busy))[:5])


def _us(ns: int) -> float:
    return max(ns, 0) / 1000
