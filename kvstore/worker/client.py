"""Client: a worker's connections, used by one thread at a time. Work is handed in from any thread, and ends by a callback.

A thread of its own waits for answers. Whoever holds `_turn_lock` may use the sockets, so work that comes while nothing is under
way is sent by the thread that brings it: to wake another would take longer. What comes meanwhile is left to the client's thread.

`request` asks the coordinator. `submit` sends contributions (`Send`) and asks for values (`Fetch`); what is of higher priority
goes first, large arrays in runs that others may overtake. A contribution is kept until the shard has it on disk; when a shard
comes back after a crash, all that it may have lost is sent again.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import zmq

from ...engine.interrupts import ki_protected
from ...errors import DeadWorkerError, KVStoreError
from ..wire import sockets
from ..wire.frame import Op
from ..wire.shared_memory import Pool, Slot
from .coordinator_connection import Control
from .requests import Send, Work
from .server_connection import Link

_CHECK_EVERY = 0.2  # seconds between looks for what takes too long
_FREE_WITHIN = 10.0  # seconds to wait for a rank that is taken
_LEAVE_WITHIN = 60.0, 2.0  # seconds for the coordinator to hear of it; the same if it is away, and may not come back
_log = logging.getLogger(__name__)


class Client:
    """This process as one worker of a job.

    file:     the job's key file (job.py).
    kind:     "sync" or "async".
    timeout:  seconds after which anything that has not ended is an error; a warning is logged after `stall`.
    """

    def __init__(self, file: Path, kind: str, *, rank: int | str | None = None, timeout: float | None = None,
                 stall: float = 30.0):
        job = sockets.read_secret(file)
        self.job: str = job["job"]
        self.every: int = job["every"]
        self.timeout = float(os.environ.get("TRITIUM_KV_TIMEOUT", "600")) if timeout is None else timeout
        self.stall = stall
        self.pid, self.kind = os.getpid(), kind
        self.links: list[Link] = []
        self.key_names: dict[int, str] = {}  # key number -> key, for messages
        self.probe: str | None = None  # what a shard finds in our shared memory, if it is on this host
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.RLock()  # of that descriptor: it is not closed while somebody writes to it
        self._awake = False
        self._closed = self._stopping = False
        self._ended = False  # the sockets are closed, and what is handed in ends with an error
        self._turn_lock = threading.Lock()  # of the sockets
        self._check_at = 0.0
        self._context = zmq.Context(io_threads=1)
        keys = sockets.Keys.new()
        self._keys = keys
        self._poller = select.epoll()
        self._poller.register(self._wake, select.EPOLLIN)
        self._zeromq: set[int] = set()  # file descriptors of ZeroMQ sockets
        self.stirred = True  # a ZeroMQ socket was used, so that its file descriptor may not tell what has come
        self.control = Control(self, job)
        self._lock = threading.Lock()  # of the pool
        self._thread = threading.Thread(target=self._run, name="kvstore", daemon=True)
        self._thread.start()
        try:
            self._join(kind, rank)
        except BaseException:
            self.close()
            raise

    def _join(self, kind: str, rank: int | str | None) -> None:
        for w in self._joined(self._join_when_free(kind, rank)):
            self._wait(w, min(self.timeout, 60.0), "a server's welcome")
        self.shared = all(link.shared for link in self.links)

    def _joined(self, m: dict[str, Any]) -> list[Future[None]]:
        """m: what the coordinator says to a worker that joins. Returns the servers' welcomes."""
        self.rank, self.incarnation, self.policy = m["rank"], m["incarnation"], m["policy"]
        self.pool = Pool(self.job, self.rank, self.incarnation)
        slot = self.pool.take(16) if os.environ.get("TRITIUM_KV_SHARED") != "0" else None
        if slot is not None:
            slot.view[:16] = list(secrets.token_bytes(16))
            self.probe = bytes(slot.view[:16]).hex()
        welcomed = []
        for i in range(len(m["shards"])):
            link = Link(self, i)
            self.links.append(link)
            welcomed.append(link.welcomed)
            self._hand(lambda link=link: link.where(self.control.shards[link.index]))  # which may be news meanwhile
        return welcomed

    def _join_when_free(self, kind: str, rank: int | str | None) -> dict[str, Any]:
        """The coordinator's answer. A rank that is taken may be that of a process whose death is about to be noticed."""
        within = self.timeout if rank == "new" else min(self.timeout, 60.0)  # the others' next barrier may be far off
        deadline: float | None = None
        while True:
            try:
                return self.request("join", within=within, kind=kind, public=self._keys.public, rank=rank, pid=os.getpid())
            except KVStoreError as e:
                deadline = deadline or time.monotonic() + min(self.timeout, _FREE_WITHIN)  # since the coordinator has looked
                if "here already" not in str(e) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    # ---- for any thread -------------------------------------------------------------------------------------------------
    def request(self, op: str, within: float | None = None, **fields: Any) -> dict[str, Any]:
        """Ask the coordinator and wait. Raises KVStoreError if it refuses, or does not answer in time."""
        return self.control.request(op, self.timeout if within is None else within, **fields)

    def submit(self, work: Sequence[Work], priority: int = 0) -> None:
        """Send all of work, in order of priority. Who gave it waits for all of it."""
        def queue() -> None:
            for w in work:
                w.together = work
                self.links[w.shard].queue(w, priority)

        self._hand(queue, now=True)

    def ask(self, shard: int, op: Any, payload: bytes = b"", records: Sequence[Any] = ()) -> Future[list[Any]]:
        """A request to one shard outside the order of keys: its answer frames, as (frame, bytes of the payload)."""
        future: Future[list[Any]] = Future()
        self._hand(lambda: self.links[shard].ask(op, records, payload, future))
        return future

    def rounds(self, shards: Sequence[int]) -> dict[tuple[int, int], int]:
        """The round that each part of a key is at, on these shards, as far as this worker is concerned."""
        answers = self.wait_all([self.ask(i, Op.SAVE) for i in shards], "the servers' answer")
        return {(r.key, r.part): r.round for records in answers for r in records}

    def take_slot(self, nbytes: int) -> Slot | None:
        """Shared memory for nbytes, or None."""
        with self._lock:
            return self.pool.take(nbytes)

    def give_slot(self, slot: Slot) -> None:
        """Take it back."""
        with self._lock:
            self.pool.give(slot)

    def wait_all(self, futures: Sequence[Future[Any]], what: str) -> list[Any]:
        """The results of futures. Raises what failed, or KVStoreError when the deadline is over."""
        return [self._wait(f, self.timeout, what) for f in futures]

    def _wait(self, future: Future[Any], within: float, what: str) -> Any:
        try:
            return future.result(within)
        except TimeoutError:
            raise KVStoreError(f"KVStore: {what} did not come within {within:.0f} s. Is the job still running? "
                               f"TRITIUM_KV_TIMEOUT sets the limit.") from None

    def _hand(self, call: Callable[[], None], now: bool = False) -> None:
        """Have call made by who may use the sockets: by this thread at once, if now and nothing is under way."""
        if self.pid != os.getpid():
            raise KVStoreError("KVStore: a store over several processes cannot be used in a forked child. Create one there.")
        if self._closed:
            raise KVStoreError("KVStore: the store is closed.")
        self._inbox.append(call)
        if self._ended:  # no thread looks there any more
            self._take_in()
            return
        if now and not any(link.busy for link in self.links) and self._turn_lock.acquire(False):
            try:
                more = self._send_now()
            finally:
                self._turn_lock.release()
            if not more and not self._inbox:
                return
        elif self._turn_lock.locked():
            return  # who holds it looks at what was handed in afterwards
        if not self._awake:
            self._awake = True
            self._deliver_later()

    def _deliver_later(self) -> None:
        with self._wake_lock:
            if not self._ended:
                os.eventfd_write(self._wake, 1)

    def watch(self, fd: int) -> None:
        """Wake when a ZeroMQ socket's file descriptor tells of something."""
        self._zeromq.add(fd)
        self._poller.register(fd, select.EPOLLIN)
        self.stirred = True

    def unwatch(self, fd: int) -> None:
        self._zeromq.discard(fd)
        self._poller.unregister(fd)

    @ki_protected
    def _send_now(self) -> bool:
        """Send what was handed in; whether there is something to receive, of which no file descriptor may tell any more."""
        self._make_calls()
        if self._ended:
            return False
        for link in self.links:
            link.flush()
        return self.stirred and self._news()

    def _make_calls(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _news(self) -> bool:
        return self.control.news() or any(link.news() for link in self.links)

    @property
    def alive(self) -> bool:
        """Whether this store can still be used here: not closed, not in a forked child."""
        return not self._closed and self.pid == os.getpid()

    def close(self, well: bool = True) -> None:
        """Leave the job and end the thread. well: all is done, so that nobody needs to wait for a replacement."""
        if not self.alive:
            return
        there, away = _LEAVE_WITHIN
        self.control.within = min(self.control.within, away)
        try:
            if hasattr(self, "rank"):
                self.request("leave", within=there, well=well)  # who is not heard of has died
        except KVStoreError:
            pass  # the job is gone already
        self._closed = self._stopping = True
        self._deliver_later()
        self._thread.join(5.0)
        if hasattr(self, "pool"):
            self.pool.close()

    # ---- the thread -----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        news, ended = False, "the store is closed"
        try:
            while not self._stopping:
                told = {fd for fd, _ in self._poller.poll(_CHECK_EVERY)} if not news and not self._inbox else set[int]()
                if self._wake in told:
                    os.eventfd_read(self._wake)
                with self._turn_lock:
                    news = self._turn(news or not self._zeromq.isdisjoint(told))
        except Exception as e:  # ours: everybody who waits must hear of it
            _log.exception("kvstore: the connection's thread failed")
            ended = f"the connection's thread failed: {type(e).__name__}: {e}. This is a bug"
        finally:
            self._closed = True
            with self._turn_lock:
                self._ended = True
                self._end_all(KVStoreError(f"KVStore: {ended}."))
                self.control.close()
                for link in self.links:
                    link.close()
                self._context.destroy(linger=0)
            self._poller.close()
            with self._wake_lock:
                os.close(self._wake)
            self._take_in()

    def _turn(self, told: bool) -> bool:
        """Receive, send, look at the clock; whether there is more to receive already. told: a ZeroMQ socket has something."""
        self._awake = False
        self._make_calls()
        now = time.monotonic()
        told = told or self.stirred or now >= self._check_at
        if told:
            self.stirred = False
            self.control.turn()
        for link in self.links:
            link.turn(told)
        for link in self.links:
            link.flush()
        if now >= self._check_at:
            self._check_at = now + _CHECK_EVERY
            self.control.check(now)
            for link in self.links:
                link.check(now)
        return (told or self.stirred) and self._news()

    def _end_all(self, error: KVStoreError) -> None:
        """End what is under way, and what was handed in, with error."""
        self.control.over = self.control.over or error
        self.control.fail(error)
        for link in self.links:
            link.end(error)
        self._make_calls()

    def _take_in(self) -> None:
        """End what was handed in after all else had ended."""
        with self._turn_lock:
            self._make_calls()

    def explain(self, text: str, dead: Collection[int], work: Work) -> KVStoreError:
        """The error of one refused contribution: rank, key and round stand in it."""
        key = self.key_names.get(work.key, f"number {work.key}")
        where = f"KVStore.{'push' if isinstance(work, Send) else 'pull'}: worker {self.rank}, key {key}"
        if isinstance(work, Send):
            where += f", round {work.round}"
        if dead:
            return DeadWorkerError(f"{where}: {text}. Push again once a replacement has joined, or start with policy 'wait' or "
                                   f"'shrink'.")
        return KVStoreError(f"{where}: {text}.")


def round_of(found: Mapping[tuple[int, int], int], key: int, parts: int) -> int:
    """The round that a key is at, from `Client.rounds`: as far as all its parts are. A part that is further takes none twice."""
    return min((found.get((key, i), 0) for i in range(parts)), default=0)
