"""A job on a Ray cluster: Ray starts, places and restarts the processes; everything else is as on one machine.

Coordinator, servers and workers are actors owned by whoever makes the `RayJob`, and end with it. Ray hands each its keys; bytes
go through our own sockets. Whoever holds the cluster's token can run code on it, so a cluster without one is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import KVStoreError, ParameterError
from .local_job import POLICIES, say_ended

_WITHIN = 120.0  # seconds for Ray to start an actor
_PR_SET_PDEATHSIG = 1


class CoordinatorActor:
    """The coordinator and its socket, in a thread. Ray starts it again when its process dies; it then goes on from file."""

    def __init__(self, job: dict[str, Any], file: str):
        from .host import Desk

        self.job = {**job, "interface": _interface(job)}
        self.desk = Desk(self.job, Path(file))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.desk.poll(1.0)

    def pid(self) -> int:
        """Of the process it is in."""
        return os.getpid()

    def credentials(self, role: str) -> dict[str, Any]:
        """What a server or a worker must know to join."""
        return self.desk.credentials(self.job, role)


class ShardActor:
    """A server, in a thread. Ray starts it again when its process dies; it then reads its snapshots."""

    def __init__(self, credentials: dict[str, Any], index: int, folder: str):
        from ... import engine
        from ..server.main import Process

        engine.set_current(engine.NaiveEngine())
        path = Path(folder)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.process = Process({**credentials, "interface": _interface(credentials)}, index, path)
        threading.Thread(target=self.process.run, daemon=True).start()

    def pid(self) -> int:
        """Of the process it is in."""
        return os.getpid()


class WorkerActor:
    """Runs one worker's command on the machine where Ray puts it."""

    def __init__(self, credentials: dict[str, Any]):
        from ..wire import sockets

        self.folder = Path(tempfile.mkdtemp(prefix="tritium-worker-"))
        sockets.write_secret(self.folder / "worker.json", credentials)

    def run(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Its exit status."""
        env = {**os.environ, **environment, "TRITIUM_KV_JOB": str(self.folder / "worker.json")}
        prctl = ctypes.CDLL(None).prctl  # looked up before the fork
        try:
            return subprocess.call(list(command), env=env, preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class RayJob:
    """workers ranks and shards servers on the Ray cluster at address.

    address:    HOST:PORT of a running cluster whose token RAY_AUTH_TOKEN_PATH names.
    interface:  the address every process listens on; default: its machine's address in the cluster. The coordinator stays on
                this machine, at one address.
    snapshots:  a folder that every machine sees, so that a server may come back on another one (TRITIUM_KV_SNAPSHOT_DIR).
    The rest is as for `job.Job`.
    """

    def __init__(self, address: str, workers: int = 1, shards: int = 1, *, policy: str = "fail", every: int = 10,
                 staleness: int | None = None, interface: str | None = None, snapshots: str | None = None):
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from ..wire import sockets

        if policy not in POLICIES:
            raise ParameterError(f"KVStore: policy={policy!r} is not one of {', '.join(POLICIES)}.")
        require_token()
        self.ray, self.id = ray, secrets.token_hex(8)
        try:
            ray.init(address=address, namespace=f"tritium-{self.id}", logging_level=logging.ERROR, log_to_driver=True)
        except (ConnectionError, RuntimeError, ValueError) as e:
            raise KVStoreError(f"KVStore: Ray at {address} lets nobody in: token wrong or missing, or no cluster is there: "
                               f"{str(e).splitlines()[0] if str(e) else type(e).__name__}. Check RAY_AUTH_TOKEN_PATH.") from e
        self.folder = Path(tempfile.mkdtemp(prefix="tritium-job-"))
        base = snapshots or os.environ.get("TRITIUM_KV_SNAPSHOT_DIR") or str(self.folder)
        self._snapshots = Path(base) / f"tritium-{self.id}"
        job = {"job": self.id, "workers": workers, "shards": shards, "policy": policy, "every": every,
               "staleness": staleness, "interface": interface or os.environ.get("TRITIUM_KV_INTERFACE", "")}
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.coordinator = self._actor(CoordinatorActor, num_cpus=0, name="coordinator", max_restarts=-1, max_task_retries=-1,
                                       scheduling_strategy=here).remote(job, str(self.folder / "coordinator.json"))
        of = self._get([self.coordinator.credentials.remote(role) for role in ("shard", "worker")])
        self._credentials = of[1]
        shard = self._actor(ShardActor, num_cpus=1, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD")
        given = {**of[0], "interface": job["interface"]}
        self.shards = [shard.remote(given, i, str(self._snapshots / f"shard-{i}")) for i in range(shards)]
        self._get([s.pid.remote() for s in self.shards])
        sockets.write_secret(self.folder / "worker.json", self._credentials)

    @property
    def file(self) -> Path:
        """What a worker on this machine must be able to read."""
        return self.folder / "worker.json"

    def coordinator_pid(self) -> int:
        """The process of the coordinator, on this machine."""
        return self._get([self.coordinator.pid.remote()])[0]

    def shard_pid(self, index: int) -> int:
        """The process of a server, on its machine."""
        return self._get([self.shards[index].pid.remote()])[0]

    def run(self, command: Sequence[str], workers: int, restarts: int = 0) -> int:
        """Run command as every rank, on the cluster's machines; the status of the first that fails for good, else 0."""
        actor = self._actor(WorkerActor, num_cpus=1, scheduling_strategy="SPREAD")

        def start(rank: int) -> Any:
            hold = actor.remote(self._credentials)
            kept[rank] = hold
            return hold.run.remote(list(command), {"TRITIUM_KV_RANK": str(rank), "TRITIUM_KV_LAUNCHED": "1"})

        kept: dict[int, Any] = {}
        running = {start(rank): rank for rank in range(workers)}
        left, status = dict.fromkeys(range(workers), restarts), 0
        while running:
            (done,), _ = self.ray.wait(list(running), num_returns=1)
            rank = running.pop(done)
            try:
                ended = int(self.ray.get(done))
            except self.ray.exceptions.RayError:
                ended = 1
            self.ray.kill(kept.pop(rank))
            if ended and left[rank]:
                left[rank] -= 1
                running[start(rank)] = rank
            elif ended:
                status = status or (ended if ended > 0 else 128 - ended)
            elif running:
                say_ended(self._credentials, rank)
        return status

    def _actor(self, cls: type, **options: Any) -> Any:
        return self.ray.remote(cls).options(**options)

    def _get(self, calls: list[Any]) -> list[Any]:
        try:
            return self.ray.get(calls, timeout=_WITHIN)
        except self.ray.exceptions.RayError as e:
            raise KVStoreError(f"KVStore: Ray did not start the job's processes: {str(e).splitlines()[0]}. Every machine needs "
                               f"the same Python, Ray and Tritium.") from e

    def close(self) -> None:
        """End the job's processes; the cluster stays."""
        if self.folder.exists():
            for actor in (*self.shards, self.coordinator):
                with contextlib.suppress(Exception):
                    self.ray.kill(actor)
            time.sleep(0.1)
            self.ray.shutdown()
            shutil.rmtree(self._snapshots, ignore_errors=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> RayJob:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def require_token() -> None:
    """Raise KVStoreError unless Ray's token authentication is on, with a token file that only this user can read."""
    if os.environ.get("TRITIUM_KV_INSECURE") == "1":
        return
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if os.environ.get("RAY_AUTH_MODE") != "token" or not path:
        raise KVStoreError("KVStore: Ray listens on every interface and runs what it is sent, so a cluster without a token is "
                           "not used, not even on one machine. Start it with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE "
                           "(mode 0600), and set both here.")
    try:
        mode = Path(path).stat().st_mode & 0o777
    except OSError as e:
        raise KVStoreError(f"KVStore: RAY_AUTH_TOKEN_PATH={path}: cannot be read: {e.strerror}.") from e
    if mode & 0o077:
        raise KVStoreError(f"KVStore: RAY_AUTH_TOKEN_PATH={path}: others can read the token: mode {mode:o}. chmod 600 it.")


def _interface(job: dict[str, Any]) -> str:
    """Where to listen: what the job says, else this machine's address in the cluster."""
    if job["interface"]:
        return job["interface"]
    import ray

    return ray.util.get_node_ip_address()
