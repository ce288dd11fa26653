"""ServerTable: the servers of a job as the coordinator knows them, and the messages that they have not acknowledged yet.

Messages to all servers are numbered by epochs. Answers to workers that depend on one are sent when every server has
acknowledged it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FrameError

Message = dict[str, Any]
Sends = list[tuple[Any, Message]]
Then = Callable[[str], Sends]  # its argument: the error of a server, or ""


@dataclass
class _Entry:
    """A server process. attempt: number of its last "join" or "back"; a smaller one is from a connection that has ended."""

    address: str = ""
    public: str = ""
    incarnation: int = 0
    peer: Any = None
    attempt: int = 0


@dataclass
class _Announcement:
    """A message that the servers in `missing` have not acknowledged, and what follows when they have."""

    missing: set[int]
    epoch: int
    then: Then
    error: str = ""


class ServerTable:
    """epoch:  of the last message to all servers."""

    def __init__(self, count: int):
        self.epoch = 0
        self._entries = [_Entry() for _ in range(count)]
        self._announced: list[_Announcement] = []
        self._announcing_members = 0  # announcements of members that are not acknowledged
        self._unannounced: list[Then] = []  # what follows when the servers know of the changes since the last one
        self.expected: set[int] = set()  # after a restart of the coordinator: not back yet
        self._missing: set[int] = set()  # not back in time

    def __len__(self) -> int:
        return len(self._entries)

    def complete(self) -> bool:
        """Return whether every server has joined, and none is expected back."""
        return not self.expected and all(e.incarnation for e in self._entries)

    def location(self, index: int) -> Message:
        e = self._entries[index]
        return {"index": index, "address": e.address, "public": e.public, "incarnation": e.incarnation, "down": e.peer is None}

    def locations(self) -> list[Message]:
        return [self.location(i) for i in range(len(self))]

    # ---- connections ----------------------------------------------------------------------------------------------------
    def connect(self, peer: Any, m: Message) -> int | None:
        """Admit a process that joins or is back. Returns its index, or None for a message of a connection that has ended."""
        index, public, attempt = int(m["index"]), str(m["public"]), int(m.get("n", 0))
        if not 0 <= index < len(self):
            raise FrameError(f"unknown server {index}: the job has {len(self)}")
        e = self._entries[index]
        if m["op"] == "back" and (e.incarnation, e.public) != (int(m["incarnation"]), public):
            raise FrameError(f"server {index} has been restarted in the meantime")
        if public == e.public and attempt < e.attempt:
            return None
        if m["op"] == "join":
            e = self._entries[index] = _Entry(str(m["address"]), public, e.incarnation + 1)
        e.peer, e.attempt = peer, attempt
        return index

    def index_of(self, peer: Any) -> int | None:
        return next((i for i, e in enumerate(self._entries) if e.peer == peer and peer is not None), None)

    def lost(self, peer: Any) -> int | None:
        """Note that a connection has ended. Returns the index of the server, if it was one's."""
        index = self.index_of(peer)
        if index is not None:
            self._entries[index].peer = None
        return index

    def arrived(self, index: int, in_time: bool) -> None:
        """Expect a server no longer: it is there, or it did not come back in time."""
        self.expected.discard(index)
        self._missing.discard(index) if in_time else self._missing.add(index)

    # ---- announcements --------------------------------------------------------------------------------------------------
    def announce(self, message: Message, then: Then, only: int | None = None) -> Sends:
        """Send a message to all servers, or only one, and run `then` when they have acknowledged it, also those away now."""
        self.epoch += 1
        servers = {i for i, e in enumerate(self._entries) if e.incarnation and i not in self._missing} if only is None else {only}
        if not servers:
            return then("")
        self._announced.append(_Announcement(servers.copy(), self.epoch, then))
        return [(self._entries[i].peer, {**message, "epoch": self.epoch}) for i in servers if self._entries[i].peer is not None]

    def announce_members(self, message: Callable[[], Message], then: Then, at_once: bool = False) -> Sends:
        """Announce the members as `message` returns them. Changes that happen until the servers know of the last ones are
        announced together, unless one has to be announced at once.
        """
        self._unannounced.append(then)
        if self._announcing_members and not at_once:
            return []
        follow, self._unannounced = self._unannounced, []
        self._announcing_members += 1

        def known(error: str) -> Sends:
            self._announcing_members -= 1
            sends = [send for one in follow for send in one(error)]
            again = self._unannounced and not self._announcing_members
            return sends + (self.announce_members(message, lambda _: []) if again else [])

        return self.announce(message(), known)

    def acknowledge(self, index: int, epoch: int, error: str = "") -> Sends:
        """Note that a server has carried out all messages up to an epoch. error: of the message of that epoch."""
        for a in self._announced:
            if a.epoch <= epoch:
                a.missing.discard(index)
            if a.epoch == epoch:
                a.error = error or a.error
        complete = [a for a in self._announced if not a.missing]
        self._announced = [a for a in self._announced if a.missing]
        return [send for a in complete for send in a.then(a.error)]

    def state(self) -> list[list[Any]]:
        return [[e.address, e.public, e.incarnation] for e in self._entries]

    def resume(self, state: Sequence[Sequence[Any]], epoch: int) -> None:
        """Restore `state()`. The servers of before are expected back."""
        self.epoch, self._entries = epoch, [_Entry(*e) for e in state]
        self.expected = {i for i, e in enumerate(self._entries) if e.incarnation}
