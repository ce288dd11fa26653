"""The process of one shard, started by host.py or ray_job.py: its sockets and its loop. What it does with a frame: server.py."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ... import engine
from ...errors import FrameError, KVStoreError
from ..wire.encrypted_channel import Lanes
from ..wire.frame import LARGEST_MESSAGE, Frame, Op, decode, pack, unpack
from .server import Out, Shard

_LARGEST_CONTROL = 64 << 20  # bytes: the coordinator's table of keys
_JOIN_WITHIN = 30.0  # seconds


class Process:
    """One shard with its sockets.

    job:    what the shards' key file says.
    index:  which shard.
    """

    def __init__(self, job: dict[str, Any], index: int, folder: Path | None):
        import zmq

        from ..wire import sockets

        self.zmq, self.sockets, self.index = zmq, sockets, index
        self.context = zmq.Context(io_threads=1)
        self.gate = sockets.Gate(self.context)
        self.users = self.gate.allowed.setdefault("shard", {})
        keys = sockets.Keys.new()
        self.router, address = sockets.listen(self.context, keys, "shard", job["interface"], LARGEST_MESSAGE)
        self.job, self.public, self.said = job, keys.public, 0
        self.lanes = Lanes(job["interface"])
        self._connect()
        self.peers: dict[int, tuple[bytes, int]] = {}  # rank -> the connection of its last hello, and the hello's number
        m = self._join({"op": "join", "id": 0, "index": index, "address": address, "public": keys.public})
        if "error" in m:
            raise KVStoreError(f"shard {index}: refused: {m['error']}")
        self._joined(m, folder)

    def _join(self, message: dict[str, Any]) -> dict[str, Any]:
        """The coordinator's answer. Where one dies meanwhile, the next is asked."""
        poller, end = self.zmq.Poller(), time.monotonic() + _JOIN_WITHIN
        for s in (self.control, self.watch.socket):
            poller.register(s, self.zmq.POLLIN)
        self.control.send(pack(message))
        while poller.poll(max(int((end - time.monotonic()) * 1000), 0)):
            if self.sockets.readable(self.control):
                return unpack(self.control.recv())
            if list(self.watch.lost()):
                self._reconnect(poller, message)
        raise KVStoreError(f"shard {self.index}: the coordinator at {self.job['address']} does not answer within "
                           f"{_JOIN_WITHIN:.0f} s.")

    def _joined(self, m: dict[str, Any], folder: Path | None) -> None:
        """m: what the coordinator says to a shard that joins."""
        self.shard = Shard(self.job["job"], m["policy"], m["kind"], folder, int(self.job["every"]), m["staleness"],
                           self.lanes.offer)
        self.incarnation = m["incarnation"]
        self._control(m)
        if self.shard.trouble:
            raise KVStoreError(f"shard {self.index}: {self.shard.trouble}")
        self.shard.restore()

    def _connect(self) -> None:
        job = self.job
        self.control = self.sockets.connect(self.context, self.sockets.Keys(job["public"], job["secret"]), job["server"],
                                            job["address"], _LARGEST_CONTROL)
        self.watch = self.sockets.Watch(self.control)

    def _reconnect(self, poller: Any, message: dict[str, Any]) -> None:
        """The coordinator is gone: say message, numbered, when it is back. Transfers go on."""
        self.said += 1
        for s in (self.control, self.watch.socket):
            poller.unregister(s)
        self.watch.close()
        self.control.close(0)
        self._connect()
        for s in (self.control, self.watch.socket):
            poller.register(s, self.zmq.POLLIN)
        self.control.send(pack({**message, "n": self.said}))

    def _back(self, poller: Any) -> None:
        """This shard is here, and its values."""
        self._reconnect(poller, {"op": "back", "index": self.index, "incarnation": self.incarnation, "public": self.public,
                                 "optimizers": self.shard.optimizers})

    def _control(self, m: dict[str, Any]) -> None:
        if "members" in m:
            self.users.clear()
            ranks = m["members"]["ranks"]
            self.users.update({public: f"{rank}.{ranks[str(rank)]}" for public, rank in m["members"]["public"].items()})
        before = self.shard.members
        self._send(self.shard.control({**m, "index": self.index}))
        for rank in before:
            if self.shard.members.get(rank) != before[rank]:
                self.lanes.drop(rank)
                self.peers.pop(rank, None)
        if "epoch" in m:
            self.control.send(pack({"op": "ack", "epoch": m["epoch"], "error": self.shard.trouble}))

    def run(self, stop_fd: int | None = None) -> None:
        """Serve until stop_fd ends (its writer is gone) or a signal says so."""
        poller = self.zmq.Poller()
        for s in (self.gate.socket, self.router, self.control, self.watch.socket, self.lanes.fileno()):
            poller.register(s, self.zmq.POLLIN)
        if stop_fd is not None:
            poller.register(stop_fd, self.zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if stop_fd in ready:
                return
            if self.gate.socket in ready:
                self.gate.answer()
            if self.control in ready:
                for (frame,) in self.sockets.receive(self.control):
                    self._control(unpack(frame.buffer))
            if self.watch.socket in ready and list(self.watch.lost()):
                self._back(poller)
            if self.router in ready:
                for parts in self.sockets.receive(self.router):
                    self._receive(parts)
            if self.lanes.fileno() in ready:
                for rank, head, payload in self.lanes.turn():
                    self._take(rank, head, payload, lent=True)

    def _receive(self, parts: list[Any]) -> None:
        if len(parts) != 3:
            return
        try:
            rank, incarnation = map(int, parts[1].get("User-Id").split("."))
        except (ValueError, LookupError, TypeError):
            return
        if self.shard.members.get(rank) != incarnation:
            return  # an earlier process of this rank
        self._take(rank, parts[1].buffer, parts[2].buffer, parts[0].bytes)

    def _take(self, rank: int, head: Any, payload: Any, peer: bytes | None = None, lent: bool = False) -> None:
        """lent: the payload is there for this call alone."""
        try:
            frame = decode(head, payload)
        except FrameError:
            return  # not from one of our workers: an answer would say more than it is due
        if peer is not None and not self._is_latest(rank, frame, peer):
            return
        if lent and self.shard.keeps(frame):
            frame.payload = memoryview(bytes(payload))
        self._send(self.shard.receive(rank, frame))

    def _is_latest(self, rank: int, frame: Frame, peer: bytes) -> bool:
        """Whether a frame came by the connection on which rank said hello last.

        What is left of an earlier one may come after that. The worker sends all of it again, and would not hear the answers.
        """
        latest, number = self.peers.get(rank, (peer, -1))
        if frame.op is Op.HELLO and frame.seq >= number:
            self.peers[rank] = peer, frame.seq
            return True
        return peer == latest and rank in self.peers

    def _send(self, out: list[Out]) -> None:
        for rank, head, pieces in out:
            peer, _ = self.peers.get(rank, (None, 0))
            if peer is None:
                continue
            if len(pieces) == 1 and self.shard.rounds.sync:
                payload = pieces[0]  # the value stays as it is until its readers have it and push again
            else:
                payload = b"".join(pieces)
            if self.lanes.put(rank, head, payload):
                continue
            self.router.send(peer, self.zmq.SNDMORE)
            self.router.send(head, self.zmq.SNDMORE)
            self.router.send(payload, copy=len(payload) < self.sockets.COPIED)


def run(folder: Path, index: int) -> None:
    """Serve as shard `index` of the job whose keys are in folder, until standard input ends."""
    from ..wire import sockets

    engine.set_current(engine.NaiveEngine())
    job = sockets.read_secret(folder / "shard.json")
    for name in filter(None, os.environ.get("TRITIUM_KV_OPTIMIZERS", "").split(",")):
        __import__(name.strip())  # own optimizers: modules that register them
    snapshots = folder / f"shard-{index}"
    snapshots.mkdir(mode=0o700, exist_ok=True)
    Process(job, index, snapshots).run(0)
