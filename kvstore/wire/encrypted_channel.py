"""Lanes: the TCP connection of a worker and a shard that takes their frames, sealed with AES-256-GCM.

CURVE lets a worker in, and over that connection the shard gives it a lane: a port, a name and two fresh keys, one for each
direction. Only who has them gets in. AES, for which processors have instructions, takes a fraction of the time of CURVE's cipher,
and nothing passes through a thread of libzmq's, which a small frame would wait for longer than for all else.

A message is the lengths of head and payload (two little-endian uint32), the head, the payload, each of them sealed: as long as it
was, then a tag of 16 bytes. A direction's seals are numbered, the number is the nonce, and the head's seal covers the lengths. So
what is changed, left out, repeated or out of order has a wrong tag, and that ends the lane; nothing of it is believed before.
Source: NIST SP 800-38D.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .frame import LARGEST_MESSAGE, MOST_RECORDS

_LENGTHS = struct.Struct("<II")
_TAG, _NAME, _KEY = 16, 16, 32  # bytes
_GREETING = _NAME + _TAG
_LARGEST_HEAD = 64 + 80 * MOST_RECORDS  # bytes
_LARGEST = _LENGTHS.size + _LARGEST_HEAD + LARGEST_MESSAGE + 2 * _TAG  # bytes of a message
_READ = 512 << 10  # bytes at a time, which stay in the cache until they are opened
_MUCH = 64 << 10  # bytes: after so many, more will be there soon
READS = 8  # in a row, then others take their turn
_CONNECT_WITHIN = 2.0  # seconds
_GREET_WITHIN = 5.0  # seconds
_BACKLOG = 512  # workers that connect at the same moment
_MOST_WAITING = 32  # connections that have not said which lane they are
_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),  # so that nothing on the way forgets a lane that is not used for a while
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # ms until what does not arrive ends it
)


def available() -> bool:
    """Whether this process can seal: the package `cryptography` is there, and not too old."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        return False
    return hasattr(AESGCM, "encrypt_into")


def _memory(nbytes: int) -> memoryview:
    """Bytes of which only those that are used take memory."""
    return np.empty(nbytes, np.uint8).data


class _Seals:
    """One direction's key, and the number of its next seal."""

    def __init__(self, key: bytes):
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._wrong, self._next = AESGCM(key), InvalidTag, 0

    def _nonce(self) -> bytes:
        self._next += 1
        return self._next.to_bytes(12, "little")

    def seal(self, data: Any, out: memoryview, also: Any = None) -> None:
        """out = data, encrypted, and a tag over it and `also`."""
        self._cipher.encrypt_into(self._nonce(), data, also, out)

    def open(self, sealed: memoryview, out: memoryview, also: Any = None) -> None:
        """out = what was sealed. Raises ConnectionError if it is not the other end's next seal."""
        try:
            self._cipher.decrypt_into(self._nonce(), sealed, also, out)
        except self._wrong:
            raise ConnectionError("lane: what came is not what was sent") from None


