"""Processes that die, stop and come back. Oracle: the same run undisturbed; every wait has a deadline."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import TIMEOUT, array, pull, until, wait_for_state, worker, worker_process, workers
from tritium.errors import DeadWorkerError, KVStoreError, MXNetError
from tritium.kvstore.job.local_job import LocalJob
from tritium.kvstore.wire.frame import FrameType
from tritium.kvstore.worker.requests import Group, Question

SHAPES = [(5, 3), (40, 50), (600, 600)]  # in a frame with others, alone, in shared memory
STEPS = 12


def run(kv, at, kill):
    """Weights and optimizer states after STEPS steps; worker 0 calls kill() before push number `at`."""
    kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
    kv.init(list(range(len(SHAPES))), [array(np.ones(s)) for s in SHAPES])
    pushes = 0
    for step in range(STEPS):
        for i, s in enumerate(SHAPES):
            if kv.rank == 0 and pushes in at:
                kill()
            pushes += 1
            kv.push(i, array(np.random.default_rng([step, i, kv.rank]).normal(size=s)))
            if (step + i) % 3 == 0:
                pull(kv, i, np.zeros(s, "f"))
    kv.barrier()
    return [pull(kv, i, np.zeros(s, "f")) for i, s in enumerate(SHAPES)]


def run_job(folder, at=(), snapshot_rounds=4, servers=2):
    """(weights, optimizer state file) of a run in which servers are killed."""
    with workers(2, servers=servers, snapshot_rounds=snapshot_rounds) as (job, stores, each):
        killed = iter(range(100))

        def kill():
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.server_pid(next(killed) % servers), signal.SIGKILL)

        both = each(lambda kv: run(kv, at, kill))
        for a, b in zip(*both):
            np.testing.assert_array_equal(a, b)
        stores[0].save_optimizer_states(folder / "states")
        return both[0], (folder / "states").read_bytes()


def compare(folder, seed):
    rng = np.random.default_rng(seed)
    at = set(rng.choice(STEPS * len(SHAPES), size=1, replace=False).tolist())
    snapshot_rounds, servers = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    weights, states = run_job(folder, at, snapshot_rounds, servers)
    wanted, wanted_states = run_job(folder, (), snapshot_rounds, servers)
    for a, b in zip(weights, wanted):
        np.testing.assert_array_equal(a, b)
    assert states == wanted_states


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_server_loses_nothing_20_times(tmp_path, seed):
    compare(tmp_path, 100 + seed)


REPLACED = f"""
import numpy as np, tritium as mx
kv = mx.kv.create("dist_sync")
kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
shapes = {SHAPES}
kv.init(list(range(len(shapes))), [mx.nd.ones(s) for s in shapes])
for step in range(kv.resume(), {STEPS}):
    for i, s in enumerate(shapes):
        kv.push(i, mx.nd.array(np.random.default_rng([step, i, 1]).normal(size=s).astype("float32")))
    for i, s in enumerate(shapes):
        kv.pull(i, mx.nd.zeros(s))
    mx.nd.waitall()
