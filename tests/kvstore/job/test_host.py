"""The coordinator's socket server, without sockets: ended connections, and the grace period after a restart."""

from __future__ import annotations

import os
from types import SimpleNamespace

import zmq
from tritium.kvstore.job import host
from tritium.kvstore.job.host import Children, CoordinatorServer
from tritium.kvstore.wire.frame import pack


class Message:
    def __init__(self, fd):
        self.fd, self.buffer = fd, pack({"op": "info"})

    def get(self, name):
        return self.fd if name == zmq.SRCFD else "worker"


def test_a_reused_file_descriptor_ends_the_earlier_connection():
    """The end of a connection may be reported after the first message of the next one with the same descriptor."""
    server, ended, events = CoordinatorServer.__new__(CoordinatorServer), [], []
    server._peers = {}
    server.coordinator = SimpleNamespace(changed=False, receive=lambda *_: [], lost=lambda peer: ended.append(peer) or [])

    def lost():
        while events:
            yield events.pop(0)

    server.monitor = SimpleNamespace(lost=lost)
    server._receive(b"first", Message(20))
    server._receive(b"first", Message(20))
    events.append(20)
    server._receive(b"second", Message(20))
    assert ended == [b"first"]
    server._report_lost()
    assert ended == [b"first"]
    events.append(20)
    server._report_lost()
    assert ended == [b"first", b"second"]


def test_returning_peers_are_handled_before_the_grace_period_ends(monkeypatch):
    """On a busy machine the grace period may be over before the coordinator has run at all."""
    server, events = CoordinatorServer.__new__(CoordinatorServer), []
    ready = [{"authenticator": zmq.POLLIN}, {"router": zmq.POLLIN}, {}]
    server.authenticator = SimpleNamespace(socket="authenticator", answer=lambda: events.append("accepted"))
    server.router, server.monitor = "router", SimpleNamespace(socket="monitor")
    server.poller = SimpleNamespace(poll=lambda _: ready.pop(0))
    monkeypatch.setattr(host, "sockets", SimpleNamespace(receive=lambda _: [[SimpleNamespace(bytes=b"w"), "back"]]))
    server._receive = lambda peer, frame: events.append(frame)
    server.coordinator = SimpleNamespace(changed=False, end_grace_period=lambda: events.append("grace period") or [])
    server._grace_ends = 10.0
    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: 100.0))
    for _ in range(3):
        server.poll(1.0)
    assert events == ["accepted", "back", "grace period"]


def test_the_process_id_of_a_child_is_written_before_it_runs(tmp_path, monkeypatch):
    """A process that the child answers may need the id at once."""
    children = Children(tmp_path, {"servers": 1})
    children._runs["server-0"] = lambda ready: (tmp_path / "seen").write_text((tmp_path / "server-0.pid").read_text())
    children.start("server-0")
    (pid,) = children.running
    os.waitpid(pid, 0)
    assert (tmp_path / "seen").read_text() == str(pid)
