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

import zmq

from ... import environment
from ...atomic_file import write_atomic
from ...errors import FrameError, KVStoreError
from ..protocol.coordinator import Coordinator
from ..server import main as server_main
from ..wire import sockets
from ..wire.frame import pack, unpack
from ..wire.shared_memory import remove_segments

_LARGEST = 64 << 20  # bytes of a control message
_MOST_RESTARTS, _RESTART_PERIOD = 10, 10.0  # restarts of one process within so many seconds before the job fails

_Run = Callable[[Callable[[], None]], object]  # the body of a child process, which calls its argument when it is ready


class CoordinatorServer:
    """The coordinator with its socket. `poll` handles what has arrived.

    file:  for the keys and the state. If it exists, the coordinator resumes from it, at the same address.
    """

    def __init__(self, job: dict[str, Any], file: Path):
        self.file = file
        self.context = zmq.Context(io_threads=1)
        self.authenticator = sockets.Authenticator(self.context)
        self.coordinator = Coordinator(job["workers"], job["servers"], job["policy"], job["max_staleness"])
        self._grace_ends = 0.0
        former = sockets.read_secret(file) if file.exists() else {}
        if former:
            self.keys = {role: sockets.CurveKeys(*pair) for role, pair in former["keys"].items()}
            self.coordinator.resume(former["state"])
            self._grace_ends = time.monotonic() + environment.KV_BACK_WITHIN.get()
        else:
            self.keys = {role: sockets.CurveKeys.new() for role in ("coordinator", "worker", "server")}
        self.authenticator.allowed["coordinator"] = {self.keys[r].public: r for r in ("worker", "server")}
        self.router, self.address = sockets.listen(self.context, self.keys["coordinator"], "coordinator", job["interface"],
                                                   _LARGEST, former.get("port", job.get("port", 0)))
        self.monitor = sockets.ConnectionMonitor(self.router)
        self._peers: dict[int, bytes] = {}  # file descriptor of a connection -> its peer
        self.poller = zmq.Poller()
        for s in (self.authenticator.socket, self.router, self.monitor.socket):
            self.poller.register(s, zmq.POLLIN)
        self._write_state()

    def _write_state(self) -> None:
        state, port = self.coordinator.state(), int(self.address.rpartition(":")[2])
        sockets.write_secret(self.file, {"keys": self.keys, "port": port, "state": state})

    def credentials(self, job: dict[str, Any], role: str) -> dict[str, Any]:
        """Return the content of the job file with which a process of that role joins."""
        return {"job": job["job"], "interface": job["interface"], "address": self.address,
                "coordinator_key": self.keys["coordinator"].public, "public": self.keys[role].public,
                "secret": self.keys[role].secret, "workers": job["workers"], "servers": job["servers"],
                "snapshot_rounds": job["snapshot_rounds"]}

    def poll(self, timeout: float) -> None:
        """Wait for up to timeout seconds, then handle everything that has arrived."""
        ready = dict(self.poller.poll(int(timeout * 1000)))
        if self.authenticator.socket in ready:
            self.authenticator.answer()
        if self.router in ready:
            for parts in sockets.receive(self.router):
                if len(parts) == 2:
                    self._receive(parts[0].bytes, parts[1])
        if self.monitor.socket in ready:
            self._report_lost()
        if self._grace_ends and time.monotonic() > self._grace_ends and not ready:  # messages of returning peers come first
            self._grace_ends = 0.0
            self._send(self.coordinator.end_grace_period())

    def _report_lost(self) -> None:
        """Tell the coordinator which connections have ended."""
        for fd in self.monitor.lost():
            peer = self._peers.pop(fd, None)
            if peer is not None:
                self._send(self.coordinator.lost(peer))

    def _receive(self, peer: bytes, frame: Any) -> None:
        role, fd = frame.get("User-Id"), frame.get(zmq.SRCFD)
        if self._peers.get(fd) != peer:
            self._report_lost()  # the descriptor may have been reused: the end of its earlier connection is reported already
            self._peers[fd] = peer
        try:
            message = unpack(frame.buffer)
        except FrameError:
            return
        self._send(self.coordinator.receive(peer, role, message))

    def _send(self, sends: list[tuple[Any, dict[str, Any]]]) -> None:
        if self.coordinator.changed:
            self._write_state()  # before any peer can act on it
        for peer, message in sends:
            if peer is not None:
                self.router.send_multipart([peer, pack(message)])


class Children:
    """The child processes: the coordinator and the servers."""

    def __init__(self, folder: Path, job: dict[str, Any]):
        self.folder = folder
        self._runs: dict[str, _Run] = {"coordinator": lambda ready: _coordinate(folder, job, ready)}
        for i in range(job["servers"]):
            self._runs[f"server-{i}"] = lambda ready, i=i: (ready(), server_main.run(folder, i))
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
        """Start every child again that has ended."""
        while self.running:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            name = self.running.pop(pid, None)
            if name is not None:
                self.start(name)

    def stop(self) -> None:
        """End all children."""
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
    """Reserve a port of interface for the coordinator, so that it has the same one after a restart."""
    s = socket.socket()
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as libzmq does: both may bind the port, and one listens
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
        sockets.write_secret(folder / f"{role}.json", server.credentials(job, role))
    ready()
    server.poller.register(0, zmq.POLLIN)
    while not dict(server.poller.poll(0)).get(0):
        server.poll(1.0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(sys.argv[1])
    job = sockets.read_secret(folder / "job.json")
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
