"""Sockets of a job: ZeroMQ with CURVE, bound to one named interface, refusing unknown keys before a byte is parsed.

Every message that arrives carries the user id that `Gate` gave the key it came with. `Watch` tells which connection was lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from ...atomic_file import write_atomic
from ...errors import KVStoreError

# A process that dies is noticed at once, by the end of its connections. Pings, of libzmq's own thread, are for a machine or a
# network that goes silent; on a busy machine a living process can be silent for seconds, too, and must not be taken for dead.
_HEARTBEATS = 5  # in the time after which a silent connection is lost
_LOST_AFTER = "TRITIUM_KV_LOST_AFTER"  # seconds
_LET_IN_WITHIN = 30_000  # ms: `Gate` answers from a thread that may have other work
COPIED = 65536  # bytes: shorter messages are copied, which costs less than remembering whose they are
_READABLE = int(zmq.POLLIN)


class Keys(NamedTuple):
    """A CURVE key pair, Z85 text."""

    public: str
    secret: str

    @staticmethod
    def new() -> Keys:
        return Keys(*(k.decode() for k in zmq.curve_keypair()))


class Gate:
    """The one place where a context's connections are let in: user ids by public key, for each domain (socket).

    An unknown key, or none, ends in the handshake: nothing of such a peer reaches a socket. Source: ZeroMQ RFC 27, ZAP.
    """

    def __init__(self, context: zmq.Context):
        self.allowed: dict[str, dict[str, str]] = {}  # domain -> public key -> user id
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Decide about the connections that wait."""
        while self.socket.poll(0):
            version, request, domain, _, _, mechanism, *credentials = self.socket.recv_multipart()
            user = None
            if mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32:
                user = self.allowed.get(domain.decode(), {}).get(z85.encode(credentials[0]).decode())
            status = (b"200", b"OK") if user is not None else (b"400", b"unknown key")
            self.socket.send_multipart([version, request, *status, (user or "").encode(), b""])


def listen(context: zmq.Context, keys: Keys, domain: str, interface: str, largest: int, port: int = 0
           ) -> tuple[zmq.Socket, str]:
    """A ROUTER that listens on a port of interface (0: any that is free), and its address. largest: bytes of one message."""
    s = context.socket(zmq.ROUTER)
    s.curve_server, s.curve_publickey, s.curve_secretkey = True, keys.public.encode(), keys.secret.encode()
    s.zap_domain = domain.encode()
    _limit(s, largest)
    s.rcvhwm = 64  # messages: a peer that sends faster than we work has to wait
    s.setsockopt(zmq.HANDSHAKE_IVL, _LET_IN_WITHIN)
    s.setsockopt(zmq.ROUTER_HANDOVER, 0)
    try:
        s.bind(f"tcp://{interface}:{port or '*'}")
    except zmq.ZMQError as e:
        s.close(0)
        raise KVStoreError(f"KVStore: cannot listen on interface {interface!r}: {e}. Give the address of an interface of this "
                           f"machine (TRITIUM_KV_INTERFACE).") from e
    return s, s.getsockopt_string(zmq.LAST_ENDPOINT)


def connect(context: zmq.Context, keys: Keys, server: str, address: str, largest: int, most: int = 0) -> zmq.Socket:
    """A DEALER connected to address, whose CURVE public key is server. most: messages that may wait in it; 0: any number."""
    s = context.socket(zmq.DEALER)
    s.curve_publickey, s.curve_secretkey, s.curve_serverkey = keys.public.encode(), keys.secret.encode(), server.encode()
    _limit(s, largest)
    s.sndhwm = most
    s.setsockopt(zmq.RECONNECT_IVL, 50)
    s.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    s.connect(address)
    return s


def _limit(s: zmq.Socket, largest: int) -> None:
    s.linger = 0
    s.sndhwm = s.rcvhwm = 0
    s.setsockopt(zmq.MAXMSGSIZE, largest)
    silent = int(1000 * float(os.environ.get(_LOST_AFTER, "10")))
    s.setsockopt(zmq.HEARTBEAT_IVL, silent // _HEARTBEATS)
    s.setsockopt(zmq.HEARTBEAT_TIMEOUT, silent)


class Watch:
    """Which connections of a socket have ended, by file descriptor. `socket` is readable when there is news.

    A connection that ended before anything could be sent on it is not told of: libzmq makes another one.

    refused:  a connection was not let in because of its key. libzmq makes no other one then.
    """

    def __init__(self, watched: zmq.Socket):
        self.watched, self.refused, self._unused = watched, False, False
        self.socket = watched.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)

    def lost(self) -> Iterator[int]:
        """The file descriptors of connections that have ended since the last call."""
        while readable(self.socket):
            event = recv_monitor_message(self.socket)
            if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self.refused = True
            elif event["event"] == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._unused = True  # the next event is its end
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                unused, self._unused = self._unused, False
                if not unused:
                    yield int(event["value"])

    def close(self) -> None:
        self.watched.disable_monitor()
        self.socket.close(0)


def descriptor(s: zmq.Socket) -> int:
    """What becomes readable when something has happened to s; then ask `readable`."""
    return int(s.get(zmq.FD))  # type: ignore[arg-type]


def readable(s: zmq.Socket) -> bool:
    """Whether a message waits. Asking also makes its file descriptor tell of the next one."""
    return bool(int(s.get(zmq.EVENTS)) & _READABLE)


def receive(s: zmq.Socket) -> Iterator[list[zmq.Frame]]:
    """The messages that wait at a socket, each a list of frames."""
    while readable(s):  # cheaper than an exception
        yield s.recv_multipart(zmq.NOBLOCK, copy=False)


def write_secret(path: Path, content: dict[str, Any]) -> None:
    """Write JSON that only this user can read; whoever sees the file sees all of it."""
    write_atomic(path, json.dumps(content), mode=0o600, sync=False)


def read_secret(path: Path) -> dict[str, Any]:
    """What write_secret wrote. Raises KVStoreError if others could read it, or it is not there or damaged."""
    try:
        what = path.stat()
        if what.st_mode & 0o077 or what.st_uid != os.getuid():
            raise KVStoreError(f"{path}: the keys of a job must be readable by this user alone: mode {what.st_mode & 0o777:o}. "
                               f"chmod 600 it.")
        content = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise KVStoreError(f"{path}: the keys of the job cannot be read: {e}. Start workers with `tritium launch`.") from e
    if not isinstance(content, dict):
        raise KVStoreError(f"{path}: no job file.")
    return content