class Lane:
    """One end of a lane, which never waits. Every method raises OSError when the lane has ended.

    out, back:  the seals of what is sent and of what comes.
    poller:     tells when something has come, or what waits can be sent.
    """

    def __init__(self, connected: socket.socket, out: _Seals, back: _Seals, poller: select.epoll):
        connected.setblocking(False)
        for level, name, value in _OPTIONS:
            connected.setsockopt(level, name, value)
        self._socket, self._out, self._back, self._poller = connected, out, back, poller
        self._watched = False  # whether the poller tells when something can be sent
        poller.register(connected, select.EPOLLIN)
        self._waiting: deque[tuple[bytes, memoryview]] = deque()
        self._sealed, self._rest = _memory(_LARGEST), memoryview(b"")  # the message that is being sent, and what is left of it
        self._came, self._end = _memory(_LARGEST + _READ), 0  # what has come and is not whole, and its end
        self._opened = _memory(LARGEST_MESSAGE)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def full(self) -> bool:
        """Whether something waits until the socket takes more."""
        return bool(self._rest or self._waiting)

    def put(self, head: bytes, payload: Any) -> None:
        """Send a message, after those that wait. The payload must stay as it is until then."""
        self._waiting.append((head, memoryview(payload).cast("B")))
        self.flush()

    def flush(self) -> None:
        """Send until the socket takes no more."""
        while self.full:
            if not self._rest:
                head, payload = self._waiting.popleft()
                _LENGTHS.pack_into(self._sealed, 0, len(head), len(payload))
                start, middle, end = _bounds(0, len(head), len(payload))
                self._out.seal(head, self._sealed[start:middle], self._sealed[:start])
                self._out.seal(payload, self._sealed[middle:end])
                self._rest = self._sealed[:end]
            try:
                self._rest = self._rest[self._socket.send(self._rest):]
            except BlockingIOError:
                break
        if self.full != self._watched:
            self._watched = self.full
            self._poller.modify(self._socket, select.EPOLLIN | (select.EPOLLOUT if self.full else 0))

    def read(self) -> bool:
        """Read some of what has come; whether there may be more."""
        try:
            came = self._socket.recv_into(self._came[self._end:self._end + _READ])
        except BlockingIOError:
            return False
        if not came:
            raise ConnectionError("lane: the other end has closed it")
        self._end += came
        return came >= _MUCH

    def messages(self) -> Iterator[tuple[bytes, memoryview]]:
        """(head, payload) of what was read whole. A payload is there until the next is asked for."""
        at = 0
        while self._end - at >= _LENGTHS.size:
            n, size = _LENGTHS.unpack_from(self._came, at)
            if n > _LARGEST_HEAD or size > LARGEST_MESSAGE:
                raise ConnectionError(f"lane: a message of {n} and {size} bytes is longer than any")
            start, middle, end = _bounds(at, n, size)
            if end > self._end:
                break
            head, payload = bytearray(n), self._opened[:size]
            self._back.open(self._came[start:middle], memoryview(head), self._came[at:start])
            self._back.open(self._came[middle:end], payload)
            yield bytes(head), payload
            at = end
        self._came[:self._end - at] = self._came[at:self._end]
        self._end -= at

    def close(self) -> None:
        self._poller.unregister(self._socket)
        self._socket.close()


def _bounds(at: int, head: int, payload: int) -> tuple[int, int, int]:
    """Where the head of a message begins, its payload, and what follows: sealed, so many bytes each. at: of its lengths."""
    start = at + _LENGTHS.size
    middle = start + head + _TAG
    return start, middle, middle + payload + _TAG


class Offer(NamedTuple):
    """What a worker needs to open its lane; texts in hexadecimal. up: the key of what the worker sends."""

    port: int
    name: str
    up: str
    down: str


def join(host: str, offer: Offer, poller: select.epoll) -> Lane:
    """The worker's end of a lane. Raises OSError if it cannot be opened."""
    up, down = (_Seals(bytes.fromhex(key)) for key in (offer.up, offer.down))
    connected = socket.create_connection((host, offer.port), _CONNECT_WITHIN)
    greeting = bytearray(bytes.fromhex(offer.name) + bytes(_TAG))
    up.seal(b"", memoryview(greeting)[_NAME:], bytes(greeting[:_NAME]))
    try:
        connected.sendall(greeting)
        return Lane(connected, up, down, poller)
    except OSError:
        connected.close()
        raise


class _Offered(NamedTuple):
    rank: int
    up: _Seals
    down: _Seals


