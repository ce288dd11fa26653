"""Rounds: which contributions to a key make an update, and who is told. Bookkeeping without bytes, sockets or a clock.

Everything here takes what happened and returns what is to be done, in order. A contribution is whatever the caller hands in; it
comes back in `Apply`, by rank. Keys are any hashable value.

Sync: round r of a key is applied once every member has contributed to it, in the order of ranks; then all are answered. Async:
each contribution is applied at once. A contribution that was applied already is answered and never applied again, so that
sending anything twice, or all of it again after a restart, is safe.

A worker that connects anew sends again whatever it has no answer to, so what it gave before is dropped then (`forget`): all that
it hears on a connection is about what it said on it.
"""

from __future__ import annotations

from collections.abc import Hashable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_AHEAD = 4096  # rounds a contribution may be ahead of the key


class Apply(NamedTuple):
    """Update key from these contributions; it is at `version` then."""

    key: Hashable
    version: int
    data: tuple[Any, ...]


class Answer(NamedTuple):
    """Tell rank that its contribution to `round` of key has been applied."""

    rank: int
    key: Hashable
    round: int


class Refuse(NamedTuple):
    """Tell rank that its contribution to `round` of key was not and will not be applied. dead: the ranks that are missing."""

    rank: int
    key: Hashable
    round: int
    text: str
    dead: tuple[int, ...] = ()


Action = Apply | Answer | Refuse


class _Given(NamedTuple):
    """A contribution. again: to a round that was made before, and lost with the shard; no death is in the way of that."""

    data: Any
    again: bool


@dataclass
class _Key:
    version: int = 0
    waiting: dict[int, dict[int, _Given]] = field(default_factory=dict)  # round -> rank -> contribution
    applied: dict[int, int] = field(default_factory=dict)  # async: rank -> its last contribution


