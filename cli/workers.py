"""The workers of `tritium launch`: processes that run one command as every rank of a job, on this machine or on a Ray cluster."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import KVStoreError
from ..kvstore.job.local_job import Job, number_of
from ..kvstore.job.ray_job import RayJob
from ..kvstore.wire import sockets
from ..kvstore.wire.credentials import read_secret, write_secret
from ..kvstore.wire.frame import pack, unpack
from ..kvstore.wire.stream import Poller
from .worker_output import ONCE, Output, describe_end

_ANSWER_TIMEOUT, _RETRY = 10.0, 0.2  # seconds: the coordinator may be restarting
_READ_EVERY = 0.1  # seconds after which the end of a silent worker is noticed
_PR_SET_PDEATHSIG = 1


class Workers(ABC):
    """The workers of a job. A subclass starts them, waits until some end, and ends them.

    running:      rank -> what the subclass needs to know of it.
    folder:       gets the output of each worker in a file, worker-RANK.log.
    environment:  variables for the workers, beside those of the processes that start them.
    """

    def __init__(self, job: Job, command: Sequence[str], folder: Path | None, environment: Mapping[str, str]):
        self.job, self.command, self.environment = job, list(command), environment
        self.output = Output(folder)
        self.running: dict[int, Any] = {}

    @abstractmethod
    def start(self, rank: int) -> None: ...
    @abstractmethod
    def wait(self) -> dict[int, int]: ...  # statuses of those that ended, by rank
    @abstractmethod
    def end(self) -> None: ...

    def run(self, count: int, restarts: int = 0) -> int:
        """Run so many workers, and pass on what they write. Returns the status of the first that fails for good, otherwise 0;
        130 after Ctrl-C.

        restarts:  the number of times that a failed worker is started again.
        """
        left, failed, output = dict.fromkeys(range(count), restarts), dict[int, int](), self.output
        interrupted = False
        try:
            for rank in range(count):
                self.start(rank)
            while self.running:
                for rank, ended in self.wait().items():
                    output.detach(rank)
                    del self.running[rank]
                    again = ended and left[rank]
                    if ended:
                        say(f"worker {rank} {describe_end(ended)}{'; it is started again' if again else ''}")
                    if again:
                        left[rank] -= 1
                        self.start(rank)
                    elif ended:
                        failed[rank] = ended
                    elif self.running:
                        report_ended(self.job, rank)  # the others need not wait for it
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.end()
            output.close()
        if interrupted:
            say(f"interrupted: {number_of(len(self.running), 'worker')} ended")
            return 130
        if not failed:
            return 0
        first, status = next(iter(failed.items()))
        last = f" Its last line: {output.last[first]}" if first in output.last else ""
        say(f"{len(failed)} of {number_of(count, 'worker')} failed. The first was worker {first}, which {describe_end(status)}."
            f"{last}")
        return status if status > 0 else 128 - status


def report_ended(job: Job, rank: int) -> None:
    """Tell the coordinator that the process of a worker has ended with success."""
    content, end = read_secret(job.file), time.monotonic() + _ANSWER_TIMEOUT
    while time.monotonic() < end:
        if _ask_coordinator(content, {"op": "ended", "id": 0, "rank": rank}, end):
            return
        time.sleep(_RETRY)
    say(f"the coordinator did not answer the report that worker {rank} has ended.")


def _ask_coordinator(job: dict[str, Any], message: dict[str, Any], end: float) -> bool:
    """Send a request. Returns whether there was an answer until time.monotonic() is end."""
    poller, answers = Poller(), list[Any]()
    try:
        s = sockets.connect_to_coordinator(poller, job, on_message=lambda _, payload: answers.append(unpack(payload)),
                                           on_end=lambda _: answers.append(None))
    except OSError:
        return False
    s.put(b"", pack(message))
    while not answers and time.monotonic() < end:
        poller.handle(poller.select(max(end - time.monotonic(), 0)))
    s.close()
    poller.close()
    return bool(answers and answers[0])


def say(text: str) -> None:
    """Print a line of `tritium launch` to the standard error."""
    print(f"tritium launch: {text}", file=sys.stderr, flush=True)


class LocalWorkers(Workers):
    """Processes of this machine."""

    def start(self, rank: int) -> None:
        own = {"TRITIUM_KV_JOB": str(self.job.file), "TRITIUM_KV_LAUNCHED": "1", "TRITIUM_KV_RANK": str(rank)}
        process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={"PYTHONUNBUFFERED": "1", **os.environ, **self.environment, **own})
        self.output.attach(rank, process)
        self.running[rank] = process

    def wait(self) -> dict[int, int]:
        self.output.wait(0.05)
        return {rank: process.returncode for rank, process in self.running.items() if process.poll() is not None}

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class WorkerActor:
    """A worker on a cluster: a command that runs on the machine that Ray selects."""

    def __init__(self, credentials: dict[str, Any]):
        self.folder = Path(tempfile.mkdtemp(prefix="tritium-worker-"))
        write_secret(self.folder / "worker.json", credentials)
        self.process: subprocess.Popen[bytes] | None = None
        self.error = ""
        self.pipes: list[Any] = []

    def start(self, command: Sequence[str], folder: str, environment: dict[str, str]) -> None:
        """Run the command in that folder."""
        machine = socket.gethostname()
        if not os.path.isdir(folder):
            self.error = (f"the folder {folder} does not exist on {machine}. Workers run in the folder in which the job was "
                          f"started: copy it to every machine, or share it.")
            return
        env = {"PYTHONUNBUFFERED": "1", **os.environ, **environment, "TRITIUM_KV_JOB": str(self.folder / "worker.json")}
        prctl = ctypes.CDLL(None).prctl  # looked up before the fork
        try:
            self.process = subprocess.Popen(list(command), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
        except OSError as e:
            self.error = f"{command[0]} cannot be started in {folder} on {machine}: {e.strerror}."
            return
        self.pipes = [self.process.stdout, self.process.stderr]
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)

    def read(self) -> tuple[bytes, bytes, int | None]:
        """Wait a little, and return what the command has written since the last call to its standard output and its standard
        error, and its exit status, None while it runs. Raises KVStoreError if it could not be started.
        """
        if self.process is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise KVStoreError(self.error)
        status = self.process.poll()  # before reading: all that it wrote before its end is in the pipes
        if status is None:
            select.select(self.pipes, [], [], _READ_EVERY)
        out, errors = self._read(self.process.stdout), self._read(self.process.stderr)
        if status is not None:
            for pipe in self.pipes:
                pipe.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        return out, errors, status

    def _read(self, pipe: Any) -> bytes:
        try:
            data = os.read(pipe.fileno(), ONCE) if pipe in self.pipes else b""
        except BlockingIOError:
            return b""
        if not data and pipe in self.pipes:
            self.pipes.remove(pipe)
            pipe.close()
        return data


class RayWorkers(Workers):
    """Actors on the cluster's machines. Of each, `running` holds the actor, and the call that reads what its command writes."""

    job: RayJob

    def start(self, rank: int) -> None:
        actor = self.job.actor(WorkerActor, num_cpus=1, scheduling_strategy="SPREAD").remote(self.job.worker_credentials)
        actor.start.remote(self.command, str(Path.cwd()), {
            **self.environment, "TRITIUM_KV_RANK": str(rank), "TRITIUM_KV_LAUNCHED": "1"})
        self.running[rank] = actor, actor.read.remote()

    def wait(self) -> dict[int, int]:
        ray = self.job.ray
        (done,), _ = ray.wait([call for _, call in self.running.values()], num_returns=1)
        (rank,) = [rank for rank, (_, call) in self.running.items() if call == done]
        try:
            out, errors, status = ray.get(done)
            self.output.add(rank, False, out)
            self.output.add(rank, True, errors)
        except ray.exceptions.RayTaskError as e:
            say(f"worker {rank}: {e.cause}")
            status = 1
        except ray.exceptions.RayError as e:
            say(f"worker {rank}: its machine or its process was lost: {str(e).splitlines()[0]}")
            status = 1
        actor = self.running[rank][0]
        if status is None:
            self.running[rank] = actor, actor.read.remote()
            return {}
        ray.kill(actor)
        return {rank: status}

    def end(self) -> None:
        for actor, _ in self.running.values():
            self.job.ray.kill(actor)
