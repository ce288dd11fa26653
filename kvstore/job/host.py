"""The process that hosts a job on one machine. Its children are the coordinator and the shards; one that ends is started again.

    python -m tritium.kvstore.job.host FOLDER        (started by job.py; FOLDER/job.json says what is wanted)

All of them end when the job's owner does: they hold the reading end of a pipe, to which nobody writes, and whose writing end the
owner holds.
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
from ...errors import FrameError, KVStoreError
from ..protocol.coordinator import Coordinator
from ..server import main as server_main
from ..wire.frame import pack, unpack
from ..wire.shared_memory import remove_segments

_LARGEST = 64 << 20  # bytes of a control message
_MOST_RESTARTS, _WITHIN = 10, 10.0  # of one process, seconds: one that cannot live is not started for ever
_BACK_WITHIN = "TRITIUM_KV_BACK_WITHIN"  # seconds for workers and shards to come back to a coordinator that was started again


_Run = Callable[[Callable[[], None]], None]  # what a child does; it calls what it is given when it is ready


class Desk:
    """The coordinator with its socket. `poll` handles what has come in.

    file:  where its state is kept, with the keys: one that is there is gone on with, at the same address.
    """

    def __init__(self, job: dict[str, Any], file: Path):
        import zmq

        from ..wire import sockets

        self.zmq, self.sockets, self.file = zmq, sockets, file
        self.context = zmq.Context(io_threads=1)
        self.gate = sockets.Gate(self.context)
        self.coordinator = Coordinator(job["workers"], job["shards"], job["policy"], job["staleness"])
        self._wait_until = 0.0
        former = sockets.read_secret(file) if file.exists() else {}
        if former:
            self.keys = {role: sockets.Keys(*pair) for role, pair in former["keys"].items()}
            self.coordinator.resume(former["state"])
            self._wait_until = time.monotonic() + float(os.environ.get(_BACK_WITHIN, "10"))
        else:
            self.keys = {role: sockets.Keys.new() for role in ("server", "worker", "shard")}
        self.gate.allowed["coordinator"] = {self.keys[r].public: r for r in ("worker", "shard")}
        self.router, self.address = sockets.listen(self.context, self.keys["server"], "coordinator", job["interface"], _LARGEST,
                                                   former.get("port", job.get("port", 0)))
        self.watch = sockets.Watch(self.router)
        self._peer_of: dict[int, bytes] = {}  # file descriptor of a connection -> its peer
        self.poller = zmq.Poller()
        for s in (self.gate.socket, self.router, self.watch.socket):
            self.poller.register(s, zmq.POLLIN)
        self._keep()

    def _keep(self) -> None:
        """Write what must not be lost."""
        state, port = self.coordinator.state(), int(self.address.rpartition(":")[2])
        self.sockets.write_secret(self.file, {"keys": self.keys, "port": port, "state": state})

    def credentials(self, job: dict[str, Any], role: str) -> dict[str, Any]:
        """What a process of that role must know to join."""
        return {"job": job["job"], "interface": job["interface"], "address": self.address, "server": self.keys["server"].public,
                "public": self.keys[role].public, "secret": self.keys[role].secret, "workers": job["workers"],
                "shards": job["shards"], "every": job["every"]}

    def poll(self, timeout: float) -> None:
        """Wait for up to timeout seconds, then handle all that is there."""
        ready = dict(self.poller.poll(int(timeout * 1000)))
        if self.gate.socket in ready:
            self.gate.answer()
        if self.router in ready:
            for parts in self.sockets.receive(self.router):
                if len(parts) == 2:
                    self._receive(parts[0].bytes, parts[1])
        if self.watch.socket in ready:
            self._lose()
        if self._wait_until and time.monotonic() > self._wait_until and not ready:  # who has come back is heard before
            self._wait_until = 0.0
            self._send(self.coordinator.give_up())

    def _lose(self) -> None:
        """Tell the coordinator whose connections have ended."""
        for fd in self.watch.lost():
            peer = self._peer_of.pop(fd, None)
            if peer is not None:
                self._send(self.coordinator.lost(peer))

    def _receive(self, peer: bytes, frame: Any) -> None:
        role, fd = frame.get("User-Id"), frame.get(self.zmq.SRCFD)
        if self._peer_of.get(fd) != peer:
            self._lose()  # the number may have been another connection's, whose end was told before it was given again
            self._peer_of[fd] = peer
        try:
            message = unpack(frame.buffer)
        except FrameError:
            return
        self._send(self.coordinator.receive(peer, role, message))

    def _send(self, sends: list[tuple[Any, dict[str, Any]]]) -> None:
        if self.coordinator.changed:
            self._keep()  # before anybody can act on it
        for peer, message in sends:
            if peer is not None:
                self.router.send_multipart([peer, pack(message)])


class Children:
    """The coordinator and the shards, as processes of this one."""

    def __init__(self, folder: Path, job: dict[str, Any]):
        self.folder = folder
        self._runs: dict[str, _Run] = {"coordinator": lambda ready: _coordinate(folder, job, ready)}
        for i in range(job["shards"]):
            self._runs[f"shard-{i}"] = lambda ready, i=i: _serve(folder, i, ready)
        self.names = tuple(self._runs)
        self._times: dict[str, list[float]] = {name: [] for name in self.names}
        self.running: dict[int, str] = {}  # process number -> name

    def start(self, name: str) -> None:
        """Start one of them. Raises KVStoreError if it has been started too often of late."""
        now = time.monotonic()
        self._times[name] = [t for t in self._times[name] if now - t < _WITHIN]
        if len(self._times[name]) >= _MOST_RESTARTS:
            raise KVStoreError(f"{name} ended {_MOST_RESTARTS} times within {_WITHIN:.0f} s. Its messages are above.")
        self._times[name].append(now)
        pid = _fork(self.folder / f"{name}.pid", self._runs[name])
        self.running[pid] = name

    def revive(self) -> None:
        """Start again every one that has ended."""
        while self.running:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            name = self.running.pop(pid, None)
            if name is not None:
                self.start(name)

    def stop(self) -> None:
        """End them all."""
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


def _reserve(interface: str) -> socket.socket | None:
    """A port of interface that nobody else is given while this is open: the coordinator listens there whenever it is started."""
    s = socket.socket()
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as libzmq has it: two may have the port, and one listen
        s.bind((interface, 0))
    except OSError:
        s.close()
        return None  # the coordinator will say what is wrong with the interface
    return s


def _fork(file: Path, run: _Run) -> int:
    """A child that does run(ready). Returns when it is ready, or has failed. A fork, since all it needs is imported already.

    file:  gets its process number, before anybody can have heard of it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # at once, wherever it is: what must not be lost is on disk
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
    """The coordinator's process. It is ready when it listens, and ends with the owner's pipe."""
    desk = Desk(job, folder / "coordinator.json")
    for role in ("shard", "worker"):
        desk.sockets.write_secret(folder / f"{role}.json", desk.credentials(job, role))
    ready()
    desk.poller.register(0, desk.zmq.POLLIN)
    while not dict(desk.poller.poll(0)).get(0):
        desk.poll(1.0)


def _serve(folder: Path, index: int, ready: Callable[[], None]) -> None:
    """A shard's process."""
    ready()
    server_main.run(folder, index)


def main() -> None:
    from ..wire import sockets

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(sys.argv[1])
    job = sockets.read_secret(folder / "job.json")
    reserved = _reserve(job["interface"])
    children = Children(folder, {**job, "port": 0 if reserved is None else reserved.getsockname()[1]})
    owner = select.poll()
    owner.register(0, select.POLLIN)
    try:
        for name in children.names:
            children.start(name)
            if name == "coordinator":
                print("ready", flush=True)
        while not owner.poll(100):
            children.revive()
    finally:
        children.stop()
        shutil.rmtree(folder, ignore_errors=True)  # an owner that was killed cannot
        remove_segments(job["job"])


if __name__ == "__main__":
    main()
    os._exit(0)  # taking down what was imported would take longer than all else here
