"""Simulated connections, which behave as streams do, for a loop that decides what arrives when.

A job (kvstore_simulation.py) has `rng`, the `wires` that are not over yet, and `listener(address)`, which returns the process
that listens there: it has `users`, `receive(end, head, payload)` and `lost(end)`.
"""

from __future__ import annotations

import itertools
from collections import deque
from types import SimpleNamespace


class End:
    """One end of a wire, as a Stream. What the other end has put arrives when the job delivers it."""

    def __init__(self, wire, on_message, on_end, on_large=lambda head, size: None):
        self.wire, self.on_message, self.on_end, self.on_large = wire, on_message, on_end, on_large
        self.sent, self.closed, self.user = deque(), False, None

    @property
    def full(self):
        return self.wire.job.rng.random() < 0.5

    def put(self, head, payload=b"", priority=0.0):
        """Messages that wait are overtaken by those with a higher priority, as long as the connection has not accepted them."""
        if not self.closed and not self.wire.ended:
            at = len(self.sent)
            while at and self.sent[at - 1][2] < priority and self.full:
                at -= 1
            self.sent.insert(at, (bytes(head), payload, priority))

    def close(self):
        self.closed = True
        self.wire.lose(self)


class Wire:
    """A connection that `owner` has made to an address. Messages in flight when it ends are lost, except the first of them.

    owner:     the simulated process that connected; its `arrived` is set when a message reaches it.
    held:      the step until which nothing moves.
    accepted:  the listening process knows of it.
    lost:      the first message to the owner that did not arrive completely.
    """

    def __init__(self, job, owner, address, on_message, on_end, on_large):
        self.job, self.owner, self.address, self.held = job, owner, address, 0
        self.near, self.far = End(self, on_message, on_end, on_large), End(self, None, None)
        self.ended = self.accepted = False
        self.lost = None
        job.wires = [*(w for w in job.wires if not w.over), self]

    def lose(self, end):
        """Keep some of the messages that an end has put, as copies: their memory may be used again."""
        arrives = self.job.rng.randrange(len(end.sent) + 1)
        if end is self.far and self.lost is None and arrives < len(end.sent):
            self.lost = end.sent[arrives][0], bytes(end.sent[arrives][1])
        end.sent = deque((head, bytes(payload), priority) for head, payload, priority in itertools.islice(end.sent, arrives))

    def cut(self):
        """The connection ends. Each end gets to know that some time later."""
        self.ended = True
        for end in (self.near, self.far):
            self.lose(end)

    # ---- events -----------------------------------------------------------------------------------------------------------
    @property
    def over(self):
        return self.near.closed and self.far.closed

    def events(self):
        """Return the events that may happen now."""
        near, far = self.near, self.far
        if not (near.sent or far.sent or self.ended or near.closed or far.closed) or (near.closed and far.closed):
            return []
        found = []
        listener = self.job.listener(self.address)
        if listener is None and not self.ended:
            self.cut()
        if not self.far.closed and listener is not None:
            found += [self._arrive_far] if self.near.sent else [self._end_far] if self.ended or self.near.closed else []
        if not self.near.closed and self.job.steps >= getattr(self.owner, "held", 0):
            found += [self._arrive_near] if self.far.sent else [self._end_near] if self.ended or self.far.closed else []
        if listener is None:
            self.far.closed = True
        return found

    def _arrive_far(self):
        head, payload, _ = self.near.sent.popleft()
        listener = self.job.listener(self.address)
        if not self.accepted:
            self.accepted = True
            self.far.user = listener.users.get(self.owner.public)
            if self.far.user is None:
                self.far.closed = True
                self.cut()
                return
        listener.receive(self.far, head, memoryview(bytearray(payload)))

    def _end_far(self):
        self.far.closed = True
        self.cut()
        listener = self.job.listener(self.address)
        if self.accepted and listener is not None:
            listener.lost(self.far)

    def _arrive_near(self):
        head, payload, _ = self.far.sent.popleft()
        place = self._begin(head, payload)
        place[:] = payload
        self.owner.arrived = True
        self.near.on_message(head, place)

    def _begin(self, head, payload):
        """Return the memory for a payload, of which a part has arrived."""
        place = self.near.on_large(head, len(payload)) if payload else None
        place = memoryview(bytearray(payload)) if place is None else place
        n = self.job.rng.randrange(len(place) + 1)
        place[:n] = b"\xff" * n
        return place

    def _end_near(self):
        self.near.closed = True
        self.cut()
        if self.lost is not None:
            self._begin(*self.lost)
        self.owner.arrived = True
        self.near.on_end(ConnectionError("the connection has ended"))


class FakeSockets:
    """The functions of sockets.py, for one job. A `poller` is the process that connects."""

    def __init__(self, job):
        self.job = job

    def connect(self, poller, address, _credentials, _server, _largest, *, on_message, on_end, on_large=None):
        owner = poller.owner
        unreachable = self.job.steps < getattr(owner, "cut_off", 0) and address == "coordinator"
        if unreachable or self.job.listener(address) is None:
            if self.job.rng.random() < 0.5:
                raise ConnectionRefusedError("nothing listens")
            wire = Wire(self.job, owner, address, on_message, on_end, on_large or (lambda head, size: None))
            wire.cut()
            wire.far.closed = True
            return wire.near
        return Wire(self.job, owner, address, on_message, on_end, on_large or (lambda head, size: None)).near

    def connect_to_coordinator(self, poller, job, *, on_message, on_end):
        return self.connect(poller, job["address"], None, "", 0, on_message=on_message, on_end=on_end)


def poller_of(owner):
    """A poller of a process, of which nothing is asked."""
    return SimpleNamespace(owner=owner, handle=lambda ready: None)
