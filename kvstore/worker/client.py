"""Client: this process as one worker of a job. It joins, owns the connections, and passes requests to them.

`request` asks the coordinator. `submit` sends pushes and pulls to the servers: requests with a higher priority go first, and
large arrays are sent in runs, between which others may be sent. A push is retained until the server has it on disk; after a
server's restart everything that it may have lost is sent again (protocol/session.py).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...errors import KVStoreError
from ..wire import sockets
from ..wire.frame import FrameType
from ..wire.shared_memory import SegmentPool
from .coordinator_connection import CoordinatorConnection, Limits
from .event_loop import EventLoop
from .remote_server import RemoteServer, WorkerInfo
from .requests import Request

_RANK_TIMEOUT = 10.0  # seconds to wait until a rank that is taken becomes free
_LEAVE_TIMEOUT = 60.0  # seconds for the coordinator to confirm that this worker leaves
_LEAVE_PATIENCE = 2.0  # the same if the coordinator is away


class Client:
    """A worker.

    file:     the job file (local_job.py).
    kind:     "sync" or "async".
    timeout:  seconds after which a request fails; a warning is logged after `stall`.
    pool:     shared memory; None before the worker has joined.
    shared:   all servers read this worker's shared memory.
    """

    def __init__(self, file: Path, kind: str, *, rank: int | str | None = None, timeout: float | None = None,
                 stall: float = 30.0):
        job = sockets.read_secret(file)
        self.job: str = job["job"]
        self.limits = Limits(float(os.environ.get("TRITIUM_KV_TIMEOUT", "600")) if timeout is None else timeout, stall)
        self.kind = kind
        self.servers: list[RemoteServer] = []
        self.key_names: dict[int, str] = {}  # key number -> key, for messages
        self._keys = sockets.CurveKeys.new()
        self.pool: SegmentPool | None = None
        self.loop = EventLoop(self)
        self.coordinator = CoordinatorConnection(self.loop, self, job, self.limits)
        self.loop.start()
        try:
            for handshaken in self._create_servers(self._join_when_free(kind, rank)):
                self._wait(handshaken, min(self.limits.timeout, 60.0), "a server's handshake")
            self.shared = all(server.shared for server in self.servers)
        except BaseException:
            self.close()
            raise

    def _create_servers(self, m: dict[str, Any]) -> list[Future[None]]:
        """Connect to the servers in the coordinator's answer to a join. Returns their handshakes."""
        self.rank, self.incarnation, self.policy = m["rank"], m["incarnation"], m["policy"]
        self.pool = SegmentPool(self.job, self.rank, self.incarnation)
        probe: str | None = None
        slot = self.pool.take(16) if os.environ.get("TRITIUM_KV_SHARED") != "0" else None
        if slot is not None:
            slot.view[:16] = list(secrets.token_bytes(16))
            probe = bytes(slot.view[:16]).hex()
        worker = WorkerInfo(self.rank, self.kind, self._keys, self.limits, probe, self.key_names)
        handshakes = []
        for i in range(len(m["shards"])):
            server = RemoteServer(self.loop, self.coordinator, worker, i)
            self.servers.append(server)
            handshakes.append(server.handshaken)
            # the location may be newer than m when the call runs
            self.loop.call_soon(lambda server=server: server.moved(self.coordinator.servers[server.index]))
        return handshakes

    def _join_when_free(self, kind: str, rank: int | str | None) -> dict[str, Any]:
        """Join, and return the coordinator's answer. A taken rank may be of a process whose death is about to be detected."""
        timeout = self.limits.timeout
        join_timeout = timeout if rank == "new" else min(timeout, 60.0)  # the next barrier may be far away
        deadline: float | None = None
        while True:
            try:
                return self.request("join", timeout=join_timeout, kind=kind, public=self._keys.public, rank=rank, pid=os.getpid())
            except KVStoreError as e:
                deadline = deadline or time.monotonic() + min(timeout, _RANK_TIMEOUT)  # from the coordinator's first answer on
                if "joined already" not in str(e) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    # ---- any thread -----------------------------------------------------------------------------------------------------
    def request(self, op: str, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request to the coordinator and wait. Raises KVStoreError for a rejection or a timeout."""
        return self.coordinator.request(op, self.limits.timeout if timeout is None else timeout, **fields)

    def submit(self, requests: Sequence[Request], priority: int = 0) -> None:
        """Send requests, as one group whose caller waits for all of them."""
        def queue() -> None:
            for r in requests:
                r.group = requests
                self.servers[r.server].submit(r, priority)

        self.loop.call_soon(queue, now=True)

    def ask(self, server: int, type: FrameType, payload: bytes = b"", records: Sequence[Any] = ()) -> Future[list[Any]]:
        """Send a request to one server outside the order of keys. The future gets the answers: (frame, payload)."""
        future: Future[list[Any]] = Future()
        self.loop.call_soon(lambda: self.servers[server].ask(type, records, payload, future))
        return future

    def rounds(self, servers: Sequence[int]) -> dict[tuple[int, int], int]:
        """Return the last round of each slice on these servers that contains a contribution of this worker."""
        answers = self.wait_all([self.ask(i, FrameType.SAVE) for i in servers], "the servers' answer")
        return {r.name: r.round for records in answers for r in records}

    def wait_all(self, futures: Sequence[Future[Any]], subject: str) -> list[Any]:
        """Return the results of futures. Raises their first error, or KVStoreError at the deadline."""
        return [self._wait(f, self.limits.timeout, subject) for f in futures]

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
        self.loop.stop(5.0)
        if self.pool is not None:
            self.pool.close()

    # ---- called by the event loop ---------------------------------------------------------------------------------------
    @property
    def busy(self) -> bool:
        return any(server.busy for server in self.servers)

    def flush(self) -> None:
        for server in self.servers:
            server.flush()

    def receive(self, poll_zeromq: bool) -> None:
        if poll_zeromq:
            self.coordinator.receive()
        for server in self.servers:
            server.connection.receive(poll_zeromq)

    def has_input(self) -> bool:
        return self.coordinator.has_input() or any(server.connection.has_input() for server in self.servers)

    def check(self, now: float) -> None:
        self.coordinator.check(now)
        for server in self.servers:
            server.check(now)

    def end(self, error: KVStoreError) -> None:
        self.coordinator.expelled = self.coordinator.expelled or error
        self.coordinator.fail(error)
        self.expelled(error)

    def close_sockets(self) -> None:
        self.coordinator.close()
        for server in self.servers:
            server.connection.close()

    # ---- called by the connection to the coordinator --------------------------------------------------------------------
    def server_moved(self, location: dict[str, Any]) -> None:
        if location["index"] < len(self.servers):
            self.servers[location["index"]].moved(location)

    def returned(self, locations: Sequence[dict[str, Any]], was_dead: bool) -> None:
        for server, location in zip(self.servers, locations):  # of those that are created already
            server.moved(location, reconnect=was_dead)

    def expelled(self, error: KVStoreError) -> None:
        for server in self.servers:
            server.end(error)


def common_round(rounds: Mapping[tuple[int, int], int], key: int, slices: int) -> int:
    """Return the round that all slices of a key have reached, from `Client.rounds`. A slice that is ahead ignores a repeat."""
    return min((rounds.get((key, i), 0) for i in range(slices)), default=0)
