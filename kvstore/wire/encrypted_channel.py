"""Encrypted channel: the TCP connection for the frames of one worker and one server, encrypted with AES-256-GCM.

CURVE authenticates a worker. Over that connection the server sends a `ChannelOffer`: a port, a channel ID and two fresh keys, one
for each direction. A connection that does not present the ID is closed. AES, which processors have instructions for, takes a
fraction of the time of CURVE's cipher, and a small frame does not wait for a thread of libzmq.

A message is the lengths of head and payload (two little-endian uint32), the encrypted head and the encrypted payload, each
followed by a tag of 16 bytes. The nonce is a counter for each direction, and the tag of the head also covers the lengths. A
message that is changed, missing, repeated or out of order has a wrong tag and ends the channel; nothing is used before its tag is
checked.
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
_TAG, _ID, _KEY = 16, 16, 32  # bytes
_LARGEST_HEAD = 64 + 80 * MOST_RECORDS  # bytes
_LARGEST = _LENGTHS.size + _LARGEST_HEAD + LARGEST_MESSAGE + 2 * _TAG  # bytes of a message
_READ = 512 << 10  # bytes read at a time: they stay in the cache until they are decrypted
_MUCH = 64 << 10  # bytes: after a read of so many, more will arrive soon
READS = 8  # reads in a row before other connections get a turn
_CONNECT_TIMEOUT = 2.0  # seconds
_GREETING_TIMEOUT = 5.0  # seconds
_BACKLOG = 512  # workers that connect at the same moment
_MOST_UNIDENTIFIED = 32  # connections that have not sent a greeting
_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),  # so that no firewall drops an idle channel
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),  # seconds
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # ms until unacknowledged data ends the connection
)


def available() -> bool:
    """Return whether a recent enough package `cryptography` is installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        return False
    return hasattr(AESGCM, "encrypt_into")


def _buffer(nbytes: int) -> memoryview:
    """Return uninitialized bytes. Pages that are never used take no memory."""
    return np.empty(nbytes, np.uint8).data