kv.barrier()
"""


def run_with_process(at=()):
    """Weights of a run whose worker 1 is a process that is killed and replaced before push number `at` of worker 0."""
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(LocalJob(2, 2, policy="wait", snapshot_rounds=3))
        processes = [stack.enter_context(worker_process(job, 1, REPLACED))]

        def kill():
            processes[-1].kill()
            processes.append(stack.enter_context(worker_process(job, 1, REPLACED)))

        with worker(job, 0) as kv:
            weights = run(kv, at, kill)
        assert processes[-1].wait(TIMEOUT) == 0
        return weights


@pytest.fixture(scope="module")
def undisturbed():
    """Weights of the same run without a death, whose number of servers and snapshots do not matter."""
    with workers(2, snapshot_rounds=0) as (_, _, each):
        return each(lambda kv: run(kv, (), None))[0]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_worker_that_is_replaced_changes_nothing_20_times(undisturbed, seed):
    """It is killed wherever it is, also while it starts. The replacement continues with the step of the dead one."""
    at = {int(np.random.default_rng(200 + seed).integers(STEPS * len(SHAPES)))}
    for a, b in zip(run_with_process(at), undisturbed):
        np.testing.assert_array_equal(a, b)


def test_two_kills_in_one_run(tmp_path):
    """The second kill may happen during the recovery from the first."""
    weights, states = run_job(tmp_path, {7, 20}, servers=1)
    wanted, wanted_states = run_job(tmp_path, servers=1)
    for a, b in zip(weights, wanted):
        np.testing.assert_array_equal(a, b)
    assert states == wanted_states


def repeat_and_delay(stream, rng):
    """Send every frame of a connection two or three times, some of them long after the first."""
    send, late = stream.put, []

    def disturbed(head, payload, priority):
        payload = bytes(payload)  # a delayed frame must have the bytes of the first
        send(head, payload, priority)
        late.extend([(head, payload, priority)] * int(rng.integers(1, 3)))
        while late and rng.random() < 0.6:
            send(*late.pop(int(rng.integers(len(late)))))

    stream.put = disturbed


def test_repeated_and_delayed_frames_count_once(monkeypatch):
    """Contributions of every kind: small, large, compressible, rows; and pulled values."""
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    shapes = {"a": (5, 3), "b": (40, 50), "c": (1200, 900), "rows": (30, 4)}

    def run(disturb):
        with workers(2, servers=2, snapshot_rounds=2) as (_, stores, each):
            for kv in stores if disturb else ():
                for remote in kv._client.servers:
                    repeat_and_delay(remote.stream, np.random.default_rng([kv.rank, remote.index]))

            def steps(kv):
                kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
                kv.init(list(shapes), [array(np.ones(s)) for s in shapes.values()])
                for step in range(4):
                    data = {k: np.random.default_rng([step, kv.rank]).normal(size=s) for k, s in shapes.items()}
                    kv.push(["a", "b"], [array(data["a"]), array(data["b"])])
                    kv.push("c", array(data["c"]))
                    numbers = np.arange(step, 30, 3 + kv.rank)
                    kv.push("rows", mx.nd.sparse.row_sparse_array((array(data["rows"][numbers]), numbers), shape=(30, 4)))
                    rows = mx.nd.zeros((30, 4))
                    kv.row_sparse_pull("rows", out=rows, row_ids=array([1, 29], "int64"))
                return [pull(kv, k, np.zeros(s, "f")) for k, s in shapes.items()] + [rows.asnumpy()]

            return each(steps)

    for disturbed, plain in zip(run(True), run(False)):
        for a, b in zip(disturbed, plain):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("interface", [None, "127.0.0.1"], ids=["Unix", "TLS"])
def test_connections_that_break_lose_nothing(monkeypatch, interface):
    """They are cut in the middle of a run: those to the server while messages are sent and received, and the coordinator's."""
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    shapes = [(5, 3), (150, 150), (900, 600)]

    def run(cuts):
        def steps(kv):
            (remote,) = kv._client.servers
            kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
            kv.init(list("abc"), [array(np.ones(s)) for s in shapes])
            for step in range(8):
                kv.push(list("abc"), [array(np.random.default_rng([step, kv.rank]).normal(size=s)) for s in shapes])
                if kv.rank == 0 and step in cuts:
                    for stream in (remote.stream, kv._client.coordinator.stream):
                        if stream is not None:
                            socket.socket.shutdown(stream._socket, socket.SHUT_RDWR)
                values = [pull(kv, "abc"[i], np.zeros(s, "f")) for i, s in enumerate(shapes)]
            return values

        with workers(2, snapshot_rounds=3, interface=interface, policy="wait") as (_, _, each):
            return each(steps)

    for cut, plain in zip(run([1, 4, 5]), run([])):
        for a, b in zip(cut, plain):
            np.testing.assert_array_equal(a, b)


