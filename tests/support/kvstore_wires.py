"""Simulated connections, which behave as those of libzmq and the encrypted channels, for a loop that decides what arrives when.

A job (kvstore_simulation.py) has `rng`, the open `pipes` and `channels`, and unreported losses: `to_end` (pipes whose end the
listening side does not know of) and `to_report` (dealers that do not know of a loss).
"""

from __future__ import annotations

import itertools
from collections import deque
from types import SimpleNamespace

import zmq
from tritium.kvstore.wire import encrypted_channel, sockets


class MessagePart(bytes):
    """A message part as pyzmq's Frame shows it."""

    user = ""
    buffer = property(lambda self: self)
    bytes = property(lambda self: bytes(self))

    def get(self, _):
        return self.user


class Pipe:
    """A connection.

    up, down:  messages in flight.
    name:      the peer name at the listening end.
    held:      the step until which nothing moves.
    """

    numbers = itertools.count(1)

    def __init__(self, dealer, up=()):
        self.dealer, self.up, self.down, self.name, self.user = dealer, deque(up), deque(), b"%d" % next(self.numbers), None
        self.open, self.held = True, 0


class Dealer:
    """A connecting socket. It reconnects on its own; `ended` counts the losses that it has reported and no one has read."""

    def __init__(self, job, owner, address):
        self.job, self.owner, self.address = job, owner, address
        self.inbox, self.parts, self.ended, self.open = deque(), [], 0, True
        self.pipe = self._connect(())

    def _connect(self, up):
        pipe = Pipe(self, up)
        self.job.pipes.append(pipe)
        return pipe

    def send(self, data, flags=0, copy=True):
        if not self.parts and len(self.pipe.up) > 2 and self.address != "coordinator" and self.job.rng.random() < 0.2:
            raise zmq.Again()
        self.parts.append(bytes(data) if copy else memoryview(data))
        if not flags & zmq.SNDMORE:
            self.pipe.up.append(self.parts)
            self.parts = []

    def fileno(self):
        return -1

    def poll(self, *_):
        return True

    def close(self, _linger):
        self.open = False
        self.cut()

    def cut(self):
        """The connection ends."""
        pipe, rng = self.pipe, self.job.rng
        pipe.open = False
        sent = int(rng.integers(len(pipe.up) + 1))
        lost = int(rng.integers(sent + 1))
        rest = list(pipe.up)[sent:]
        pipe.up = deque(list(pipe.up)[:lost])
        self.job.to_end.append(pipe)
        if self.open:
            self.pipe = self._connect(rest)
            self.job.to_report.append(self)

    def get(self, _):
        return id(self)


class FakeSockets:
    """The functions of sockets.py, for one job."""

    COPIED, CurveKeys = 48, sockets.CurveKeys

    def __init__(self, job):
        self.job = job

    def connect(self, owner, _keys, _server, address, _largest, _most=0):
        return Dealer(self.job, owner, address)

    def connect_to_coordinator(self, owner, job, _largest):
        return Dealer(self.job, owner, job["address"])

    @staticmethod
    def ConnectionMonitor(dealer):
        def lost():
            while dealer.ended:
                dealer.ended -= 1
                yield 0

        return SimpleNamespace(socket=SimpleNamespace(fileno=lambda: -1), lost=lost, close=lambda: None, refused=False)

    @staticmethod
    def readable(dealer):
        return bool(dealer.inbox)

    @staticmethod
    def receive(dealer):
        while dealer.inbox:
            yield dealer.inbox.popleft()


class SimulatedChannel:
    """Both ends of an encrypted channel. accepted: the server has read its ID."""

    def __init__(self, job, server, rank):
        self.job, self.server, self.rank, self.up, self.down = job, server, rank, deque(), deque()
        self.accepted = self.ended = False
        self.inbox, self.held = deque(), 0
        job.channels.append(self)

    full = property(lambda self: self.job.rng.random() < 0.1)

    def put(self, head, payload):
        if self.ended:
            raise ConnectionError("channel: ended")
        self.up.append((head, payload))

    def flush(self):
        pass

    def read(self):
        if self.ended and not self.inbox:
            raise ConnectionError("channel: ended")
        return False

    def messages(self):
        while self.inbox:
            head, payload = self.inbox.popleft()
            borrowed = bytearray(payload)
            yield head, memoryview(borrowed)
            borrowed[:] = b"\xff" * len(borrowed)

    def close(self):
        self.ended = True


class SimulatedListener:
    """The ends of a server's channels."""

    def __init__(self, job, server):
        self.job, self.server, self.offered, self.of = job, server, {}, {}

    def offer(self, rank, wanted):
        self.drop(rank)
        if not wanted or self.job.rng.random() < 0.2:
            return None
        name = f"{next(Pipe.numbers):032x}"
        self.offered[name] = rank
        return encrypted_channel.ChannelOffer(self.server.number, name, "", "")

    def drop(self, rank):
        self.offered = {n: r for n, r in self.offered.items() if r != rank}
        if rank in self.of:
            self.of.pop(rank).ended = True

    def put(self, rank, head, payload):
        channel = self.of.get(rank)
        if channel is None:
            return False
        if channel.ended:
            self.drop(rank)
        else:
            channel.down.append((head, payload))
        return True
