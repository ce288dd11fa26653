"""ZeroMQ sockets of a job: encrypted with CURVE, bound to one interface, closed to unknown keys.

Every message that arrives carries the user id that `Authenticator` gave to the sender's key. `ConnectionMonitor` reports lost
connections.
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

from ... import environment
from ...atomic_file import write_atomic
from ...errors import KVStoreError

# The death of a process closes its connections, so it is detected at once. Heartbeats, which libzmq sends from its own thread,
# detect machines and networks that stop responding. Their timeout is long, because on a busy machine a process may not run for
# seconds.
_HEARTBEATS = 5  # sent within the time after which a silent connection is lost
_HANDSHAKE_TIMEOUT = 30_000  # ms: the thread that runs `Authenticator` may be busy
COPIED = 65536  # bytes: shorter messages are copied, which costs less than tracking their buffers
_READABLE = int(zmq.POLLIN)


class CurveKeys(NamedTuple):
    """A CURVE key pair, Z85 text."""

    public: str
    secret: str

    @staticmethod
    def new() -> CurveKeys:
        return CurveKeys(*(k.decode() for k in zmq.curve_keypair()))


class Authenticator:
    """Decides which connections of a context are accepted, and gives each a user id.

    allowed:  domain (one per listening socket) -> public key -> user id.
    A connection with an unknown key, or without a key, fails in the handshake: nothing that it sends reaches a socket. Source:
    ZeroMQ RFC 27, ZAP.
    """

    def __init__(self, context: zmq.Context):
        self.allowed: dict[str, dict[str, str]] = {}
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Answer the waiting requests of libzmq, one for each new connection."""
        while self.socket.poll(0):
            version, request, domain, _, _, mechanism, *credentials = self.socket.recv_multipart()
            user = None
            if mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32:
                user = self.allowed.get(domain.decode(), {}).get(z85.encode(credentials[0]).decode())
            status = (b"200", b"OK") if user is not None else (b"400", b"unknown key")
            self.socket.send_multipart([version, request, *status, (user or "").encode(), b""])


def listen(context: zmq.Context, keys: CurveKeys, domain: str, interface: str, largest: int, port: int = 0
           ) -> tuple[zmq.Socket, str]:
    """Return a ROUTER that listens on a port of interface (0: any free port), and its address. largest: bytes of one message."""
    s = _socket(context, zmq.ROUTER, keys, largest)
    s.curve_server, s.zap_domain = True, domain.encode()
    s.rcvhwm = 64  # messages: a peer that sends faster than this process works must wait
    s.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_TIMEOUT)
    s.setsockopt(zmq.ROUTER_HANDOVER, 0)
    try:
        s.bind(f"tcp://{interface}:{port or '*'}")
    except zmq.ZMQError as e:
        s.close(0)
        raise KVStoreError(f"KVStore: cannot listen on interface {interface!r}: {e}. Give the address of an interface of this "
                           f"machine (TRITIUM_KV_INTERFACE).") from e
    return s, s.getsockopt_string(zmq.LAST_ENDPOINT)


def connect(context: zmq.Context, keys: CurveKeys, server_key: str, address: str, largest: int, most: int = 0) -> zmq.Socket:
    """Return a DEALER connected to address, where a socket with the public key server_key listens.

    largest:  bytes of one message.
    most:     messages that may wait in the socket; 0: any number.
    """
    s = _socket(context, zmq.DEALER, keys, largest)
    s.curve_serverkey, s.sndhwm = server_key.encode(), most
    s.setsockopt(zmq.RECONNECT_IVL, 50)
    s.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    s.connect(address)
    return s


def connect_to_coordinator(context: zmq.Context, job: dict[str, Any], largest: int) -> zmq.Socket:
    """Return a DEALER connected to the coordinator that a job file names."""
    return connect(context, CurveKeys(job["public"], job["secret"]), job["coordinator_key"], job["address"], largest)


def _socket(context: zmq.Context, type: int, keys: CurveKeys, largest: int) -> zmq.Socket:
    s = context.socket(type)
    s.curve_publickey, s.curve_secretkey = keys.public.encode(), keys.secret.encode()
    s.linger = s.sndhwm = s.rcvhwm = 0
    s.setsockopt(zmq.MAXMSGSIZE, largest)
    timeout = int(1000 * environment.KV_LOST_AFTER.get())
    s.setsockopt(zmq.HEARTBEAT_IVL, timeout // _HEARTBEATS)
    s.setsockopt(zmq.HEARTBEAT_TIMEOUT, timeout)
    return s


class ConnectionMonitor:
    """Reports the connections of a socket that have ended. `socket` is readable when there is an event.

    A connection that ended before anything could be sent on it is not reported: libzmq makes another one.

    refused:  a connection was rejected because of its key. libzmq does not try again then.
    """

    def __init__(self, monitored: zmq.Socket):
        self._monitored, self.refused, self._unused = monitored, False, False
        self.socket = monitored.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)

    def lost(self) -> Iterator[int]:
        """Yield the file descriptors of connections that have ended since the last call."""
        while readable(self.socket):
            event = recv_monitor_message(self.socket)
            if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self.refused = True
            elif event["event"] == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                self._unused = True  # the next event reports the end of that connection
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                unused, self._unused = self._unused, False
                if not unused:
                    yield int(event["value"])

    def close(self) -> None:
        self._monitored.disable_monitor()
        self.socket.close(0)


def readable(s: zmq.Socket) -> bool:
    """Return whether a message waits. The call also re-arms the socket's file descriptor."""
    return bool(int(s.get(zmq.EVENTS)) & _READABLE)


def receive(s: zmq.Socket) -> Iterator[list[zmq.Frame]]:
    """Yield the messages that wait at a socket, each a list of frames."""
    while readable(s):  # cheaper than an exception
        yield s.recv_multipart(zmq.NOBLOCK, copy=False)


def write_secret(path: Path, content: dict[str, Any]) -> None:
    """Write JSON that only this user can read. A reader never sees a partly written file."""
    write_atomic(path, json.dumps(content), mode=0o600, sync=False)


def read_secret(path: Path) -> dict[str, Any]:
    """Return the content of a file from `write_secret`. Raises KVStoreError if others can read it, or it is missing or
    invalid."""
    try:
        status = path.stat()
        if status.st_mode & 0o077 or status.st_uid != os.getuid():
            raise KVStoreError(f"{path}: the keys of a job must be readable by this user alone: mode {status.st_mode & 0o777:o}. "
                               f"Run chmod 600 on it.")
        content = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise KVStoreError(f"{path}: the keys of the job cannot be read: {e}. Start workers with `tritium launch`.") from e
    if not isinstance(content, dict):
        raise KVStoreError(f"{path}: not a job file: JSON of a {type(content).__name__}, not an object.")
    return content