def test_questions_to_a_server_wait_until_it_is_back():
    """Sent and not answered, or not sent. A connection that is replaced is not a death."""
    with workers(1) as (_, (kv,), _):
        kv.init("w", mx.nd.zeros(3))
        (remote,), call_soon = kv._client.servers, kv._client.loop.call_soon
        first, second = [Question(0, FrameType.SAVE) for _ in range(2)]
        ends = []
        first.group = second.group = Group(2, ends.append)
        coordinator, location = kv._client.coordinator, {"op": "shard", **kv._client.coordinator.locations[0]}
        call_soon(lambda: (remote.submit(first, 0), remote.flush(), remote.close(), remote.submit(second, 0)))
        until(lambda: len(remote.waiting) == len(remote.asked) == 1)
        assert kv.get_num_dead_node(2) == 0
        call_soon(lambda: coordinator.handle({**location, "down": True}))
        until(lambda: kv.get_num_dead_node(2) == 1)
        call_soon(lambda: coordinator.handle(location))
        until(lambda: ends)
        assert ends == [None] and first.answers and second.answers and kv.get_num_dead_node(2) == 0


def test_states_saved_after_the_death_of_a_server_match_the_weights(tmp_path):
    """The server is back, and waits for contributions that the other worker sends again."""
    with workers(2) as (job, stores, each):
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1)))
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        for step in range(3):
            each(lambda kv, n=step: kv.push("w", mx.nd.ones(3) * (n + kv.rank)))
        each(lambda kv: pull(kv, "w", np.zeros(3, "f")))
        stores[0].save_optimizer_states(tmp_path / "before")
        (remote,), late = stores[1]._client.servers, []
        remote._on_handshake_reply = late.append
        os.kill(job.server_pid(0), signal.SIGKILL)
        until(lambda: late)
        saving = each.submit(stores[0].save_optimizer_states, tmp_path / "after")
        until(lambda: saving.done() or stores[0]._client.servers[0].asked)
        del remote._on_handshake_reply
        stores[1]._client.loop.call_soon(lambda: [remote._on_handshake_reply(frame) for frame in late])
        saving.result(TIMEOUT)
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


@pytest.mark.nightly
def test_without_snapshots_the_death_of_a_server_is_an_error():
    with workers(1, snapshot_rounds=0) as (job, (kv,), _):
        kv.init("w", mx.nd.zeros(3))
        os.kill(job.server_pid(0), signal.SIGKILL)
        with pytest.raises(KVStoreError, match="server 0 died, and its values are lost: the job keeps no snapshots"):
            for _ in range(100):
                kv.push("w", mx.nd.ones(3))
                pull(kv, "w", np.zeros(3, "f"))
                time.sleep(0.05)


