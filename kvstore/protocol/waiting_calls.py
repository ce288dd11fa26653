"""WaitingCalls: the calls of workers that wait for other workers: init, barrier and set_optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from ...errors import FrameError
from .key_table import KeyEntry, KeyTable

Call = tuple[int, dict[str, Any]]  # rank, message
_NAMED = 5  # keys that an error message lists


class WaitingCalls:
    """The calls of each kind in the order of their arrival. keys: the keys of the job. A call of init names its keys, with or
    without layouts.

    awaited:  in every method, the ranks that calls wait for.
    """

    def __init__(self, keys: KeyTable):
        self._keys = keys
        self._calls: dict[str, dict[tuple[int, Any], dict[str, Any]]] = {"init": {}, "barrier": {}, "optimizer": {}}

    def add(self, rank: int, op: str, m: dict[str, Any], **fields: Any) -> None:
        """Add the call that arrived as a message m."""
        self._calls[op][rank, m.get("id")] = {"op": op, "id": m.get("id"), **fields}

    def _of(self, op: str) -> list[Call]:
        return [(rank, m) for (rank, _), m in self._calls[op].items()]

    def take(self, op: str, wanted: Callable[[int, dict[str, Any]], bool] = lambda rank, m: True) -> list[Call]:
        taken = [call for call in self._of(op) if wanted(*call)]
        for rank, m in taken:
            del self._calls[op][rank, m["id"]]
        return taken

    def forget(self, rank: int) -> None:
        for op in self._calls:
            self.take(op, lambda r, _: r == rank)

    def withdraw(self, rank: int, number: Any) -> None:
        for calls in self._calls.values():
            calls.pop((rank, number), None)

    def _at_barrier(self) -> set[int]:
        return {r for r, _ in self._calls["barrier"]}

    def all_at_barrier(self, awaited: Set[int]) -> bool:
        """Return whether ranks wait at a barrier, and none of the others is awaited."""
        return len(self._calls["barrier"]) >= max(len(awaited), 1) and self._at_barrier() >= awaited

    def _all_wait(self, awaited: Set[int]) -> bool:
        return sum(map(len, self._calls.values())) >= len(awaited) and {r for calls in self._calls.values() for r, _ in calls
                                                                        } >= awaited

    def may_end(self, rank: int, keys: Sequence[Any], first: int, awaited: Set[int]) -> bool:
        """Return whether a call of init for keys may end a call: most calls end none."""
        entries = self._note_call(rank, keys)
        return not keys or self._all_wait(awaited) or self._mismatch(rank, keys, first) != "" or any(
            e.filled and e.called >= awaited for e in entries)

    def _note_call(self, rank: int, keys: Sequence[Any]) -> list[KeyEntry]:
        """Note that a rank has called init for keys. Returns those that exist."""
        entries = [self._keys[k[0]] for k in keys if k[0] in self._keys]
        for e in entries:
            e.called.add(rank)
        return entries

    def _mismatch(self, rank: int, keys: Sequence[Any], first: int) -> str:
        try:
            for k in keys:
                self._keys.check(rank, k, first)
        except FrameError as e:
            return str(e)
        return ""

    def take_ended_inits(self, first: int, awaited: Set[int]) -> list[tuple[int, dict[str, Any], str, list[KeyEntry]]]:
        """Remove and return (rank, message, error, keys) of the calls of init that need not wait any longer.

        Those with shapes or dtypes unlike those of rank `first` have an error. The others have ended when their keys have values
        and all ranks have called init for them.
        """
        calls = [(rank, m, self._mismatch(rank, m["keys"], first), self._note_call(rank, m["keys"]))
                 for rank, m in self._of("init")]
        ended = [call for call in calls if call[2] or (
            len(call[3]) == len(call[1]["keys"]) and all(e.filled and e.called >= awaited for e in call[3]))]
        for rank, m, _, _ in ended:
            del self._calls["init"][rank, m["id"]]
        return ended

    def missing(self, op: str, own: int, first: int, awaited: Set[int]) -> tuple[Set[int], str]:
        """Return the ranks that a call of rank `own` waits for, and a text that names the keys."""
        if op in ("barrier", "join"):
            return awaited - self._at_barrier(), ""
        if op not in ("init", "filled"):
            return {first} if op == "optimizer" else set(), ""
        inits = [(r, {k[0] for k in m["keys"]}) for r, m in self._of("init")]
        lacking: set[int] = set()
        for key in {key for r, keys in inits if r == own for key in keys}:
            called = self._keys[key].called if key in self._keys else set()
            lacking |= awaited - called - {r for r, keys in inits if key in keys}
        return lacking, f": {self._describe_inits(sorted(awaited))}" if lacking else ""

    def deadlock(self, first: int, awaited: Set[int]) -> str:
        """Return an error if every rank waits, and for different keys, so that none of them could ever continue; otherwise ""."""
        if first not in awaited or not self._calls["init"] or not self._all_wait(awaited):
            return ""
        return (f"workers wait for each other, because they initialize different keys: {self._describe_inits(sorted(awaited))}. "
                f"All workers must call init for the same keys, in the same order")

    def _describe_inits(self, ranks: Sequence[int]) -> str:
        """Return the keys that each of the ranks waits for in init, except those common to all."""
        keys: dict[int, list[str]] = {r: [] for r in ranks}
        for r, m in self._of("init"):
            if r in keys:
                keys[r] += [k[0][2:] for k in m["keys"] if k[0][2:] not in keys[r]]
        common = set.intersection(*(set(k) for k in keys.values())) if keys else set()
        texts = []
        for r, names in keys.items():
            names = [n for n in names if n not in common]
            where = "is at a barrier" if r in self._at_barrier() else "has not called init"
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            texts.append(f"worker {r} initializes {', '.join(map(repr, names[:_NAMED]))}{more}" if names else
                         f"worker {r} {where}")
        return "; ".join(texts)
