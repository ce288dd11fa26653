"""Connecting and listening: Unix domain sockets on one host, TLS 1.3 over TCP between machines. Both ends prove who they are.

An address is "unix:PATH" or "tls:HOST:PORT". Both ends are known before a message is read. On one host, both processes belong to
this user, as the kernel says; the socket is in a folder that only this user can enter; and the connecting process shows its
secret. Between machines, both show certificates of the job, with fingerprints that the other end expects. Connections that have
not proven this yet are limited in number and time.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ... import environment
from ...errors import KVStoreError
from .credentials import SECRET_BYTES, Credentials, public_of
from .stream import READABLE, WRITABLE, Opening, Place, Poller, Stream
from .tls import shake_hands

LARGEST_CONTROL = 64 << 20  # bytes of a message to or from the coordinator: its table of keys
_BACKLOG = 1024  # processes that connect at the same moment
_MOST_OPENING = 128  # connections that have not proven who they are, of some 66 KB in TLS; beyond, the oldest is closed
_OPENING_TIMEOUT = 10.0  # seconds
_CREDENTIALS = struct.Struct("3i")  # of the peer of a Unix socket: process, user, group


# ---- addresses ----------------------------------------------------------------------------------------------------------
def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tls:").rpartition(":")
    return host, int(port)


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Yield a short name of a socket's path, which may not have more than 107 bytes, if only this user can enter its folder.

    Raises ConnectionError otherwise.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise ConnectionError(f"{path.parent}: others can enter the folder of a job's sockets: mode "
                                  f"{stat.S_IMODE(status.st_mode):o}")
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _require_own_user(s: socket.socket) -> None:
    """Raise ConnectionError unless the process at the other end of a Unix socket belongs to this user."""
    _, user, _ = _CREDENTIALS.unpack(s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.getuid():
        raise ConnectionError(f"the process at the other end belongs to user {user}")


def _set_options(s: socket.socket) -> None:
    """Send at once, and have the kernel end a connection whose machine or network does not respond.

    A process that does not run is not affected: its kernel answers.
    """
    lost_after = environment.KV_LOST_AFTER.get()
    probe = max(math.ceil(lost_after / 3), 1)
    for level, name, value in ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                               (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe),
                               (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe),
                               (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * lost_after))):
        s.setsockopt(level, name, value)


# ---- proofs -------------------------------------------------------------------------------------------------------------
def _connect_securely(s: socket.socket, context: ssl.SSLContext, server: str) -> Opening:
    """Wait for a connection over TCP, and require the fingerprint of the server."""
    yield WRITABLE
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    channel, peer = yield from shake_hands(s, context, server=False)
    if peer != server:
        raise ssl.SSLCertVerificationError("the server has another certificate than the expected one")
    return channel, peer


def _show_secret(s: socket.socket, secret: bytes, server: str) -> Opening:
    s.send(secret)  # a new socket has room for it
    return s, server
    yield READABLE


def _read_secret(s: socket.socket) -> Opening:
    received = b""
    while len(received) < SECRET_BYTES:
        yield READABLE
        with contextlib.suppress(BlockingIOError):
            more = s.recv(SECRET_BYTES - len(received))
            if not more:
                raise ConnectionError("the other end has shown no secret")
            received += more
    return s, public_of(received)


# ---- connecting ---------------------------------------------------------------------------------------------------------
def connect(poller: Poller, address: str, credentials: Credentials, server: str, largest: int, *,
            on_message: Callable[[bytes, memoryview], object], on_end: Callable[[OSError], object],
            on_large: Callable[[bytes, int], Place] = lambda head, size: None) -> Stream:
    """Return a stream to the listener at address. Messages that are put into it are sent when the connection is made.

    server:   public name that the listener must prove between machines.
    largest:  bytes of a payload.
    Raises OSError if the connection cannot be made, as far as that is known at once; otherwise on_end is called with it.
    """
    path, host = address.removeprefix("unix:"), "" if address.startswith("unix:") else _host_and_port(address)[0]
    s = socket.socket(_family(host) if host else socket.AF_UNIX)
    try:
        s.setblocking(False)
        if host:
            _set_options(s)
            with contextlib.suppress(BlockingIOError):
                s.connect(_host_and_port(address))
            opening = _connect_securely(s, credentials.tls(server=False), server)
        else:
            with _short_path(Path(path)) as name:
                s.connect(name)
            _require_own_user(s)
            opening = _show_secret(s, bytes.fromhex(credentials.secret), server)
        return Stream(poller, opening, s, largest, on_message=on_message, on_end=on_end, on_large=on_large)
    except BaseException:
        s.close()
        raise


def connect_to_coordinator(poller: Poller, job: dict[str, Any], *, on_message: Callable[[bytes, memoryview], object],
                           on_end: Callable[[OSError], object]) -> Stream:
    """Return a stream to the coordinator that a job file names. The rest is as in `connect`."""
    return connect(poller, job["address"], Credentials(*job["credentials"]), job["coordinator"], LARGEST_CONTROL,
                   on_message=on_message, on_end=on_end)


def address_of(job: dict[str, Any], name: str, port: int = 0) -> str:
    """Return the address at which a process of a job listens. name: of its socket, if the job is on one host."""
    return f"tls:{job['interface']}:{port}" if job["authority"] else f"unix:{job['folder']}/{name}.socket"


def port_of(address: str) -> int:
    return _host_and_port(address)[1] if address.startswith("tls:") else 0


# ---- listening ----------------------------------------------------------------------------------------------------------
class Listener:
    """Accepts connections of known processes.

    address:     "unix:PATH" or "tls:HOST:PORT". For port 0, any free one replaces it.
    users:       public name -> user. The owner may change it. A connection of any other name ends.
    largest:     bytes of a payload.
    on_message:  called with (stream, head, payload) of each message; `stream.user` is its sender.
    on_large:    called with (stream, head, size), as in `Stream`.
    on_end:      called with the stream of a known process when it has ended, but not after its `close`.
    """

    def __init__(self, poller: Poller, address: str, credentials: Credentials, users: Mapping[str, Any], largest: int, *,
                 on_message: Callable[[Stream, bytes, memoryview], object],
                 on_large: Callable[[Stream, bytes, int], Place] = lambda stream, head, size: None,
                 on_end: Callable[[Stream], object] = lambda stream: None):
        self._poller, self._users, self._largest = poller, users, largest
        self._on_message, self._on_large, self._on_end = on_message, on_large, on_end
        self._context = credentials.tls(server=True) if credentials.authority else None
        self._opening: dict[Stream, float] = {}  # connections that have not proven who they are -> since when
        try:
            self._socket, self.address = _listen_here(address) if self._context is None else _listen_securely(address)
        except OSError as e:
            raise KVStoreError(f"KVStore: cannot listen at {address.partition(':')[2]}: {e}. Give the address of an interface of "
                               f"this machine (TRITIUM_KV_INTERFACE).") from e
        self._socket.setblocking(False)
        poller.register(self._socket.fileno(), READABLE, self._accept)

    def _accept(self, _events: int) -> None:
        now = time.monotonic()
        for stream, since in list(self._opening.items()):
            if now - since < _OPENING_TIMEOUT and len(self._opening) < _MOST_OPENING:
                break  # the others are younger
            self._forget(stream)
        try:
            s, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:  # too many open files
            for stream in list(self._opening):
                self._forget(stream)
            return
        with contextlib.suppress(OSError):
            self._open(s, now)

    def _open(self, s: socket.socket, now: float) -> None:
        def admit() -> Opening:
            channel, public = yield from _read_secret(s) if self._context is None else shake_hands(s, self._context, server=True)
            if public not in self._users:
                raise ConnectionError("the other end is not known here")
            del self._opening[stream]
            return channel, self._users[public]

        try:
            _require_own_user(s) if self._context is None else _set_options(s)
            stream = Stream(self._poller, admit(), s, self._largest,
                            on_message=lambda head, payload: self._on_message(stream, head, payload),
                            on_large=lambda head, size: self._on_large(stream, head, size), on_end=lambda _: self._end(stream))
        except OSError:
            s.close()
            raise
        self._opening[stream] = now

    def _end(self, stream: Stream) -> None:
        if self._opening.pop(stream, None) is None:  # otherwise it has not proven who it is
            self._on_end(stream)

    def _forget(self, stream: Stream) -> None:
        del self._opening[stream]
        stream.close()


def _listen_securely(address: str) -> tuple[socket.socket, str]:
    host, port = _host_and_port(address)
    s = socket.create_server((host, port), family=_family(host), backlog=_BACKLOG)
    return s, f"tls:{host}:{s.getsockname()[1]}"


def _listen_here(address: str) -> tuple[socket.socket, str]:
    """Listen in the folder of a path, whose former socket is removed."""
    path = Path(address.removeprefix("unix:"))
    path.unlink(missing_ok=True)
    s = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(path) as name:
            s.bind(name)
            os.chmod(name, 0o600)
            s.listen(_BACKLOG)
    except OSError:
        s.close()
        raise
    return s, address
