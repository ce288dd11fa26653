"""Who is let in, what is believed, and what listens. Attacks come over real sockets; the shard must live and not grow."""

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
from tritium.kvstore.wire.frame import INLINE, WANT, Op, Record, encode, pack
from tritium.kvstore.wire.shared_memory import Pool, Views, segment_name
from tritium.kvstore.worker.client import Client

GROWTH = 16 << 20  # bytes a process may grow under attack: far below what the lengths ask for


@pytest.fixture(scope="module")
def before():
    """What listens in this process already, if a test of something else has left it."""
    return set(listening(os.getpid()))


@pytest.fixture(scope="module")
def job(before):
    """A job with one worker, its processes and its ports."""
    with workers(1) as (job, (kv,), _):
        kv.init("w", mx.nd.zeros(4))
        yield job, kv


def processes(job):
    return {"host": job.host.pid, "coordinator": job.coordinator_pid(), "shard": job.shard_pid(0)}


def listening(pid):
    """(address, port) of every TCP socket that process pid listens on."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(fd))
    found = {}  # by inode: while others come and go, the table may show a socket twice
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, port = fields[1].split(":")
                found[fields[9]] = address, int(port, 16)
    return list(found.values())


def resident(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def works(kv):
    kv.push("w", mx.nd.ones(4) * 3)
    return (pull(kv, "w", np.zeros(4, "f")) == 3).all()


def test_only_the_documented_sockets_listen(job, before):
    """docs/kvstore.md: a port of the coordinator, two of each server, all on the named interface. Nobody else listens."""
    found = {name: [address for address, _ in listening(pid)] for name, pid in processes(job[0]).items()}
    assert found == {"host": [], "coordinator": ["0100007F"], "shard": ["0100007F"] * 2}
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
def test_strange_bytes_on_every_port_change_nothing(job, attack):
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
    """A job whose worker might be on another machine: what is large takes a lane."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITIUM_KV_SHARED", "0")
        with workers(1) as (job, (kv,), _):
            kv.init("w", mx.nd.zeros(4))
            kv.init("large", mx.nd.zeros(200_000))
            yield job, kv


def large_works(kv):
    lane = kv._client.links[0]._lane
    kv.push("large", mx.nd.ones(200_000) * 3)
    return (pull(kv, "large", np.zeros(200_000, "f")) == 3).all() and lane is not None and kv._client.links[0]._lane is lane


@pytest.mark.parametrize("said", [b"", os.urandom(31), os.urandom(32), os.urandom(65536)], ids=len)
def test_what_is_said_on_a_lanes_port_by_others_changes_nothing(apart, said):
    job, kv = apart
    before = resident(job.shard_pid(0))
    with contextlib.ExitStack() as stack:
        for _, port in listening(job.shard_pid(0)):
            for _ in range(100):  # they stay
                s = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                with contextlib.suppress(OSError):
                    s.sendall(said)
        assert large_works(kv)
    assert large_works(kv) and resident(job.shard_pid(0)) - before < GROWTH


def dealer(context, address, server, keys):
    s = context.socket(zmq.DEALER)
    s.linger = 0
    if keys is not None:
        s.curve_publickey, s.curve_secretkey, s.curve_serverkey = keys.public.encode(), keys.secret.encode(), server.encode()
    s.connect(address)
    return s


@pytest.mark.parametrize("who", ["nobody", "foreign key", "the job's worker key", "wrong server key"])
def test_a_port_answers_nobody_without_its_own_key(job, who):
    """On the shard even the key that opens the coordinator is foreign: each worker has a key of its own there."""
    job, kv = job
    credentials = json.loads((job.folder / "worker.json").read_text())
    shard = kv._client.request("info")["shards"][0]
    targets = [(shard["address"], shard["public"])]
    if who != "the job's worker key":
        targets.append((credentials["address"], credentials["server"]))
    keys = {"nobody": None, "the job's worker key": sockets.Keys(credentials["public"], credentials["secret"])}.get(
        who, sockets.Keys.new())
    with zmq.Context() as context:
        for address, server in targets:
            server = sockets.Keys.new().public if who == "wrong server key" else server
            s = dealer(context, address, server, keys)
            for m in ([encode(Op.PULL, [Record(1, 0, 0, 0, 0)], rank=0), b""], [pack({"op": "info", "id": 1})]):
                s.send_multipart(m)
            assert not s.poll(300)
            s.close(0)
    assert works(kv)


def test_a_worker_with_another_jobs_keys_is_refused(job, tmp_path):
    credentials = json.loads((job[0].folder / "worker.json").read_text())
    other = sockets.Keys.new()
    sockets.write_secret(tmp_path / "foreign.json", {**credentials, "public": other.public, "secret": other.secret})
    with pytest.raises(KVStoreError, match=r"gone, or refuses this worker's key|did not come within"):
        Client(tmp_path / "foreign.json", "sync", timeout=2)
    assert works(job[1])


def test_key_files_are_this_users_alone(job, tmp_path):
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


def forged_rows(good, n, offset, total, numbers):
    """A frame of rows: n elements that begin at row `offset` of `total` rows, and numbers."""
    payload = bytes(4 * min(n, 100)) + np.array(numbers, "<i8").tobytes()
    return encode(Op.PUSH_ROWS, [good._replace(n=n, offset=offset, at=total)], len(payload), rank=0), payload


