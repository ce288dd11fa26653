"""EventLoop: runs calls of any thread where the sockets may be used, and waits for what arrives.

Sockets are used by one thread at a time, which holds `_sockets_lock`. The loop's own thread waits for answers. A call from
another thread runs at once in that thread if nothing is in flight, because waking the loop's thread would take longer; otherwise
it is left to the loop's thread.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import zmq

from ...engine.interrupts import ki_protected
from ...errors import KVStoreError

_CHECK_EVERY = 0.2  # seconds between checks of deadlines
_log = logging.getLogger(__name__)


class Connection(Protocol):
    """A user of sockets. Its methods run where the sockets may be used."""

    @property
    def busy(self) -> bool: ...  # something is in flight
    def flush(self) -> None: ...  # send what waits
    def receive(self, poll_zeromq: bool) -> None: ...  # handle what has arrived; at ZeroMQ sockets only if poll_zeromq
    def has_input(self) -> bool: ...  # more has arrived at the ZeroMQ sockets, or more can be sent
    def check(self, now: float) -> None: ...  # check deadlines and connections. now: time.monotonic()
    def end(self, error: KVStoreError) -> None: ...  # end everything in flight with error
    def close(self) -> None: ...  # close the sockets


class EventLoop:
    """The thread and the poller of one worker.

    connections:      they register themselves.
    context, poller:  for the sockets of the connections.
    used:             a ZeroMQ socket was used since it was last polled. Its file descriptor may not report what has arrived then.
    """

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.context = zmq.Context(io_threads=1)
        self.poller = select.epoll()
        self.used = True
        self.pid = os.getpid()
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.RLock()  # held while the descriptor is written or closed
        self._wakes = False  # the thread will run: it was woken, or has not looked at the inbox yet
        self._closed = self._stopping = False
        self._ended = False  # the sockets are closed, and calls end with an error
        self._sockets_lock = threading.Lock()
        self._check_at = 0.0
        self._zeromq: set[int] = set()  # file descriptors of ZeroMQ sockets
        self.poller.register(self._wake_fd, select.EPOLLIN)
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
        """Run call where the sockets may be used. now: at once in this thread, if nothing is in flight."""
        if self.pid != os.getpid():
            raise KVStoreError("KVStore: a store over several processes cannot be used in a forked child. Create one there.")
        if self._closed:
            raise KVStoreError("KVStore: the store is closed.")
        self._inbox.append(call)
        if self._ended:  # the thread has ended since then
            self._drain_inbox()
            return
        if now and not any(c.busy for c in self.connections) and self._sockets_lock.acquire(False):
            try:
                more = self._send_now()
            finally:
                self._sockets_lock.release()
            if not more and not self._inbox:
                return
        elif self._sockets_lock.locked():
            return  # the holder of the lock runs the inbox afterwards
        if not self._wakes:
            self._wakes = True
            self._wake()

    def _wake(self) -> None:
        with self._wake_lock:
            if not self._ended:
                os.eventfd_write(self._wake_fd, 1)

    # ---- holders of the lock ----------------------------------------------------------------------------------------------
    def watch(self, fd: int) -> None:
        """Wake when the file descriptor of a ZeroMQ socket is readable, which says that the socket's state has changed."""
        self._zeromq.add(fd)
        self.poller.register(fd, select.EPOLLIN)
        self.used = True

    def unwatch(self, fd: int) -> None:
        self._zeromq.discard(fd)
        self.poller.unregister(fd)

    @ki_protected
    def _send_now(self) -> bool:
        """Run the inbox and send. Returns whether more has arrived that no file descriptor may report."""
        self._run_inbox()
        if self._ended:
            return False
        for c in self.connections:
            c.flush()
        return self.used and self._has_input()

    def _has_input(self) -> bool:
        return any(c.has_input() for c in self.connections)

    def _run_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _drain_inbox(self) -> None:
        with self._sockets_lock:
            self._run_inbox()

    # ---- the thread -----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        more, reason = False, "the store is closed"
        try:
            while not self._stopping:
                ready = {fd for fd, _ in self.poller.poll(_CHECK_EVERY)} if not more and not self._inbox else set[int]()
                if self._wake_fd in ready:
                    os.eventfd_read(self._wake_fd)
                with self._sockets_lock:
                    more = self.run_once(more or not self._zeromq.isdisjoint(ready))
        except Exception as e:  # a bug: everything in flight must end with an error
            _log.exception("kvstore: the connection's thread failed")
            reason = f"the connection's thread failed: {type(e).__name__}: {e}. This is a bug"
        finally:
            self._closed = True
            with self._sockets_lock:
                self._ended = True
                for c in self.connections:
                    c.end(KVStoreError(f"KVStore: {reason}."))
                self._run_inbox()
                for c in self.connections:
                    c.close()
                self.context.destroy(linger=0)
            self.poller.close()
            with self._wake_lock:
                os.close(self._wake_fd)
            self._drain_inbox()

    def run_once(self, poll_zeromq: bool) -> bool:
        """Run the inbox, receive, send, and check deadlines. Returns whether more has arrived already."""
        self._wakes = False
        self._run_inbox()
        now = time.monotonic()
        check = now >= self._check_at
        poll_zeromq = poll_zeromq or self.used or check
        if poll_zeromq:
            self.used = False
        for c in self.connections:
            c.receive(poll_zeromq)
        for c in self.connections:
            c.flush()
        if check:
            self._check_at = now + _CHECK_EVERY
            for c in self.connections:
                c.check(now)
        return (poll_zeromq or self.used) and self._has_input()
