"""Client: a worker's connections, kept by one thread. Work is handed in from any thread, and ends by a callback.

`request` asks the coordinator. `submit` sends contributions (`Send`) and asks for values (`Fetch`); what is of higher priority
goes first, large arrays in runs that others may overtake. A contribution is kept until the shard has it on disk; when a shard
comes back after a crash, all that it may have lost is sent again.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import zmq

from ..errors import DeadWorkerError, KVStoreError
from . import sockets
from .frame import Op, pack, unpack
from .link import Link, Send, Work
from .shared import Pool, Slot

_LARGEST_CONTROL = 64 << 20  # bytes
_CHECK_EVERY = 0.2  # seconds between looks for what takes too long
_FREE_WITHIN = 5.0  # seconds to wait for a rank that is taken
_log = logging.getLogger(__name__)


class Client:
    """This process as one worker of a job.

    file:     the job's key file (job.py).
    kind:     "sync" or "async".
    timeout:  seconds after which anything that has not ended is an error; a warning is logged after `stall`.
    """

    def __init__(self, file: Path, kind: str, *, rank: int | None = None, timeout: float | None = None, stall: float = 30.0):
        job = sockets.read_secret(file)
        self.job: str = job["job"]
        self.every: int = job["every"]
        self.timeout = float(os.environ.get("TRITIUM_KV_TIMEOUT", "600")) if timeout is None else timeout
        self.stall = stall
        self.pid = os.getpid()
        self._coordinator_lost = False
        self.gone: dict[int, str] = {}
        self.links: list[Link] = []
        self.key_names: dict[int, str] = {}  # key number -> key, for messages
        self.probe: str | None = None  # what a shard finds in our shared memory, if it is on this host
        self._ids = itertools.count(1)
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._awake = False
        self._closed = False
        self._check_at = 0.0
        self._context = zmq.Context(io_threads=1)
        keys = sockets.Keys.new()
        self._keys = keys
        self._control = sockets.connect(self._context, sockets.Keys(job["public"], job["secret"]), job["server"], job["address"],
                                        _LARGEST_CONTROL)
        self._watch = sockets.Watch(self._control)
        self._poller = zmq.Poller()
        for s in (self._control, self._watch.socket, self._wake):
            self._poller.register(s, zmq.POLLIN)
        self._lock = threading.Lock()  # of the pool
        self._thread = threading.Thread(target=self._run, name="kvstore", daemon=True)
        self._thread.start()
        try:
            self._join(job, kind, rank)
        except BaseException:
            self.close()
            raise

    def _join(self, job: dict[str, Any], kind: str, rank: int | None) -> None:
        m = self._join_when_free(kind, rank)
        self.rank, self.incarnation, self.num_workers, self.policy = m["rank"], m["incarnation"], m["workers"], m["policy"]
        self.pool = Pool(self.job, self.rank, self.incarnation)
        slot = self.pool.take(16) if os.environ.get("TRITIUM_KV_SHARED") != "0" else None
        if slot is not None:
            slot.view[:16] = list(secrets.token_bytes(16))
            self.probe = bytes(slot.view[:16]).hex()
        welcomed = []
        for where in m["shards"]:
            link = Link(self, where["index"])
            self.links.append(link)
            welcomed.append(link.welcomed)
            self._hand(lambda link=link, where=where: link.connect(where))
        for w in welcomed:
            self._wait(w, min(self.timeout, 60.0), "a server's welcome")
        self.shared = all(link.shared for link in self.links)

    def _join_when_free(self, kind: str, rank: int | None) -> dict[str, Any]:
        """The coordinator's answer. A rank that is taken may be that of a process whose death is about to be noticed."""
        deadline = time.monotonic() + min(self.timeout, _FREE_WITHIN)
        while True:
            try:
                return self.request("join", within=min(self.timeout, 60.0), kind=kind, public=self._keys.public, rank=rank,
                                    pid=os.getpid())
            except KVStoreError as e:
                if "here already" not in str(e) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    # ---- for any thread -------------------------------------------------------------------------------------------------
    def request(self, op: str, within: float | None = None, **fields: Any) -> dict[str, Any]:
        """Ask the coordinator and wait. Raises KVStoreError if it refuses, or does not answer in time."""
        number: int = next(self._ids)
        answer: Future[dict[str, Any]] = Future()

        def send() -> None:
            if self._coordinator_lost:
                answer.set_exception(_no_coordinator())
                return
            self._asked[number] = answer
            self._control.send(pack({"op": op, "id": number, **fields}), zmq.NOBLOCK)

        self._hand(send)
        m = self._wait(answer, self.timeout if within is None else within, f"{op}: the coordinator's answer")
        if "error" in m:
            raise KVStoreError(f"KVStore.{op}: {m['error']}.")
        return m

    def submit(self, work: Sequence[Work], priority: int = 0) -> None:
        """Send all of work, in order of priority."""
        def queue() -> None:
            for w in work:
                self.links[w.shard].queue(w, priority)

        self._hand(queue)

    def ask(self, shard: int, op: Any, payload: bytes = b"", records: Sequence[Any] = ()) -> Future[list[Any]]:
        """A request to one shard outside the order of keys: its answer frames, as (frame, bytes of the payload)."""
        future: Future[list[Any]] = Future()
        self._hand(lambda: self.links[shard].ask(op, records, payload, future))
        return future

    def rounds(self, shards: Sequence[int]) -> dict[tuple[int, int], int]:
        """The round that each part of a key is at, on these shards, as far as this worker is concerned."""
        answers = self.wait_all([self.ask(i, Op.SAVE) for i in shards], "the servers' answer")
        return {(r.key, r.part): r.round for frames in answers for frame, _ in frames for r in frame.records}

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

    def _hand(self, call: Callable[[], None]) -> None:
        if self.pid != os.getpid():
            raise KVStoreError("KVStore: a store over several processes cannot be used in a forked child. Create one there.")
        if self._closed:
            raise KVStoreError("KVStore: the store is closed.")
        self._inbox.append(call)
        if not self._awake:
            self._awake = True
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Leave the job and end the thread."""
        if self._closed or self.pid != os.getpid():
            return
        try:
            if hasattr(self, "rank"):
                self.request("leave", within=2.0)
        except KVStoreError:
            pass  # the job is gone already
        self._inbox.append(self._stop)
        self._closed = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(5.0)
        if hasattr(self, "pool"):
            self.pool.close()

    def _stop(self) -> None:
        raise SystemExit

    # ---- the thread -----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while True:
                self._turn()
        except SystemExit:
            pass
        except Exception as e:  # ours: everybody who waits must hear of it
            _log.exception("kvstore: the connection's thread failed")
            self._fail_all(KVStoreError(f"KVStore: the connection's thread failed: {type(e).__name__}: {e}. This is a bug."))
        finally:
            self._closed = True
            self._fail_all(KVStoreError("KVStore: the store is closed."))
            self._watch.close()
            for link in self.links:
                link.close()
            self._context.destroy(linger=0)
            os.close(self._wake)

    def _turn(self) -> None:
        ready = dict(self._poller.poll(int(1000 * _CHECK_EVERY)))
        if self._wake in ready:
            try:
                os.eventfd_read(self._wake)
            except BlockingIOError:
                pass
        self._awake = False
        while self._inbox:
            self._inbox.popleft()()
        if self._control in ready:
            for (frame,) in sockets.receive(self._control):
                self._hear(unpack(frame.buffer))
        if self._watch.socket in ready and list(self._watch.lost()):
            self._lost_coordinator()
        for link in self.links:
            link.turn(ready)
        for link in self.links:
            link.flush()
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + _CHECK_EVERY
            for link in self.links:
                link.check(now)

    def _hear(self, m: dict[str, Any]) -> None:
        future = self._asked.pop(m["id"], None) if m.get("id") is not None else None
        if future is not None:
            future.set_result(m)
        elif m.get("op") == "gone":
            self.gone = {int(r): why for r, why in m["gone"].items()}
        elif m.get("op") == "shard" and m["index"] < len(self.links):
            link = self.links[m["index"]]
            if m.get("down"):
                link.down()
            elif m["incarnation"] != link.incarnation:
                link.connect(m)

    def _lost_coordinator(self) -> None:
        """Transfers go on without it; whoever waits for it hears now."""
        self._coordinator_lost = True
        for future in self._asked.values():
            future.set_exception(_no_coordinator())
        self._asked.clear()

    def _fail_all(self, error: KVStoreError) -> None:
        for future in self._asked.values():
            future.set_exception(error)
        self._asked.clear()
        for link in self.links:
            link.fail(error)

    def explain(self, text: str, dead: Sequence[int], work: Work) -> KVStoreError:
        """The error of one refused contribution: rank, key and round stand in it."""
        key = self.key_names.get(work.key, f"number {work.key}")
        where = f"KVStore.{'push' if isinstance(work, Send) else 'pull'}: worker {self.rank}, key {key}"
        if isinstance(work, Send):
            where += f", round {work.round}"
        if dead:
            return DeadWorkerError(f"{where}: {text}. Push again once a replacement has joined, or start with policy 'wait' or "
                                   f"'shrink'.")
        return KVStoreError(f"{where}: {text}.")


def _no_coordinator() -> KVStoreError:
    return KVStoreError("KVStore: the job's coordinator is gone, or refuses this worker's key. Transfers under way go on; "
                        "joining, leaving, init and barriers need a new job.")
