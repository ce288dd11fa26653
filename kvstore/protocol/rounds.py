"""Rounds: decides which contributions form an update of a key, and which workers to notify. No array data, sockets or clock.

Every method takes an event and returns the actions that follow, in order. A key is any hashable object; a server's keys are its
batches. A contribution is any object, too.

Sync: a round of a key is applied when every member has contributed to it; then all are acknowledged. Async: each contribution is
applied at once. A contribution that was applied already is acknowledged and never applied again, so it is safe to send anything
twice, or everything again after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_AHEAD = 4096  # rounds by which a contribution may be ahead of the key


class Apply(NamedTuple):
    """Update key with these contributions, in the order of ranks. Its version is `version` afterwards."""

    key: Hashable
    version: int
    data: tuple[Any, ...]


class Acknowledge(NamedTuple):
    """Notify rank that its contribution to `round` of key has been applied. reply: as the contribution had."""

    rank: int
    key: Hashable
    round: int
    reply: Any = None


class Reject(NamedTuple):
    """Notify rank that its contribution to `round` of key will not be applied. dead: the ranks that are missing."""

    rank: int
    key: Hashable
    round: int
    text: str
    dead: tuple[int, ...] = ()


Action = Apply | Acknowledge | Reject


class _Contribution(NamedTuple):
    """resent: its round was applied before and lost when the server died. A dead worker does not invalidate it."""

    data: Any
    reply: Any
    resent: bool


@dataclass
class KeyRounds:
    """The rounds of one key.

    waiting:  round -> rank -> contribution.
    applied:  async: rank -> its last contribution.
    """

    version: int = 0
    waiting: dict[int, dict[int, _Contribution]] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)

    def keep(self, wanted: Callable[[int, _Contribution], bool]) -> None:
        """Drop the waiting contributions for which wanted(rank, contribution) is false."""
        kept = {n: {r: c for r, c in by_rank.items() if wanted(r, c)} for n, by_rank in self.waiting.items()}
        self.waiting = {n: by_rank for n, by_rank in kept.items() if by_rank}


class Rounds(dict[Hashable, KeyRounds]):
    """The rounds of all keys of one server.

    members:       {rank: incarnation}.
    gone:          {rank: why} of the members that are away. why: "died"; "left", when its work was complete; "ended", if that is
                   not known.
    contributors:  the members without whose contributions no round is applied.
    policy:  how sync rounds react to the death of a member. "fail": they are rejected until a replacement joins. "wait": they
             wait for a replacement, except for workers that have left. "shrink": they continue without the member.
    """

    def __init__(self, sync: bool = True, policy: str = "fail"):
        super().__init__()
        self.sync, self.policy = sync, policy
        self.members: Mapping[int, int] = {}
        self.gone: Mapping[int, str] = {}
        self.contributors: Set[int] = frozenset()

    # ---- members ----------------------------------------------------------------------------------------------------
    def set_members(self, members: Mapping[int, int], gone: Mapping[int, str]) -> list[Action]:
        """Set the members of the job.

        Contributions of a rank's earlier incarnation to rounds that are not applied are dropped. Async: the number of
        contributions of a rank that joins others starts at that of the slowest.
        """
        if not self.sync and self.contributors:
            for key in self.values():
                least = min(key.applied.get(r, 0) for r in self.contributors)
                key.applied.update((r, least) for r in members if r not in self.contributors and r not in key.applied)
        renewed = {r for r, i in members.items() if self.members.get(r, i) != i}
        self.members, self.gone = members, gone
        dispensable = {"fail": (), "wait": ("left",), "shrink": ("died", "left", "ended")}[self.policy]
        self.contributors = frozenset(r for r in members if gone.get(r) not in dispensable)
        actions: list[Action] = []
        for name, key in self.items():
            key.keep(lambda r, _: r in self.contributors and r not in renewed)
            if not self.sync:
                continue
            if gone and self.policy == "fail":
                actions += self._reject_waiting(name, key)
            actions += self._advance(name, key)
        return actions

    def forget(self, rank: int) -> None:
        """Drop the contributions of rank to rounds that are not applied: it has connected again, and sends them again."""
        for key in self.values():
            key.keep(lambda r, _: r != rank)

    def _reject_waiting(self, name: Hashable, key: KeyRounds) -> list[Action]:
        actions: list[Action] = [self._rejection(name, n, rank) for n, by_rank in sorted(key.waiting.items())
                                 for rank in sorted(by_rank) if rank not in self.gone and not by_rank[rank].resent]
        key.keep(lambda _, c: c.resent)
        return actions

    def _rejection(self, name: Hashable, n: int, rank: int) -> Reject:
        dead = tuple(sorted(self.gone))
        reasons = ", ".join(f"worker {r} {self.gone[r]}" for r in dead)
        return Reject(rank, name, n, f"{reasons}; the round is not applied", dead)

    # ---- keys ---------------------------------------------------------------------------------------------------------
    def add(self, name: Hashable, version: int = 0, applied: Mapping[int, int] | None = None) -> None:
        """Add a key, or set it to the state that was read from disk."""
        self[name] = KeyRounds(version, applied=dict(applied or {}))

    def join(self, names: Sequence[Hashable], whole: Hashable) -> bool:
        """Replace keys by one, if they are in the same state and have no contributions. Returns whether they were."""
        first = self[names[0]]
        if first.waiting or any(self[name] != first for name in names):
            return False
        for name in names:
            del self[name]
        self[whole] = first
        return True

    def split(self, whole: Hashable, names: Sequence[Hashable], part: Callable[[int, Any, Any], tuple[Any, Any]]) -> None:
        """Replace a key by several in its state. part(i, data, reply): what the i-th of them gets of a contribution."""
        state = self.pop(whole)
        for i, name in enumerate(names):
            self[name] = KeyRounds(state.version, {n: {r: _Contribution(*part(i, c.data, c.reply), c.resent)
                                                       for r, c in by_rank.items()} for n, by_rank in state.waiting.items()},
                                   dict(state.applied))

    def last_applied(self, name: Hashable, rank: int) -> int:
        """Return the last round of the key that rank need not send again."""
        key = self[name]
        return key.version if self.sync else key.applied.get(rank, 0)

    def behind(self, name: Hashable, rank: int, max_staleness: int) -> list[int]:
        """Return the present members more than max_staleness contributions to a key behind rank (async)."""
        applied = self[name].applied
        least = applied.get(rank, 0) - max_staleness
        return [r for r in sorted(self.members) if r not in self.gone and applied.get(r, 0) < least]

    def missing(self, name: Hashable) -> tuple[int, list[int]]:
        """Return the next round of the key, and the ranks that have not contributed to it."""
        key = self[name]
        by_rank = key.waiting.get(key.version + 1, {})
        return key.version + 1, [r for r in sorted(self.contributors) if r not in by_rank]

    # ---- contributions ------------------------------------------------------------------------------------------------
    def push(self, name: Hashable, rank: int, n: int, data: Any, resent: bool = False, reply: Any = None) -> list[Action]:
        """Add the contribution of rank to round n of a key (async: its n-th contribution).

        resent:  as in `_Contribution`.
        reply:   any object, which comes back in the acknowledgement.
        """
        key = self[name]
        if rank in self.contributors and n <= self.last_applied(name, rank):
            return [Acknowledge(rank, name, n, reply)]
        if self.gone.get(rank) == "died" and self.policy == "fail":
            return []  # it is only unreachable: when it is back, it sends again what was not acknowledged
        if rank not in self.contributors or (rank in self.gone and self.policy != "wait"):
            return [Reject(rank, name, n, f"worker {rank} is not a member of the job any more")]
        if n > self.last_applied(name, rank) + (MOST_AHEAD if self.sync else 1):
            return [Reject(rank, name, n, f"round {n} is too far ahead: the key is at {self.last_applied(name, rank)}")]
        if not self.sync:
            key.version += 1
            key.applied[rank] = n
            return [Apply(name, key.version, (data,)), Acknowledge(rank, name, n, reply)]
        if self.gone and self.policy == "fail" and not resent:
            return [self._rejection(name, n, rank)]
        by_rank = key.waiting.setdefault(n, {})
        if rank in by_rank and by_rank[rank].resent and not resent:  # an applied contribution wins over a later attempt
            data, resent = by_rank[rank].data, True
        by_rank[rank] = _Contribution(data, reply, resent)
        return self._advance(name, key)

    def _advance(self, name: Hashable, key: KeyRounds) -> list[Action]:
        actions: list[Action] = []
        ranks = self.contributors
        while ranks:
            by_rank = key.waiting.get(key.version + 1)
            if by_rank is None or len(by_rank) < len(ranks) or not by_rank.keys() >= ranks:
                break
            del key.waiting[key.version + 1]
            key.version += 1
            ordered = sorted(by_rank.items())
            actions.append(Apply(name, key.version, tuple([c.data for _, c in ordered])))
            actions += [Acknowledge(r, name, key.version, c.reply) for r, c in ordered]
        return actions
