"""MemberTable: the workers of a job as the coordinator knows them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FrameError


@dataclass
class Member:
    """A rank: present, not joined yet (incarnation 0), or gone.

    gone:        "died"; "left", when its work was complete; "ended", if that is not known: a replacement or the launcher's report
                 may follow; or "out": not a member any more.
    optimizers:  calls of set_optimizer.
    barriers:    barriers it has passed.
    was_dead:    true after its first death. The servers have dropped its incomplete messages then.
    told:        value of `gone` that workers know. It changes after `gone`, when the servers know of a return.
    attempt:     number of its last "join" or "back". A smaller number is from a connection that has ended.
    """

    incarnation: int = 0
    public: str = ""
    gone: str = ""
    optimizers: int = 0
    barriers: int = 0
    was_dead: bool = False
    told: str = ""
    attempt: int = 0
    peer: Any = None


class MemberTable(dict[int, Member]):
    """The members by their ranks. policy: as in `Coordinator`. generation: increased by every change.

    A call that one worker makes costs no time for each other worker, so that what all of them do together does not grow with the
    square of their number.
    """

    def __init__(self, count: int, policy: str = "fail"):
        super().__init__({r: Member() for r in range(count)})
        self.policy, self.generation = policy, 0
        self._by_peer: dict[Any, int] = {}
        self._by_public: dict[str, int] = {}
        self._last_news: dict[str, str] | None = {}  # None after a restart

    def _change(self) -> None:
        self.generation += 1
        for name in ("ranks", "first", "awaited", "dead"):
            self.__dict__.pop(name, None)

    @functools.cached_property
    def ranks(self) -> list[int]:
        return sorted(r for r, w in self.items() if w.gone != "out")

    @functools.cached_property
    def first(self) -> int:
        """The rank whose values and optimizer are used: the lowest that has not left. A dead worker may be replaced."""
        return next((r for r in self.ranks if self[r].gone != "left"), self.ranks[0])

    @functools.cached_property
    def awaited(self) -> frozenset[int]:
        """The ranks that requests wait for: all but those that have left, or died if the policy is not "wait"."""
        waited_for = ("", "died", "ended") if self.policy == "wait" else ("",)
        return frozenset(r for r in self.ranks if self[r].gone in waited_for)

    @functools.cached_property
    def dead(self) -> list[int]:
        return [r for r in self.ranks if self[r].gone == "died"]

    def free(self, wanted: int | None) -> int | None:
        """Return the rank that a new process may take: the wanted one, or any if that is None."""
        for rank in self if wanted is None else [wanted]:
            w = self.get(rank)
            if w is not None and w.peer is None and w.gone != "out":
                return rank
        return None

    def admit(self, rank: int, peer: Any, public: str, attempt: int) -> None:
        before = self.get(rank, Member())
        self[rank] = Member(before.incarnation + 1, public, told=before.told, attempt=attempt)
        self._by_public[public] = rank
        self.connect(rank, peer)
        self._change()

    def connect(self, rank: int, peer: Any) -> None:
        w = self[rank]
        self._by_peer.pop(w.peer, None)
        self._by_peer[peer] = rank
        if w.gone:
            w.gone = ""
            self._change()
        w.peer = peer

    def set_gone(self, rank: int, why: str) -> None:
        w = self[rank]
        self._by_peer.pop(w.peer, None)
        w.peer, w.gone, w.told, w.was_dead = None, why, why, True
        self._change()

    def rank_of(self, peer: Any) -> int | None:
        return self._by_peer.get(peer)

    def rank_with(self, public: str) -> int | None:
        """Return the rank that a process with that public name took last."""
        return self._by_public.get(public)

    def own_rank(self, peer: Any) -> int:
        rank = self.rank_of(peer)
        if rank is None:
            raise FrameError("this worker has not joined, or was declared dead")
        return rank

    def message(self) -> dict[str, Any]:
        """Return the members, as a field of messages to servers."""
        return {"generation": self.generation, "ranks": {str(r): self[r].incarnation for r in self.ranks},
                "gone": {str(r): w.gone for r, w in self.items() if w.gone not in ("", "out")},
                "public": {w.public: r for r, w in self.items() if w.public and not w.gone}}

    def news(self) -> tuple[dict[str, Any], bool]:
        """Return the message to workers about those that are away and have not left with success, and whether it has changed."""
        gone = {str(r): w.told for r, w in self.items() if w.told in ("died", "ended")}
        changed, self._last_news = gone != self._last_news, gone
        return {"op": "gone", "gone": gone, "generation": self.generation}, changed

    def state(self) -> list[list[Any]]:
        return [[r, w.incarnation, w.public, w.gone, w.optimizers, w.barriers, w.was_dead] for r, w in self.items()]

    def resume(self, state: Sequence[Sequence[Any]], generation: int) -> set[int]:
        """Restore `state()`. Returns the ranks that are expected back."""
        self.clear()
        self.update({r: Member(*rest, told=rest[2]) for r, *rest in state})
        self._by_public = {w.public: r for r, w in self.items() if w.public}
        self.generation, self._last_news = generation, None
        return {r for r, w in self.items() if w.incarnation and not w.gone}
