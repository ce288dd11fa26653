"""The coordinator's desk: whose connection has ended. What libzmq says of it is played by hand."""

from __future__ import annotations

from types import SimpleNamespace

import zmq
from tritium.kvstore.frame import pack
from tritium.kvstore.host import Desk


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
