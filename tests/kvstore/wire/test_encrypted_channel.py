"""Lanes: what is sent comes, whole and in order; what was touched on the way ends the lane; nobody gets in without an offer."""

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
from tritium.kvstore.wire.encrypted_channel import Lanes, join
from tritium.kvstore.wire.frame import LARGEST_MESSAGE

HOST = "127.0.0.1"


@contextlib.contextmanager
def shard():
    """The shard's end, closed afterwards."""
    lanes = Lanes(HOST)
    try:
        yield lanes
    finally:
        lanes.close()


def turns(lanes, wanted):
    """What came, as (rank, head, payload), once `wanted` messages have; the payloads are copied."""
    found = []
    while len(found) < wanted and select.select([lanes], [], [], 10)[0]:
        found += [(rank, head, bytes(payload)) for rank, head, payload in lanes.turn()]
    return found


def heard(end):
    """What has come to a worker's end."""
    end.read()
    return [(head, bytes(payload)) for head, payload in end.messages()]


@contextlib.contextmanager
def opened(lanes, rank=0):
    """A worker's end whose lane the shard knows."""
    end = join(HOST, lanes.offer(rank, True), select.epoll())
    try:
        while rank not in lanes._of:
            select.select([lanes], [], [], 10)
            list(lanes.turn())
        yield end
    finally:
        end.close()


