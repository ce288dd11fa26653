"""The coordinator's desk: whose connection has ended. What libzmq says of it is played by hand."""

from __future__ import annotations

import os
from types import SimpleNamespace

import zmq
from tritium.kvstore.job import host
from tritium.kvstore.job.host import Children, Desk
from tritium.kvstore.wire.frame import pack


class Message:
    def __init__(self, fd):
        self.fd, self.buffer = fd, pack({"op": "info"})

    def get(self, what):
        return self.fd if what == zmq.SRCFD else "worker"


def test_a_number_that_is_given_again_ends_the_connection_that_had_it():
    """Of a connection's end one may hear after the first message of the next one with its file descriptor."""
    desk, ended, events = Desk.__new__(Desk), [], []
    desk.zmq, desk._peer_of = zmq, {}
    desk.coordinator = SimpleNamespace(changed=False, receive=lambda *_: [], lost=lambda peer: ended.append(peer) or [])

    def lost():
        while events:
            yield events.pop(0)

    desk.watch = SimpleNamespace(lost=lost)
    desk._receive(b"first", Message(20))
    desk._receive(b"first", Message(20))
    events.append(20)
    desk._receive(b"second", Message(20))
    assert ended == [b"first"]
    desk._lose()
    assert ended == [b"first"]
    events.append(20)
    desk._lose()
    assert ended == [b"first", b"second"]


def test_who_has_come_back_is_heard_before_others_are_given_up(monkeypatch):
    """On a busy machine the time for coming back may be over before the coordinator has run at all."""
    desk, did, ready = Desk.__new__(Desk), [], [{"gate": zmq.POLLIN}, {"router": zmq.POLLIN}, {}]
    desk.gate = SimpleNamespace(socket="gate", answer=lambda: did.append("let in"))
    desk.router, desk.watch = "router", SimpleNamespace(socket="watch")
    desk.poller = SimpleNamespace(poll=lambda _: ready.pop(0))
    desk.sockets = SimpleNamespace(receive=lambda _: [[SimpleNamespace(bytes=b"w"), "back"]])
    desk._receive = lambda peer, frame: did.append(frame)
    desk.coordinator = SimpleNamespace(changed=False, give_up=lambda: did.append("given up") or [])
    desk._wait_until = 10.0
    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: 100.0))
    for _ in range(3):
        desk.poll(1.0)
    assert did == ["let in", "back", "given up"]


def test_a_child_has_a_number_before_it_does_anything(tmp_path, monkeypatch):
    """Who was answered by it may ask for the number at once."""
    children = Children(tmp_path, {"shards": 1})
    children._runs["shard-0"] = lambda ready: (tmp_path / "seen").write_text((tmp_path / "shard-0.pid").read_text())
    children.start("shard-0")
    (pid,) = children.running
    os.waitpid(pid, 0)
    assert (tmp_path / "seen").read_text() == str(pid)
