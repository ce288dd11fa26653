"""WaitingCalls: the calls of workers that wait for other workers: init, barrier and set_optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from ...errors import FrameError
from .key_table import KeyEntry, KeyTable
from .processes import Message, Workers

Call = tuple[int, Message]  # rank, message
_NAMED = 5  # keys that an error message lists


class WaitingCalls(dict[str, dict[tuple[int, Any], Message]]):
    """The messages of each kind by rank and id, in the order of their arrival. A call of init names its keys, with or without
    layouts.
    """

    def __init__(self, workers: Workers, keys: KeyTable):
        super().__init__(init={}, barrier={}, optimizer={})
        self._workers, self._keys = workers, keys

    def add(self, op: str, rank: int, m: Message) -> None:
        self[op][rank, m.get("id")] = m

    def take(self, op: str, wanted: Callable[[int, Message], bool] = lambda rank, m: True) -> list[Call]:
        """Remove and return the calls of a kind that are wanted."""
        taken = [(rank, m) for (rank, _), m in self[op].items() if wanted(rank, m)]
        for rank, m in taken:
            del self[op][rank, m.get("id")]
        return taken

    def at_barrier(self) -> set[int]:
        return {rank for rank, _ in self["barrier"]}

    def all_at_barrier(self) -> bool:
        """Return whether ranks wait at a barrier, and none of the others is awaited."""
        awaited = self._workers.awaited
        return len(self["barrier"]) >= max(len(awaited), 1) and self.at_barrier() >= awaited

    def _all_wait(self) -> bool:
        awaited = self._workers.awaited
        return sum(map(len, self.values())) >= len(awaited) and {r for calls in self.values() for r, _ in calls} >= awaited

    # ---- init -----------------------------------------------------------------------------------------------------------
    def add_init(self, rank: int, m: Message) -> bool:
        """Add a call of init. Returns whether a call may end now: most end none, and finding those that do takes long."""
        self.add("init", rank, m)
        entries = self._keys.note_call(rank, m["keys"])
        return bool(self.result_of_init(rank, m) or self._all_wait() or any(map(self._is_complete, entries)))

    def _is_complete(self, e: KeyEntry) -> bool:
        return e.filled and e.called >= self._workers.awaited

    def result_of_init(self, rank: int, m: Message) -> Message | None:
        """Return the fields of the answer to a call, or None: keys have no values yet, or ranks have not called init for them."""
        try:
            self._keys.check(rank, m["keys"], self._workers.first)
        except FrameError as e:
            return {"error": str(e)}
        entries = [self._keys.get(k[0]) for k in m["keys"]]
        complete = [e.message() for e in entries if e is not None and self._is_complete(e)]
        return {"fill": [], "keys": complete} if len(complete) == len(entries) else None

    def missing(self, op: str, own: int) -> tuple[Set[int], str]:
        """Return the ranks that a call of rank `own` waits for, and a text that names the keys."""
        if op in ("barrier", "join"):
            return self._workers.awaited - self.at_barrier(), ""
        if op not in ("init", "filled"):
            return {self._workers.first} if op == "optimizer" else set(), ""
        inits = [(r, {k[0] for k in m["keys"]}) for (r, _), m in self["init"].items()]
        lacking: set[int] = set()
        for key in {key for r, keys in inits if r == own for key in keys}:
            called = self._keys[key].called if key in self._keys else set()
            lacking |= self._workers.awaited - called - {r for r, keys in inits if key in keys}
        return lacking, f": {self._describe_inits()}" if lacking else ""

    def deadlock(self) -> str:
        """Return an error if every rank waits, and for different keys, so that none of them could ever continue; otherwise ""."""
        if self._workers.first not in self._workers.awaited or not self["init"] or not self._all_wait():
            return ""
        return (f"workers wait for each other, because they initialize different keys: {self._describe_inits()}. All workers "
                f"must call init for the same keys, in the same order")

    def _describe_inits(self) -> str:
        """Return the keys that each of the awaited ranks waits for in init, except those common to all."""
        named: dict[int, dict[str, None]] = {r: {} for r in sorted(self._workers.awaited)}
        for (r, _), m in self["init"].items():
            if r in named:
                named[r].update((k[0][2:], None) for k in m["keys"])
        common, at_barrier = set.intersection(*map(set, named.values())), self.at_barrier()
        return "; ".join(f"worker {r} {_list([n for n in names if n not in common], r in at_barrier)}"
                         for r, names in named.items())


def _list(names: Sequence[str], at_barrier: bool) -> str:
    if not names:
        return "is at a barrier" if at_barrier else "has not called init"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"initializes {', '.join(map(repr, names[:_NAMED]))}{more}"
