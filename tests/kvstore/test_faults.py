"""Processes that die, stop, come back. Oracle: the same run undisturbed; every wait has a deadline."""

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
from concurrent.futures import Future

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import TIMEOUT, array, pull, stands, until, worker, worker_process, workers
from tritium.errors import DeadWorkerError, KVStoreError, MXNetError
from tritium.kvstore.job.local_job import Job
from tritium.kvstore.wire.frame import Op

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


def whole_run(folder, at=(), every=4, shards=2):
    """(weights, optimizer state file) of a run in which servers are killed."""
    with workers(2, shards=shards, every=every) as (job, stores, each):
        killed = iter(range(100))

        def kill():
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.shard_pid(next(killed) % shards), signal.SIGKILL)

        both = each(lambda kv: run(kv, at, kill))
        for a, b in zip(*both):
            np.testing.assert_array_equal(a, b)
        stores[0].save_optimizer_states(folder / "states")
        return both[0], (folder / "states").read_bytes()


def compare(folder, seed):
    rng = np.random.default_rng(seed)
    at = set(rng.choice(STEPS * len(SHAPES), size=1, replace=False).tolist())
    every, shards = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    weights, states = whole_run(folder, at, every, shards)
    wanted, wanted_states = whole_run(folder, (), every, shards)
    for a, b in zip(weights, wanted):
        np.testing.assert_array_equal(a, b)
    assert states == wanted_states


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_server_loses_nothing_20_times(tmp_path, seed):
    compare(tmp_path, 100 + seed)


def test_two_kills_in_one_run(tmp_path):
    """The second kill comes while the first may still be recovering."""
    weights, states = whole_run(tmp_path, {7, 20}, shards=1)
    wanted, wanted_states = whole_run(tmp_path, shards=1)
    for a, b in zip(weights, wanted):
        np.testing.assert_array_equal(a, b)
    assert states == wanted_states


def twice_and_late(link, rng):
    """Send every frame of a link two or three times, some of them long after the first."""
    send, late = link._push_run, []

    def disturbed(priority, head, payload):
        payload = bytes(payload)  # what is sent late must be what was sent first
        send(priority, head, payload)
        late.extend([(priority, head, payload)] * int(rng.integers(1, 3)))
        while late and rng.random() < 0.6:
            send(*late.pop(int(rng.integers(len(late)))))

    link._push_run = disturbed


def test_frames_that_come_again_and_late_count_once(monkeypatch):
    """Contributions of every kind: small, large, in shared memory and not, rows; and values that are asked for."""
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    shapes = {"a": (5, 3), "b": (40, 50), "c": (1200, 900), "rows": (30, 4)}

    def run(disturb):
        with workers(2, shards=2, every=2) as (_, stores, each):
            for kv in stores if disturb else ():
                for link in kv._client.links:
                    twice_and_late(link, np.random.default_rng([kv.rank, link.index]))

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


def test_lanes_that_break_lose_nothing(monkeypatch):
    """The connection for large values is cut in the middle of a run, until the worker asks for no other."""
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    monkeypatch.setattr("tritium.kvstore.worker.server_connection._SOON", float("inf"))  # one after another

    def run(cuts):
        def steps(kv):
            (link,) = kv._client.links
            until(lambda: link._lane is not None)
            kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
            kv.init(list("abc"), [array(np.ones(s)) for s in [(5, 3), (150, 150), (900, 600)]])
            for step in range(8):
                kv.push(list("abc"), [array(np.random.default_rng([step, kv.rank]).normal(size=s))
                                      for s in [(5, 3), (150, 150), (900, 600)]])
                lane = link._lane
                cut = kv.rank == 0 and step in cuts and lane is not None
                if cut:
                    lane._socket.shutdown(socket.SHUT_RDWR)
                values = [pull(kv, "abc"[i], np.zeros(s, "f")) for i, s in enumerate([(5, 3), (150, 150), (900, 600)])]
                if cut:
                    until(lambda old=lane: link._lane is not old and link.ready)  # in this order: the old one goes first
            assert (link._lane is None) == (link._broken == 3) == (kv.rank == 0 and len(cuts) == 3)
            return values

        with workers(2, every=3) as (_, _, each):
            return each(steps)

    for cut, plain in zip(run([1, 4, 5]), run([])):
        for a, b in zip(cut, plain):
            np.testing.assert_array_equal(a, b)


