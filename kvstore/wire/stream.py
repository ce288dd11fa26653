"""Stream: one connection, over which messages go in both directions, and Poller, which waits for many of them.

A message is the lengths of head and payload (two little-endian uint32), the head, the payload, and zeros up to a multiple of 8
bytes. The connection is a Unix domain socket or TLS over TCP; the messages are the same. A length beyond the limits ends the
connection before anything is allocated for it.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import numpy as np

from .frame import MOST_RECORDS

READABLE, WRITABLE = select.EPOLLIN, select.EPOLLOUT
_LENGTHS = struct.Struct("<II")
_LARGEST_HEAD = 64 + 80 * MOST_RECORDS  # bytes
_ALIGN = 8  # bytes: payloads start at a multiple, so that arrays in them are aligned
_READ = 512 << 10  # bytes read at a time
_MUCH = 16 << 10  # bytes: after a read of fewer, no more have arrived
_TURN = 2 << 20  # bytes read before other connections get a turn
_JOINED = 16 << 10  # bytes: a smaller payload is copied, to be sent with its head

Opening = Generator[int, None, tuple["Channel", str]]  # yields events to wait for; returns the channel and its peer's name


class Channel(Protocol):
    """The way the bytes take: a socket, or TLS over one."""

    def send(self, data: memoryview, /) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...


class Poller:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], object]] = {}

    def register(self, fd: int, handler: Callable[[int], object], events: int = READABLE) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        del self._handlers[fd]
        with contextlib.suppress(OSError):  # it may be closed already
            self._epoll.unregister(fd)

    def wait(self, timeout: float | None = None) -> Sequence[tuple[int, int]]:
        """Return the (descriptor, events) that are ready within timeout seconds; None: without a limit."""
        return self._epoll.poll(timeout)

    def handle(self, ready: Sequence[tuple[int, int]]) -> None:
        """Call the handlers of what is ready. A descriptor that an earlier one has closed is skipped."""
        for fd, events in ready:
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(events)

    def close(self) -> None:
        self._epoll.close()


class Stream:
    """One end of a connection. Its methods do not block. They are called, and it calls, where the poller is used.

    opening:     the steps until messages can be sent: connecting and proving who both ends are.
    largest:     bytes of a payload that it accepts.
    on_open:     called when `opening` has ended. It may raise ConnectionError.
    on_message:  called with (head, payload). The payload is valid during the call only.
    on_end:      called with the error when the connection has ended, but not after `close`.
    peer, user:  the proven public name of the other end, and what the listener knows it as.
    """

    def __init__(self, poller: Poller, opening: Opening, s: socket.socket, largest: int, *,
                 on_message: Callable[[bytes, memoryview], object], on_end: Callable[[OSError], object],
                 on_open: Callable[[], object] = lambda: None):
        self.peer = ""
        self.user: Any = None
        self.on_open, self.on_message, self.on_end = on_open, on_message, on_end
        self._poller, self._socket, self._fd, self._largest = poller, s, s.fileno(), largest
        self._opening: Opening | None = opening
        self._channel: Channel = s
        self._waiting: list[tuple[float, int, bytes, Any]] = []  # heap of messages: (-priority, order, head, payload)
        self._order = itertools.count()
        self._sending: deque[memoryview] = deque()  # the rest of the message that is being sent
        self._received, self._end = memoryview(b""), 0  # received bytes of incomplete messages, and their end
        self._events = 0
        self.closed = False
        try:
            s.setblocking(False)
            self._step()
        except BaseException:
            s.close()
            raise

    def fileno(self) -> int:
        return self._fd

    def _step(self) -> None:
        assert self._opening is not None
        try:
            self._poll(next(self._opening))
        except StopIteration as opened:
            self._opening = None
            self._channel, self.peer = opened.value
            # pages that are never used take no memory
            self._received = np.empty(_LENGTHS.size + _LARGEST_HEAD + self._largest + _ALIGN + _READ, np.uint8).data
            self._poll(READABLE)

    def _poll(self, events: int) -> None:
        if not self._events:
            self._poller.register(self._fd, self._on_event, events)
        elif events != self._events:
            self._poller.modify(self._fd, events)
        self._events = events

    def _on_event(self, events: int) -> None:
        try:
            opened = self._opening is not None
            if self._opening is not None:
                self._step()
                if self._opening is not None:
                    return
                self.on_open()
            if not self.closed:
                self._send()
            if opened or events & ~WRITABLE:  # messages may have arrived with the end of the handshake
                self._read()
        except OSError as e:
            if not self.closed:
                self.close()
                self.on_end(e)

    # ---- sending ----------------------------------------------------------------------------------------------------------
    @property
    def full(self) -> bool:
        """True while messages wait until the connection accepts more."""
        return bool(self._sending or self._waiting)

    def put(self, head: bytes, payload: Any = b"", priority: float = 0.0) -> None:
        """Send a message, after those that wait and have the same priority or a higher one.

        The payload must not change until `full` is false.
        """
        if self.closed:
            return
        waits = self.full
        heapq.heappush(self._waiting, (-priority, next(self._order), head, payload))
        if self._opening is None and not waits:
            try:
                self._send()
            except OSError:
                self._drop_all()
                self._shut_down()

    def _drop_all(self) -> None:
        self._waiting.clear()
        self._sending.clear()

    def _take_next(self) -> None:
        _, _, head, payload = heapq.heappop(self._waiting)
        payload = memoryview(payload).cast("B")
        first = _LENGTHS.pack(len(head), len(payload)) + head
        rest = bytes(-(len(first) + len(payload)) % _ALIGN)
        if len(payload) < _JOINED:
            self._sending.append(memoryview(b"".join((first, payload, rest))))
        else:
            self._sending += memoryview(first), payload, *([memoryview(rest)] if rest else [])

    def _shut_down(self) -> None:
        """Have the poller report the end of the connection, now that its end is known."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is reported already
        self._poll(READABLE)

    def _send(self) -> None:
        try:
            while self.full:
                if not self._sending:
                    self._take_next()
                sent = self._channel.send(self._sending[0])
                if sent == len(self._sending[0]):
                    self._sending.popleft()
                else:
                    self._sending[0] = self._sending[0][sent:]
        except BlockingIOError:
            pass
        self._poll(READABLE | WRITABLE if self.full else READABLE)

    # ---- receiving --------------------------------------------------------------------------------------------------------
    def _read(self) -> None:
        """Read what has arrived, and pass on the messages that are complete."""
        left = _TURN
        while left > 0 and not self.closed:
            try:
                count = self._channel.recv_into(self._received[self._end:self._end + _READ])
            except BlockingIOError:
                return
            if not count:
                raise ConnectionError("the other end has closed the connection")
            self._end += count
            left -= count
            self._deliver()
            if count < _MUCH:
                return

    def _deliver(self) -> None:
        at = 0
        while self._end - at >= _LENGTHS.size:
            n, size = _LENGTHS.unpack_from(self._received, at)
            if n > _LARGEST_HEAD or size > self._largest:
                raise ConnectionError(f"a message of {n} and {size} bytes exceeds the limits {_LARGEST_HEAD} and {self._largest}")
            start = at + _LENGTHS.size
            middle, end = start + n, start + n + size
            after = end + -(end - at) % _ALIGN
            if after > self._end:
                break
            self.on_message(bytes(self._received[start:middle]), self._received[middle:end])
            if self.closed:
                return
            at = after
        if at:
            self._received[:self._end - at] = self._received[at:self._end]
            self._end -= at

    def close(self) -> None:
        """End the connection. Nothing is called any more."""
        if not self.closed:
            self.closed = True
            self._drop_all()
            self._poller.unregister(self._fd)
            if self._opening is not None:
                self._opening.close()
            self._socket.close()
