"""The processes of a job as its coordinator knows them: the workers, and the servers with what they have not acknowledged yet."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FrameError

Message = dict[str, Any]
Then = Callable[[str], None]  # its argument: the error of a server, or ""


@dataclass
class Process:
    """A rank, and the process that has it. The rank of a server is its index.

    incarnation:  number of the process among those that had the rank; 0: none has joined.
    public:       its proven name.
    address:      where a server listens.
    gone:         why a worker is away: "died"; "left", when its work was complete; "ended", if that is not known: a replacement
                  or the launcher's report may follow; or "out": not a member any more.
    optimizers:   calls of set_optimizer.
    barriers:     barriers it has passed.
    was_dead:     true after its first death. The servers have dropped its incomplete messages then.
    told:         value of `gone` that workers know. It changes after `gone`, when the servers know of a return.
    peer:         its connection; None: it is away.
    attempt:      number of its last "join" or "back". A smaller number is from a connection that has ended.
    """

    incarnation: int = 0
    public: str = ""
    address: str = ""
    gone: str = ""
    optimizers: int = 0
    barriers: int = 0
    was_dead: bool = False
    told: str = ""
    peer: Any = None
    attempt: int = 0

    def state(self) -> list[Any]:
        """Return the first fields, which must survive a restart of the coordinator."""
        return [self.incarnation, self.public, self.address, self.gone, self.optimizers, self.barriers, self.was_dead]


class Processes(dict[int, Process]):
    """The processes of one role by rank. expected: those that are not back after a restart of the coordinator.

    What one process does costs no time for each other one, or the costs of all would grow with the square of their number.
    """

    def __init__(self, count: int):
        super().__init__({r: Process() for r in range(count)})
        self.expected = set[int]()
        self._by_peer: dict[Any, int] = {}
        self._by_public: dict[str, int] = {}

    def __missing__(self, rank: int) -> Process:
        raise FrameError(f"there is no number {rank}: the job has {len(self)}")

    def rank_of(self, peer: Any) -> int | None:
        return self._by_peer.get(peer)

    def rank_with(self, public: str) -> int | None:
        """Return the rank that a process with that public name took last."""
        return self._by_public.get(public)

    def own_rank(self, peer: Any) -> int:
        """Return the rank of a peer. Raises FrameError if it has none."""
        rank = self.rank_of(peer)
        if rank is None:
            raise FrameError("this process has not joined, or was declared dead")
        return rank

    def admit(self, rank: int, peer: Any, public: str, attempt: int, address: str = "") -> None:
        """Give a rank to a new process."""
        before = self.get(rank, Process())
        self._by_peer.pop(before.peer, None)
        self[rank] = Process(before.incarnation + 1, public, address, told=before.told)
        self._by_public[public] = rank
        self.connect(rank, peer, attempt)

    def connect(self, rank: int, peer: Any, attempt: int) -> None:
        self.disconnect(rank)
        self._by_peer[peer] = rank
        self[rank].peer, self[rank].attempt = peer, attempt

    def disconnect(self, rank: int) -> None:
        self._by_peer.pop(self[rank].peer, None)
        self[rank].peer = None

    def state(self) -> list[list[Any]]:
        return [[r, *p.state()] for r, p in self.items()]

    def resume(self, state: Iterable[Sequence[Any]]) -> None:
        """Restore `state()`. Those that were present are expected back."""
        self.clear()
        for rank, *fields in state:
            p = self[rank] = Process(*fields)
            p.told = p.gone
            self._by_public[p.public] = rank
        self.expected = {r for r, p in self.items() if p.incarnation and not p.gone}


class Workers(Processes):
    """policy: as in `Coordinator`. generation: increased by every change of the members."""

    def __init__(self, count: int, policy: str):
        super().__init__(count)
        self.policy, self.generation = policy, 0
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
        """The ranks that calls wait for: all but those that have left, or died if the policy is not "wait"."""
        waited_for = ("", "died", "ended") if self.policy == "wait" else ("",)
        return frozenset(r for r in self.ranks if self[r].gone in waited_for)

    @functools.cached_property
    def dead(self) -> list[int]:
        return [r for r in self.ranks if self[r].gone == "died"]

    def is_out(self, rank: Any) -> bool:
        return isinstance(rank, int) and rank in self and self[rank].gone == "out"

    def free(self, wanted: int | None) -> int:
        """Return the wanted rank, or any that is free if that is None. Raises FrameError if it is taken."""
        for rank in self if wanted is None else [wanted]:
            w = self.get(rank)
            if w is not None and w.peer is None and w.gone != "out":
                return rank
        subject = f"all {len(self)} workers have" if wanted is None else f"worker {wanted} has"
        raise FrameError(f"{subject} joined already")

    def admit(self, rank: int, peer: Any, public: str, attempt: int, address: str = "") -> None:
        super().admit(rank, peer, public, attempt, address)
        self._change()

    def connect(self, rank: int, peer: Any, attempt: int) -> None:
        super().connect(rank, peer, attempt)
        self.expected.discard(rank)
        if self[rank].gone:
            self[rank].gone = ""
            self._change()

    def set_gone(self, rank: int, why: str) -> None:
        self.disconnect(rank)
        self.expected.discard(rank)
        w = self[rank]
        w.gone, w.told, w.was_dead = why, why, True
        self._change()

    def resume(self, state: Iterable[Sequence[Any]]) -> None:
        super().resume(state)
        self._last_news = None

    def message(self) -> Message:
        """Return the members, as a field of messages to servers."""
        return {"generation": self.generation, "ranks": {str(r): self[r].incarnation for r in self.ranks},
                "gone": {str(r): w.gone for r, w in self.items() if w.gone not in ("", "out")},
                "public": {w.public: r for r, w in self.items() if w.public and not w.gone}}

    def news(self) -> tuple[Message, bool]:
        """Return the message to workers about those that are away and have not left with success, and whether it has changed."""
        gone = {str(r): w.told for r, w in self.items() if w.told in ("died", "ended")}
        changed, self._last_news = gone != self._last_news, gone
        return {"op": "gone", "gone": gone, "generation": self.generation}, changed


@dataclass
class _Announcement:
    """A message that the servers in `missing` have not acknowledged, and what follows when they have."""

    missing: set[int]
    epoch: int
    then: Then
    error: str = ""


class Servers(Processes):
    """epoch: number of the last message to servers. send: sends a message to a peer."""

    def __init__(self, count: int, send: Callable[[Any, Message], None]):
        super().__init__(count)
        self.epoch, self._send = 0, send
        self._announced: list[_Announcement] = []
        self._announcing_members = 0  # announcements of members that are not acknowledged
        self._unannounced: list[Then] = []  # what follows when the servers know of the changes since the last one
        self._missing = set[int]()  # they were expected and did not come back in time

    def complete(self) -> bool:
        """Return whether every server has joined, and none is expected back."""
        return not self.expected and all(s.incarnation for s in self.values())

    def location(self, index: int) -> Message:
        s = self[index]
        return {"index": index, "address": s.address, "public": s.public, "incarnation": s.incarnation, "down": s.peer is None}

    def locations(self) -> list[Message]:
        return [self.location(i) for i in self]

    def arrive(self, peer: Any, m: Message) -> int | None:
        """Admit a process that joins or is back. Returns its index, or None for a message of a connection that has ended."""
        index, public, attempt = m["index"], m["public"], m.get("n", 0)
        s = self[index]
        if m["op"] == "back" and (s.incarnation, s.public) != (m["incarnation"], public):
            raise FrameError(f"server {index} has been restarted in the meantime")
        if public == s.public and attempt < s.attempt:
            return None
        if m["op"] == "join":
            self.admit(index, peer, public, attempt, m["address"])
        else:
            self.connect(index, peer, attempt)
        return index

    def arrived(self, index: int, in_time: bool) -> None:
        """Expect a server no longer: it is there, or it did not come back in time."""
        self.expected.discard(index)
        self._missing.discard(index)
        if not in_time:
            self._missing.add(index)
            self.acknowledge(index, self.epoch)

    def announce(self, message: Message, then: Then, only: int | None = None) -> None:
        """Send a message to all servers, or only one, and run `then` when they have acknowledged it, also those away now."""
        self.epoch += 1
        servers = {i for i, s in self.items() if s.incarnation and i not in self._missing} if only is None else {only}
        if not servers:
            return then("")
        self._announced.append(_Announcement(servers, self.epoch, then))
        for i in servers:
            self._send(self[i].peer, {**message, "epoch": self.epoch})

    def announce_members(self, message: Callable[[], Message], then: Then, at_once: bool = False) -> None:
        """Announce the members as `message` returns them. Changes that happen until the servers know of the last ones are
        announced together, unless one has to be announced at once.
        """
        self._unannounced.append(then)
        if self._announcing_members and not at_once:
            return
        follow, self._unannounced = self._unannounced, []
        self._announcing_members += 1

        def known(error: str) -> None:
            self._announcing_members -= 1
            for one in follow:
                one(error)
            if self._unannounced and not self._announcing_members:
                self.announce_members(message, lambda _: None)

        self.announce(message(), known)

    def acknowledge(self, index: int, epoch: int, error: str = "") -> None:
        """Note that a server has carried out all messages up to an epoch. error: of the message of that epoch."""
        for a in self._announced:
            if a.epoch <= epoch:
                a.missing.discard(index)
            if a.epoch == epoch:
                a.error = error or a.error
        complete = [a for a in self._announced if not a.missing]
        self._announced = [a for a in self._announced if a.missing]
        for a in complete:
            a.then(a.error)
