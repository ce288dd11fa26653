"""TLS over a socket, encrypted and decrypted in memory.

OpenSSL on a socket reads the header and the content of each record (16 KB) by themselves. In memory, many records are moved by
one call of the kernel.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

import numpy as np

from .credentials import public_of
from .stream import READABLE, WRITABLE, Opening

_RECORD = 16 << 10  # bytes
_ENCRYPTED = 128 << 10  # bytes that are encrypted at a time: they stay in the cache
_READ = 512 << 10  # bytes that are read from the socket at a time: 20 MB there and back take a twelfth less than with 128 KB


class _Scratch(threading.local):
    """The memory of a thread into which it reads what it decrypts at once."""

    def __init__(self) -> None:
        self.received = np.empty(_READ, np.uint8).data


_scratch = _Scratch()


class TlsChannel:
    """A connection whose handshake is complete, with the methods of a socket that a stream uses. They do not block."""

    def __init__(self, s: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO):
        self._socket, self._tls, self._incoming, self._outgoing = s, tls, incoming, outgoing
        self._encrypted, self._count = memoryview(b""), 0  # not sent yet, and the bytes of plaintext in it

    def send(self, data: memoryview) -> int:
        """Send the first bytes of data, and return their number.

        Raises BlockingIOError if the socket does not accept them now. Then the next call must be with the same data.
        """
        if not self._encrypted:
            self._count = self._tls.write(data[:_ENCRYPTED])
            self._encrypted = memoryview(self._outgoing.read())
        while self._encrypted:
            self._encrypted = self._encrypted[self._socket.send(self._encrypted):]
        return self._count

    def recv_into(self, buffer: memoryview) -> int:
        """Fill buffer, as far as bytes have arrived. Returns their number; 0 at the end.

        Raises BlockingIOError if nothing complete has arrived.
        """
        count, received, memory = self._decrypt(buffer), _READ, _scratch.received
        while count < len(buffer) and received == _READ:
            try:
                received = self._socket.recv_into(memory)
            except BlockingIOError:
                break
            if not received:
                return count
            self._incoming.write(memory[:received])
            count += self._decrypt(buffer[count:])
        if not count:
            raise BlockingIOError
        return count

    def _decrypt(self, buffer: memoryview) -> int:
        end = 0
        with contextlib.suppress(ssl.SSLWantReadError):
            while end < len(buffer) and (count := int(self._tls.read(len(buffer) - end, buffer[end:]))):  # type: ignore[arg-type]
                end += count
        return end


def shake_hands(s: socket.socket, context: ssl.SSLContext, server: bool) -> Opening:
    """Complete a handshake. Returns the channel, and the fingerprint of the other end as its name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server)
    complete = False
    if server:
        yield READABLE  # a stream opens at an event, and not while it is made
    while True:
        try:
            tls.do_handshake()
            complete = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                s.send(outgoing.read())  # the reason, for the other end
            raise
        left = outgoing.read()
        while left:
            try:
                left = left[s.send(left):]
            except BlockingIOError:
                yield WRITABLE
        if complete:
            return TlsChannel(s, tls, incoming, outgoing), public_of(tls.getpeercert(True) or b"")
        yield READABLE
        with contextlib.suppress(BlockingIOError):
            received = s.recv(_RECORD)
            if not received:
                raise ConnectionError("the other end has closed the connection during the handshake")
            incoming.write(received)
