"""What ran, and why not earlier: dependencies worked out from push order and vars, after the event."""

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

    start, end:  when the function ran; done: when its vars were free for others (an asynchronous one: on_complete).
    pushed:      when it was pushed; the start where that was not seen.
    holders:     what it had to wait for: (operation, var) pairs, the one that held it longest first.
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
    holders: list[tuple[Operation, Var]] = field(default_factory=list)

    @property
    def ctx(self) -> Any:
        """Where it ran."""
        return self.task.pool.ctx

    @property
    def ready(self) -> int:
        """When the last of what it waited for was done; when it was pushed, if that is later."""
        return max([self.pushed, *(h.done for h, _ in self.holders)])


def operations(recorder: Recorder) -> list[Operation]:
    """All that ran, in push order, with what each waited for. A var shows no more than who used it, and when."""
    flat = list(recorder.ran)
    rows = list(zip(flat[::4], flat[1::4], flat[2::4], flat[3::4]))
    ended = {id(t): end for t, _, start, end in rows if start < 0}
    made = []
    for task, thread, start, end in sorted((r for r in rows if r[2] >= 0), key=lambda r: r[0].seq):
        pusher, pushed, queued = getattr(task, "times", (None, start, start))
        made.append(Operation(len(made), task, task.name or "without a name", thread, start, end,
                              ended.get(id(task), end), pusher, min(pushed, start), queued))
    _connect(made)
    return made


def _connect(made: Sequence[Operation]) -> None:
    writer: dict[Var, Operation] = {}
    readers: dict[Var, list[Operation]] = {}
    for o in made:
        before: dict[Operation, Var] = {}
        for v in o.task.const_vars:
            if v in writer:
                before.setdefault(writer[v], v)
            readers.setdefault(v, []).append(o)
        for v in o.task.mutable_vars:
            for h in readers.pop(v, []) or ([writer[v]] if v in writer else []):
                before.setdefault(h, v)
            writer[v] = o
        # done before it was pushed: no wait. Done after it began: pushed by another thread at the same time, later really
        late = [(h, v) for h, v in before.items() if o.pushed < h.done <= o.start]
        o.holders = sorted(late, key=lambda pair: -pair[0].done)


def find(made: Sequence[Operation], what: str | int) -> Operation:
    """The operation with this index, or of this name the one that waited longest. Raises EngineError."""
    if isinstance(what, int):
        if not -len(made) <= what < len(made):
            raise EngineError(f"profiler.explain: there is no operation {what}: {len(made):,} were recorded.")
        return made[what]
    named = [o for o in made if o.name == what or o.name.rpartition(":")[2] == what]
    if not named:
        names = list(dict.fromkeys(o.name for o in made))
        raise EngineError(f"profiler.explain: no operation {what!r} was recorded.{nearest(what, names)}")
    return max(named, key=lambda o: o.start - o.pushed)


@dataclass(frozen=True)
class Explanation:
    """What one operation waited for. Microseconds. `str()` gives it in words.

    waited:   from push to start: held plus queued.
    held:     until what it depends on was done; `holders` names it: (name, index, microseconds until it was done).
    queued:   ready, until a thread was free; `busy` names what ran there meanwhile.
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
        said = [f"{self.name} (operation {self.index}{f', pushed at {self.pushed_at}' if self.pushed_at else ''}) ran "
                f"{self.ran:,.1f} us, {self.waited:,.1f} us after it was pushed."]
        said += [f"  {us:,.1f} us: held by {name} (operation {index}), which used a var it needs."
                 for name, index, us in self.holders]
        if self.queued:
            behind = f" behind {', '.join(self.busy)}" if self.busy else ""
            said.append(f"  {self.queued:,.1f} us: ready, waiting for a free thread{behind}.")
        return "\n".join(said)


def explain(made: Sequence[Operation], what: str | int) -> Explanation:
    """Why the operation did not start earlier."""
    o = find(made, what)
    busy: Iterable[Operation] = (p for p in made if p is not o and p.task.pool is o.task.pool
                                 and p.start < o.start and p.end > o.ready and p.thread == o.thread)
    return Explanation(
        o.name, o.index, format_call_site(o.task.origin), _us(o.start - o.pushed), _us(o.ready - o.pushed),
        _us(o.start - o.ready), _us(o.end - o.start), tuple((h.name, h.index, _us(h.done - o.pushed)) for h, _ in o.holders),
        tuple(dict.fromkeys(p.name for p in busy))[:5])


def _us(ns: int) -> float:
    return max(ns, 0) / 1000
