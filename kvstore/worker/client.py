"""Client: this process as one worker of a job. It joins, owns the connections, and passes requests to them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ... import environment
from ...errors import KVStoreError
from ..protocol.session import Name
from ..wire.credentials import Credentials, read_secret
from ..wire.frame import FrameType
from ..wire.shared_memory import SegmentPool
from .coordinator_connection import CoordinatorConnection
from .event_loop import EventLoop
from .remote_server import RemoteServer
from .requests import URGENT, Done, Group, Question, Request

_RANK_TIMEOUT = 10.0  # seconds to wait until a rank that is taken becomes free
_LEAVE_TIMEOUT = 60.0  # seconds for the coordinator to confirm that this worker leaves
_LEAVE_PATIENCE = 2.0  # the same if the coordinator is away


class Client:
    """A worker.

    file:     the job file (local_job.py), and `job` its content.
    kind:     "sync" or "async".
    timeout:  seconds after which a request fails; stall: after which a warning is logged.
    credentials:  with which it connects to the servers; the coordinator tells them its public name.
    pool:     shared memory; None before the worker has joined.
    probe:    content of the shared memory, from which a server sees that it runs on the same host; None: no shared memory.
    shared:   all servers read this worker's shared memory.
    """

    def __init__(self, file: Path, kind: str, *, rank: int | str | None = None, timeout: float | None = None):
        self.job = read_secret(file)
        self.credentials = Credentials.new(self.job["authority"])
        self.timeout, self.stall = environment.KV_TIMEOUT.get() if timeout is None else timeout, 30.0
        self.kind = kind
        self.servers: list[RemoteServer] = []
        self.key_names: dict[int, str] = {}  # key number -> key, for messages
        self.pool: SegmentPool | None = None
        self.loop = EventLoop()
        self.coordinator = CoordinatorConnection(self)
        self.loop.start()
        try:
            for handshaken in self._create_servers(self._join_when_free(kind, rank)):
                self._wait(handshaken, min(self.timeout, 60.0), "a server's handshake")
            self.shared = all(server.shared for server in self.servers)
        except BaseException:
            self.close()
            raise

    def _create_servers(self, m: dict[str, Any]) -> list[Future[None]]:
        """Connect to the servers in the coordinator's answer to a join. Returns their handshakes."""
        self.rank, self.incarnation = m["rank"], m["incarnation"]
        self.pool = SegmentPool(self.job["job"], self.rank, self.incarnation)
        self.probe: str | None = None
        slot = self.pool.take(16) if environment.KV_SHARED.get() else None
        if slot is not None:
            slot.view[:16] = list(secrets.token_bytes(16))
            self.probe = bytes(slot.view[:16]).hex()
        for i in range(len(m["shards"])):
            server = RemoteServer(self, i)
            self.servers.append(server)
            self.loop.call_soon(server.moved)
        return [server.handshaken for server in self.servers]

    def _join_when_free(self, kind: str, rank: int | str | None) -> dict[str, Any]:
        """Join, and return the coordinator's answer. A taken rank may be of a process whose death is about to be detected."""
        timeout = self.timeout
        join_timeout = timeout if rank == "new" else min(timeout, 60.0)  # the next barrier may be far away
        deadline: float | None = None
        while True:
            try:
                return self.request("join", timeout=join_timeout, kind=kind, public=self.credentials.public, rank=rank)
            except KVStoreError as e:
                deadline = deadline or time.monotonic() + min(timeout, _RANK_TIMEOUT)  # from the coordinator's first answer on
                if "joined already" not in str(e) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    # ---- any thread -----------------------------------------------------------------------------------------------------
    def request(self, op: str, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request to the coordinator and wait. Raises KVStoreError for a rejection or a timeout."""
        return self.coordinator.request(op, self.timeout if timeout is None else timeout, **fields)

    def submit(self, requests: Sequence[Request], done: Done, priority: float = 0.0) -> None:
        """Send requests, those with a higher priority first. done: called when all have ended, with the first error, or None."""
        if not requests:
            done(None)
            return

        def queue() -> None:
            group = Group(len(requests), done)
            for r in requests:
                r.group = group
                self.servers[r.server].submit(r, priority)

        self.loop.call_soon(queue, now=True)

    def perform(self, requests: Sequence[Request], priority: float = 0.0) -> None:
        """Send requests and wait. Raises their first error, or KVStoreError at the deadline."""
        ended = Future[None]()
        self.submit(requests, lambda error: ended.set_result(None) if error is None else ended.set_exception(error), priority)
        self._wait(ended, self.timeout, "the servers' answer")

    def ask(self, questions: Sequence[Question]) -> list[list[Any]]:
        """Return the answers to each question, (frame, payload). Raises as `perform` does."""
        self.perform(questions, URGENT)
        return [question.answers for question in questions]

    def rounds(self, servers: Sequence[int]) -> dict[Name, int]:
        """Return the last round of each slice on these servers that contains a contribution of this worker."""
        return dict(entry for rounds in self.ask([Question(i, FrameType.SAVE) for i in servers]) for entry in rounds)

    def _wait(self, future: Future[Any], timeout: float, subject: str) -> Any:
        try:
            return future.result(timeout)
        except TimeoutError:
            raise KVStoreError(f"KVStore: {subject} did not arrive within {timeout:.0f} s. Check that the job is running. "
                               f"TRITIUM_KV_TIMEOUT sets the limit.") from None

    def close(self, well: bool = True) -> None:
        """Leave the job and end the thread. well: the work is complete, so no worker needs to wait for a replacement."""
        if not self.loop.alive:
            return
        self.coordinator.patience = min(self.coordinator.patience, _LEAVE_PATIENCE)
        try:
            if hasattr(self, "rank"):
                self.request("leave", timeout=_LEAVE_TIMEOUT, well=well)  # a worker that ends without it is declared dead
        except KVStoreError:
            pass  # the job has ended already
        self.loop.stop(_LEAVE_TIMEOUT)
        if self.pool is not None:
            self.pool.close()

    def name_of(self, name: Name) -> str:
        """Return the key of a slice, for messages."""
        return self.key_names.get(name[0], f"number {name[0]}")


def common_round(rounds: Mapping[Name, int], key: int, slices: int) -> int:
    """Return the round that all slices of a key have reached, from `Client.rounds`. A slice that is ahead ignores a repeat."""
    return min((rounds.get((key, i), 0) for i in range(slices)), default=0)
