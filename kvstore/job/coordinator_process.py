"""The process of the coordinator: its connections and its state on disk. host.py or ray_job.py starts it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ... import environment
from ...errors import FrameError
from ..protocol.coordinator import Coordinator, Sends
from ..wire import sockets
from ..wire.credentials import Credentials, new_authority, read_secret, write_secret
from ..wire.frame import pack, unpack
from ..wire.stream import Poller, Stream


class CoordinatorServer:
    """The coordinator with its connections. Its poller runs `turn`.

    job:   the settings of the job. With an interface, it listens there with TLS; otherwise in the folder of the file.
    file:  for the keys and the state. If it exists, the coordinator resumes from it, at the same address.
    """

    def __init__(self, job: dict[str, Any], file: Path):
        self.file, self.poller = file, Poller()
        self._sends: Sends = []  # what follows from the messages that have arrived
        self.coordinator = Coordinator(job["workers"], job["servers"], job["policy"])
        former = read_secret(file) if file.exists() else {}
        if former:
            self.coordinator.resume(former["state"])
        self._grace_ends = time.monotonic() + environment.KV_BACK_WITHIN.get() if former else 0.0
        authority = former["authority"] if former else new_authority() if job["interface"] else None
        self.keys = {role: Credentials(*former["keys"][role]) if former else Credentials.new(authority)
                     for role in ("coordinator", "worker", "server")}
        self._job = {**job, "authority": authority, "folder": str(file.parent)}
        self.listener = sockets.Listener(
            self.poller, sockets.address_of(self._job, "coordinator", former.get("port", job.get("port", 0))),
            self.keys["coordinator"], {self.keys[role].public: role for role in ("worker", "server")}, sockets.LARGEST_CONTROL,
            on_message=self._receive, on_end=self._on_lost)
        self._write_state()

    def _write_state(self) -> None:
        write_secret(self.file, {"keys": self.keys, "authority": self._job["authority"], "state": self.coordinator.state(),
                                 "port": sockets.port_of(self.listener.address)})

    def credentials(self, role: str) -> dict[str, Any]:
        """Return the content of the job file with which a process of that role joins."""
        return {**self._job, "address": self.listener.address, "coordinator": self.keys["coordinator"].public,
                "credentials": self.keys[role]}

    def turn(self) -> None:
        """Wait until something arrives, or for a second, and handle it."""
        ready = self.poller.select(1.0)
        self.poller.handle(ready)
        if self._grace_ends and time.monotonic() > self._grace_ends and not ready:  # messages of returning peers come first
            self._grace_ends = 0.0
            self._sends += self.coordinator.end_grace_period()
        if self.coordinator.changed:
            self._write_state()  # once for all messages that have arrived, and before any peer can act on it
        sends, self._sends = self._sends, []
        for peer, message in sends:
            peer.put(b"", pack(message))

    def _on_lost(self, stream: Stream) -> None:
        self._sends += self.coordinator.lost(stream)

    def _receive(self, stream: Stream, _head: bytes, payload: memoryview) -> None:
        try:
            message = unpack(payload)
        except FrameError as e:
            self.coordinator.warn(stream, stream.user, str(e))
            return
        self._sends += self.coordinator.receive(stream, stream.user, message)
