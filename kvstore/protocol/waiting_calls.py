"""WaitingCalls: the calls of workers that wait for other workers: init, barrier and set_optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from ...errors import FrameError
from .key_table import KeyEntry, KeyTable

Call = tuple[int, dict[str, Any]]  # rank, message
_NAMED = 5  # keys that an error message lists


class WaitingCalls:
    """The calls in the order of their arrival. keys: the keys of the job. A call of init names its keys, with or without layouts.

    awaited:  in every method, the ranks that calls wait for.
    """

    def __init__(self, keys: KeyTable):
        self._keys = keys
        self._calls: list[Call] = []

    def add(self, rank: int, op: str, m: dict[str, Any], **fields: Any) -> None:
        """Add the call that arrived as a message m."""
        self._calls.append((rank, {"op": op, "id": m.get("id"), **fields}))

    def take(self, wanted: Callable[[int, dict[str, Any]], bool]) -> list[Call]:
        """Remove and return the calls for which wanted(rank, message) is true."""
        taken = [c for c in self._calls if wanted(*c)]
        self._calls = [c for c in self._calls if c not in taken]
        return taken

    def at_barrier(self) -> set[int]:
        """Return the ranks that wait at a barrier."""
        return {r for r, m in self._calls if m["op"] == "barrier"}

    def take_mismatches(self, first: int) -> list[tuple[int, dict[str, Any], str]]:
        """Remove calls of init with shapes or dtypes unlike those of rank `first`, and return them with their errors."""
        mismatches = []
        for rank, m in self._calls:
            try:
                for k in m.get("keys", ()):
                    self._keys.check(rank, k, first)
            except FrameError as e:
                mismatches.append((rank, m, str(e)))
        self.take(lambda rank, m: (rank, m) in [(r, call) for r, call, _ in mismatches])
        return mismatches

    def take_complete_inits(self, awaited: Set[int]) -> list[tuple[int, dict[str, Any], list[KeyEntry]]]:
        """Remove and return the calls of init whose keys have values, and which all ranks have called. Notes who has called."""
        inits = [(rank, m) for rank, m in self._calls if m["op"] == "init"]
        for rank, m in inits:
            for k in m["keys"]:
                if k[0] in self._keys:
                    self._keys[k[0]].called.add(rank)

        def entries(m: dict[str, Any]) -> list[KeyEntry]:
            found = [self._keys[k[0]] for k in m["keys"] if k[0] in self._keys]
            return found if len(found) == len(m["keys"]) and all(e.filled and e.called >= awaited for e in found) else []

        complete = self.take(lambda _, m: m["op"] == "init" and (not m["keys"] or bool(entries(m))))
        return [(rank, m, entries(m)) for rank, m in complete]

    def missing(self, op: str, own: int, first: int, awaited: Set[int]) -> tuple[Set[int], str]:
        """Return the ranks that a call of rank `own` waits for, and a text that names the keys."""
        if op in ("barrier", "join"):
            return awaited - self.at_barrier(), ""
        if op not in ("init", "filled"):
            return {first} if op == "optimizer" else set(), ""
        called = {(r, k[0]) for r, m in self._calls if m["op"] == "init" for k in m["keys"]}
        called |= {(r, e.key) for e in self._keys.values() for r in e.called}
        lacking = {r for r in awaited for rank, key in called if rank == own and (r, key) not in called}
        return lacking, f": {self._describe_inits(sorted(awaited))}" if lacking else ""

    def deadlock(self, first: int, awaited: Set[int]) -> str:
        """Return an error if every rank waits, and for different keys, so that none of them could ever continue; otherwise ""."""
        if first not in awaited or not awaited <= {r for r, _ in self._calls} or all(m["op"] != "init" for _, m in self._calls):
            return ""
        return (f"workers wait for each other, because they initialize different keys: {self._describe_inits(sorted(awaited))}. "
                f"All workers must call init for the same keys, in the same order")

    def _describe_inits(self, ranks: Sequence[int]) -> str:
        """Return the keys that each of the ranks waits for in init, except those common to all."""
        keys = {r: list(dict.fromkeys(k[0][2:] for rank, m in self._calls if rank == r and m["op"] == "init" for k in m["keys"]))
                for r in ranks}
        common = set.intersection(*(set(k) for k in keys.values())) if keys else set()
        texts = []
        for r, names in keys.items():
            names = [n for n in names if n not in common]
            where = "is at a barrier" if r in self.at_barrier() else "has not called init"
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            texts.append(f"worker {r} initializes {', '.join(map(repr, names[:_NAMED]))}{more}" if names else
                         f"worker {r} {where}")
        return "; ".join(texts)
