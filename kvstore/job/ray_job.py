"""A job on a Ray cluster. Ray starts, places and restarts the processes; everything else is as on one machine: they have the
variables of the store (TRITIUM_KV_*) that are set where the job is started, and not those of the cluster.

Coordinator and servers are actors of the process that created the `RayJob`, and end with it. Ray passes them their keys; array
data goes through the sockets of `wire/`. A holder of the cluster's token can run code on it, so a cluster without a token
is rejected.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

from ... import environment as variables
from ...errors import KVStoreError
from ..server import main as server_main
from ..wire.credentials import write_secret
from .coordinator_process import CoordinatorServer
from .local_job import Job, number_of

_START_TIMEOUT = 120.0  # seconds for Ray to start an actor
_CONNECT_TIMEOUT = 10.0  # seconds


class CoordinatorActor:
    """The coordinator and its socket, in a thread. When its process dies, Ray restarts it, and it resumes from file."""

    def __init__(self, job: dict[str, Any], file: str):
        os.environ.update(job["environment"])
        self.server = CoordinatorServer({**job, "interface": _interface(job)}, Path(file))
        threading.Thread(target=self.server.poller.run, args=(self.server.turn,), daemon=True).start()

    def pid(self) -> int:
        return os.getpid()

    def credentials(self, role: str) -> dict[str, Any]:
        return self.server.credentials(role)


class ServerActor:
    """A server, in a thread. When its process dies, Ray restarts it, and it reads its snapshots."""

    def __init__(self, credentials: dict[str, Any], index: int, folder: str):
        os.environ.update(credentials["environment"])
        server = server_main.start({**credentials, "interface": _interface(credentials)}, index, Path(folder))
        threading.Thread(target=server.poller.run, args=(server.turn,), daemon=True).start()

    def pid(self) -> int:
        return os.getpid()


class RayJob(Job):
    """A job on the Ray cluster at address, HOST:PORT, with the token in RAY_AUTH_TOKEN_PATH. More parameters: those of `Job`.

    The coordinator stays on this machine, at one address. A server may restart on another one, if every machine sees the folder
    TRITIUM_KV_SNAPSHOT_DIR.
    """

    def __init__(self, address: str, workers: int = 1, servers: int = 1, **settings: Any):
        import ray.util.scheduling_strategies

        require_token()
        _connect_once(address)
        super().__init__(workers, servers, **settings)
        self.ray: Any = ray
        self.settings["environment"] = variables.values("TRITIUM_KV_")
        self._snapshots = Path(variables.KV_SNAPSHOT_DIR.get() or self.folder) / f"tritium-{self.id}"
        self._actors: list[Any] = []  # the coordinator, then the servers
        try:
            self._start(address)
        except BaseException:
            self.close()
            raise

    def _start(self, address: str) -> None:
        workers, servers = self.settings["workers"], self.settings["servers"]
        try:
            self.ray.init(address=address, namespace=f"tritium-{self.id}", logging_level=logging.ERROR, log_to_driver=True)
        except (ConnectionError, RuntimeError, ValueError) as e:
            raise KVStoreError(f"KVStore: cannot connect to Ray at {address}: wrong or missing token, or no cluster there: "
                               f"{str(e).splitlines()[0] if str(e) else type(e).__name__}. Check RAY_AUTH_TOKEN_PATH.") from e
        available = int(self.ray.cluster_resources().get("CPU", 0))
        if workers + servers > available:
            raise KVStoreError(f"KVStore: {number_of(workers, 'worker')} and {number_of(servers, 'server')} need "
                               f"{workers + servers} CPUs, one each; the Ray cluster at {address} has {available}. Add machines "
                               f"(ray start --address {address}), or take fewer.")
        this_node = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self.ray.get_runtime_context().get_node_id(), soft=False)
        coordinator = self.actor(CoordinatorActor, num_cpus=0, name="coordinator", max_restarts=-1, max_task_retries=-1,
                                 scheduling_strategy=this_node).remote(self.settings, str(self.folder / "coordinator.json"))
        self._actors.append(coordinator)
        credentials, self.worker_credentials = self._get([coordinator.credentials.remote(role) for role in ("server", "worker")])
        server = self.actor(ServerActor, num_cpus=1, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD")
        credentials = {**credentials, "interface": self.settings["interface"]}
        self._actors += [server.remote(credentials, i, str(self._snapshots / f"server-{i}")) for i in range(servers)]
        self._get([actor.pid.remote() for actor in self._actors])
        write_secret(self.file, self.worker_credentials)

    def coordinator_pid(self) -> int:
        return self._get([self._actors[0].pid.remote()])[0]

    def server_pid(self, index: int) -> int:
        return self._get([self._actors[1 + index].pid.remote()])[0]

    def actor(self, cls: type, **options: Any) -> Any:
        return self.ray.remote(cls).options(**options)

    def _get(self, calls: list[Any]) -> list[Any]:
        try:
            return self.ray.get(calls, timeout=_START_TIMEOUT)
        except self.ray.exceptions.RayError as e:
            raise KVStoreError(f"KVStore: Ray did not start the job's processes: {str(e).splitlines()[0]}. Every machine needs "
                               f"the same Python, Ray and Tritium.") from e

    def close(self) -> None:
        """End the job's processes. The cluster keeps running."""
        if self.folder.exists():
            for actor in reversed(self._actors):
                with contextlib.suppress(Exception):
                    self.ray.kill(actor)
            time.sleep(0.1)
            self.ray.shutdown()
            shutil.rmtree(self._snapshots, ignore_errors=True)
            shutil.rmtree(self.folder, ignore_errors=True)