class Rounds:
    """The rounds of all keys of one shard.

    policy:  what a member's death means for sync rounds. "fail": they are refused until a replacement is there. "wait": they wait
             for it, but not for who has left because all was done. "shrink": the others go on without it.
    """

    def __init__(self, sync: bool = True, policy: str = "fail"):
        self.sync, self.policy = sync, policy
        self._keys: dict[Hashable, _Key] = {}
        self._members: dict[int, int] = {}
        self._gone: dict[int, str] = {}

    # ---- members ----------------------------------------------------------------------------------------------------
    def set_members(self, members: Mapping[int, int], gone: Mapping[int, str]) -> list[Action]:
        """members: {rank: incarnation} of those that take part. gone: {rank: why} of those among them that are away: "died",
        "left" when all was done, or "ended" in a way that is not known to be well.

        A new incarnation of a rank begins anew: what the former one contributed to rounds that are not applied is dropped.
        Async: a rank that joins others counts as having contributed what the slowest of them has.
        """
        if not self.sync and self._members:
            for key in self._keys.values():
                least = min(key.applied.get(r, 0) for r in self._members)
                key.applied.update((r, least) for r in members if r not in self._members and r not in key.applied)
        renewed = [r for r, i in members.items() if self._members.get(r, i) != i]
        self._members, self._gone = dict(members), {r: why for r, why in gone.items() if r in members}
        for r in [r for r, why in self._gone.items() if self.policy == "shrink" or (self.policy == "wait" and why == "left")]:
            del self._members[r], self._gone[r]
        done: list[Action] = []
        for name, key in self._keys.items():
            for contributions in key.waiting.values():
                for r in (*renewed, *(r for r in contributions if r not in self._members)):
                    contributions.pop(r, None)
            key.waiting = {n: c for n, c in key.waiting.items() if c}
            if not self.sync:
                continue
            if self._gone and self.policy == "fail":
                done += self._refuse_waiting(name, key)
            done += self._advance(name, key)
        return done

    def forget(self, rank: int) -> None:
        """Drop what rank gave to rounds that are not applied."""
        for key in self._keys.values():
            for contributions in key.waiting.values():
                contributions.pop(rank, None)
            key.waiting = {n: c for n, c in key.waiting.items() if c}

    def _refuse_waiting(self, name: Hashable, key: _Key) -> list[Action]:
        done: list[Action] = [self._refusal(name, n, rank) for n, by_rank in sorted(key.waiting.items())
                              for rank in sorted(by_rank) if rank not in self._gone and not by_rank[rank].again]
        again = {n: {rank: given for rank, given in by_rank.items() if given.again} for n, by_rank in key.waiting.items()}
        key.waiting = {n: by_rank for n, by_rank in again.items() if by_rank}
        return done

    def _refusal(self, name: Hashable, n: int, rank: int) -> Refuse:
        dead = tuple(sorted(self._gone))
        who = ", ".join(f"worker {r} {self._gone[r]}" for r in dead)
        return Refuse(rank, name, n, f"{who}; the round is not applied", dead)

    def members(self) -> KeysView[int]:
        """The ranks that take part."""
        return self._members.keys()

    # ---- keys ---------------------------------------------------------------------------------------------------------
    def add(self, name: Hashable, version: int = 0, applied: Mapping[int, int] | None = None) -> None:
        """Make a key, or set it to what was read from disk."""
        self._keys[name] = _Key(version, applied=dict(applied or {}))

    def __contains__(self, name: Hashable) -> bool:
        return name in self._keys

    def version(self, name: Hashable) -> int:
        """How many updates of the key were applied."""
        return self._keys[name].version

    def done_by(self, name: Hashable, rank: int) -> int:
        """The last round of the key that rank need not send again."""
        key = self._keys[name]
        return key.version if self.sync else key.applied.get(rank, 0)

    def applied(self, name: Hashable) -> dict[int, int]:
        """Async: the last contribution of each rank."""
        return dict(self._keys[name].applied)

    def behind(self, name: Hashable, rank: int, staleness: int) -> list[int]:
        """Async: the members that are more than staleness contributions to a key behind rank. Who is away counts no more."""
        applied = self._keys[name].applied
        least = applied.get(rank, 0) - staleness
        return [r for r in sorted(self._members) if r not in self._gone and applied.get(r, 0) < least]

    def missing(self, name: Hashable) -> tuple[int, list[int]]:
        """The round the key waits for, and the ranks that have not contributed to it."""
        key = self._keys[name]
        there = key.waiting.get(key.version + 1, {})
        return key.version + 1, [r for r in sorted(self._members) if r not in there]

    # ---- contributions ------------------------------------------------------------------------------------------------
    def push(self, name: Hashable, rank: int, n: int, data: Any, again: bool = False) -> list[Action]:
        """rank contributes data to round n of a key. Async: it is rank's n-th contribution. again: rank was answered before."""
        key = self._keys[name]
        if rank in self._members and n <= self.done_by(name, rank):
            return [Answer(rank, name, n)]
        if self._gone.get(rank) == "died" and self.policy != "wait":
            return []  # it is only silent: once it is back, it sends again what was not answered
        if rank not in self._members or (rank in self._gone and self.policy != "wait"):
            return [Refuse(rank, name, n, f"worker {rank} is no member of the job any more")]
        if n > self.done_by(name, rank) + (MOST_AHEAD if self.sync else 1):
            return [Refuse(rank, name, n, f"round {n} is too far ahead: the key is at {self.done_by(name, rank)}")]
        if not self.sync:
            key.version += 1
            key.applied[rank] = n
            return [Apply(name, key.version, (data,)), Answer(rank, name, n)]
        if self._gone and self.policy == "fail" and not again:
            return [self._refusal(name, n, rank)]
        by_rank = key.waiting.setdefault(n, {})
        if again or rank not in by_rank or not by_rank[rank].again:  # what counted once counts, not what was pushed instead
            by_rank[rank] = _Given(data, again)
        return self._advance(name, key)

    def begins(self, names: Sequence[Hashable], numbers: Sequence[int]) -> bool:
        """Sync: whether these are the next rounds of these keys, to which nobody has contributed, and all members are here."""
        keys = [self._keys[name] for name in names]
        return not self._gone and all(key.version + 1 == n and not key.waiting for key, n in zip(keys, numbers))

    def make(self, names: Sequence[Hashable]) -> None:
        """Where keys `begins`: the caller has made the round of each, from a contribution of every member."""
        for name in names:
            self._keys[name].version += 1

    def take_back(self, name: Hashable, version: int) -> None:
        """A round of a key could not be applied: it and what came after it are not made. Who gave to it may give once more."""
        self._keys[name].version = version - 1

    def take_back_from(self, name: Hashable, rank: int, n: int) -> None:
        """Async: nor is a rank's n-th contribution."""
        if not self.sync:
            self._keys[name].applied[rank] = n - 1

    def _advance(self, name: Hashable, key: _Key) -> list[Action]:
        done: list[Action] = []
        members = self._members
        while members:
            by_rank = key.waiting.get(key.version + 1)
            if by_rank is None or len(by_rank) < len(members) or not by_rank.keys() >= members.keys():
                break
            del key.waiting[key.version + 1]
            key.version += 1
            ranks = sorted(by_rank)
            done.append(Apply(name, key.version, tuple(by_rank[r].data for r in ranks)))
            done += [Answer(r, name, key.version) for r in ranks]
        return done