def messages(seed, count):
    rng = np.random.default_rng(seed)
    return [(rng.bytes(64 + 80 * int(rng.integers(1, 5))), rng.bytes(int(rng.integers(1, 900_000)))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_messages_of_both_ends_come_whole_and_in_order(seed):
    up, down = messages([seed, 0], 30), messages([seed, 1], 30)
    with shard() as lanes, opened(lanes, rank=2) as end:
        for head, payload in up:
            end.put(head, payload)
        for head, payload in down:
            assert lanes.put(2, head, payload)
        came, gone = [], []
        while len(came) < len(up) or len(gone) < len(down):
            readable, writable, _ = select.select([lanes, end], [end] if end.full else [], [], 10)
            assert readable or writable
            came += [(head, bytes(payload)) for _, head, payload in lanes.turn()]
            gone += heard(end)
            end.flush()
        assert came == up and gone == down and not end.full


def test_arrays_of_any_dtype_are_bytes():
    with shard() as lanes, opened(lanes) as end:
        sent = np.arange(20000, dtype="f8")
        end.put(b"head", sent.data)
        ((rank, head, payload),) = turns(lanes, 1)
        assert (rank, head) == (0, b"head") and (np.frombuffer(payload, "f8") == sent).all()


class Wire:
    """What stands between a worker and the shard, and may change what passes: change(bytes) -> bytes."""

    def __init__(self, offer):
        self.front = socket.create_server((HOST, 0))
        self.offer = offer._replace(port=self.front.getsockname()[1])
        self.back = socket.create_connection((HOST, offer.port))

    def accept(self):
        self.worker, _ = self.front.accept()
        self.worker.settimeout(10)

    def carry(self, nbytes, change=lambda data: data):
        """Pass nbytes of the worker's on."""
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
def tapped(lanes, rank=1, change=lambda data: data):
    """A worker's end whose lane the shard knows, and the wire between them. change: what is done to the greeting."""
    wire = Wire(lanes.offer(rank, True))
    end = join(HOST, wire.offer, select.epoll())
    try:
        wire.accept()
        wire.carry(encrypted_channel._GREETING, change)
        while rank not in lanes._of and select.select([lanes], [], [], 10)[0]:
            list(lanes.turn())
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


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_touched_is_never_given_out_and_ends_the_lane(what):
    with shard() as lanes, tapped(lanes) as (end, wire):
        sent = [(bytes([i]) * 64, bytes([i]) * 1000) for i in range(3)]
        for m in sent:
            end.put(*m)
        wire.carry(SIZE)
        assert turns(lanes, 1) == [(1, *sent[0])]
        wire.carry(2 * SIZE, CHANGES[what])
        wire.back.shutdown(socket.SHUT_WR)
        came = []
        while 1 in lanes._of and select.select([lanes], [], [], 10)[0]:
            came += [(rank, head, bytes(payload)) for rank, head, payload in lanes.turn()]
        assert came in ([], [(1, *sent[1])]) and 1 not in lanes._of
        assert not lanes.put(1, b"", b"x")


def test_a_message_longer_than_any_ends_the_lane_at_once():
    with shard() as lanes, tapped(lanes) as (end, wire):
        end.put(b"head", b"payload")
        wire.carry(8, lambda data: data[:4] + (LARGEST_MESSAGE + 1).to_bytes(4, "little"))
        while 1 in lanes._of and select.select([lanes], [], [], 10)[0]:
            assert list(lanes.turn()) == []
        assert 1 not in lanes._of


def test_a_greeting_that_was_overheard_opens_nothing():
    """The same bytes again, on a connection of one's own: each offer is taken once."""
    overheard = []
    with shard() as lanes, tapped(lanes, change=lambda data: overheard.append(data) or data):
        first = lanes._of[1]
        with socket.create_connection((HOST, lanes._listener.getsockname()[1])) as thief:
            thief.sendall(overheard[0])
            thief.settimeout(10)
            while not select.select([thief], [], [], 0)[0]:
                list(lanes.turn())
            assert thief.recv(1) == b"" and lanes._of == {1: first}


@pytest.mark.parametrize("said", [b"x" * 32, b"\0" * 31, b"", b"GET / HTTP/1.1\r\n\r\n" * 10])
def test_who_has_no_offer_is_hung_up_on(said):
    with shard() as lanes:
        port = lanes.offer(0, True).port
        with socket.create_connection((HOST, port)) as s:
            s.sendall(said)
            s.shutdown(socket.SHUT_WR)
            while not lanes._greeting and select.select([lanes], [], [], 10)[0]:
                list(lanes.turn())
            while lanes._greeting and select.select([lanes], [], [], 10)[0]:
                list(lanes.turn())
            s.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(1) == b""
        assert not lanes._of


def test_a_shard_that_ends_before_the_greeting_leaves_no_socket_open(monkeypatch):
    with shard() as lanes:
        offer, connect, made = lanes.offer(0, True), socket.create_connection, []

        def cut(*where):
            made.append(connect(*where))
            made[0].shutdown(socket.SHUT_WR)
            return made[0]

        monkeypatch.setattr(socket, "create_connection", cut)
        with pytest.raises(BrokenPipeError):
            join(HOST, offer, select.epoll())
        assert made[0].fileno() == -1


def test_connections_that_say_nothing_are_few():
    with shard() as lanes:
        offer = lanes.offer(0, True)
        with contextlib.ExitStack() as stack:
            for _ in range(3 * encrypted_channel._MOST_WAITING):
                stack.enter_context(socket.create_connection((HOST, offer.port)))
                list(lanes.turn())
            assert len(lanes._greeting) <= encrypted_channel._MOST_WAITING
            end = stack.enter_context(contextlib.closing(join(HOST, offer, select.epoll())))
            end.put(b"h", b"let in all the same")
            assert turns(lanes, 1) == [(0, b"h", b"let in all the same")]


def test_who_cannot_seal_has_no_lane_and_all_works(monkeypatch):
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    assert not encrypted_channel.available()
    with workers(1) as (_, (kv,), _):
        kv.init("w", mx.nd.zeros((300, 1000)))
        kv.push("w", mx.nd.ones((300, 1000)))
        assert (pull(kv, "w", np.zeros((300, 1000), "f")) == 1).all() and kv._client.links[0]._lane is None


def test_nothing_listens_before_a_lane_is_wanted_and_a_new_offer_ends_the_old_lane():
    with shard() as lanes:
        assert lanes.offer(0, False) is None and lanes._listener is None
        with opened(lanes) as end:
            lanes.offer(0, True)
            assert select.select([end], [], [], 10)[0]
            with pytest.raises(ConnectionError, match="lane: the other end has closed it"):
                end.read()