VICTIM = """
import signal, tritium as mx
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros(3)); kv.init("v", mx.nd.zeros(3))
out = mx.nd.zeros(3)
for _ in range(%d):
    kv.push("w", mx.nd.ones(3)); kv.pull("w", out); out.wait_to_read()
print("there", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def survivor_and_victim(policy, rounds):
    """(job, the store of worker 0, the process of worker 1), both past `rounds` rounds of "w"."""
    with (LocalJob(2, 1, policy=policy, snapshot_rounds=3) as job, worker_process(job, 1, VICTIM % rounds) as victim,
          worker(job, 0) as kv):
        kv.init("w", mx.nd.zeros(3))
        kv.init("v", mx.nd.zeros(3))
        for _ in range(rounds):
            kv.push("w", mx.nd.ones(3))
        assert victim.stdout.readline() == "there\n"
        yield job, kv, victim
        victim.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("rounds", range(5))
def test_the_death_of_a_worker_is_detected_within_two_seconds(rounds):
    with survivor_and_victim("fail", rounds) as (_, kv, victim):
        kv.push("w", mx.nd.ones(3))
        started = time.monotonic()
        victim.kill()
        with pytest.raises(DeadWorkerError, match=rf"worker 0, key 'w', round {rounds + 1}: worker 1 died"):
            pull(kv, "w", np.zeros(3, "f"))
        assert time.monotonic() - started < 2


def test_the_error_names_the_dead_worker_and_a_replacement_continues(monkeypatch):
    """The death is detected by the end of its connections: heartbeats would take longer than the test."""
    monkeypatch.setenv("TRITIUM_KV_LOST_AFTER", "600")
    with survivor_and_victim("fail", 2) as (job, kv, victim):
        kv.push("w", mx.nd.ones(3))  # round 3, to which the victim never contributes
        victim.kill()
        with pytest.raises(DeadWorkerError, match=r"worker 0, key 'w', round 3: worker 1 died; the round is not applied"):
            pull(kv, "w", np.zeros(3, "f"))
        assert kv.get_num_dead_node(7) == 1 and kv.get_num_dead_node(3) == 0
        kv.push("v", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="key 'v', round 1: worker 1 died"):
            pull(kv, "v", np.zeros(3, "f"))
        with pytest.raises(KVStoreError, match="barrier: worker 1 died"):
            kv._client.request("barrier")  # kv.barrier() would raise the errors of its pushes first
        with worker(job, 1) as other:
            for name in "wv":
                other.init(name, mx.nd.zeros(3))
            assert (pull(other, "w", np.zeros(3, "f")) == 2).all()  # the round was not applied
            kv.push("w", mx.nd.ones(3) * 3)
            other.push("w", mx.nd.ones(3) * 4)
            assert (pull(kv, "w", np.zeros(3, "f")) == 7).all() and (pull(other, "w", np.zeros(3, "f")) == 7).all()
            assert other._keys["w"].round == 3
            until(lambda: kv.get_num_dead_node(4) == 0)


def test_policy_wait_waits_for_a_replacement():
    with survivor_and_victim("wait", 1) as (job, kv, victim):
        kv.push("w", mx.nd.ones(3))
        victim.kill()
        victim.wait()
        with worker(job, 1) as other:
            other.init("w", mx.nd.zeros(3))
            other.push("w", mx.nd.ones(3) * 5)
            assert (pull(kv, "w", np.zeros(3, "f")) == 6).all()


@pytest.mark.nightly
def test_policy_shrink_continues_without_the_dead_worker():
    with survivor_and_victim("shrink", 1) as (_, kv, victim):
        kv.push("w", mx.nd.ones(3) * 9)
        victim.kill()
        assert (pull(kv, "w", np.zeros(3, "f")) == 9).all()


def test_a_worker_that_leaves_does_not_wait_and_the_error_names_it():
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        stores[1]._client.timeout = 600.0  # more than the test may take
        stores[1].close()
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 left"):
            pull(stores[0], "w", np.zeros(3, "f"))


def test_a_list_of_which_a_key_has_failed_is_not_sent():
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init(["a", "b"], [mx.nd.zeros(3)] * 2))
        each(lambda kv: (kv.push("b", mx.nd.ones(3)), pull(kv, "b", np.zeros(3, "f"))))
        stores[0].push("a", mx.nd.ones(3))  # waits for worker 1
        stores[0].push(["a", "b"], [mx.nd.ones(3)] * 2)
        stores[1].close()
        with pytest.raises(KVStoreError, match="push: keys 'a', 'b': an earlier push of some of them has failed, so nothing was"):
            pull(stores[0], "b", np.zeros(3, "f"))
        stores[0].push("b", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="key 'b', round 2: worker 1 left"):
            pull(stores[0], "b", np.zeros(3, "f"))
        with pytest.raises(DeadWorkerError, match="key 'a', round 1: worker 1 left"):
            mx.nd.waitall()


def test_a_stopped_server_continues_and_a_long_wait_is_reported(caplog):
    """SIGSTOP: alive and unreachable. After `stall` seconds a warning names key and round. SIGCONT: everything continues."""
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        each(lambda kv: pull(kv, "w", np.zeros(3, "f")))  # round 1 is complete: the next wait is for round 2
        for s in stores:
            s._client.stall = 0.3
        pid = job.server_pid(0)
        os.kill(pid, signal.SIGSTOP)
        wait_for_state(pid, "T")
        with caplog.at_level(logging.WARNING, "tritium.kvstore"):
            ends = [each.submit(lambda s=s: (s.push("w", mx.nd.ones(3) * 2), pull(s, "w", np.zeros(3, "f")))[1]) for s in stores]
            until(lambda: re.search(r"worker 0 has waited \d+ s for server 0: .*key 'w' round 2", caplog.text))
            os.kill(pid, signal.SIGCONT)
            assert all((e.result(TIMEOUT) == 4).all() for e in ends)


def test_a_round_that_never_ends_is_an_error_at_the_deadline(caplog):
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        stores[0]._client.stall = 0.1
        stores[0].push("w", mx.nd.ones(3))
        until(lambda: "key 'w' round 1 waits for workers [1]" in caplog.text)
        stores[0]._client.timeout = 0.1
        with pytest.raises(KVStoreError, match=r"worker 0: server 0 did not answer for key 'w' within 0 s\. TRITIUM_KV_TIMEOUT"):
            pull(stores[0], "w", np.zeros(3, "f"))
        stores[0]._client.timeout = 300.0
        (remote,) = stores[0]._client.servers
        until(lambda: not remote.session._unknown)  # the handshake has shown that it was not applied
        for kv, n in zip(stores, (2, 5)):
            kv.push("w", mx.nd.ones(3) * n)
        assert pull(stores[0], "w", np.zeros(3, "f")).tolist() == [7] * 3  # without the abandoned push


@pytest.mark.nightly
def test_an_owner_that_is_killed_leaves_nothing():
    """kill -9 of a script that started its own job: host, server, files and shared memory disappear."""
    code = ("import tritium as mx, time; kv = mx.kv.create('dist'); kv.init(0, mx.nd.ones((600, 600))); j = kv._own_job; "
            "print(j.folder, j.id, j.host.pid, j.server_pid(0), flush=True); time.sleep(60)")
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRITIUM_KV")}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as script:
        folder, job, *pids = script.stdout.readline().split()
        assert os.path.exists(folder) and [n for n in os.listdir("/dev/shm") if job in n]
        script.kill()
    until(lambda: not os.path.exists(folder) and not any(os.path.exists(f"/proc/{p}") for p in pids))
    assert not [n for n in os.listdir("/dev/shm") if job in n]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_test_ends(failing, monkeypatch):
    """Its stores do not wait for each other, so it does not hang. It leaves no error for other tests, whether a thread is in the
    middle of its push or before it."""
    monkeypatch.setattr("support.kvstore_cluster.TIMEOUT", 3600.0)  # far beyond this test's own
    with contextlib.suppress(MXNetError):
        mx.nd.waitall()  # errors of other tests

    def push(kv):
        if kv.rank == failing:
            raise ZeroDivisionError
        if kv.rank == 2:
            until(lambda: not kv._client.loop.alive)
        kv.push("w", mx.nd.ones(3))
        pull(kv, "w", np.zeros(3, "f"))

    with pytest.raises(ZeroDivisionError), workers(3) as (_, _, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(push)
    mx.nd.waitall()
    with pytest.raises(ZeroDivisionError), LocalJob(2) as job, worker_process(job, 1, VICTIM % 0) as script, worker(job, 0) as kv:
        kv.init("w", mx.nd.zeros(3))
        kv.push("w", mx.nd.ones(3))
        raise ZeroDivisionError
    assert script.poll() is not None
    mx.nd.waitall()
