"""A job: a folder that only this user can read, and the processes that run the coordinator and the servers.

`LocalJob` starts it on this machine, and ends it on `close`. A worker finds its job by TRITIUM_KV_JOB, the path of a file with
keys of mode 0600.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ... import environment
from ...errors import KVStoreError, ParameterError
from ..wire import sockets
from ..wire.credentials import read_secret, write_secret
from ..wire.shared_memory import remove_segments
from .output import Output, describe_end

POLICIES = ("fail", "wait", "shrink")
_START_TIMEOUT = 60.0  # seconds
_ANSWER_TIMEOUT, _RETRY = 10.0, 0.2  # seconds: the coordinator may be restarting
_log = logging.getLogger(__name__)


class Job(AbstractContextManager["Job"]):
    """A job whose processes have been started, and its workers. A subclass starts them, waits until some end, and ends them.

    policy:           how dist_sync reacts to the death of a worker. "fail": with an error. "wait": for a replacement. "shrink":
                      it continues without the worker.
    snapshot_rounds:  rounds of a key between two snapshots; 0: no snapshots, and the death of a server ends the job.
    max_staleness:    dist_async: a worker's pull of a key waits while the worker has pushed it more than so many times more often
                      than the slowest; None: no limit.
    interface:        the address to listen on, with TLS; "": this host's processes connect by Unix domain sockets.
    file:             the job file, which workers on this machine read.
    settings:         the parameters, as the coordinator needs them.
    """

    def __init__(self, workers: int, servers: int, policy: str, snapshot_rounds: int | None, max_staleness: int | None,
                 interface: str):
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
                         "snapshot_rounds": snapshot_rounds, "max_staleness": max_staleness, "interface": interface}
        self.folder = Path(tempfile.mkdtemp(prefix="tritium-job-"))
        self.file = self.folder / "worker.json"

    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def _start(self, command: Sequence[str], rank: int, environment: Mapping[str, str], output: Output) -> Any: ...
    @abstractmethod
    def _wait(self, running: dict[int, Any], output: Output) -> dict[int, int]: ...  # statuses of those that ended, by rank
    @abstractmethod
    def _end(self, running: dict[int, Any]) -> None: ...

    def run(self, command: Sequence[str], workers: int, restarts: int = 0, folder: Path | None = None,
            environment: Mapping[str, str] | None = None) -> int:
        """Run command as every rank, and pass on what the workers write. Returns the status of the first that fails for good,
        otherwise 0; 130 after Ctrl-C.

        restarts:     the number of times that a failed worker is started again.
        folder:       gets the output of each worker in a file, worker-RANK.log.
        environment:  variables for the workers, beside those of the processes that start them.
        """
        left, failed = dict.fromkeys(range(workers), restarts), dict[int, int]()
        running: dict[int, Any] = {}
        output, interrupted = Output(folder), False

        def start(rank: int) -> None:
            running[rank] = self._start(command, rank, environment or {}, output)

        try:
            for rank in range(workers):
                start(rank)
            while running:
                for rank, ended in self._wait(running, output).items():
                    output.detach(rank)
                    del running[rank]
                    again = ended and left[rank]
                    if ended:
                        say(f"worker {rank} {describe_end(ended)}{'; it is started again' if again else ''}")
                    if again:
                        left[rank] -= 1
                        start(rank)
                    elif ended:
                        failed[rank] = ended
                    elif running:
                        self.report_ended(rank)  # the others need not wait for it
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self._end(running)
            output.close()
        if interrupted:
            say(f"interrupted: {number_of(len(running), 'worker')} ended")
            return 130
        if not failed:
            return 0
        first, status = next(iter(failed.items()))
        last = f" Its last line: {output.last[first]}" if first in output.last else ""
        say(f"{len(failed)} of {number_of(workers, 'worker')} failed. The first was worker {first}, which {describe_end(status)}."
            f"{last}")
        return status if status > 0 else 128 - status

    def report_ended(self, rank: int) -> None:
        """Tell the coordinator that the process of a worker has ended with success."""
        job, end = read_secret(self.file), time.monotonic() + _ANSWER_TIMEOUT
        while time.monotonic() < end:
            if sockets.ask_coordinator(job, {"op": "ended", "id": 0, "rank": rank}, end - time.monotonic()) is not None:
                return
            time.sleep(_RETRY)
        _log.warning("kvstore: the coordinator did not answer the report that worker %d has ended.", rank)

    def __exit__(self, *exc: object) -> None:
        self.close()


def say(text: str) -> None:
    """Print a line of `tritium launch` to the standard error."""
    print(f"tritium launch: {text}", file=sys.stderr, flush=True)


def number_of(n: int, noun: str) -> str:
    """Return "1 worker", "2 workers"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


class LocalJob(Job):
    """A job with so many workers and servers on this machine."""

    def __init__(self, workers: int = 1, servers: int = 1, *, policy: str = "fail", snapshot_rounds: int | None = None,
                 max_staleness: int | None = None, interface: str | None = None):
        super().__init__(workers, servers, policy, snapshot_rounds, max_staleness,
                         interface or environment.KV_INTERFACE.get() or "")
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

    def _start(self, command: Sequence[str], rank: int, environment: Mapping[str, str], output: Output
               ) -> subprocess.Popen[bytes]:
        own = {"TRITIUM_KV_JOB": str(self.file), "TRITIUM_KV_LAUNCHED": "1", "TRITIUM_KV_RANK": str(rank)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={"PYTHONUNBUFFERED": "1", **os.environ, **environment, **own})
        output.attach(rank, process)
        return process

    def _wait(self, running: dict[int, subprocess.Popen[bytes]], output: Output) -> dict[int, int]:
        output.wait(0.05)
        return {rank: process.returncode for rank, process in running.items() if process.poll() is not None}

    def _end(self, running: dict[int, subprocess.Popen[bytes]]) -> None:
        for process in running.values():
            process.terminate()
        for process in running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __del__(self) -> None:
        try:  # when the interpreter exits, modules may be gone
            self.close()
        except Exception:
            pass