class Lanes:
    """The shard's ends of its lanes. It listens from the first offer on. `fileno` is readable when there is something to do."""

    def __init__(self, interface: str):
        self._interface = interface
        self._poller = select.epoll()
        self._listener: socket.socket | None = None
        self._offered: dict[bytes, _Offered] = {}
        self._greeting: dict[int, tuple[socket.socket, bytearray, float]] = {}  # by file descriptor
        self._lanes: dict[int, tuple[int, Lane]] = {}  # by file descriptor: rank, lane
        self._of: dict[int, Lane] = {}  # by rank

    def fileno(self) -> int:
        return self._poller.fileno()

    def offer(self, rank: int, wanted: bool) -> Offer | None:
        """A new lane for a rank, if it wants one and there can be; what it had ends."""
        self.drop(rank)
        if not wanted or not available():
            return None
        if self._listener is None:
            self._listener = socket.create_server((self._interface, 0), backlog=_BACKLOG)
            self._listener.setblocking(False)
            self._poller.register(self._listener, select.EPOLLIN)
        name, up, down = os.urandom(_NAME), os.urandom(_KEY), os.urandom(_KEY)
        self._offered[name] = _Offered(rank, _Seals(up), _Seals(down))
        return Offer(self._listener.getsockname()[1], name.hex(), up.hex(), down.hex())

    def drop(self, rank: int) -> None:
        """End a rank's lane, and what it was offered."""
        self._offered = {name: o for name, o in self._offered.items() if o.rank != rank}
        lane = self._of.pop(rank, None)
        if lane is not None:
            del self._lanes[lane.fileno()]
            lane.close()

    def put(self, rank: int, head: bytes, payload: Any) -> bool:
        """Send by a rank's lane; False if it has none."""
        lane = self._of.get(rank)
        if lane is None:
            return False
        try:
            lane.put(head, payload)
        except OSError:
            self.drop(rank)  # the worker sees it, too, and connects anew
        return True

    def turn(self) -> Iterator[tuple[int, bytes, memoryview]]:
        """Let connections in, send what waits, and give out what has come: (rank, head, payload), as `messages` does."""
        for fd, events in self._poller.poll(0):
            if fd in self._lanes:
                rank, lane = self._lanes[fd]
                try:
                    if events & select.EPOLLOUT:
                        lane.flush()
                    if events & ~select.EPOLLOUT:
                        for _ in range(READS):
                            more = lane.read()
                            for head, payload in lane.messages():
                                yield rank, head, payload
                            if not more:
                                break
                except OSError:
                    self.drop(rank)
            elif fd in self._greeting:
                self._greet(fd)
            elif self._listener is not None and fd == self._listener.fileno():
                self._accept()

    def close(self) -> None:
        """End all lanes, and listen no more."""
        for rank in list(self._of):
            self.drop(rank)
        for fd in list(self._greeting):
            self._hang_up(fd)
        if self._listener is not None:
            self._listener.close()
        self._poller.close()

    def _accept(self) -> None:
        assert self._listener is not None
        now = time.monotonic()
        for fd, (_, _, since) in list(self._greeting.items()):
            if now - since > _GREET_WITHIN or len(self._greeting) >= _MOST_WAITING:
                self._hang_up(fd)
        try:
            s, _ = self._listener.accept()
        except OSError:
            return
        s.setblocking(False)
        self._greeting[s.fileno()] = s, bytearray(), now
        self._poller.register(s, select.EPOLLIN)

    def _hang_up(self, fd: int) -> None:
        self._greeting.pop(fd)[0].close()

    def _greet(self, fd: int) -> None:
        """Read which lane a connection is; an offer is taken once."""
        s, said, _ = self._greeting[fd]
        try:
            more = s.recv(_GREETING - len(said))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        said += more
        if more and len(said) < _GREETING:
            return
        name = bytes(said[:_NAME])
        offered = self._offered.get(name)
        try:
            if offered is None:
                raise ConnectionError("lane: none of that name is offered")
            offered.up.open(memoryview(said)[_NAME:], memoryview(bytearray()), name)
        except ConnectionError:
            self._hang_up(fd)
            return
        del self._greeting[fd], self._offered[name]
        self._poller.unregister(s)
        lane = self._of[offered.rank] = Lane(s, offered.down, offered.up, self._poller)
        self._lanes[fd] = offered.rank, lane
