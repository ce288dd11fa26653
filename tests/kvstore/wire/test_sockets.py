"""Streams over Unix sockets and TLS: messages arrive complete and in order; changed or repeated bytes end them; strangers do."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tritium.errors import KVStoreError
from tritium.kvstore.wire import sockets
from tritium.kvstore.wire import stream as stream_module
from tritium.kvstore.wire.credentials import Credentials, new_authority
from tritium.kvstore.wire.frame import LARGEST_HEAD, LARGEST_MESSAGE
from tritium.kvstore.wire.stream import Poller


class Network:
    """A listener and the streams to it, in one thread."""

    def __init__(self, kind, folder):
        self.poller, self.authority = Poller(), new_authority() if kind == "tls" else None
        self.users, self.came, self.ended, self.streams, self.made = {}, [], [], {}, []
        server = Credentials.new(self.authority)
        self.server = server.public
        address = "tls:127.0.0.1:0" if kind == "tls" else f"unix:{folder}/listener.socket"
        self.listener = sockets.Listener(self.poller, address, server, self.users, LARGEST_MESSAGE,
                                         on_message=self.receive, on_end=lambda stream: self.ended.append(stream.user))

    def receive(self, stream, head, payload):
        self.streams[stream.user] = stream
        self.came.append((stream.user, head, bytes(payload)))

    def connect(self, user, address=None):
        """A stream of a known user, with `came` and `ended` for its own end."""
        own = Credentials.new(self.authority)
        self.users[own.public] = user
        came, ended = [], []
        stream = sockets.connect(self.poller, address or self.listener.address, own, self.server, LARGEST_MESSAGE,
                                 on_message=lambda head, payload: came.append((head, bytes(payload))), on_end=ended.append)
        stream.came, stream.ended = came, ended
        self.made.append(stream)
        return stream

    def close(self):
        for stream in (*self.made, *self.streams.values(), *self.listener._opening):
            stream.close()
        self.listener._socket.close()
        self.poller.close()

    def run(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            self.poller.handle(self.poller.select(0.1))


@pytest.fixture(params=["unix", "tls"])
def network(request, tmp_path):
    tmp_path.chmod(0o700)
    with contextlib.closing(Network(request.param, tmp_path)) as network:
        yield network


@pytest.fixture
def tls(tmp_path):
    with contextlib.closing(Network("tls", tmp_path)) as network:
        yield network


def messages(seed, count):
    rng = np.random.default_rng(seed)
    return [(rng.bytes(int(rng.integers(0, 500))), rng.bytes(int(rng.integers(0, 900_000)))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_messages_of_both_ends_arrive_complete_and_in_order(network, seed):
    up, down = messages([seed, 0], 30), messages([seed, 1], 30)
    stream = network.connect("me")
    for head, payload in up:
        stream.put(head, payload)
    network.run(lambda: network.streams)
    for head, payload in down:
        network.streams["me"].put(head, payload)
    network.run(lambda: len(network.came) == len(up) and len(stream.came) == len(down))
    assert network.came == [("me", *m) for m in up] and stream.came == down and not stream.full
    stream.close()
    network.run(lambda: network.ended)
    assert network.ended == ["me"] and not stream.ended


def test_messages_that_wait_are_sent_by_priority(network):
    """The message that is being sent is completed first. Equal priorities keep their order."""
    stream = network.connect("me")
    stream.put(b"large", bytes(LARGEST_MESSAGE))
    assert stream.full
    for head, priority in (b"low", 0), (b"high", 1), (b"urgent", float("inf")), (b"lower", -1), (b"high, too", 1):
        stream.put(head, b"", priority)
    network.run(lambda: len(network.came) == 6)
    # a connection that is still opening orders all messages
    assert [head for _, head, _ in network.came if head != b"large"] == [b"urgent", b"high", b"high, too", b"low", b"lower"]


def test_a_message_is_interrupted_by_those_with_a_higher_priority(network):
    """Messages are complete and correct all the same, also if the one that interrupts is interrupted."""
    stream, taken, payloads = network.connect("me"), [], [bytes([i]) * (n << 18) for i, n in enumerate((9, 7, 5, 0))]
    stream.put(b"first", b"")
    network.run(lambda: network.came)
    take_next = stream._take_next

    def take():
        """Before every other part, a message comes with a higher priority than the one before it."""
        taken.append(stream._waiting[0][0])
        if len(taken) in (2, 4, 6):
            stream.put(b"%d" % (len(taken) // 2), payloads[len(taken) // 2], priority=len(taken) // 2)
        take_next()

    stream._take_next = take
    stream.put(b"0", payloads[0], priority=0)
    network.run(lambda: len(network.came) == 1 + len(payloads))
    assert network.came[1:] == [("me", b"%d" % i, payloads[i]) for i in (3, 2, 1, 0)]


def test_a_receiver_says_where_a_large_payload_goes(network):
    """Also one that is longer than the largest message otherwise accepted."""
    stream, data = network.connect("me"), np.arange(LARGEST_MESSAGE, dtype="<i8")
    place = np.zeros_like(data)
    asked = []
    network.listener._on_large = lambda stream, head, size: asked.append((head, size)) or place.view(np.uint8).data
    stream.put(b"small", bytes(stream_module.LARGE))
    stream.put(b"large", data.view(np.uint8).data)
    network.run(lambda: len(network.came) == 2)
    assert asked == [(b"large", data.nbytes)]
    np.testing.assert_array_equal(place, data)


@pytest.mark.parametrize("numbers", [(stream_module._CONTINUED, 1, 1), (0, 2, 1), (0, 0, 1), (LARGEST_HEAD + 1, 0, 0)])
def test_parts_that_do_not_fit_a_message_end_the_connection(network, numbers):
    stream = network.connect("me")
    stream.put(b"first", b"")
    network.run(lambda: network.came)
    stream._sending.append(memoryview(stream_module._PART.pack(*numbers) + bytes(8)))
    stream._send()
    network.run(lambda: stream.ended and network.ended)
    assert len(network.came) == 1


def test_a_message_of_the_largest_size_is_accepted_and_a_longer_one_ends_the_connection(network):
    stream = network.connect("me")
    stream.put(b"", bytes(LARGEST_MESSAGE))
    network.run(lambda: network.came)
    stream.put(b"", bytes(LARGEST_MESSAGE + 1))
    network.run(lambda: stream.ended and network.ended)
    assert len(network.came) == 1


def test_a_process_without_credentials_gets_no_answer(network):
    stream = network.connect("me")
    network.users.clear()
    stream.put(b"head", b"payload")
    network.run(lambda: stream.ended)
    assert not network.came and not network.ended


class Wire:
    """A proxy in front of a listener that may change the bytes. `up`: all bytes from the connecting side so far."""

    def __init__(self, network):
        self.front = socket.create_server(("127.0.0.1", 0))
        self.address = f"tls:127.0.0.1:{self.front.getsockname()[1]}"
        self.network, self.up = network, b""

    def accept(self):
        self.near, _ = self.front.accept()
        self.far = socket.create_connection(("127.0.0.1", sockets.port_of(self.network.listener.address)))
        self.near.setblocking(False), self.far.setblocking(False)

    def carry(self, change=lambda data: data):
        """Forward what has arrived."""
        for source, target in ((self.near, self.far), (self.far, self.near)):
            with contextlib.suppress(BlockingIOError):
                data = source.recv(1 << 20)
                if source is self.near:
                    self.up += data
                    data = change(data)
                if data:
                    target.sendall(data)
        return True

    def close(self):
        for s in (self.front, self.near, self.far):
            s.close()


@contextlib.contextmanager
def tapped(network):
    wire = Wire(network)
    stream = network.connect("me", wire.address)
    wire.accept()
    try:
        stream.put(b"first", b"payload")
        network.run(lambda: wire.carry() and network.came)
        yield stream, wire
    finally:
        stream.close()
        wire.close()


def flip(at):
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


RECORD = 5 + (16 + 4 + 1000) + 1 + 16  # bytes of a message below: header, content and its type, tag
CHANGES = {
    "the length": flip(4), "the type": flip(0), "the content": flip(RECORD // 2), "the tag": flip(RECORD - 1),
    "one left out": lambda d: d[RECORD:], "one repeated": lambda d: d[:RECORD] * 2 + d[RECORD:],
    "exchanged": lambda d: d[RECORD:2 * RECORD] + d[:RECORD] + d[2 * RECORD:],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_message_ends_the_connection_and_is_not_delivered(tls, change):
    with tapped(tls) as (stream, wire):
        sent = [(bytes([i]) * 4, bytes([i]) * 1000) for i in range(3)]
        for m in sent:
            stream.put(*m)
        changed = []

        def once(data):
            changed.append(data)
            return CHANGES[change](data) + bytes(1 << 15)  # so that a record with a wrong length is complete

        while not changed:
            wire.carry(once)
        assert len(changed[0]) == 3 * RECORD
        tls.run(lambda: tls.ended)
        assert tls.came[1:] == []  # what arrives together with a repeated record is not delivered either


def test_a_recorded_connection_cannot_be_repeated(tls):
    """The same bytes on another connection are not accepted, and neither are they on the same one."""
    with tapped(tls) as (_, wire):
        with socket.create_connection(("127.0.0.1", sockets.port_of(tls.listener.address))) as thief:
            thief.sendall(wire.up)
            thief.setblocking(False)
            received = []

            def closed():
                with contextlib.suppress(BlockingIOError, ConnectionResetError):
                    received.append(thief.recv(1 << 16))
                return (received and received[-1] == b"") or not tls.listener._opening

            tls.run(lambda: tls.listener._opening or received)
            tls.run(closed)
        assert len(tls.came) == 1 and not tls.ended
        wire.far.sendall(wire.up)
        tls.run(lambda: tls.ended)
        assert len(tls.came) == 1


def test_truncated_messages_are_not_delivered(network):
    stream = network.connect("me")
    stream.put(b"whole", b"payload")
    network.run(lambda: network.came)
    stream._sending.append(memoryview(stream_module._PART.pack(5, 255, 255) + b"trunc"))
    stream._send()
    stream.close()
    network.run(lambda: network.ended)
    assert len(network.came) == 1


def test_the_number_and_the_time_of_unproven_connections_are_limited(network, monkeypatch):
    monkeypatch.setattr(sockets, "_MOST_OPENING", 20)
    address, kind = network.listener.address, socket.AF_INET
    where = ("127.0.0.1", sockets.port_of(address))
    if address.startswith("unix:"):
        where, kind = address.removeprefix("unix:"), socket.AF_UNIX
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            s = stack.enter_context(socket.socket(kind))
            s.connect(where)
            network.poller.handle(network.poller.select(1))
        assert len(network.listener._opening) <= 20
        now = time.monotonic()
        monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: now + 11))
        stream = network.connect("me")
        stream.put(b"", b"accepted all the same")
        network.run(lambda: network.came)
        assert not network.listener._opening


def test_a_folder_that_others_can_enter_is_not_used(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(KVStoreError, match="others can enter the folder of a job's sockets: mode 755"):
        Network("unix", tmp_path)
    tmp_path.chmod(0o700)
    with contextlib.closing(Network("unix", tmp_path)) as network:
        tmp_path.chmod(0o750)
        with pytest.raises(ConnectionError, match="mode 750"):
            network.connect("me")


def test_a_process_of_another_user_is_rejected_by_both_ends(tmp_path, monkeypatch):
    """As the kernel reports the user of the other end."""
    tmp_path.chmod(0o700)
    require, user = sockets._require_own_user, os.getuid()
    with contextlib.closing(Network("unix", tmp_path)) as network:
        monkeypatch.setattr(sockets, "_require_own_user", lambda s: None)
        stream = network.connect("me")
        monkeypatch.setattr(sockets, "_require_own_user", lambda s: require(Other(s, user + 1)))
        network.run(lambda: stream.ended)
        with pytest.raises(ConnectionError, match=f"belongs to user {user + 1}"):
            network.connect("me")
        assert not network.came and not network.listener._opening


class Other:
    """A socket whose other end belongs to another user."""

    def __init__(self, s, user):
        self.s, self.user = s, user

    def getsockopt(self, level, name, size):
        pid, _, group = sockets._CREDENTIALS.unpack(self.s.getsockopt(level, name, size))
        return sockets._CREDENTIALS.pack(pid, self.user, group)


def test_a_path_longer_than_a_socket_address_is_used(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir(mode=0o700)
    with contextlib.closing(Network("unix", folder)) as network:
        network.connect("me").put(b"", b"x")
        network.run(lambda: network.came)


SILENCE = """
import os, subprocess, sys, time
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
sys.path.insert(0, sys.argv[1])
from test_sockets import Network
network = Network("tls", None)
idle, sending = network.connect("idle"), network.connect("sending")
for stream in (idle, sending):
    stream.put(b"", b"x")
network.run(lambda: len(network.came) == 2)
subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
sending.put(b"", bytes(1000))
network.run(lambda: len(network.ended) == 2 and idle.ended and sending.ended, 20)
print(*sorted(network.ended))
"""


def test_a_network_that_stops_responding_ends_the_connections():
    """In a network of its own, which is then switched off; TRITIUM_KV_LOST_AFTER is 1 s."""
    if subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        pytest.skip("this user may not make networks")
    tests = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(["unshare", "-rn", sys.executable, "-c", SILENCE, tests], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "TRITIUM_KV_LOST_AFTER": "1"})
    assert done.stdout == "idle sending\n", done.stderr
