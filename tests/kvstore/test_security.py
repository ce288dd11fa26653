"""Authentication, validation and listening ports. Attacks use real sockets; the processes must survive and not grow."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pathlib
import re
import socket
import ssl
import struct
import subprocess
import sys

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import pull, until, workers
from tritium.errors import KVStoreError
from tritium.kvstore.wire.credentials import Credentials, new_authority, write_secret
from tritium.kvstore.wire.frame import INLINE, ROWS, WANT_VALUE, FrameType, Record, encode, pack
from tritium.kvstore.wire.shared_memory import SegmentPool, SegmentViews, segment_name
from tritium.kvstore.wire.sockets import connect, connect_to_coordinator
from tritium.kvstore.wire.stream import Poller
from tritium.kvstore.worker.client import Client

GROWTH = 16 << 20  # bytes that a process may grow under attack: far less than the lengths in the messages


@pytest.fixture(scope="module")
def before():
    """Ports that this process listens on already, because of other tests."""
    return set(listening(os.getpid()))


@pytest.fixture(scope="module")
def job(before):
    """A job for several machines with one worker, its processes and its ports. Frames go over TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITIUM_KV_SHARED", "0")
        with workers(1, interface="127.0.0.1") as (job, (kv,), _):
            kv.init("w", mx.nd.zeros(4))
            kv.init("large", mx.nd.zeros(200_000))
            yield job, kv


@pytest.fixture(scope="module")
def here():
    """A job on one host."""
    with workers(1) as (job, (kv,), _):
        kv.init("w", mx.nd.zeros(4))
        yield job, kv


def processes(job):
    return {"host": job.host.pid, "coordinator": job.coordinator_pid(), "server": job.server_pid(0)}


