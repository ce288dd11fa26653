"""MemberTable: the workers of a job as the coordinator knows them."""

from __future__ import annotations

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
    """The members by their ranks. generation: increased by every change."""

    def __init__(self, count: int):
        super().__init__({r: Member() for r in range(count)})
        self.generation = 0

    def ranks(self) -> list[int]:
        """Return the ranks of the members."""
        return sorted(r for r, w in self.items() if w.gone != "out")

    def first(self) -> int:
        """Return the rank whose values and optimizer are used: the lowest that has not left. A dead worker may be replaced."""
        return next((r for r in self.ranks() if self[r].gone != "left"), self.ranks()[0])

    def dead(self) -> list[int]:
        """Return the ranks that died."""
        return [r for r, w in self.items() if w.gone == "died"]

    def awaited(self, policy: str) -> set[int]:
        """Return the ranks that requests wait for: all but those that have left, or died if the policy is not "wait"."""
        return {r for r, w in self.items() if not w.gone or (w.gone in ("died", "ended") and policy == "wait")}

    def admit(self, rank: int, peer: Any, public: str, attempt: int) -> None:
        """Let a new process take a rank."""
        before = self.get(rank, Member())
        self[rank] = Member(before.incarnation + 1, public, told=before.told, attempt=attempt, peer=peer)
        self.generation += 1

    def rank_of(self, peer: Any) -> int | None:
        """Return the rank of a connected worker."""
        return next((r for r, w in self.items() if w.peer == peer and peer is not None), None)

    def own_rank(self, peer: Any) -> int:
        """Return the rank of a worker that sends a request."""
        rank = self.rank_of(peer)
        if rank is None:
            raise FrameError("this worker has not joined, or was declared dead")
        return rank

    def message(self) -> dict[str, Any]:
        """Return the members, as a field of messages to servers."""
        return {"generation": self.generation, "ranks": {str(r): self[r].incarnation for r in self.ranks()},
                "gone": {str(r): w.gone for r, w in self.items() if w.gone not in ("", "out")},
                "public": {w.public: r for r, w in self.items() if w.public and not w.gone}}

    def told(self) -> dict[str, Any]:
        """Return the message to workers about those that are away."""
        gone = {str(r): w.told for r, w in self.items() if w.told not in ("", "out")}
        return {"op": "gone", "gone": gone, "generation": self.generation}

    # ---- surviving a restart --------------------------------------------------------------------------------------------
    def state(self) -> list[list[Any]]:
        """Return the members as JSON values."""
        return [[r, w.incarnation, w.public, w.gone, w.optimizers, w.barriers, w.was_dead] for r, w in self.items()]

    def resume(self, state: Sequence[Sequence[Any]], generation: int) -> set[int]:
        """Restore `state()`. Returns the ranks that are expected back."""
        self.clear()
        self.update({r: Member(*rest, told=rest[2]) for r, *rest in state})
        self.generation = generation
        return {r for r, w in self.items() if w.incarnation and not w.gone}
