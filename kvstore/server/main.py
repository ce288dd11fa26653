"""The process of a server: its sockets and its loop. host.py or ray_job.py starts it; server.py handles the frames."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import zmq

from ... import engine, environment
from ...errors import FrameError, KVStoreError
from ..wire import sockets
from ..wire.encrypted_channel import ChannelListener
from ..wire.frame import LARGEST_MESSAGE, FrameType, WireFrame, decode, pack, unpack
from .server import Out, Server

_LARGEST_CONTROL = 64 << 20  # bytes: the coordinator's table of keys
_JOIN_TIMEOUT = 30.0  # seconds


class ServerProcess:
    """A server with its sockets.

    job:    the content of the servers' key file.
    index:  the number of the server.
    """

    def __init__(self, job: dict[str, Any], index: int, folder: Path | None):
        self.index = index
        self.context = zmq.Context(io_threads=1)
        self.authenticator = sockets.Authenticator(self.context)
        self.users = self.authenticator.allowed.setdefault("server", {})
        keys = sockets.CurveKeys.new()
        self.router, address = sockets.listen(self.context, keys, "server", job["interface"], LARGEST_MESSAGE)
        self.job, self.public, self.attempt = job, keys.public, 0
        self.channels = ChannelListener(job["interface"])
        self._connect()
        self.peers: dict[int, tuple[bytes, int]] = {}  # rank -> the connection of its last handshake, and the handshake's number
        m = self._join({"op": "join", "id": 0, "index": index, "address": address, "public": keys.public})
        if "error" in m:
            raise KVStoreError(f"server {index}: the coordinator rejected it: {m['error']}")
        self._joined(m, folder)

    def _join(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the coordinator's answer. If the coordinator restarts, ask again."""
        poller, end = zmq.Poller(), time.monotonic() + _JOIN_TIMEOUT
        for s in (self.control, self.monitor.socket):
            poller.register(s, zmq.POLLIN)
        self.control.send(pack(message))
        while poller.poll(max(int((end - time.monotonic()) * 1000), 0)):
            if sockets.readable(self.control):
                return unpack(self.control.recv())
            if list(self.monitor.lost()):
                self._reconnect(poller, message)
        raise KVStoreError(f"server {self.index}: the coordinator at {self.job['address']} did not answer within "
                           f"{_JOIN_TIMEOUT:.0f} s.")

    def _joined(self, m: dict[str, Any], folder: Path | None) -> None:
        """Create the server from the coordinator's answer, and read its snapshots."""
        self.server = Server(self.job["job"], m["policy"], m["kind"], folder, int(self.job["snapshot_rounds"]), m["staleness"],
                             self.channels.offer)
        self.incarnation = m["incarnation"]
        self._control(m)
        if self.server.error:
            raise KVStoreError(f"server {self.index}: {self.server.error}")
        self.server.restore()

    def _connect(self) -> None:
        self.control = sockets.connect_to_coordinator(self.context, self.job, _LARGEST_CONTROL)
        self.monitor = sockets.ConnectionMonitor(self.control)

    def _reconnect(self, poller: Any, message: dict[str, Any]) -> None:
        """Connect to the coordinator again, and send message, numbered. Transfers with workers continue."""
        self.attempt += 1
        for s in (self.control, self.monitor.socket):
            poller.unregister(s)
        self.monitor.close()
        self.control.close(0)
        self._connect()
        for s in (self.control, self.monitor.socket):
            poller.register(s, zmq.POLLIN)
        self.control.send(pack({**message, "n": self.attempt}))

    def _report_back(self, poller: Any) -> None:
        """Tell a coordinator that has restarted that this server and its values still exist."""
        self._reconnect(poller, {"op": "back", "index": self.index, "incarnation": self.incarnation, "public": self.public,
                                 "optimizers": self.server.optimizers})

    def _control(self, m: dict[str, Any]) -> None:
        """Handle a message of the coordinator."""
        if "members" in m:
            self.users.clear()
            ranks = m["members"]["ranks"]
            self.users.update({public: f"{rank}.{ranks[str(rank)]}" for public, rank in m["members"]["public"].items()})
        before = self.server.members
        self._send(self.server.control({**m, "index": self.index}))
        for rank in before:
            if self.server.members.get(rank) != before[rank]:
                self.channels.drop(rank)
                self.peers.pop(rank, None)
        if "epoch" in m:
            self.control.send(pack({"op": "ack", "epoch": m["epoch"], "error": self.server.error}))

    def run(self, stop_fd: int | None = None) -> None:
        """Serve until stop_fd ends, which happens when its writer ends, or until a signal."""
        poller = zmq.Poller()
        for s in (self.authenticator.socket, self.router, self.control, self.monitor.socket, self.channels.fileno()):
            poller.register(s, zmq.POLLIN)
        if stop_fd is not None:
            poller.register(stop_fd, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if stop_fd in ready:
                return
            if self.authenticator.socket in ready:
                self.authenticator.answer()
            if self.control in ready:
                for (frame,) in sockets.receive(self.control):
                    self._control(unpack(frame.buffer))
            if self.monitor.socket in ready and list(self.monitor.lost()):
                self._report_back(poller)
            if self.router in ready:
                for parts in sockets.receive(self.router):
                    self._receive(parts)
            if self.channels.fileno() in ready:
                for rank, head, payload in self.channels.process():
                    self._handle(rank, head, payload, borrowed=True)

    def _receive(self, parts: list[Any]) -> None:
        if len(parts) != 3:
            return
        try:
            rank, incarnation = map(int, parts[1].get("User-Id").split("."))
        except (ValueError, LookupError, TypeError):
            return
        if self.server.members.get(rank) != incarnation:
            return  # an earlier process of this rank
        self._handle(rank, parts[1].buffer, parts[2].buffer, parts[0].bytes)

    def _handle(self, rank: int, head: Any, payload: Any, peer: bytes | None = None, borrowed: bool = False) -> None:
        """Handle a frame of a worker. borrowed: the payload is valid during this call only."""
        try:
            frame = decode(head, payload)
        except FrameError:
            return  # not from a worker of ours: an answer would give information away
        if peer is not None and not self._is_current(rank, frame, peer):
            return
        if borrowed and self.server.may_retain_payload(frame):
            frame.payload = memoryview(bytes(payload))
        self._send(self.server.receive(rank, frame))

    def _is_current(self, rank: int, frame: WireFrame, peer: bytes) -> bool:
        """Return whether a frame came over the connection of the rank's last handshake.

        Messages of an earlier connection may arrive late. The worker sends them again, and could not receive their answers.
        """
        current, number = self.peers.get(rank, (peer, -1))
        if frame.type is FrameType.HANDSHAKE and frame.seq >= number:
            self.peers[rank] = peer, frame.seq
            return True
        return peer == current and rank in self.peers

    def _send(self, outgoing: list[Out]) -> None:
        for rank, head, pieces in outgoing:
            peer, _ = self.peers.get(rank, (None, 0))
            if peer is None:
                continue
            if len(pieces) == 1 and self.server.rounds.sync:
                payload = pieces[0]  # the value does not change until its readers have it and push again
            else:
                payload = b"".join(pieces)
            if self.channels.put(rank, head, payload):
                continue
            self.router.send(peer, zmq.SNDMORE)
            self.router.send(head, zmq.SNDMORE)
            self.router.send(payload, copy=len(payload) < sockets.COPIED)


def run(folder: Path, index: int) -> None:
    """Serve as server `index` of the job with the key files in folder, until standard input ends."""
    engine.set_current(engine.NaiveEngine())
    job = sockets.read_secret(folder / "server.json")
    for name in filter(None, environment.KV_OPTIMIZERS.get().split(",")):
        __import__(name.strip())  # modules that register user-defined optimizers
    snapshots = folder / f"server-{index}"
    snapshots.mkdir(mode=0o700, exist_ok=True)
    ServerProcess(job, index, snapshots).run(0)
