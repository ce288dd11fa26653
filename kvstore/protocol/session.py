"""Session: a worker's contributions to one server, from the push until the server has them on disk. No bytes, sockets or clock.

    QUEUED        waits to be sent, or to be sent again on a new connection
    SENT          sent on the current connection, not acknowledged. Or held, because an earlier contribution to its round counts
    ACKNOWLEDGED  applied, but not on the server's disk: kept, so that it can be sent again if the server restarts
    UNKNOWN       reported to the caller as failed, although it may have been applied. The next handshake resolves it
    DURABLE       applied, and on disk or acknowledged by a server without snapshots: the session has forgotten it
    FAILED        not applied, and it never will be: the session has forgotten it

A handshake makes this sound: the server discards what was sent before it and not applied. So an acknowledgement always refers to
what was sent on the same connection, and a contribution that the handshake does not report as applied never will be.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Name = tuple[int, int]  # key number, slice index


class State(enum.Enum):
    QUEUED = enum.auto()
    SENT = enum.auto()
    ACKNOWLEDGED = enum.auto()
    UNKNOWN = enum.auto()
    DURABLE = enum.auto()
    FAILED = enum.auto()


@dataclass(eq=False)
class Contribution:
    """A contribution to `round` of the slice `name`.

    seq:      number of the frame in which it was last sent; 0: it is held.
    process:  the server process to which it was first sent; -1: none yet.
    """

    name: Name
    round: int
    nbytes: int
    seq: int = 0
    process: int = -1
    state: State = State.QUEUED


C = TypeVar("C", bound=Contribution)


class ValuesLostError(Exception):
    """The server was restarted, and its values are lost."""


class Session(Generic[C]):
    """The contributions of one worker to one server. Its owner takes what follows from an event out of the first three fields.

    again:         to be sent again, without a request for their values.
    superseded:    failed, because their rounds contain earlier contributions, which had been reported as failed.
    save:          ask the server to write its values to disk: retained contributions exceed `retain_bytes`.
    process:       the server process that answered the last handshake; -1: none.
    durable:       the server writes snapshots.
    """

    def __init__(self, retain_bytes: int):
        self.again, self.superseded, self.save = list[C](), list[C](), False
        self.process, self.durable = -1, False
        self._retain_bytes, self._retained_bytes, self._saving = retain_bytes, 0, False
        self._sent: dict[tuple[Name, int], C] = {}
        self._retained: dict[Name, deque[C]] = {}
        self._unknown: list[C] = []
        self._counted: dict[Name, int] = {}  # rounds of contributions that count although they were reported as failed
        self._applied: dict[Name, int] = {}  # rounds that this process of the server has reported as applied
        self._on_disk: dict[Name, int] = {}  # rounds that the server has reported as on disk

    @property
    def sent(self) -> list[C]:
        return list(self._sent.values())

    def find(self, name: Name, round: int, seq: int = 0) -> C | None:
        """Return the sent contribution that an answer refers to. seq: of its frame; 0: of any."""
        c = self._sent.get((name, round))
        return c if c is not None and c.seq and seq in (0, c.seq) else None

    # ---- events of the worker -------------------------------------------------------------------------------------------
    def submit(self, c: C) -> bool:
        """Queue a contribution, also one that is to be sent again. Returns whether it is to be sent.

        If its round contains an earlier contribution, it is held until the server has applied that, when the value of the round
        can be pulled.
        """
        c.state, c.seq = State.QUEUED, 0
        if not self.was_applied(c):
            return True
        self._sent[c.name, c.round], c.state = c, State.SENT
        self.applied(c.name, self._applied.get(c.name, 0))
        return False

    def send(self, c: C, seq: int) -> None:
        """Note that a queued contribution, or one of `again`, is sent in a frame."""
        c.seq, c.process = seq, self.process if c.process < 0 else c.process
        if c.state is State.QUEUED:
            self._sent[c.name, c.round], c.state = c, State.SENT

    def abandon(self, contributions: Sequence[C]) -> None:
        """Give up contributions whose outcome is unknown. The caller must connect again: the handshake resolves them."""
        for c in contributions:
            held = self._sent.pop((c.name, c.round), None) is c and not c.seq
            c.state = State.FAILED if held else State.UNKNOWN
            self._unknown += [] if held else [c]

    def take_sent(self) -> list[C]:
        """Remove and return the sent contributions, because the connection was lost."""
        sent, self._sent = self.sent, {}
        return sent

    def was_applied(self, c: C) -> bool:
        """Return whether a contribution to this round was applied, or will be, although it was reported as failed."""
        return self._counted.get(c.name) == c.round

    # ---- events of the server -------------------------------------------------------------------------------------------
    def handshake(self, process: int, durable: bool, applied: Mapping[Name, int]) -> None:
        """Handle the answer to a handshake.

        applied:  the last round of each slice that contains a contribution of this worker.
        Raises ValuesLostError if the server was restarted without snapshots.
        """
        first, restarted = self.process < 0, process != self.process
        self.process, self.durable, self.save, self._saving = process, durable, False, False
        self._applied = dict(applied)
        if first:
            return
        if restarted and not durable and (self._sent or applied or self._retained):
            raise ValuesLostError
        unknown, self._unknown = self._unknown, []
        for c in unknown:
            if c.process in (-1, process) and c.round > applied.get(c.name, 0):
                c.state = State.FAILED
            else:  # applied, or sent to an earlier process, whose answer others may have seen: it must be applied again
                self._counted[c.name] = c.round
                self._retain(c)
        again = [c for retained in self._retained.values() for c in retained if c.round > applied.get(c.name, 0)]
        self.again = sorted(again, key=lambda c: c.round)

    def acknowledge(self, c: C) -> None:
        """Handle the acknowledgement of a sent contribution."""
        del self._sent[c.name, c.round]
        self._retain(c)

    def applied(self, name: Name, round: int) -> None:
        """Handle the report that the server has applied a contribution that was sent again, or an earlier one."""
        self._applied[name] = max(round, self._applied.get(name, 0))
        c = self._sent.get((name, self._counted.get(name, 0)))
        if c is not None and not c.seq and c.round <= round:
            del self._sent[c.name, c.round], self._counted[c.name]
            c.state = State.FAILED
            self.superseded.append(c)

    def reject(self, c: C, *, applied: bool, dead: bool) -> None:
        """Handle the rejection of a sent contribution.

        applied:  the server has applied it, and only could not send the value.
        dead:     the reason is the death of another worker. A contribution that was first sent to an earlier process of the
                  server may be in a round whose result other workers have seen. Then it is sent again, and counts.
        """
        del self._sent[c.name, c.round]
        again = not applied and dead and self.durable and c.process != self.process
        if again:
            self._counted[c.name] = c.round
        if applied or again:
            self._retain(c)
        else:
            c.state = State.FAILED
        if again and c.state is State.ACKNOWLEDGED:
            self.again.append(c)

    def on_disk(self, rounds: Mapping[Name, int], complete: bool = False) -> None:
        """Handle the server's report of the last rounds on disk. complete: of all slices, as it answers SAVE and a handshake.

        Raises ValuesLostError if a complete report shows that the server has lost its snapshots.
        """
        if complete and any(rounds.get(name, 0) < round for name, round in self._on_disk.items()):
            raise ValuesLostError
        self._saving = self._saving and not complete
        self._on_disk.update(rounds)
        for name, round in rounds.items():
            retained = self._retained.get(name)
            while retained and retained[0].round <= round:
                c = retained.popleft()
                self._retained_bytes -= c.nbytes
                c.state = State.DURABLE

    def _retain(self, c: C) -> None:
        retained = self._retained.setdefault(c.name, deque())
        earlier = retained and retained[-1].round >= c.round  # of two, that was applied
        if earlier or not self.durable:
            c.state = State.FAILED if earlier else State.DURABLE
            return
        retained.append(c)
        c.state = State.ACKNOWLEDGED
        self._retained_bytes += c.nbytes
        if self._retained_bytes > self._retain_bytes and not self._saving:
            self.save = self._saving = True