def test_what_is_asked_of_a_server_waits_until_it_is_back():
    """It may be sent and not answered, or not sent. A connection that is made anew is no death."""
    with workers(1) as (_, (kv,), _):
        kv.init("w", mx.nd.zeros(3))
        (link,), asked, hand = kv._client.links, [Future(), Future()], kv._client._hand
        where = link._where
        hand(lambda: (link.ask(Op.SAVE, [], b"", asked[0]), link.down(), link.ask(Op.SAVE, [], b"", asked[1])))
        until(lambda: len(link._to_ask) == 2)
        assert kv.get_num_dead_node(2) == 0
        hand(lambda: link.where({**where, "down": True}))
        until(lambda: kv.get_num_dead_node(2) == 1)
        hand(lambda: link.where(where))
        assert all(a.result(TIMEOUT) for a in asked) and kv.get_num_dead_node(2) == 0


def test_states_that_are_saved_after_a_death_are_those_of_the_weights(tmp_path):
    """The server is back, and waits for what the other worker sends again."""
    with workers(2) as (job, stores, each):
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1)))
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        for step in range(3):
            each(lambda kv, n=step: kv.push("w", mx.nd.ones(3) * (n + kv.rank)))
        each(lambda kv: pull(kv, "w", np.zeros(3, "f")))
        stores[0].save_optimizer_states(tmp_path / "before")
        (link,), late = stores[1]._client.links, []
        link._welcome = late.append
        os.kill(job.shard_pid(0), signal.SIGKILL)
        until(lambda: late)
        saving = each.submit(stores[0].save_optimizer_states, tmp_path / "after")
        until(lambda: saving.done() or stores[0]._client.links[0]._fetching)
        del link._welcome
        stores[1]._client._hand(lambda: [link._welcome(frame) for frame in late])
        saving.result(TIMEOUT)
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


@pytest.mark.nightly
def test_without_snapshots_a_dead_server_is_an_error_and_no_hang():
    with workers(1, every=0) as (job, (kv,), _):
        kv.init("w", mx.nd.zeros(3))
        os.kill(job.shard_pid(0), signal.SIGKILL)
        with pytest.raises(KVStoreError, match="server 0 died, and its values with it: the job keeps no snapshots"):
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
    with Job(2, 1, policy=policy, every=3) as job, worker_process(job, 1, VICTIM % rounds) as victim, worker(job, 0) as kv:
        kv.init("w", mx.nd.zeros(3))
        kv.init("v", mx.nd.zeros(3))
        for _ in range(rounds):
            kv.push("w", mx.nd.ones(3))
        assert victim.stdout.readline() == "there\n"
        yield job, kv, victim
        victim.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("rounds", range(5))
def test_a_killed_worker_is_noticed_within_two_seconds(rounds):
    with survivor_and_victim("fail", rounds) as (_, kv, victim):
        kv.push("w", mx.nd.ones(3))
        started = time.monotonic()
        victim.kill()
        with pytest.raises(DeadWorkerError, match=rf"worker 0, key 'w', round {rounds + 1}: worker 1 died"):
            pull(kv, "w", np.zeros(3, "f"))
        assert time.monotonic() - started < 2


def test_a_killed_worker_is_named_and_a_replacement_resumes(monkeypatch):
    """By the end of its connections, not by its silence: pings would take longer than the test may."""
    monkeypatch.setenv("TRITIUM_KV_LOST_AFTER", "600")
    with survivor_and_victim("fail", 2) as (job, kv, victim):
        kv.push("w", mx.nd.ones(3))  # round 3, which the victim never joins
        victim.kill()
        with pytest.raises(DeadWorkerError, match=r"worker 0, key 'w', round 3: worker 1 died; the round is not applied"):
            pull(kv, "w", np.zeros(3, "f"))
        assert kv.get_num_dead_node(7) == 1 and kv.get_num_dead_node(3) == 0
        kv.push("v", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="key 'v', round 1: worker 1 died"):
            pull(kv, "v", np.zeros(3, "f"))
        with pytest.raises(KVStoreError, match="barrier: worker 1 died"):
            kv._client.request("barrier")  # kv.barrier() would first raise what its own pushes met
        with worker(job, 1) as other:
            for name in "wv":
                other.init(name, mx.nd.zeros(3))
            assert (pull(other, "w", np.zeros(3, "f")) == 2).all()  # the round was not applied
            kv.push("w", mx.nd.ones(3) * 3)
            other.push("w", mx.nd.ones(3) * 4)
            assert (pull(kv, "w", np.zeros(3, "f")) == 7).all() and (pull(other, "w", np.zeros(3, "f")) == 7).all()
            assert other._keys["w"].round == 3
            until(lambda: kv.get_num_dead_node(4) == 0)


