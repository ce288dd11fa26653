"""ServerConnection: the connection of a worker to a server. It moves messages, and knows nothing of their content."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..wire import sockets
from ..wire.frame import LARGEST_MESSAGE
from ..wire.stream import Stream

if TYPE_CHECKING:
    from .client import Client


class ServerConnection:
    """Messages wait here, where their order can still change, until the stream accepts them.

    on_message:  called with (head, payload) of each message. The payload is valid during the call only.
    on_lost:     called when the connection has ended, or cannot be made.
    """

    def __init__(self, client: Client, on_message: Callable[[bytes, memoryview], object], on_lost: Callable[[], object]):
        self._client, self._on_message, self._on_lost = client, on_message, on_lost
        self.stream: Stream | None = None
        self._waiting: list[tuple[float, int, bytes, Any]] = []  # heap: (-priority, order, head, payload)
        self._order = itertools.count()

    @property
    def pending(self) -> bool:
        """True while messages wait to be sent."""
        return bool(self._waiting)

    def open(self, location: dict[str, Any]) -> None:
        """Connect to the server process at a location, as the coordinator describes it."""
        c = self._client
        try:
            self.stream = sockets.connect(c.loop.poller, location["address"], c.credentials, location["public"], c.authority,
                                          LARGEST_MESSAGE, on_message=self._on_message, on_end=self._ended)
        except OSError as e:
            self._ended(e)

    def _ended(self, _: OSError) -> None:
        self.stream = None
        self._on_lost()

    def close(self) -> None:
        """Close the connection, and drop the waiting messages."""
        self.drop_waiting()
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def drop_waiting(self) -> None:
        self._waiting = []

    def put(self, priority: float, head: bytes, payload: Any) -> None:
        """Add a message to those that wait. A higher priority goes first."""
        heapq.heappush(self._waiting, (-priority, next(self._order), head, payload))

    def flush(self) -> None:
        """Send until the stream is full. The rest is sent when it accepts more."""
        while self._waiting and self.stream is not None and not self.stream.full:
            _, _, head, payload = heapq.heappop(self._waiting)
            self.stream.put(head, payload)
