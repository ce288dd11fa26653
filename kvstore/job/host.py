"""The host process of a job on one machine. It starts the coordinator and the servers, and restarts those that end.

    python -m tritium.kvstore.job.host FOLDER        (started by local_job.py; FOLDER/job.json describes the job)

All of these processes end when the owner of the job ends: they hold the reading end of a pipe whose writing end the owner holds.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...atomic_file import write_atomic
from ...errors import KVStoreError
from ..server import main as server_main
from ..wire.credentials import read_secret, write_secret
from ..wire.shared_memory import remove_segments
from .coordinator_process import CoordinatorServer

_MOST_RESTARTS, _RESTART_PERIOD = 10, 10.0  # restarts of one process within so many seconds before the job fails

_Run = Callable[[Callable[[], None]], object]  # the body of a child process, which calls its argument when it is ready


class Children:
    """The child processes: the coordinator and the servers."""

    def __init__(self, folder: Path, job: dict[str, Any]):
        self.folder = folder
        self._runs: dict[str, _Run] = {"coordinator": lambda ready: _coordinate(folder, job, ready)}
        for i in range(job["servers"]):
            self._runs[f"server-{i}"] = lambda ready, i=i: (ready(), _serve(folder, i))
        self.names = tuple(self._runs)
        self._times: dict[str, list[float]] = {name: [] for name in self.names}
        self.running: dict[int, str] = {}  # process id -> name

    def start(self, name: str) -> None:
        """Start one of them. Raises KVStoreError if it was restarted too often."""
        now = time.monotonic()
        self._times[name] = [t for t in self._times[name] if now - t < _RESTART_PERIOD]
        if len(self._times[name]) >= _MOST_RESTARTS:
            raise KVStoreError(f"{name} ended {_MOST_RESTARTS} times within {_RESTART_PERIOD:.0f} s. See its messages above.")
        self._times[name].append(now)
        pid = _fork(self.folder / f"{name}.pid", self._runs[name])
        self.running[pid] = name

    def restart_ended(self) -> None:
        while self.running:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            name = self.running.pop(pid, None)
            if name is not None:
                self.start(name)

    def stop(self) -> None:
        for pid in self.running:
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + 2
        while self.running:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            self.running.pop(pid, None)
            if not pid:
                time.sleep(0.01)
                if time.monotonic() > end:
                    for left in self.running:
                        os.kill(left, signal.SIGKILL)
                    end = float("inf")


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


def _fork(file: Path, run: _Run) -> int:
    """Fork a child that calls run(ready). Returns its process id when it is ready or has failed.

    file:  receives the process id, before any other process can know of the child.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends the child at any point: its state is on disk
        try:
            os.close(reading)
            write_atomic(file, str(os.getpid()), sync=False)
            run(lambda: os.close(writing))
            status = 0
        except BaseException as e:
            sys.excepthook(type(e), e, e.__traceback__)
        finally:
            os._exit(status)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return pid


def _coordinate(folder: Path, job: dict[str, Any], ready: Callable[[], None]) -> None:
    """Run the coordinator until the owner's pipe ends. It is ready when it listens."""
    server = CoordinatorServer(job, folder / "coordinator.json")
    for role in ("server", "worker"):
        write_secret(folder / f"{role}.json", server.credentials(role))
    ready()
    server.poller.run(server.turn, 0)


def _serve(folder: Path, index: int) -> None:
    server = server_main.start(read_secret(folder / "server.json"), index, folder / f"server-{index}")
    server.poller.run(server.turn, 0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(sys.argv[1])
    job = read_secret(folder / "job.json")
    reserved = _reserve_port(job["interface"])
    children = Children(folder, {**job, "port": 0 if reserved is None else reserved.getsockname()[1]})
    owner = select.poll()
    owner.register(0, select.POLLIN)
    try:
        for name in children.names:
            children.start(name)
            if name == "coordinator":
                print("ready", flush=True)
        while not owner.poll(100):
            children.restart_ended()
    finally:
        children.stop()
        shutil.rmtree(folder, ignore_errors=True)  # an owner that was killed cannot do it
        remove_segments(job["job"])


if __name__ == "__main__":
    main()
    os._exit(0)  # a regular exit would spend most of its time on imported modules
