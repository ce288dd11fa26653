"""Encrypted channels: messages arrive complete and in order; a changed message ends the channel; an offer is needed to
connect."""

from __future__ import annotations

import contextlib
import select
import socket
import sys

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import pull, workers

pytest.importorskip("cryptography")

from tritium.kvstore.wire import encrypted_channel
from tritium.kvstore.wire.encrypted_channel import ChannelListener, open_channel
from tritium.kvstore.wire.frame import LARGEST_MESSAGE

HOST = "127.0.0.1"


@contextlib.contextmanager
def listening():
    """The server's end, closed afterwards."""
    listener = ChannelListener(HOST)
    try:
        yield listener
    finally:
        listener.close()


def receive(listener, count):
    """Wait for `count` messages, and return them as (rank, head, payload), with copied payloads."""
    messages = []
    while len(messages) < count and select.select([listener], [], [], 10)[0]:
        messages += [(rank, head, bytes(payload)) for rank, head, payload in listener.process()]
    return messages


def arrived(end):
    """The messages that have arrived at a worker's end."""
    end.read()
    return [(head, bytes(payload)) for head, payload in end.messages()]


@contextlib.contextmanager
def opened(listener, rank=0):
    """The worker's end of an open channel."""
    end = open_channel(HOST, listener.offer(rank, True), select.epoll())
    try:
        while rank not in listener._by_rank:
            select.select([listener], [], [], 10)
            list(listener.process())
        yield end
    finally:
        end.close()


