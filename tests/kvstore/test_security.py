"""Authentication, validation and listening ports. Attacks use real sockets; the processes must survive and not grow."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pathlib
import socket

import numpy as np
import pytest
import tritium as mx
import zmq
from support.kvstore_cluster import pull, workers
from tritium.errors import KVStoreError
from tritium.kvstore.wire import sockets
from tritium.kvstore.wire.frame import INLINE, WANT_VALUE, FrameType, Record, encode, pack
from tritium.kvstore.wire.shared_memory import SegmentPool, SegmentViews, segment_name
from tritium.kvstore.worker.client import Client

GROWTH = 16 << 20  # bytes that a process may grow under attack: far less than the lengths in the messages


@pytest.fixture(scope="module")
def before():
    """Ports that this process listens on already, because of other tests."""
    return set(listening(os.getpid()))


@pytest.fixture(scope="module")
def job(before):
    """A job with one worker, its processes and its ports."""
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


def test_only_the_documented_sockets_listen(job, before):
    """docs/kvstore.md: a port of the coordinator, two of each server, all on the given interface. No other process listens."""
    found = {name: [address for address, _ in listening(pid)] for name, pid in processes(job[0]).items()}
    assert found == {"host": [], "coordinator": ["0100007F"], "server": ["0100007F"] * 2}
    assert set(listening(os.getpid())) <= before


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"
ATTACKS = {
    "random": os.urandom(65536),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
    "null mechanism": GREETING + b"NULL".ljust(20, b"\0") + bytes(32) + b"\x04\x26\x05READY" + bytes(32),
    "plain mechanism": GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32) + b"\x04\x13\x05HELLO\x04user\x08password",
    "huge command": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x06" + (1 << 62).to_bytes(8, "big") + bytes(65536),
    "huge message": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x02" + (1 << 40).to_bytes(8, "big") + bytes(65536),
    "false hello": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\xc8\x05HELLO" + os.urandom(194),
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


@pytest.fixture(scope="module")
def apart():
    """A job whose worker might be on another machine: frames go over an encrypted channel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITIUM_KV_SHARED", "0")
        with workers(1) as (job, (kv,), _):
            kv.init("w", mx.nd.zeros(4))
            kv.init("large", mx.nd.zeros(200_000))
            yield job, kv


def channel_of(kv):
    return kv._client.servers[0].connection._channel


def large_works(kv):
    channel = channel_of(kv)
    kv.push("large", mx.nd.ones(200_000) * 3)
    return (pull(kv, "large", np.zeros(200_000, "f")) == 3).all() and channel is not None and channel_of(kv) is channel


@pytest.mark.parametrize("data", [b"", os.urandom(31), os.urandom(32), os.urandom(65536)], ids=len)
def test_other_connections_to_the_port_of_the_channels_change_nothing(apart, data):
    job, kv = apart
    before = resident(job.server_pid(0))
    with contextlib.ExitStack() as stack:
        for _, port in listening(job.server_pid(0)):
            for _ in range(100):  # they stay open
                s = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                with contextlib.suppress(OSError):
                    s.sendall(data)
        assert large_works(kv)
    assert large_works(kv) and resident(job.server_pid(0)) - before < GROWTH


def dealer(context, address, server, keys):
    s = context.socket(zmq.DEALER)
    s.linger = 0
    if keys is not None:
        s.curve_publickey, s.curve_secretkey, s.curve_serverkey = keys.public.encode(), keys.secret.encode(), server.encode()
    s.connect(address)
    return s


@pytest.mark.parametrize("key", ["no key", "foreign key", "the job's worker key", "wrong server key"])
def test_a_port_answers_no_connection_with_a_wrong_key(job, key):
    """A server also rejects the key that the coordinator accepts: each worker has a key of its own there."""
    job, kv = job
    credentials = json.loads((job.folder / "worker.json").read_text())
    server = kv._client.request("info")["shards"][0]
    targets = [(server["address"], server["public"])]
    if key != "the job's worker key":
        targets.append((credentials["address"], credentials["coordinator_key"]))
    keys = {"no key": None, "the job's worker key": sockets.CurveKeys(credentials["public"], credentials["secret"])}.get(
        key, sockets.CurveKeys.new())
    with zmq.Context() as context:
        for address, server in targets:
            server = sockets.CurveKeys.new().public if key == "wrong server key" else server
            s = dealer(context, address, server, keys)
            for m in ([encode(FrameType.PULL, [Record(1, 0, 0, 0, 0)], rank=0), b""], [pack({"op": "info", "id": 1})]):
                s.send_multipart(m)
            assert not s.poll(300)
            s.close(0)
    assert works(kv)


def test_a_worker_with_the_keys_of_another_job_is_rejected(job, tmp_path):
    credentials = json.loads((job[0].folder / "worker.json").read_text())
    other = sockets.CurveKeys.new()
    sockets.write_secret(tmp_path / "foreign.json", {**credentials, "public": other.public, "secret": other.secret})
    with pytest.raises(KVStoreError, match=r"cannot be reached, or rejects this worker's key|did not answer within"):
        Client(tmp_path / "foreign.json", "sync", timeout=2)
    assert works(job[1])