def listening(pid):
    """(address, port) of every TCP socket that process pid listens on."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(fd))
    sockets = {}  # by inode: the table may show a socket twice while others change
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, port = fields[1].split(":")
                sockets[fields[9]] = address, int(port, 16)
    return list(sockets.values())


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def works(kv):
    kv.push("w", mx.nd.ones(4) * 3)
    return (pull(kv, "w", np.zeros(4, "f")) == 3).all()


def large_works(kv):
    """Values larger than a part of a message arrive, over the connection that exists."""
    stream = kv._client.servers[0].stream
    kv.push("large", mx.nd.ones(200_000) * 3)
    return (pull(kv, "large", np.zeros(200_000, "f")) == 3).all() and kv._client.servers[0].stream is stream


def test_only_the_documented_sockets_listen(job, here, before):
    """security.md: a port of the coordinator and one of each server, on the given interface. On one host, no port at all."""
    found = {name: [address for address, _ in listening(pid)] for name, pid in processes(job[0]).items()}
    assert found == {"host": [], "coordinator": ["0100007F"], "server": ["0100007F"]}
    assert [listening(pid) for pid in processes(here[0]).values()] == [[], [], []]
    assert set(listening(os.getpid())) <= before


RECORD = b"\x16\x03\x01"  # of a handshake of TLS
ATTACKS = {
    "random": os.urandom(65536),
    "http": b"GET / HTTP/1.1\r\n\r\n" * 50,
    "our own framing": struct.pack("<IIQ", 136, 0, 0) + encode(FrameType.PULL, [Record(1, 0, 0, 0, 0)]),
    "a record that is too long": RECORD + b"\xff\xff" + bytes(65535),
    "a hello that is too long": RECORD + b"\x40\x00" + b"\x01\xff\xff\xff" + os.urandom(16380),
    "a truncated hello": RECORD + b"\x02\x00" + b"\x01\x00\x01\xfc\x03\x03" + os.urandom(100),
    "only application data": b"\x17\x03\x03\x40\x00" + os.urandom(16384),
    "alerts": b"\x15\x03\x03\x00\x02\x01\x00" * 1000,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_random_and_malformed_bytes_on_every_port_change_nothing(job, attack):
    job, kv = job
    before = {name: resident(pid) for name, pid in processes(job).items()}
    for pid in processes(job).values():
        for _, port in listening(pid):
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port), 5) as s, contextlib.suppress(OSError):
                    s.settimeout(0.02)
                    s.sendall(ATTACKS[attack])
                    s.recv(1000)
    assert works(kv)
    for name, pid in processes(job).items():
        assert resident(pid) - before[name] < GROWTH


@pytest.mark.parametrize("data", [b"", RECORD, RECORD + b"\x02\x00" + b"\x01\x00\x01\xfc\x03\x03", os.urandom(65536)], ids=len)
def test_500_silent_or_slow_connections_change_nothing(job, data):
    """They stay open, at both ports, while a worker that connects anew is served."""
    job, kv = job
    before = {name: resident(pid) for name, pid in processes(job).items()}
    for name in ("coordinator", "server"):
        ((_, port),) = listening(processes(job)[name])
        with contextlib.ExitStack() as stack:
            for _ in range(500):
                s = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                with contextlib.suppress(OSError):
                    s.sendall(data)
            assert large_works(kv)
            remote = kv._client.servers[0]
            stream = remote.stream
            kv._client.loop.call_soon(remote.reconnect)
            until(lambda old=stream, r=remote: r.ready and r.stream is not old)
            assert large_works(kv) and "growing" in kv._client.request("info")
    for name, pid in processes(job).items():
        assert resident(pid) - before[name] < GROWTH


def attempt(address, server, credentials, message):
    """Connect, send a message, and return what arrives or the error with which the connection ends."""
    poller, found = Poller(), []
    stream = connect(poller, address, credentials, server, 1 << 20, on_end=found.append,
                     on_message=lambda head, payload: found.append(bytes(payload)))
    stream.put(*message)
    while not found:
        poller.handle(poller.select())
    stream.close()
    poller.close()
    return found[0]


PULL, INFO = (encode(FrameType.PULL, [Record(1, 0, 0, 0, 0)], rank=0), b""), (b"", pack({"op": "info", "id": 1}))
ENDED = "certificate verify failed|unknown ca|bad certificate|reset|closed|Broken pipe|EOF occurred"
STRANGERS = {"of another job": lambda job: new_authority(), "new, of this job": lambda job: job["authority"]}


@pytest.mark.parametrize("certificate", STRANGERS)
def test_a_port_answers_no_unknown_certificate(job, certificate):
    job, kv = job
    file = json.loads((job.folder / "worker.json").read_text())
    own = Credentials(*file["credentials"])
    stranger = Credentials.new(STRANGERS[certificate](file))._replace(authority=own.authority)
    server = kv._client.coordinator.locations[0]
    for address, public, request in ((server["address"], server["public"], PULL), (file["address"], file["coordinator"], INFO)):
        found = attempt(address, public, stranger, request)
        assert isinstance(found, OSError) and re.search(ENDED, str(found)), found
    assert isinstance(attempt(file["address"], file["coordinator"], own, INFO), bytes)
    assert works(kv)


def test_a_server_does_not_accept_the_certificate_of_the_job_file(job):
    """It is known to the coordinator only: each worker has a certificate of its own for the servers."""
    job, kv = job
    file = json.loads((job.folder / "worker.json").read_text())
    server = kv._client.coordinator.locations[0]
    found = attempt(server["address"], server["public"], Credentials(*file["credentials"]), PULL)
    assert isinstance(found, OSError) and re.search(ENDED, str(found)) and works(kv)


def test_a_connection_without_a_certificate_or_with_an_old_protocol_ends_in_the_handshake(job):
    job, kv = job
    for pid in (job.coordinator_pid(), job.server_pid(0)):
        ((_, port),) = listening(pid)
        for newest in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, newest
            with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 5) as s:
                with context.wrap_socket(s) as tls:
                    tls.send(b"x")
                    tls.recv(1)
                    raise AssertionError("it was accepted")
    assert works(kv)


def test_a_worker_does_not_talk_to_a_server_with_another_certificate(job):
    """Also if the certificate is of the same job."""
    job, kv = job
    file = json.loads((job.folder / "worker.json").read_text())
    server = kv._client.coordinator.locations[0]
    found = attempt(server["address"], file["coordinator"], kv._client.credentials, PULL)
    assert isinstance(found, ssl.SSLCertVerificationError) and "another certificate than the expected one" in str(found)


@pytest.mark.parametrize("name", ["job", "here"])
def test_a_worker_with_the_credentials_of_another_job_is_rejected(name, request, tmp_path):
    """Two jobs on one machine: a process of one is not let into the other."""
    job, kv = request.getfixturevalue(name)
    file = json.loads((job.folder / "worker.json").read_text())
    with workers(1, interface=file["interface"] or None) as (other, _, _):
        foreign = json.loads((other.folder / "worker.json").read_text())
        write_secret(tmp_path / "foreign.json", {**file, **{name: foreign[name] for name in ("authority", "credentials")}})
        with pytest.raises(KVStoreError, match=r"or rejects this worker's credentials|did not answer within"):
            Client(tmp_path / "foreign.json", "sync", timeout=2)
    assert works(kv)


def test_a_process_of_this_user_needs_a_secret_on_one_host(here):
    job, kv = here
    file = json.loads((job.folder / "worker.json").read_text())
    server = kv._client.coordinator.locations[0]
    for address, request in ((server["address"], PULL), (file["address"], INFO)):
        for data in (b"", b"x" * 31, os.urandom(32), os.urandom(65536)):
            with socket.socket(socket.AF_UNIX) as s, contextlib.suppress(OSError):
                s.connect(address.removeprefix("unix:"))
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                s.settimeout(5)
                assert s.recv(1) == b""
        found = attempt(address, "", Credentials.new(None), request)
        assert isinstance(found, OSError) and re.search(ENDED, str(found)), found
    assert works(kv)


def test_only_this_user_can_read_key_files_and_enter_the_folder_of_the_sockets(job, here, tmp_path):
    for folder in (job[0].folder, here[0].folder):
        for file in [*folder.glob("*.json"), *folder.glob("*.socket")]:
            assert file.stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(here[0].folder.glob("*.socket"))) == 2
    readable = tmp_path / "worker.json"
    readable.write_text((job[0].folder / "worker.json").read_text())
    readable.chmod(0o644)
    with pytest.raises(KVStoreError, match="must be readable by this user alone: mode 644"):
        Client(readable, "sync")
    with pytest.raises(KVStoreError, match="keys of the job cannot be read"):
        Client(tmp_path / "none.json", "sync")


def test_no_secret_is_in_a_process_list_an_environment_or_a_log(tmp_path):
    """Of a job with deaths and reconnections, at the most talkative level, on standard output and standard error too."""
    code = ("import logging, os, signal; logging.basicConfig(level=0); import tritium as mx; kv = mx.kv.create('dist_sync'); "
            "kv.init(0, mx.nd.ones(3)); kv.push(0, mx.nd.ones(3)); os.kill(kv._own_job.server_pid(0), signal.SIGKILL); "
            "kv.push(0, mx.nd.ones(3)); out = mx.nd.zeros(3); kv.pull(0, out); out.wait_to_read(); folder = kv._own_job.folder; "
            "print('SECRETS', *(kv._client.credentials[1:]), *(c for f in folder.glob('*.json') for c in [f.read_text()])); "
            "pids = [os.getpid(), kv._own_job.host.pid, kv._own_job.coordinator_pid(), kv._own_job.server_pid(0)]; "
            "print('SHOWN', *(open(f'/proc/{pid}/{name}').read().replace(chr(0), ' ') for pid in pids "
            "for name in ('cmdline', 'environ')))")
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRITIUM_KV_")}
    for interface in ("", "127.0.0.1"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250,
                              env={**env, "TRITIUM_KV_INTERFACE": interface})
        assert done.returncode == 0, done.stderr
        secrets_text, shown = done.stdout.split("SECRETS")[1].split("SHOWN")
        found = set(re.findall(r"[0-9a-f]{64}", secrets_text)) | set(re.findall(r"[A-Za-z0-9+/]{40,}", secrets_text))
        assert len(found) > 3
        assert not [text for text in found if text in shown + done.stderr + done.stdout.split("SECRETS")[0]]


def forged_rows(good, n, indices, count=0):
    """A frame of row indices and then some bytes, in a record of n bytes."""
    payload = np.array(indices, "<i8").tobytes() + bytes(count)
    return encode(FrameType.PUSH, [good._replace(dtype=ROWS, n=n)], len(payload), rank=0), payload


def test_forged_frames_of_a_worker_affect_no_other(job):
    """A member with a valid key sends invalid frames: they are rejected or ignored, and the server continues."""
    job, kv = job
    remote = kv._client.servers[0]
    key = kv._keys["w"].id
    good, asked = Record(key, 0, 0, 4, 10**6, INLINE), Record(key, 0, 0, 4, 0)
    frames = [
        (b"", b""), (b"x" * 64, b""), (os.urandom(144), os.urandom(10)),
        (encode(FrameType.PUSH, [good], 16, rank=5), bytes(16)),  # the rank of another worker
        (encode(FrameType.PUSH, [good._replace(key=12345)], 16, rank=0), bytes(16)),  # unknown key
        (encode(FrameType.PUSH, [good._replace(n=3)], 12, rank=0, flags=WANT_VALUE), bytes(12)),  # too short
        (encode(FrameType.PUSH, [good._replace(n=5)], 20, rank=0), bytes(20)),  # beyond the end
        (encode(FrameType.PUSH, [good._replace(dtype=1)], 32, rank=0), bytes(32)),  # another dtype
        (encode(FrameType.PUSH, [good._replace(n=1 << 39, segment=0)], 0, rank=0), b""),
        (encode(FrameType.PUSH, [good._replace(segment=999)], 0, rank=0), b""),  # no such segment
        (encode(FrameType.PUSH, [good], 16, rank=0), bytes(16)),  # a round far ahead
        (encode(FrameType.PULL, [asked._replace(reply_segment=999)], 0, rank=0), b""),
        (encode(FrameType.PULL, [asked._replace(reply_segment=0, reply_at=1 << 50)], 0, rank=0), b""),
        (encode(FrameType.STATES, [good], 16, rank=0), bytes(16)),
        (encode(FrameType.HANDSHAKE, [], 4, rank=0), b"[[[["),
        (encode(FrameType.INITIALIZE, [good._replace(round=0)], 16, rank=0), bytes(16)),
        *(forged_rows(good, *f) for f in (
            (12, [9], 4), (12, [-1], 4), (24, [1, 0], 8), (24, [1, 1], 8), (11, [0], 3), (8, [0]), (60, [0, 1, 2, 3, 4], 20),
            (1 << 39, [1], 4))),
        (encode(FrameType.PULL_ROWS, [asked], 24, rank=0), np.array([0, 1, 9], "<i8").tobytes()),
        (encode(FrameType.PULL_ROWS, [asked], 5, rank=0), bytes(5)),
        (encode(FrameType.PULL_ROWS, [asked] * 2, 8, rank=0), bytes(8)),
    ]

    before = resident(job.server_pid(0))
    assert works(kv)
    for head, payload in frames * 20:
        kv._client.loop.call_soon(lambda h=head, p=payload: remote.stream.put(h, p))
    assert works(kv) and resident(job.server_pid(0)) - before < GROWTH


def test_forged_large_values_affect_no_other(job):
    """A member sends invalid frames, also some whose lengths exceed the memory."""
    job, kv = job
    remote, key = kv._client.servers[0], kv._keys["large"].id
    good = Record(key, 0, 0, 200_000, 10**6, INLINE)
    payload = bytes(800_000)
    before = resident(job.server_pid(0))
    assert large_works(kv)
    for head in (b"", b"x" * 64, os.urandom(144), encode(FrameType.PUSH, [good], len(payload), rank=5),
                 encode(FrameType.PUSH, [good._replace(key=9)], len(payload), rank=0),
                 encode(FrameType.PUSH, [good], 1 << 40, rank=0),
                 encode(FrameType.PUSH, [good._replace(n=1 << 39)], len(payload), rank=0),
                 encode(FrameType.PUSH, [good._replace(n=150_000)], len(payload), rank=0),
                 encode(FrameType.HANDSHAKE, [], len(payload), rank=0),
                 encode(FrameType.STATES, [good], len(payload), rank=0)) * 10:
        kv._client.loop.call_soon(lambda h=head: remote.stream.put(h, payload))
    assert large_works(kv) and resident(job.server_pid(0)) - before < GROWTH


@pytest.mark.parametrize("name", ["job", "here"])
def test_messages_beyond_the_limit_end_the_connection(name, request):
    """An authenticated peer that announces too long a message is disconnected before memory is allocated."""
    job, kv = request.getfixturevalue(name)
    file = json.loads((job.folder / "worker.json").read_text())
    before = resident(job.coordinator_pid())
    for lengths in ((0, 1 << 20, 100 << 20), (100 << 20, 0, 0), ((1 << 32) - 2, (1 << 32) - 1, (1 << 64) - 1)):
        poller, ended = Poller(), []
        stream = connect_to_coordinator(poller, file, on_message=lambda *_: None, on_end=ended.append)
        stream._sending.append(memoryview(struct.pack("<IIQ", *lengths) + bytes(1 << 20)))
        with contextlib.suppress(BrokenPipeError):
            stream._send() if stream._opening is None else None
        while not ended:
            poller.handle(poller.select())
        poller.close()
    assert resident(job.coordinator_pid()) - before < GROWTH and works(kv)


def test_shared_memory_is_checked(tmp_path, monkeypatch):
    """Only regular files of this user are mapped, and only existing bytes are read."""
    from tritium.errors import FrameError
    from tritium.kvstore.wire import shared_memory

    monkeypatch.setattr(shared_memory, "DIRECTORY", tmp_path)
    pool, views = SegmentPool("ab", 0, 1), SegmentViews("ab", 0, 1)
    slot = pool.take(5000)
    assert (tmp_path / segment_name("ab", 0, 1, 0)).stat().st_mode & 0o777 == 0o600
    slot.view[:] = 7
    assert views.bytes(0, 10, 20).tolist() == [7] * 20
    with pytest.raises(FrameError, match="segment 0 has 8192 bytes"):
        views.bytes(0, 8000, 1000)
    with pytest.raises(FrameError, match="segment 1 cannot be opened"):
        views.bytes(1, 0, 1)
    (tmp_path / segment_name("ab", 0, 1, 2)).symlink_to(tmp_path / segment_name("ab", 0, 1, 0))
    with pytest.raises(FrameError, match="segment 2 cannot be opened"):
        views.bytes(2, 0, 1)
    (tmp_path / segment_name("ab", 0, 1, 3)).write_bytes(b"")
    with pytest.raises(FrameError, match="segment 3 is not a regular file of this user"):
        views.bytes(3, 0, 1)
    del slot
    assert pool.take(4097).segment == 0
    pool.close()
    assert not (tmp_path / segment_name("ab", 0, 1, 0)).exists()


FORBIDDEN = {"pickle", "cPickle", "cloudpickle", "marshal", "shelve", "dill", "jsonpickle"}
CALLS = {"eval", "exec", "compile"}
PACKAGE = pathlib.Path(mx.__file__).parent


def test_no_pickle_and_no_eval_in_the_package():
    """No module imports a pickle or marshal. Modules that receive data do not use eval, exec or compile either.

    Connections of multiprocessing unpickle what they receive, so a store has none.
    """
    found = []
    for file in PACKAGE.rglob("*.py"):
        where = file.relative_to(PACKAGE)
        if where.parts[0] in ("tests", "perf", "build") or any(p.startswith(".") for p in where.parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            forbidden = FORBIDDEN | ({"multiprocessing"} if where.parts[0] == "kvstore" else set())
            if isinstance(node, ast.Import):
                found += [(str(where), a.name) for a in node.names if a.name.split(".")[0] in forbidden]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found += [(str(where), node.module)] * (node.module.split(".")[0] in forbidden)
            elif isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                received = where.parts[0] in ("kvstore", "io") or str(where) in (
                    "ndarray/interop/params_file.py", "train/optimizer/states.py", "train/optimizer/mxnet_states.py",
                    "train/optimizer/serialize.py", "cli/launch.py")
                if name in CALLS and received:
                    found.append((str(where), name))
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("recv_pyobj", "send_pyobj"):
                    found.append((str(where), node.func.attr))
                if any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in node.keywords):
                    found.append((str(where), "allow_pickle"))
    assert found == []