def test_forged_frames_of_a_worker_harm_nobody(job):
    """A member with its right key that sends nonsense: refused or ignored, and the shard goes on."""
    job, kv = job
    link = kv._client.links[0]
    key = kv._keys["w"].id
    good, asked = Record(key, 0, 0, 4, 10**6, 0, INLINE), Record(key, 0, 0, 4, 0)
    frames = [
        (b"", b""), (b"x" * 64, b""), (os.urandom(144), os.urandom(10)),
        (encode(Op.PUSH, [good], 16, rank=5), bytes(16)),  # another's rank
        (encode(Op.PUSH, [good._replace(key=12345)], 16, rank=0), bytes(16)),  # no such key
        (encode(Op.PUSH, [good._replace(n=3)], 12, rank=0, flags=WANT), bytes(12)),  # a part that is never completed
        (encode(Op.PUSH, [good._replace(offset=2)], 16, rank=0), bytes(16)),  # beyond the end
        (encode(Op.PUSH, [good._replace(dtype=1)], 32, rank=0), bytes(32)),  # another dtype
        (encode(Op.PUSH, [good._replace(n=1 << 39, segment=0)], 0, rank=0), b""),
        (encode(Op.PUSH, [good._replace(segment=999)], 0, rank=0), b""),  # no such segment
        (encode(Op.PUSH, [good], 16, rank=0), bytes(16)),  # a round far ahead
        (encode(Op.PULL, [asked._replace(reply_segment=999)], 0, rank=0), b""),
        (encode(Op.PULL, [asked._replace(reply_segment=0, reply_at=1 << 50)], 0, rank=0), b""),
        (encode(Op.STATES, [good], 16, rank=0), bytes(16)), (encode(Op.HELLO, [], 4, rank=0), b"[[[["),
        (encode(Op.FILL, [good._replace(round=0)], 16, rank=0), bytes(16)),
        *(forged_rows(good, *f) for f in (
            (4, 1, 1, [9]), (4, 1, 1, [-1]), (2, 0, 3, [1, 0]), (4, 3, 2, [0]), (1, 0, 1 << 50, [0]), (1, 0, 2, []),
            (3, 0, 1, [1]),
            (1 << 39, 0, 1, [1]))),
        (encode(Op.PULL_ROWS, [asked], 24, rank=0), np.array([0, 1, 9], "<i8").tobytes()),
        (encode(Op.PULL_ROWS, [asked], 5, rank=0), bytes(5)),
        (encode(Op.PULL_ROWS, [asked] * 2, 8, rank=0), bytes(8)),
    ]
    before = resident(job.shard_pid(0))
    assert works(kv)
    for head, payload in frames * 20:
        kv._client._hand(lambda h=head, p=payload: link._put(h, p))
    assert works(kv) and resident(job.shard_pid(0)) - before < GROWTH


def test_forged_frames_on_a_lane_harm_nobody(apart):
    """A member with its own lane that sends nonsense on it, also what asks for memory that is not there."""
    job, kv = apart
    link, key = kv._client.links[0], kv._keys["large"].id
    good = Record(key, 0, 0, 100_000, 10**6, 0, INLINE)
    payload = bytes(400_000)
    before = resident(job.shard_pid(0))
    for head in (b"", b"x" * 64, os.urandom(144), encode(Op.PUSH, [good], len(payload), rank=5),
                 encode(Op.PUSH, [good._replace(key=9)], len(payload), rank=0), encode(Op.PUSH, [good], 1 << 40, rank=0),
                 encode(Op.PUSH, [good._replace(n=1 << 39)], len(payload), rank=0),
                 encode(Op.PUSH, [good._replace(offset=150_000)], len(payload), rank=0),
                 encode(Op.HELLO, [], len(payload), rank=0), encode(Op.STATES, [good], len(payload), rank=0)) * 10:
        kv._client._hand(lambda h=head: link._put_on_lane(h, payload))
    assert large_works(kv) and resident(job.shard_pid(0)) - before < GROWTH


def test_messages_beyond_the_limit_end_the_connection(job):
    """An authenticated peer that announces more than a frame may have is cut off before memory is taken."""
    job, kv = job
    credentials = json.loads((job.folder / "worker.json").read_text())
    with zmq.Context() as context:
        keys = sockets.Keys(credentials["public"], credentials["secret"])
        s = dealer(context, credentials["address"], credentials["server"], keys)
        before = resident(job.coordinator_pid())
        s.send(bytes(100 << 20))
        assert not s.poll(500)
        s.close(0)
    assert resident(job.coordinator_pid()) - before < GROWTH and works(kv)


def test_shared_memory_is_checked(tmp_path, monkeypatch):
    """Only regular files of this user, and only bytes that are there."""
    from tritium.errors import FrameError
    from tritium.kvstore.wire import shared_memory

    monkeypatch.setattr(shared_memory, "DIRECTORY", tmp_path)
    pool, views = Pool("ab", 0, 1), Views("ab", 0, 1)
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
    with pytest.raises(FrameError, match="segment 3 is no file of this user"):
        views.bytes(3, 0, 1)
    pool.give(slot)
    assert pool.take(4097) is slot
    pool.close()
    assert not (tmp_path / segment_name("ab", 0, 1, 0)).exists()


FORBIDDEN = {"pickle", "cPickle", "cloudpickle", "marshal", "shelve", "dill", "jsonpickle"}
CALLS = {"eval", "exec", "compile"}
PACKAGE = pathlib.Path(mx.__file__).parent


def test_no_pickle_and_no_eval_in_the_package():
    """No module imports a pickle or marshal; where data is received there is no eval, exec or compile either.

    multiprocessing's connections unpickle what they receive: a store has none.
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