class _Cipher:
    """The key of one direction and its message counter."""

    def __init__(self, key: bytes):
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher, self._invalid_tag, self._count = AESGCM(key), InvalidTag, 0

    def _nonce(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(12, "little")

    def encrypt(self, data: Any, out: memoryview, associated: Any = None) -> None:
        """Write the encrypted data to out, then a tag over it and the associated data."""
        self._cipher.encrypt_into(self._nonce(), data, associated, out)

    def decrypt(self, encrypted: memoryview, out: memoryview, associated: Any = None) -> None:
        """Write the decrypted data to out. Raises ConnectionError unless it is the next message of the other end."""
        try:
            self._cipher.decrypt_into(self._nonce(), encrypted, associated, out)
        except self._invalid_tag:
            raise ConnectionError("encrypted channel: a message has a wrong tag") from None


class EncryptedChannel:
    """One end of a channel. Its methods never block, and raise OSError when the channel has ended.

    outgoing, incoming:  the ciphers of the two directions.
    poller:              reports when data has arrived, or waiting data can be sent.
    """

    def __init__(self, connected: socket.socket, outgoing: _Cipher, incoming: _Cipher, poller: select.epoll):
        connected.setblocking(False)
        for level, name, value in _OPTIONS:
            connected.setsockopt(level, name, value)
        self._socket, self._outgoing, self._incoming, self._poller = connected, outgoing, incoming, poller
        self._polls_writable = False
        poller.register(connected, select.EPOLLIN)
        self._waiting: deque[tuple[bytes, memoryview]] = deque()
        self._encrypted, self._unsent = _buffer(_LARGEST), memoryview(b"")  # the message that is being sent, and its rest
        self._received, self._end = _buffer(_LARGEST + _READ), 0  # received bytes of incomplete messages, and their end
        self._decrypted = _buffer(LARGEST_MESSAGE)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def full(self) -> bool:
        """True while data waits until the socket accepts more."""
        return bool(self._unsent or self._waiting)

    def put(self, head: bytes, payload: Any) -> None:
        """Send a message, after those that wait. The payload must not change until `full` is false."""
        self._waiting.append((head, memoryview(payload).cast("B")))
        self.flush()

    def flush(self) -> None:
        """Send until the socket accepts no more."""
        while self.full:
            if not self._unsent:
                head, payload = self._waiting.popleft()
                _LENGTHS.pack_into(self._encrypted, 0, len(head), len(payload))
                start, middle, end = _bounds(0, len(head), len(payload))
                self._outgoing.encrypt(head, self._encrypted[start:middle], self._encrypted[:start])
                self._outgoing.encrypt(payload, self._encrypted[middle:end])
                self._unsent = self._encrypted[:end]
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent):]
            except BlockingIOError:
                break
        if self.full != self._polls_writable:
            self._polls_writable = self.full
            self._poller.modify(self._socket, select.EPOLLIN | (select.EPOLLOUT if self.full else 0))

    def read(self) -> bool:
        """Read some of the data that has arrived. Returns whether there may be more."""
        try:
            count = self._socket.recv_into(self._received[self._end:self._end + _READ])
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionError("encrypted channel: the other end has closed it")
        self._end += count
        return count >= _MUCH

    def messages(self) -> Iterator[tuple[bytes, memoryview]]:
        """Yield (head, payload) of the messages that were read completely. A payload is valid until the next is requested."""
        at = 0
        while self._end - at >= _LENGTHS.size:
            n, size = _LENGTHS.unpack_from(self._received, at)
            if n > _LARGEST_HEAD or size > LARGEST_MESSAGE:
                raise ConnectionError(f"encrypted channel: a message of {n} and {size} bytes exceeds the limits {_LARGEST_HEAD} "
                                      f"and {LARGEST_MESSAGE}")
            start, middle, end = _bounds(at, n, size)
            if end > self._end:
                break
            head, payload = bytearray(n), self._decrypted[:size]
            self._incoming.decrypt(self._received[start:middle], memoryview(head), self._received[at:start])
            self._incoming.decrypt(self._received[middle:end], payload)
            yield bytes(head), payload
            at = end
        self._received[:self._end - at] = self._received[at:self._end]
        self._end -= at

    def close(self) -> None:
        self._poller.unregister(self._socket)
        self._socket.close()


def _bounds(at: int, head: int, payload: int) -> tuple[int, int, int]:
    """Return the starts of encrypted head and payload, and the end, of the message at byte `at`. head, payload: their bytes."""
    start = at + _LENGTHS.size
    middle = start + head + _TAG
    return start, middle, middle + payload + _TAG


class ChannelOffer(NamedTuple):
    """Port, ID and keys of a worker's channel, as hexadecimal text. up: the key of the worker's messages."""

    port: int
    name: str
    up: str
    down: str


def open_channel(host: str, offer: ChannelOffer, poller: select.epoll) -> EncryptedChannel:
    """Return the worker's end of the channel that a server at host has offered. Raises OSError if it cannot be opened."""
    up, down = (_Cipher(bytes.fromhex(key)) for key in (offer.up, offer.down))
    connected = socket.create_connection((host, offer.port), _CONNECT_TIMEOUT)
    try:
        connected.sendall(bytes.fromhex(offer.name))
        return EncryptedChannel(connected, up, down, poller)
    except OSError:
        connected.close()
        raise