def test_waiting_for_a_replacement():
    with survivor_and_victim("wait", 1) as (job, kv, victim):
        kv.push("w", mx.nd.ones(3))
        victim.kill()
        victim.wait()
        with worker(job, 1) as other:
            other.init("w", mx.nd.zeros(3))
            other.push("w", mx.nd.ones(3) * 5)
            assert (pull(kv, "w", np.zeros(3, "f")) == 6).all()


@pytest.mark.nightly
def test_shrinking():
    with survivor_and_victim("shrink", 1) as (_, kv, victim):
        kv.push("w", mx.nd.ones(3) * 9)
        victim.kill()
        assert (pull(kv, "w", np.zeros(3, "f")) == 9).all()


def test_a_worker_that_leaves_does_not_wait_and_is_named():
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        stores[1]._client.timeout = 600.0  # more than the test may take
        stores[1].close()
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 left"):
            pull(stores[0], "w", np.zeros(3, "f"))


def test_a_stopped_server_goes_on_and_a_long_wait_is_reported(caplog):
    """SIGSTOP: alive and silent. After `stall` seconds a warning names key and round; when it goes on, so does all."""
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        each(lambda kv: pull(kv, "w", np.zeros(3, "f")))  # round 1 has ended everywhere: what waits now is round 2
        for s in stores:
            s._client.stall = 0.3
        pid = job.shard_pid(0)
        os.kill(pid, signal.SIGSTOP)
        stands(pid, "T")
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
        with pytest.raises(KVStoreError, match=r"worker 0: key 'w' was not answered within 0 s\. TRITIUM_KV_TIMEOUT"):
            pull(stores[0], "w", np.zeros(3, "f"))
        stores[0]._client.timeout = 300.0
        (link,) = stores[0]._client.links
        until(lambda: not link._given_up)  # the server has said that it does not count
        for kv, n in zip(stores, (2, 5)):
            kv.push("w", mx.nd.ones(3) * n)
        assert pull(stores[0], "w", np.zeros(3, "f")).tolist() == [7] * 3  # what was given up is no part of it


@pytest.mark.nightly
def test_an_owner_that_is_killed_leaves_nothing():
    """kill -9 of a script that started its own job: host, server, files and shared memory go with it."""
    code = ("import tritium as mx, time; kv = mx.kv.create('dist'); kv.init(0, mx.nd.ones((600, 600))); j = kv._own_job; "
            "print(j.folder, j.id, j.host.pid, j.shard_pid(0), flush=True); time.sleep(60)")
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRITIUM_KV")}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as script:
        folder, job, *pids = script.stdout.readline().split()
        assert os.path.exists(folder) and [n for n in os.listdir("/dev/shm") if job in n]
        script.kill()
    until(lambda: not os.path.exists(folder) and not any(os.path.exists(f"/proc/{p}") for p in pids))
    assert not [n for n in os.listdir("/dev/shm") if job in n]


@pytest.mark.parametrize("who", [0, 1])
def test_a_test_that_fails_ends(who, monkeypatch):
    """Its stores do not wait for each other: one failure is one failure, and no test that hangs. Nor is an error left for others,
    whether a thread is in the middle of its push then, or still before it."""
    monkeypatch.setattr("support.kvstore_cluster.TIMEOUT", 3600.0)  # far beyond this test's own
    with contextlib.suppress(MXNetError):
        mx.nd.waitall()  # nothing of other tests'

    def push(kv):
        if kv.rank == who:
            raise ZeroDivisionError
        if kv.rank == 2:
            until(lambda: not kv._client.alive)
        kv.push("w", mx.nd.ones(3))
        pull(kv, "w", np.zeros(3, "f"))

    with pytest.raises(ZeroDivisionError), workers(3) as (_, _, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(push)
    mx.nd.waitall()
    with pytest.raises(ZeroDivisionError), Job(2) as job, worker_process(job, 1, VICTIM % 0) as script, worker(job, 0) as kv:
        kv.init("w", mx.nd.zeros(3))
        kv.push("w", mx.nd.ones(3))
        raise ZeroDivisionError
    assert script.poll() is not None
    mx.nd.waitall()
