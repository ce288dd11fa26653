"""The process of a server: its connections and its loop. host.py or ray_job.py starts it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from ... import engine
from ...errors import FrameError, KVStoreError
from ..wire import sockets
from ..wire.credentials import Credentials
from ..wire.frame import LARGEST_MESSAGE, FrameType, WireFrame, decode, pack, unpack
from ..wire.stream import Poller, Stream
from .server import Out, Server

_JOIN_TIMEOUT = 30.0  # seconds
_RETRY = 0.2  # seconds between attempts to connect to the coordinator


class ServerProcess:
    """A server with its connections.

    job:       the content of the servers' key file.
    index:     the number of the server.
    server:    None until the coordinator has admitted it.
    users:     the public names of the workers -> (rank, incarnation).
    peers:     rank -> the connection of its last handshake, and the handshake's number.
    """

    server: Server | None = None

    def __init__(self, job: dict[str, Any], index: int, folder: Path | None):
        self.index, self.job, self.folder, self.attempt = index, job, folder, 0
        self.poller, self.users, self.peers = Poller(), dict[str, tuple[int, int]](), dict[int, tuple[Stream, int]]()
        credentials = Credentials.new(job["authority"])
        listener = sockets.Listener(self.poller, sockets.address_of(job, f"server-{index}.{credentials.public[:8]}"), credentials,
                                    self.users, LARGEST_MESSAGE, on_message=self._receive, on_large=self._on_large)
        self.address, self.public = listener.address, credentials.public
        self.control: Stream | None = None
        self._retry_at = 0.0
        end = time.monotonic() + _JOIN_TIMEOUT
        while self.server is None:
            if time.monotonic() > end:
                raise KVStoreError(f"server {self.index}: the coordinator at {job['address']} did not answer within "
                                   f"{_JOIN_TIMEOUT:.0f} s.")
            self.turn()

    # ---- the coordinator ------------------------------------------------------------------------------------------------
    def _connect(self) -> None:
        """Connect to the coordinator, and join, or report that this server and its values still exist."""
        self._retry_at = time.monotonic() + _RETRY
        try:
            self.control = sockets.connect_to_coordinator(
                self.poller, self.job, on_message=lambda _, payload: self._control(unpack(payload)),
                on_end=lambda _: setattr(self, "control", None))
        except OSError:
            return  # it is tried again
        report = {"op": "join", "id": 0, "address": self.address} if self.server is None else {
            "op": "back", "incarnation": self.incarnation, "optimizers": self.server.optimizers}
        self.control.put(b"", pack({**report, "index": self.index, "public": self.public, "n": self.attempt}))
        self.attempt += 1

    def _control(self, m: dict[str, Any]) -> None:
        """Handle a message of the coordinator. The first one admits this server, which then reads its snapshots."""
        if "error" in m and self.server is None:
            raise KVStoreError(f"server {self.index}: the coordinator rejected it: {m['error']}")
        if "members" in m:
            ranks = m["members"]["ranks"]
            self.users.clear()
            self.users.update({public: (rank, ranks[str(rank)]) for public, rank in m["members"]["public"].items()})
        first = self.server is None
        server = self.server = self.server or Server(self.job["job"], self.job["policy"], m["kind"], self.folder,
                                                     self.job["snapshot_rounds"], self.job["max_staleness"])
        self.incarnation = m["incarnation"] if first else self.incarnation
        before = server.rounds.members
        self._send(server.control({**m, "index": self.index}))
        for rank in before:
            if server.rounds.members.get(rank) != before[rank] and rank in self.peers:
                self.peers.pop(rank)[0].close()
        if first:
            if server.error:
                raise KVStoreError(f"server {self.index}: {server.error}")
            server.restore()
        elif "epoch" in m and self.control is not None:
            self.control.put(b"", pack({"op": "ack", "epoch": m["epoch"], "error": server.error}))

    # ---- workers --------------------------------------------------------------------------------------------------------
    def _receive(self, stream: Stream, head: bytes, payload: memoryview) -> None:
        """Handle a message of a worker."""
        rank, incarnation = stream.user
        if self.server is None or self.server.rounds.members.get(rank) != incarnation:
            return  # an earlier process of this rank
        try:
            frame = decode(head, payload)
        except FrameError:
            return  # not from a worker of ours: an answer would give information away
        if not self._is_current(rank, frame, stream):
            return
        self._send(self.server.receive(rank, frame))

    def _on_large(self, stream: Stream, head: bytes, size: int) -> memoryview | None:
        """Return memory for a payload that may only be so large because of the key that it is about."""
        if size <= LARGEST_MESSAGE:
            return None
        try:
            return np.empty(size, np.uint8).data if self.server is not None and self.server.may_send(
                decode(head, size=size), size) else None
        except FrameError:
            return None

    def _is_current(self, rank: int, frame: WireFrame, stream: Stream) -> bool:
        """Return whether a frame came over the connection of the rank's last handshake, or is a new one.

        Messages of an earlier connection may arrive late. The worker sends them again.
        """
        current, number = self.peers.get(rank, (stream, -1))
        if frame.type is FrameType.HANDSHAKE and frame.seq >= number:
            if current is not stream:
                current.close()
            self.peers[rank] = stream, frame.seq
            return True
        return stream is current and rank in self.peers

    def _send(self, outgoing: list[Out]) -> None:
        for rank, head, payload in outgoing:
            if rank in self.peers:
                self.peers[rank][0].put(head, payload)

    # ---- the loop -------------------------------------------------------------------------------------------------------
    def turn(self) -> None:
        """Connect to the coordinator if necessary, wait for something to arrive, and handle it."""
        if self.control is None and time.monotonic() >= self._retry_at:
            self._connect()
        self.poller.handle(self.poller.select(None if self.control is not None and self.server is not None else _RETRY))


def start(job: dict[str, Any], index: int, folder: Path) -> ServerProcess:
    """Start server `index` of a job in this process. folder: of its snapshots."""
    engine.set_current(engine.NaiveEngine())
    for name in filter(None, job["optimizers"].split(",")):
        __import__(name.strip())  # modules that register user-defined optimizers
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ServerProcess(job, index, folder)
