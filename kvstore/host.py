"""The process that hosts a job on one machine: the coordinator's socket, and the shards as its children.

    python -m tritium.kvstore.host FOLDER        (started by job.py; FOLDER/job.json says what is wanted)

A shard that ends is started again. Host and shards end when the job's owner does: they hold the reading end of a pipe, to which
nobody writes, and whose writing end the owner holds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..errors import FrameError, KVStoreError
from .coordinator import Coordinator
from .frame import pack, unpack
from .shared import remove_segments

_LARGEST = 64 << 20  # bytes of a control message
_MOST_RESTARTS, _WITHIN = 10, 10.0  # of one shard, seconds: a shard that cannot live is not started for ever


class Desk:
    """The coordinator with its socket. `poll` handles what has come in."""

    def __init__(self, job: dict[str, Any]):
        import zmq

        from . import sockets

        self.zmq, self.sockets = zmq, sockets
        self.context = zmq.Context(io_threads=1)
        self.gate = sockets.Gate(self.context)
        self.keys = {role: sockets.Keys.new() for role in ("server", "worker", "shard")}
        self.gate.allowed["coordinator"] = {self.keys[r].public: r for r in ("worker", "shard")}
        self.router, self.address = sockets.listen(self.context, self.keys["server"], "coordinator", job["interface"], _LARGEST)
        self.watch = sockets.Watch(self.router)
        self.coordinator = Coordinator(job["workers"], job["shards"], job["policy"])
        self._peer_of: dict[int, bytes] = {}  # file descriptor of a connection -> its peer
        self.poller = zmq.Poller()
        for s in (self.gate.socket, self.router, self.watch.socket):
            self.poller.register(s, zmq.POLLIN)

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
            for fd in self.watch.lost():
                peer = self._peer_of.pop(fd, None)
                if peer is not None:
                    self._send(self.coordinator.lost(peer))

    def _receive(self, peer: bytes, frame: Any) -> None:
        role = frame.get("User-Id")
        self._peer_of[frame.get(self.zmq.SRCFD)] = peer
        try:
            message = unpack(frame.buffer)
        except FrameError:
            return
        self._send(self.coordinator.receive(peer, role, message))

    def _send(self, sends: list[tuple[Any, dict[str, Any]]]) -> None:
        for peer, message in sends:
            if peer is not None:
                self.router.send_multipart([peer, pack(message)])


class Children:
    """The shards, as processes of this one."""

    def __init__(self, folder: Path, count: int):
        self.folder = folder
        self.processes = [self._start(i) for i in range(count)]
        self._starts: list[list[float]] = [[time.monotonic()] for _ in range(count)]

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", f"{__package__}.shard", str(self.folder), str(index)], stdin=0)
        pids = self.folder / f"shard-{index}.pid"
        pids.with_suffix(".part").write_text(str(process.pid))
        os.replace(pids.with_suffix(".part"), pids)
        return process

    def revive(self) -> None:
        """Start again every shard that has ended."""
        for i, process in enumerate(self.processes):
            if process.poll() is None:
                continue
            now = time.monotonic()
            self._starts[i] = [t for t in self._starts[i] if now - t < _WITHIN]
            if len(self._starts[i]) >= _MOST_RESTARTS:
                raise KVStoreError(f"shard {i} ended {_MOST_RESTARTS} times within {_WITHIN:.0f} s, with status "
                                   f"{process.returncode}. Its messages are above.")
            self._starts[i].append(now)
            self.processes[i] = self._start(i)

    def stop(self) -> None:
        """End them all."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> None:
    from . import sockets

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(sys.argv[1])
    job = sockets.read_secret(folder / "job.json")
    desk = Desk(job)
    for role in ("shard", "worker"):
        sockets.write_secret(folder / f"{role}.json", desk.credentials(job, role))
    print("ready", flush=True)
    children = Children(folder, job["shards"])
    desk.poller.register(0, desk.zmq.POLLIN)  # the owner's pipe: it ends with the owner
    try:
        while not dict(desk.poller.poll(0)).get(0):
            desk.poll(0.1)
            children.revive()
    finally:
        children.stop()
        shutil.rmtree(folder, ignore_errors=True)  # an owner that was killed cannot
        remove_segments(job["job"])


if __name__ == "__main__":
    main()
