"""A job: a folder that only this user can read, and the processes that run the coordinator and the servers.

`LocalJob` starts it on this machine, and ends it on `close`. A worker finds its job by TRITIUM_KV_JOB, the path of a file with
keys of mode 0600.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from abc import abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ... import environment
from ...errors import KVStoreError, ParameterError
from ..wire.credentials import write_secret
from ..wire.shared_memory import remove_segments

POLICIES = ("fail", "wait", "shrink")
_START_TIMEOUT = 60.0  # seconds


class Job(AbstractContextManager["Job"]):
    """A job whose coordinator and servers have been started, by a subclass. They end with `close`.

    policy:           how dist_sync reacts to the death of a worker. "fail": with an error. "wait": for a replacement. "shrink":
                      it continues without the worker.
    snapshot_rounds:  rounds of a key between two snapshots; 0: no snapshots, and the death of a server ends the job.
    max_staleness:    dist_async: a worker's pull of a key waits while the worker has pushed it more than so many times more often
                      than the slowest; None: no limit.
    interface:        the address to listen on, with TLS. None: on a Ray cluster, each machine's address in it; otherwise this
                      host's processes connect by Unix domain sockets.
    file:             the job file, which workers on this machine read.
    settings:         the parameters, as the coordinator needs them.
    """

    def __init__(self, workers: int = 1, servers: int = 1, *, policy: str = "fail", snapshot_rounds: int | None = None,
                 max_staleness: int | None = None, interface: str | None = None):
        if policy not in POLICIES:
            raise ParameterError(f"KVStore: policy={policy!r} is not one of {', '.join(POLICIES)}.")
        if workers < 1 or servers < 1:
            raise ParameterError(f"KVStore: {workers} workers and {servers} servers: at least one of each is needed.")
        if max_staleness is None:
            max_staleness = environment.KV_MAX_STALENESS.get()
        if max_staleness is not None and max_staleness < 0:
            raise ParameterError(f"KVStore: max_staleness={max_staleness} must be 0 or more.")
        if snapshot_rounds is None:
            snapshot_rounds = environment.KV_SNAPSHOT_ROUNDS.get()
        self.id = secrets.token_hex(8)
        self.settings = {"job": self.id, "workers": workers, "servers": servers, "policy": policy,
                         "snapshot_rounds": snapshot_rounds, "max_staleness": max_staleness,
                         "optimizers": environment.KV_OPTIMIZERS.get(),
                         "interface": interface or environment.KV_INTERFACE.get() or ""}
        self.folder = Path(tempfile.mkdtemp(prefix="tritium-job-"))
        self.file = self.folder / "worker.json"

    @abstractmethod
    def close(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        self.close()


def number_of(n: int, noun: str) -> str:
    """Return "1 worker", "2 workers"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


class LocalJob(Job):
    """A job on this machine."""

    def __init__(self, *numbers: int, **settings: Any):
        super().__init__(*numbers, **settings)
        write_secret(self.folder / "job.json", self.settings)
        reading, self._alive = os.pipe()
        try:
            self.host = subprocess.Popen([sys.executable, "-m", f"{__package__}.host", str(self.folder)], stdin=reading,
                                         stdout=subprocess.PIPE, start_new_session=True,
                                         env={**os.environ, "TRITIUM_GPU": "off", "PYTHONSAFEPATH": "1"})
        finally:
            os.close(reading)
        assert self.host.stdout is not None
        ready, _, _ = select.select([self.host.stdout], [], [], _START_TIMEOUT)
        if not ready or self.host.stdout.readline() != b"ready\n":
            self.close()
            raise KVStoreError(f"KVStore: the job's host process did not start within {_START_TIMEOUT:.0f} s. See its messages "
                               f"above.")

    def coordinator_pid(self) -> int:
        return int((self.folder / "coordinator.pid").read_text())

    def server_pid(self, index: int) -> int:
        return int((self.folder / f"server-{index}.pid").read_text())

    def close(self) -> None:
        """End the job's processes, and delete their files."""
        if self._alive < 0:
            return
        os.close(self._alive)
        self._alive = -1
        try:
            self.host.wait(30)
        except subprocess.TimeoutExpired:
            self.host.kill()
            self.host.wait()
        if self.host.stdout is not None:
            self.host.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        remove_segments(self.id)

    def __del__(self) -> None:
        try:  # when the interpreter exits, modules may be gone
            self.close()
        except Exception:
            pass