class ChannelListener:
    """The server's ends of its channels. It listens from the first offer on. `fileno` is readable when `process` has work."""

    def __init__(self, interface: str):
        self._interface = interface
        self._poller = select.epoll()
        self._listener: socket.socket | None = None
        self._offers: dict[bytes, tuple[int, _Cipher, _Cipher]] = {}  # channel ID -> rank, up, down
        self._unidentified: dict[int, tuple[socket.socket, bytearray, float]] = {}  # fd -> socket, received bytes, since when
        self._by_fd: dict[int, tuple[int, EncryptedChannel]] = {}  # fd -> rank, channel
        self._by_rank: dict[int, EncryptedChannel] = {}

    def fileno(self) -> int:
        return self._poller.fileno()

    def offer(self, rank: int, wanted: bool) -> ChannelOffer | None:
        """End a rank's channel, and return an offer of a new one if it wants one and encryption is available."""
        self.drop(rank)
        if not wanted or not available():
            return None
        if self._listener is None:
            self._listener = socket.create_server((self._interface, 0), backlog=_BACKLOG)
            self._listener.setblocking(False)
            self._poller.register(self._listener, select.EPOLLIN)
        channel_id, up, down = os.urandom(_ID), os.urandom(_KEY), os.urandom(_KEY)
        self._offers[channel_id] = rank, _Cipher(up), _Cipher(down)
        return ChannelOffer(self._listener.getsockname()[1], channel_id.hex(), up.hex(), down.hex())

    def drop(self, rank: int) -> None:
        """End a rank's channel, and withdraw its offer."""
        self._offers = {channel_id: o for channel_id, o in self._offers.items() if o[0] != rank}
        channel = self._by_rank.pop(rank, None)
        if channel is not None:
            del self._by_fd[channel.fileno()]
            channel.close()

    def put(self, rank: int, head: bytes, payload: Any) -> bool:
        """Send a message over a rank's channel. Returns False if it has none."""
        channel = self._by_rank.get(rank)
        if channel is None:
            return False
        try:
            channel.put(head, payload)
        except OSError:
            self.drop(rank)  # the worker sees the end of the channel, too, and connects again
        return True

    def process(self) -> Iterator[tuple[int, bytes, memoryview]]:
        """Accept connections, send waiting data, and yield received messages: (rank, head, payload), as `messages` does."""
        for fd, events in self._poller.poll(0):
            if fd in self._by_fd:
                rank, channel = self._by_fd[fd]
                try:
                    if events & select.EPOLLOUT:
                        channel.flush()
                    if events & ~select.EPOLLOUT:
                        for _ in range(READS):
                            more = channel.read()
                            for head, payload in channel.messages():
                                yield rank, head, payload
                            if not more:
                                break
                except OSError:
                    self.drop(rank)
            elif fd in self._unidentified:
                self._read_greeting(fd)
            elif self._listener is not None and fd == self._listener.fileno():
                self._accept()

    def close(self) -> None:
        """End all channels and stop listening."""
        for rank in list(self._by_rank):
            self.drop(rank)
        for fd in list(self._unidentified):
            self._disconnect(fd)
        if self._listener is not None:
            self._listener.close()
        self._poller.close()

    def _accept(self) -> None:
        assert self._listener is not None
        now = time.monotonic()
        for fd, (_, _, since) in list(self._unidentified.items()):
            if now - since > _GREETING_TIMEOUT or len(self._unidentified) >= _MOST_UNIDENTIFIED:
                self._disconnect(fd)
        try:
            s, _ = self._listener.accept()
        except OSError:
            return
        s.setblocking(False)
        self._unidentified[s.fileno()] = s, bytearray(), now
        self._poller.register(s, select.EPOLLIN)

    def _disconnect(self, fd: int) -> None:
        self._unidentified.pop(fd)[0].close()

    def _read_greeting(self, fd: int) -> None:
        """Read the channel ID that a connection presents. An ID is valid for one connection."""
        s, received, _ = self._unidentified[fd]
        try:
            more = s.recv(_ID - len(received))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        received += more
        if more and len(received) < _ID:
            return
        offer = self._offers.pop(bytes(received), None)
        if offer is None:
            self._disconnect(fd)
            return
        del self._unidentified[fd]
        self._poller.unregister(s)
        rank, up, down = offer
        channel = self._by_rank[rank] = EncryptedChannel(s, down, up, self._poller)
        self._by_fd[fd] = rank, channel
