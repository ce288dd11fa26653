"""Stream: one connection, over which messages go in both directions, and Poller, which waits for many of them.

A message is a head and a payload. It is sent in parts, between which messages with a higher priority may be sent; these are
complete before it goes on. Each part begins with the length of the head (in a later part of a message: CONTINUED), the bytes of
payload in this part, and those of the whole payload; the head follows in the first part. The connection is a Unix domain socket
or TLS over TCP; the messages are the same. A length beyond the limits ends the connection before anything is allocated for it.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import numpy as np

from .frame import LARGEST_HEAD

READABLE, WRITABLE = selectors.EVENT_READ, selectors.EVENT_WRITE
LARGE = 32 << 10  # bytes: the receiver of a larger payload may say where it goes
_PART = struct.Struct("<IIQ")
_CONTINUED = 0xFFFFFFFF
_MOST = 512 << 10  # bytes of payload in a part: one part is encrypted in the cache while others are in flight
_AHEAD = 32 << 10  # bytes: what belongs to smaller places is read together
_MUCH = 16 << 10  # bytes: after a read of fewer, no more have arrived
_TURN = 2 << 20  # bytes read before other connections get a turn
_JOINED = 16 << 10  # bytes: a smaller payload is copied, to be sent with its head

Opening = Generator[int, None, tuple["Channel", Any]]  # yields events to wait for; returns the channel and its user
Place = memoryview | None


class Channel(Protocol):
    """The way the bytes take: a socket, or TLS over one. `recv_into` fills the buffer, or receives all that has arrived."""

    def send(self, data: memoryview, /) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...


class Poller(selectors.DefaultSelector):
    """The connections of a thread. The data of each is its handler, which is called with the events."""

    def handle(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> None:
        """Call the handlers of what `select` has returned. A connection that an earlier one has closed or changed is skipped."""
        for key, events in ready:
            if self.get_map().get(key.fd) is key:
                key.data(events)

    def run(self, turn: Callable[[], None], stop_fd: int | None = None) -> None:
        """Call turn, in which the owner handles what is ready, until stop_fd ends, because its writer has ended."""
        ended: list[int] = []
        if stop_fd is not None:
            self.register(stop_fd, READABLE, ended.append)
        while not ended:
            turn()


class Stream:
    """One end of a connection. Its methods do not block. They are called, and it calls, where the poller is used.

    opening:     the steps until messages can be sent: connecting and proving who both ends are.
    largest:     bytes of a payload that it accepts anywhere.
    on_message:  called with (head, payload). The payload belongs to the receiver.
    on_large:    called with (head, size) before a payload of more than LARGE bytes. It returns the memory for it, or None: then
                 it may have up to `largest` bytes.
    on_end:      called with the error when the connection has ended, but not after `close`.
    user:        what `opening` has shown the other end to be; None before that.
    """

    def __init__(self, poller: Poller, opening: Opening, s: socket.socket, largest: int, *,
                 on_message: Callable[[bytes, memoryview], object], on_end: Callable[[OSError], object],
                 on_large: Callable[[bytes, int], Place] = lambda head, size: None):
        self.user: Any = None
        self.on_message, self.on_large, self.on_end = on_message, on_large, on_end
        self._poller, self._socket, self._fd, self._largest = poller, s, s.fileno(), largest
        self._opening: Opening | None = opening
        self._channel: Channel = s
        # heap of messages: (-priority, order, head or None if the message is continued, rest of the payload, its size)
        self._waiting: list[tuple[float, int, bytes | None, memoryview, int]] = []
        self._order = itertools.count()
        self._sending: deque[memoryview] = deque()  # the rest of the part that is being sent
        self._ahead = memoryview(b"")
        self._places = self._receive()
        self._place = next(self._places)
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
            self._channel, self.user = opened.value
            self._ahead = memoryview(bytearray(_AHEAD))
            self._poll(READABLE)

    def _poll(self, events: int) -> None:
        if not self._events:
            self._poller.register(self._fd, events, self._on_event)
        elif events != self._events:
            self._poller.modify(self._fd, events, self._on_event)
        self._events = events

    def _on_event(self, events: int) -> None:
        try:
            opened = self._opening is not None
            if self._opening is not None:
                self._step()
                if self._opening is not None:
                    return
            self._send()
            if opened or events & READABLE:  # messages may have arrived with the end of the handshake
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
        waits, payload = self.full, memoryview(payload).cast("B")
        heapq.heappush(self._waiting, (-priority, next(self._order), head, payload, len(payload)))
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
        """Take the next part of the message with the highest priority."""
        priority, order, head, payload, size = heapq.heappop(self._waiting)
        part, rest = payload[:_MOST], payload[_MOST:]
        first = _PART.pack(_CONTINUED, len(part), size) if head is None else _PART.pack(len(head), len(part), size) + head
        if rest:
            heapq.heappush(self._waiting, (priority, order, None, rest, size))
        self._sending += (memoryview(first + part),) if len(part) < _JOINED else (memoryview(first), part)

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
        left, more, turn = self._ahead[:0], True, _TURN
        while not self.closed and (left or more):
            if left:
                count = min(len(left), len(self._place))
                self._place[:count], left = left[:count], left[count:]
            else:
                direct = len(self._place) >= len(self._ahead)
                into = self._place if direct else self._ahead
                try:
                    count = self._channel.recv_into(into)
                except BlockingIOError:
                    return
                if not count:
                    raise ConnectionError("the other end has closed the connection")
                turn -= count
                more = count == len(into) or (count > _MUCH and turn > 0)
                if not direct:
                    left = into[:count]
                    continue
            self._place = next(self._places) if count == len(self._place) else self._place[count:]

    def _receive(self) -> Generator[memoryview, None, None]:
        """Yield the places of the next bytes, none of which is empty. Each is filled before the next one is asked for."""
        begun: list[tuple[bytes, memoryview, int]] = []  # head, payload, and its bytes that have arrived
        numbers = memoryview(bytearray(_PART.size))
        while True:
            yield numbers
            n, part, size = _PART.unpack(numbers)
            if n != _CONTINUED:
                if n > LARGEST_HEAD:
                    raise ConnectionError(f"a head of {n} bytes exceeds the limit {LARGEST_HEAD}")
                head = memoryview(bytearray(n))
                if n:
                    yield head
                begun.append((bytes(head), self._place_of(bytes(head), size), 0))
            elif not begun:
                raise ConnectionError("a message that has not begun is continued")
            first, payload, at = begun.pop()
            if part > len(payload) - at or (not part and size):
                raise ConnectionError(f"a part of {part} bytes does not fit a message of {len(payload)}")
            if part:
                yield payload[at:at + part]
            if at + part < len(payload):
                begun.append((first, payload, at + part))
            else:
                self.on_message(first, payload)

    def _place_of(self, head: bytes, size: int) -> memoryview:
        place = self.on_large(head, size) if size > LARGE else None
        if place is None and size > self._largest:
            raise ConnectionError(f"a message of {size} bytes exceeds the limit {self._largest}")
        return np.empty(size, np.uint8).data if place is None else place

    def close(self) -> None:
        """End the connection. Nothing is called any more."""
        if not self.closed:
            self.closed = True
            self._drop_all()
            self._poller.unregister(self._fd)
            if self._opening is not None:
                self._opening.close()
            self._socket.close()
