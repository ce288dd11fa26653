"""EventLoop: runs calls of any thread where the connections may be used, and waits for what arrives.

Connections are used by one thread at a time, which holds `_lock`. The loop's own thread waits for answers. A call from another
thread runs at once in that thread if nothing is in flight, because waking the loop's thread would take longer; otherwise it is
left to the loop's thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from selectors import SelectorKey
from typing import TYPE_CHECKING

from ...engine.interrupts import ki_protected
from ...errors import KVStoreError
from ..wire.stream import READABLE, Poller

if TYPE_CHECKING:
    from .coordinator_connection import CoordinatorConnection
    from .remote_server import RemoteServer

_WAKE_UPS = 4096  # bytes: more than there are
CHECK_EVERY = 0.2  # seconds between checks of deadlines and lost connections
_log = logging.getLogger(__name__)


class EventLoop:
    """The thread and the poller of one worker. connections: they register themselves; their methods run with the lock held."""

    def __init__(self) -> None:
        self.connections: list[CoordinatorConnection | RemoteServer] = []
        self.poller = Poller()
        self.pid = os.getpid()
        self._inbox: deque[Callable[[], None]] = deque()
        self._woken, self._waking = socket.socketpair()
        self._wakes = False  # the thread will run: it was woken, or has not looked at the inbox yet
        self._closed = self._stopping = False
        self._ended = False  # the streams are closed, and calls end with an error
        self._lock = threading.Lock()
        self._check_at = 0.0
        self.poller.register(self._woken, READABLE, lambda _: self._woken.recv(_WAKE_UPS))
        self._thread = threading.Thread(target=self._run, name="kvstore", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread. Calls that follow raise KVStoreError."""
        self._closed = self._stopping = True
        self._wake()
        self._thread.join(timeout)

    @property
    def alive(self) -> bool:
        """True if calls can be made: the loop is not closed, and this is not a forked child."""
        return not self._closed and self.pid == os.getpid()

    # ---- any thread -------------------------------------------------------------------------------------------------------
    def call_soon(self, call: Callable[[], None], now: bool = False) -> None:
        """Run call where the connections may be used. now: at once in this thread, if nothing is in flight."""
        if self.pid != os.getpid():
            raise KVStoreError("KVStore: a store over several processes cannot be used in a forked child. Create one there.")
        if self._closed:
            raise KVStoreError("KVStore: the store is closed.")
        self._inbox.append(call)
        if self._ended:  # the thread has ended since then
            with self._lock:
                self._run_inbox()
            return
        if now and not any(c.busy for c in self.connections) and self._lock.acquire(False):
            try:
                self._send_now()
            finally:
                self._lock.release()
            if not self._inbox:
                return
        elif self._lock.locked():
            return  # the holder of the lock runs the inbox afterwards
        if not self._wakes:
            self._wakes = True
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the thread has ended
            self._waking.send(b"x")

    # ---- holders of the lock ----------------------------------------------------------------------------------------------
    @ki_protected
    def _send_now(self) -> None:
        self._run_inbox()
        if not self._ended:
            self._flush()

    def _flush(self) -> None:
        for c in self.connections:
            c.flush()

    def _run_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    # ---- the thread -----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        reason = "the store is closed"
        try:
            while not self._stopping:
                ready = self.poller.select(0 if self._inbox else CHECK_EVERY)
                with self._lock:
                    self.run_once(ready)
        except Exception as e:  # a bug: everything in flight must end with an error
            _log.exception("kvstore: the connection's thread failed")
            reason = f"the connection's thread failed: {type(e).__name__}: {e}. This is a bug"
        finally:
            self._closed = True
            with self._lock:
                self._ended = True
                for c in self.connections:
                    c.end(KVStoreError(f"KVStore: {reason}."))
                self._run_inbox()
                for c in self.connections:
                    c.close()
            for end in (self.poller, self._woken, self._waking):
                end.close()
            with self._lock:
                self._run_inbox()

    def run_once(self, ready: Sequence[tuple[SelectorKey, int]]) -> None:
        """Run the inbox, handle what is ready, send, and check deadlines."""
        self._wakes = False
        self._run_inbox()
        self.poller.handle(ready)
        self._flush()
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + CHECK_EVERY
            for c in self.connections:
                c.check(now)