def test_only_this_user_can_read_key_files(job, tmp_path):
    for file in job[0].folder.glob("*.json"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert job[0].folder.stat().st_mode & 0o777 == 0o700
    readable = tmp_path / "worker.json"
    readable.write_text((job[0].folder / "worker.json").read_text())
    readable.chmod(0o644)
    with pytest.raises(KVStoreError, match="must be readable by this user alone: mode 644"):
        Client(readable, "sync")
    with pytest.raises(KVStoreError, match="keys of the job cannot be read"):
        Client(tmp_path / "none.json", "sync")


def forged_rows(good, n, offset, total, indices):
    """A frame of n elements from row `offset` of `total` rows, with row indices."""
    payload = bytes(4 * min(n, 100)) + np.array(indices, "<i8").tobytes()
    return encode(FrameType.PUSH_ROWS, [good._replace(n=n, offset=offset, at=total)], len(payload), rank=0), payload


def test_forged_frames_of_a_worker_affect_no_other(job):
    """A member with a valid key sends invalid frames: they are rejected or ignored, and the server continues."""
    job, kv = job
    remote = kv._client.servers[0]
    key = kv._keys["w"].id
    good, asked = Record(key, 0, 0, 4, 10**6, 0, INLINE), Record(key, 0, 0, 4, 0)
    frames = [
        (b"", b""), (b"x" * 64, b""), (os.urandom(144), os.urandom(10)),
        (encode(FrameType.PUSH, [good], 16, rank=5), bytes(16)),  # the rank of another worker
        (encode(FrameType.PUSH, [good._replace(key=12345)], 16, rank=0), bytes(16)),  # unknown key
        (encode(FrameType.PUSH, [good._replace(n=3)], 12, rank=0, flags=WANT_VALUE), bytes(12)),  # an incomplete run
        (encode(FrameType.PUSH, [good._replace(offset=2)], 16, rank=0), bytes(16)),  # beyond the end
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
            (4, 1, 1, [9]), (4, 1, 1, [-1]), (2, 0, 3, [1, 0]), (4, 3, 2, [0]), (1, 0, 1 << 50, [0]), (1, 0, 2, []),
            (3, 0, 1, [1]),
            (1 << 39, 0, 1, [1]))),
        (encode(FrameType.PULL_ROWS, [asked], 24, rank=0), np.array([0, 1, 9], "<i8").tobytes()),
        (encode(FrameType.PULL_ROWS, [asked], 5, rank=0), bytes(5)),
        (encode(FrameType.PULL_ROWS, [asked] * 2, 8, rank=0), bytes(8)),
    ]

    def put(head, payload):
        remote.connection.put(0, head, payload)
        remote.connection.flush()

    before = resident(job.server_pid(0))
    assert works(kv)
    for head, payload in frames * 20:
        kv._client.loop.call_soon(lambda h=head, p=payload: put(h, p))
    assert works(kv) and resident(job.server_pid(0)) - before < GROWTH


def test_forged_frames_on_an_encrypted_channel_affect_no_other(apart):
    """A member sends invalid frames on its channel, also some whose lengths exceed the memory."""
    job, kv = apart
    remote, key = kv._client.servers[0], kv._keys["large"].id
    good = Record(key, 0, 0, 100_000, 10**6, 0, INLINE)
    payload = bytes(400_000)
    before = resident(job.server_pid(0))
    for head in (b"", b"x" * 64, os.urandom(144), encode(FrameType.PUSH, [good], len(payload), rank=5),
                 encode(FrameType.PUSH, [good._replace(key=9)], len(payload), rank=0),
                 encode(FrameType.PUSH, [good], 1 << 40, rank=0),
                 encode(FrameType.PUSH, [good._replace(n=1 << 39)], len(payload), rank=0),
                 encode(FrameType.PUSH, [good._replace(offset=150_000)], len(payload), rank=0),
                 encode(FrameType.HANDSHAKE, [], len(payload), rank=0),
                 encode(FrameType.STATES, [good], len(payload), rank=0)) * 10:
        kv._client.loop.call_soon(lambda h=head: remote.connection.put_on_channel(h, payload))
    assert large_works(kv) and resident(job.server_pid(0)) - before < GROWTH


def test_messages_beyond_the_limit_end_the_connection(job):
    """An authenticated peer that announces too long a message is disconnected before memory is allocated."""
    job, kv = job
    credentials = json.loads((job.folder / "worker.json").read_text())
    with zmq.Context() as context:
        keys = sockets.CurveKeys(credentials["public"], credentials["secret"])
        s = dealer(context, credentials["address"], credentials["coordinator_key"], keys)
        before = resident(job.coordinator_pid())
        s.send(bytes(100 << 20))
        assert not s.poll(500)
        s.close(0)
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
    pool.give(slot)
    assert pool.take(4097) is slot
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