def require_token() -> None:
    """Raise KVStoreError unless Ray's token authentication is on, with a token file that only this user can read."""
    if variables.KV_INSECURE.get():
        return
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ.get("RAY_AUTH_MODE") != "token" or not path:
        raise KVStoreError("KVStore: Ray listens on every interface and runs the code that it receives, so a cluster without a "
                           "token is not used, not even on one machine. Start it with RAY_AUTH_MODE=token and "
                           "RAY_AUTH_TOKEN_PATH=FILE (mode 0600), and set both for this process.")
    try:
        mode = Path(path).stat().st_mode & 0o777
    except OSError as e:
        raise KVStoreError(f"KVStore: RAY_AUTH_TOKEN_PATH={path}: cannot be read: {e.strerror}.") from e
    if mode & 0o077:
        raise KVStoreError(f"KVStore: RAY_AUTH_TOKEN_PATH={path}: others can read the token: mode {mode:o}. Run chmod 600 on it.")


def _connect_once(address: str) -> None:
    """Raise KVStoreError unless what listens at HOST:PORT speaks HTTP/2, as Ray does: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise KVStoreError(f"KVStore: {address!r} is not the address of a Ray cluster, HOST:PORT.")
    start = f"Start one with: ray start --head --port {port}"
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT)
    except (OSError, OverflowError) as e:
        reason = getattr(e, "strerror", None) or str(e)
        raise KVStoreError(f"KVStore: no Ray cluster at {address}: {reason}. {start}") from e
    with connection:
        answer = None if os.environ.get("RAY_USE_TLS") == "1" else _first_frame(connection)
    if answer is not None and answer[3:4] + answer[5:] != b"\4\0\0\0\0":
        raise KVStoreError(f"KVStore: what listens at {address} is not a Ray cluster: it "
                           f"{f'answers {bytes(answer)!r}' if answer else 'does not answer'}. Check the port. {start}")


def _first_frame(connection: socket.socket) -> bytearray:
    """Begin to speak HTTP/2, and return the first nine bytes of the answer, or fewer if no more come.

    A server of HTTP/2 first sends its settings: the length (3 bytes), type 4, flags, and stream 0 (4 bytes).
    """
    answer, end = bytearray(), time.monotonic() + _CONNECT_TIMEOUT
    with contextlib.suppress(OSError):  # it has closed the connection, or takes too long
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        while len(answer) < 9:
            connection.settimeout(max(end - time.monotonic(), 0.01))
            data = connection.recv(9 - len(answer))
            if not data:
                break
            answer += data
    return answer


def _interface(job: dict[str, Any]) -> str:
    """Return the address to listen on: the job's, or this machine's address in the cluster."""
    if job["interface"]:
        return job["interface"]
    import ray

    return ray.util.get_node_ip_address()
