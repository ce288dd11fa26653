"""The host process of a job on one machine. It starts the coordinator and the servers, and restarts those that end.

    python -m tritium.kvstore.job.host FOLDER        (started by local_job.py; FOLDER/job.json describes the job)

All of these processes end when the owner of the job ends: they hold the reading end of a pipe whose writing end the owner holds.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ...atomic_file import write_atomic
from ...errors import KVStoreError
from ..server import main as server_main
from ..wire.credentials import read_secret, write_secret
from ..wire.shared_memory import remove_segments
from ..wire.stream import READABLE
from .coordinator_process import CoordinatorServer

_MOST_RESTARTS, _RESTART_PERIOD = 10, 10.0  # restarts of one process within so many seconds before the job fails
_STOP_TIMEOUT = 2.0  # seconds
_FORK = multiprocessing.get_context("fork")  # a child need not import anything

_Run = Callable[[Callable[[], None]], object]  # the body of a child process, which calls its argument when it is ready


class Children:
    """The child processes: the coordinator and the servers. owner: descriptor that can be read when the owner has ended."""

    def __init__(self, folder: Path, job: dict[str, Any], owner: int):
        self.folder = folder
        self._runs: dict[str, _Run] = {"coordinator": functools.partial(_coordinate, folder, job, owner)}
        for i in range(job["servers"]):
            self._runs[f"server-{i}"] = lambda ready, i=i: (ready(), server_main.run(folder, i, owner))
        self.names = tuple(self._runs)
        self._times: dict[str, list[float]] = {name: [] for name in self.names}
        self.running: list[BaseProcess] = []

    def start(self, name: str) -> None:
        """Start one of them, and wait until it is ready or has failed. Raises KVStoreError if it was restarted too often."""
        now = time.monotonic()
        self._times[name] = [t for t in self._times[name] if now - t < _RESTART_PERIOD]
        if len(self._times[name]) >= _MOST_RESTARTS:
            raise KVStoreError(f"{name} ended {_MOST_RESTARTS} times within {_RESTART_PERIOD:.0f} s. See its messages above.")
        self._times[name].append(now)
        reading, writing = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_run, name=name, args=(self.folder / f"{name}.pid", self._runs[name], writing))
        process.start()
        self.running.append(process)
        writing.close()
        with reading:
            wait([reading, process.sentinel])

    def restart_ended(self) -> None:
        for process in [p for p in self.running if p.exitcode is not None]:
            self.running.remove(process)
            self.start(process.name)

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        end = time.monotonic() + _STOP_TIMEOUT
        for process in self.running:
            process.join(max(end - time.monotonic(), 0))
            process.kill()
            process.join()


def _run(file: Path, run: _Run, writing: Connection) -> None:
    """Run a child. file: receives the process id, before any other process can know of the child."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends the child at any point: its state is on disk
    write_atomic(file, str(os.getpid()), sync=False)
    try:
        run(writing.close)
    except BaseException as e:
        sys.excepthook(type(e), e, e.__traceback__)
        os._exit(1)
    os._exit(0)


def _coordinate(folder: Path, job: dict[str, Any], owner: int, ready: Callable[[], None]) -> None:
    """Run the coordinator until its owner ends. It is ready when it listens."""
    server = CoordinatorServer(job, folder / "coordinator.json")
    for role in ("server", "worker"):
        write_secret(folder / f"{role}.json", server.credentials(role))
    ready()
    ended: list[int] = []
    server.poller.register(owner, READABLE, ended.append)
    while not ended:
        server.poll(1.0)


def _reserve_port(interface: str) -> socket.socket | None:
    """Reserve a port of interface for the coordinator, so that it has the same one after a restart. "": none is needed."""
    if not interface:
        return None
    s = socket.socket(socket.AF_INET6 if ":" in interface else socket.AF_INET)
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # both may bind the port, and one listens
        s.bind((interface, 0))
    except OSError:
        s.close()
        return None  # the coordinator will report the error
    return s


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder, owner = Path(sys.argv[1]), os.dup(0)  # a child closes its standard input
    job = read_secret(folder / "job.json")
    reserved = _reserve_port(job["interface"])
    children = Children(folder, {**job, "port": 0 if reserved is None else reserved.getsockname()[1]}, owner)
    try:
        for name in children.names:
            children.start(name)
            if name == "coordinator":
                print("ready", flush=True)
        while owner not in wait([owner, *(p.sentinel for p in children.running)]):
            children.restart_ended()
    finally:
        children.stop()
        shutil.rmtree(folder, ignore_errors=True)  # an owner that was killed cannot do it
        remove_segments(job["job"])


if __name__ == "__main__":
    main()
    os._exit(0)  # a regular exit would spend most of its time on imported modules