def messages(seed, count):
    rng = np.random.default_rng(seed)
    return [(rng.bytes(64 + 80 * int(rng.integers(1, 5))), rng.bytes(int(rng.integers(1, 900_000)))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_messages_of_both_ends_arrive_complete_and_in_order(seed):
    up, down = messages([seed, 0], 30), messages([seed, 1], 30)
    with listening() as listener, opened(listener, rank=2) as end:
        for head, payload in up:
            end.put(head, payload)
        for head, payload in down:
            assert listener.put(2, head, payload)
        came, gone = [], []
        while len(came) < len(up) or len(gone) < len(down):
            readable, writable, _ = select.select([listener, end], [end] if end.full else [], [], 10)
            assert readable or writable
            came += [(head, bytes(payload)) for _, head, payload in listener.process()]
            gone += arrived(end)
            end.flush()
        assert came == up and gone == down and not end.full


def test_arrays_are_sent_as_bytes():
    with listening() as listener, opened(listener) as end:
        sent = np.arange(20000, dtype="f8")
        end.put(b"head", sent.data)
        ((rank, head, payload),) = receive(listener, 1)
        assert (rank, head) == (0, b"head") and (np.frombuffer(payload, "f8") == sent).all()


class Wire:
    """A proxy between a worker and the server that may change the bytes: change(bytes) -> bytes."""

    def __init__(self, offer):
        self.front = socket.create_server((HOST, 0))
        self.offer = offer._replace(port=self.front.getsockname()[1])
        self.back = socket.create_connection((HOST, offer.port))

    def accept(self):
        self.worker, _ = self.front.accept()
        self.worker.settimeout(10)

    def carry(self, nbytes, change=lambda data: data):
        """Forward nbytes from the worker."""
        data = b""
        while len(data) < nbytes:
            data += self.worker.recv(nbytes - len(data))
        with contextlib.suppress(OSError):
            self.back.sendall(change(data))

    def close(self):
        for s in (self.front, self.back, self.worker):
            s.close()


def flip(at):
    def change(data):
        data = bytearray(data)
        data[at] ^= 1
        return bytes(data)

    return change


@contextlib.contextmanager
def tapped(listener, rank=1, change=lambda data: data):
    """The worker's end of an open channel, and the proxy. change: applied to the greeting."""
    wire = Wire(listener.offer(rank, True))
    end = open_channel(HOST, wire.offer, select.epoll())
    try:
        wire.accept()
        wire.carry(encrypted_channel._ID, change)
        while rank not in listener._by_rank and select.select([listener], [], [], 10)[0]:
            list(listener.process())
        yield end, wire
    finally:
        end.close()
        wire.close()


SIZE = 8 + (64 + 16) + (1000 + 16)  # bytes of one message of the tests below
CHANGES = {
    "the length of the head": flip(0), "the length of the payload": flip(5), "a huge length": lambda d: b"\xff" * 8 + d[8:],
    "the head": flip(20), "the head's tag": flip(8 + 70), "the payload": flip(8 + 80 + 500), "the payload's tag": flip(SIZE - 1),
    "one left out": lambda d: d[SIZE:], "one repeated": lambda d: d[:SIZE] * 2, "exchanged": lambda d: d[SIZE:] + d[:SIZE],
    "the end": lambda d: b"",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_message_ends_the_channel_and_is_not_delivered(change):
    with listening() as listener, tapped(listener) as (end, wire):
        sent = [(bytes([i]) * 64, bytes([i]) * 1000) for i in range(3)]
        for m in sent:
            end.put(*m)
        wire.carry(SIZE)
        assert receive(listener, 1) == [(1, *sent[0])]
        wire.carry(2 * SIZE, CHANGES[change])
        wire.back.shutdown(socket.SHUT_WR)
        came = []
        while 1 in listener._by_rank and select.select([listener], [], [], 10)[0]:
            came += [(rank, head, bytes(payload)) for rank, head, payload in listener.process()]
        assert came in ([], [(1, *sent[1])]) and 1 not in listener._by_rank
        assert not listener.put(1, b"", b"x")


def test_a_message_that_is_too_long_ends_the_channel_at_once():
    with listening() as listener, tapped(listener) as (end, wire):
        end.put(b"head", b"payload")
        wire.carry(8, lambda data: data[:4] + (LARGEST_MESSAGE + 1).to_bytes(4, "little"))
        while 1 in listener._by_rank and select.select([listener], [], [], 10)[0]:
            assert list(listener.process()) == []
        assert 1 not in listener._by_rank


def test_a_recorded_greeting_does_not_open_a_channel():
    """The same bytes on another connection: an offer is valid once."""
    recorded = []
    with listening() as listener, tapped(listener, change=lambda data: recorded.append(data) or data):
        first = listener._by_rank[1]
        with socket.create_connection((HOST, listener._listener.getsockname()[1])) as thief:
            thief.sendall(recorded[0])
            thief.settimeout(10)
            while not select.select([thief], [], [], 0)[0]:
                list(listener.process())
            assert thief.recv(1) == b"" and listener._by_rank == {1: first}


@pytest.mark.parametrize("data", [b"x" * 16, b"x" * 32, b"\0" * 15, b"", b"GET / HTTP/1.1\r\n\r\n" * 10])
def test_a_connection_without_an_offer_is_closed(data):
    with listening() as listener:
        port = listener.offer(0, True).port
        with socket.create_connection((HOST, port)) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while not listener._unidentified and select.select([listener], [], [], 10)[0]:
                list(listener.process())
            while listener._unidentified and select.select([listener], [], [], 10)[0]:
                list(listener.process())
            s.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(1) == b""
        assert not listener._by_rank


def test_no_socket_stays_open_if_the_server_ends_before_the_greeting(monkeypatch):
    with listening() as listener:
        offer, connect, sockets = listener.offer(0, True), socket.create_connection, []

        def cut(*where):
            sockets.append(connect(*where))
            sockets[0].shutdown(socket.SHUT_WR)
            return sockets[0]

        monkeypatch.setattr(socket, "create_connection", cut)
        with pytest.raises(BrokenPipeError):
            open_channel(HOST, offer, select.epoll())
        assert sockets[0].fileno() == -1


def test_the_number_of_silent_connections_is_limited():
    with listening() as listener:
        offer = listener.offer(0, True)
        with contextlib.ExitStack() as stack:
            for _ in range(3 * encrypted_channel._MOST_UNIDENTIFIED):
                stack.enter_context(socket.create_connection((HOST, offer.port)))
                list(listener.process())
            assert len(listener._unidentified) <= encrypted_channel._MOST_UNIDENTIFIED
            end = stack.enter_context(contextlib.closing(open_channel(HOST, offer, select.epoll())))
            end.put(b"h", b"accepted all the same")
            assert receive(listener, 1) == [(0, b"h", b"accepted all the same")]


def test_without_cryptography_there_is_no_channel_and_everything_works(monkeypatch):
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    assert not encrypted_channel.available()
    with workers(1) as (_, (kv,), _):
        kv.init("w", mx.nd.zeros((300, 1000)))
        kv.push("w", mx.nd.ones((300, 1000)))
        assert (pull(kv, "w", np.zeros((300, 1000), "f")) == 1).all() and kv._client.servers[0].connection._channel is None


def test_a_server_listens_from_the_first_offer_on_and_a_new_offer_ends_the_old_channel():
    with listening() as listener:
        assert listener.offer(0, False) is None and listener._listener is None
        with opened(listener) as end:
            listener.offer(0, True)
            assert select.select([end], [], [], 10)[0]
            with pytest.raises(ConnectionError, match="encrypted channel: the other end has closed it"):
                end.read()
