"""ServerConnection: the sockets between a worker and a server. It moves messages, and knows nothing of their content.

A connection is a ZeroMQ socket and, if the server offers one, an encrypted channel, which then carries all frames to the server.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import zmq

from ..wire import encrypted_channel, sockets
from ..wire.frame import LARGEST_MESSAGE

if TYPE_CHECKING:
    from .client import Client

_log = logging.getLogger(__name__)
_MOST_BROKEN = 3  # channels that may break soon after each other before no more are requested
_SOON = 60.0  # seconds
_MOST_IN_SOCKET = 32  # messages: more wait here, where their order can still change


class ServerConnection:
    """The connection of a worker to server `index`.

    on_message:  called with (head, payload) of each message. The payload is valid during the call only.
    on_lost:     called when the channel has broken: the owner must connect again.
    """

    def __init__(self, client: Client, index: int, on_message: Callable[[Any, Any], None], on_lost: Callable[[], None]):
        self._loop, self._keys, self._rank, self._index = client.loop, client.keys, client.rank, index
        self._on_message, self._on_lost = on_message, on_lost
        self._host = ""
        self._socket: zmq.Socket | None = None
        self._channel: encrypted_channel.EncryptedChannel | None = None
        self._broken, self._opened_at = 0, 0.0  # channels that have broken, and the time of the last one
        self._waiting: list[tuple[float, int, bytes, Any]] = []  # heap: (-priority, order, head, payload)
        self._order = itertools.count()

    # ---- connecting -------------------------------------------------------------------------------------------------------
    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def pending(self) -> bool:
        """True while messages wait to be sent."""
        return bool(self._waiting)

    @property
    def wants_channel(self) -> bool:
        """True if the server shall offer an encrypted channel."""
        return self._broken < _MOST_BROKEN and encrypted_channel.available()

    def open(self, location: dict[str, Any]) -> None:
        """Connect to the server process at a location, as the coordinator describes it."""
        self._host = location["address"].removeprefix("tcp://").rpartition(":")[0]
        self._socket = sockets.connect(self._loop.context, self._keys, location["public"], location["address"], LARGEST_MESSAGE,
                                       _MOST_IN_SOCKET)
        self._monitor = sockets.ConnectionMonitor(self._socket)
        self._loop.watch(self._socket.fileno())

    def close(self) -> None:
        """Close the sockets, and drop the waiting messages."""
        self.drop_waiting()
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._monitor.close()
            self._socket.close(0)
            self._socket = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def drop_waiting(self) -> None:
        self._waiting = []

    def open_channel(self, offer: Sequence[Any]) -> None:
        """Open the encrypted channel that the server has offered."""
        try:
            self._channel = encrypted_channel.open_channel(self._host, encrypted_channel.ChannelOffer(*offer), self._loop.poller)
        except OSError as e:
            _log.warning("kvstore: worker %d: no encrypted channel to server %d (%s); arrays use the slower CURVE socket.",
                         self._rank, self._index, e)
            return
        self._opened_at = time.monotonic()

    def _channel_broke(self, error: OSError) -> None:
        _log.info("kvstore: worker %d, server %d: %s", self._rank, self._index, error)
        self._broken = self._broken + 1 if time.monotonic() - self._opened_at < _SOON else 1
        self._on_lost()

    def is_lost(self) -> bool:
        """Return whether the ZeroMQ connection has ended since the last call."""
        return self._socket is not None and bool(list(self._monitor.lost()))

    # ---- sending ----------------------------------------------------------------------------------------------------------
    def put(self, priority: float, head: bytes, payload: Any) -> None:
        """Add a message to those that wait. A higher priority goes first."""
        heapq.heappush(self._waiting, (-priority, next(self._order), head, payload))

    def flush(self) -> None:
        """Send until the socket is full. The rest is sent when it accepts more."""
        assert self._socket is not None
        while self._waiting:
            _, _, head, payload = self._waiting[0]
            if self._channel is not None:
                if self._channel.full:
                    break
                heapq.heappop(self._waiting)
                self.put_on_channel(head, payload)
                continue
            self._loop.used = True
            try:
                self._socket.send(head, zmq.SNDMORE | zmq.NOBLOCK)
            except zmq.Again:
                break
            self._socket.send(payload, copy=len(payload) < sockets.COPIED)
            heapq.heappop(self._waiting)

    def put_on_channel(self, head: bytes, payload: Any) -> None:
        """Send a message over the channel, past those that wait."""
        assert self._channel is not None
        try:
            self._channel.put(head, payload)
        except OSError as e:
            self._channel_broke(e)

    # ---- receiving --------------------------------------------------------------------------------------------------------
    def has_input(self) -> bool:
        """Return whether a message has arrived at the ZeroMQ socket, or it accepts waiting messages."""
        if self._socket is None:
            return False
        return sockets.readable(self._socket) or bool(
            self._waiting and self._channel is None and self._socket.poll(0, zmq.POLLOUT))

    def receive(self, poll_zeromq: bool) -> None:
        """Pass on the messages that have arrived; those at the ZeroMQ socket only if poll_zeromq."""
        if poll_zeromq and self._socket is not None:
            for parts in sockets.receive(self._socket):
                if len(parts) == 2:
                    self._on_message(parts[0].buffer, parts[1].buffer)
        if self._channel is not None:
            self._receive_from_channel()

    def _receive_from_channel(self) -> None:
        try:
            for _ in range(encrypted_channel.READS):
                if self._channel is not None and self._channel.full:
                    self._channel.flush()
                self.flush()
                if self._channel is None:
                    return
                more = self._channel.read()
                for head, payload in self._channel.messages():
                    self._on_message(head, payload)
                if not more:
                    return
        except OSError as e:
            self._channel_broke(e)
