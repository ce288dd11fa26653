"""The coordinator dies and is restarted, or is not; long waits are reported. Oracle: the same calls undisturbed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import (
    TIMEOUT,
    closing,
    pull,
    push_until_applied,
    until,
    wait_for_state,
    worker,
    workers,
)
from tritium.errors import DeadWorkerError, KVStoreError
from tritium.kvstore.job.local_job import LocalJob
from tritium.kvstore.wire.credentials import read_secret
from tritium.kvstore.worker import client, coordinator_connection
from tritium.kvstore.worker.dist import DistKVStore


def kill_coordinator(job):
    """Kill it, and return its process id."""
    pid = job.coordinator_pid()
    os.kill(pid, signal.SIGKILL)
    return pid


def test_transfers_continue_without_the_coordinator_and_requests_wait_for_its_restart():
    """One worker is at a barrier before the death, the other reaches it afterwards: both pass. Joins and new keys work, too."""
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.barrier())
        early = each.submit(stores[0].barrier)
        until(lambda: stores[1]._client.request("missing", of="barrier")["ranks"] == [1])
        os.kill(job.host.pid, signal.SIGSTOP)  # it restarts the coordinator when it continues
        pid = kill_coordinator(job)
        until(lambda: [kv.get_num_dead_node(1) for kv in stores] == [1, 1])
        for step in range(3):
            each(lambda kv, n=step: kv.push("w", mx.nd.ones(3) * n))
            assert [pull(s, "w", np.zeros(3, "f")).tolist() for s in stores] == [[2 * step] * 3] * 2
        late = each.submit(stores[1].barrier)
        os.kill(job.host.pid, signal.SIGCONT)
        late.result(TIMEOUT), early.result(TIMEOUT)
        assert job.coordinator_pid() != pid and stores[0].get_num_dead_node(7) == 0
        each(lambda kv: kv.init("v", mx.nd.ones(3) * 7))
        assert pull(stores[1], "v", np.zeros(3, "f")).tolist() == [7] * 3
        stores[1].close()
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 left"):
            pull(stores[0], "w", np.zeros(3, "f"))
        with worker(job, 1) as other:
            other.init("w", mx.nd.zeros(3))
            assert other._keys["w"].round == 3


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_a_coordinator_killed_at_any_point_changes_no_value(seed):
    """Kills at points drawn by seed: the weights are those of the undisturbed run, and no call fails."""
    at = set(np.random.default_rng(seed).choice(12, size=3, replace=False).tolist())

    def run(kill):
        with workers(2, servers=2, snapshot_rounds=3) as (job, _, each):
            def steps(kv):
                kv.set_optimizer(mx.optimizer.SGD(momentum=0.9, learning_rate=0.1))
                for step in range(12):
                    if kv.rank == 0 and step in kill:
                        kill_coordinator(job)
                    kv.init(step, mx.nd.ones(5))
                    for key in range(step + 1):
                        kv.push(key, mx.nd.array(np.random.default_rng([step, key, kv.rank]).normal(size=5)))
                    if step % 3 == 2:
                        kv.barrier()
                return [pull(kv, key, np.zeros(5, "f")) for key in range(12)]

            return each(steps)

    np.testing.assert_array_equal(run(at), run(()))


def stored(job):
    """The coordinator's state on disk."""
    return read_secret(job.folder / "coordinator.json")


def test_the_coordinators_port_stays_reserved_while_it_is_away():
    with LocalJob(interface="127.0.0.1") as job:
        os.kill(job.host.pid, signal.SIGSTOP)
        port = stored(job)["port"]
        wait_for_state(kill_coordinator(job), "Z")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        os.kill(job.host.pid, signal.SIGCONT)
        with worker(job, 0) as kv:
            kv.barrier()
        assert stored(job)["port"] == port


def test_a_worker_that_was_joining_joins_after_the_restart():
    """It was admitted, but its server had not acknowledged it yet."""
    with LocalJob() as job, ThreadPoolExecutor(1) as pool:
        until(lambda: stored(job)["state"]["servers"][0][1] == 1)
        server = job.server_pid(0)
        os.kill(server, signal.SIGSTOP)
        joining = pool.submit(DistKVStore, "dist_sync", job.file, timeout=TIMEOUT)
        until(lambda: stored(job)["state"]["workers"][0][1] == 1)
        kill_coordinator(job)
        os.kill(server, signal.SIGCONT)
        kv = joining.result(TIMEOUT)
        with closing([kv]):
            kv.init("w", mx.nd.zeros(3))
            kv.push("w", mx.nd.ones(3))
            assert pull(kv, "w", np.zeros(3, "f")).tolist() == [1] * 3 and kv._client.incarnation == 1


def test_requests_fail_if_the_coordinator_does_not_come_back():
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        for s in stores:
            s._client.coordinator.patience = 0.3
        job.host.kill()  # nothing restarts it
        job.host.wait()
        kill_coordinator(job)
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        assert [pull(s, "w", np.zeros(3, "f")).tolist() for s in stores] == [[2] * 3] * 2
        with pytest.raises(KVStoreError, match=r"cannot be reached, or rejects this worker's credentials\. Transfers in flight"):
            stores[0].barrier()


@pytest.mark.nightly
def test_a_server_that_dies_with_the_coordinator_loses_nothing():
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0)))
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        kill_coordinator(job)
        os.kill(job.server_pid(0), signal.SIGKILL)
        each(lambda kv: [kv.push("w", mx.nd.ones(3)) for _ in range(3)])
        assert [pull(s, "w", np.zeros(3, "f")).tolist() for s in stores] == [[-8] * 3] * 2


@pytest.mark.nightly
def test_the_death_of_a_worker_during_a_restart_is_detected(monkeypatch):
    """After the grace period (here: short) the worker is dead."""
    monkeypatch.setenv("TRITIUM_KV_BACK_WITHIN", "1")
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        os.kill(job.host.pid, signal.SIGSTOP)
        stores[1]._client.coordinator._identity = None  # it will not report back
        kill_coordinator(job)
        os.kill(job.host.pid, signal.SIGCONT)
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 died; the round is not applied"):
            pull(stores[0], "w", np.zeros(3, "f"))
        assert stores[0].get_num_dead_node(4) == 1


@pytest.mark.nightly
def test_a_process_that_does_not_run_for_seconds_is_not_declared_dead(monkeypatch):
    """As on a busy machine. Coordinator and server are stopped for 3 s without an effect."""
    monkeypatch.delenv("TRITIUM_KV_LOST_AFTER")
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        pids = job.coordinator_pid(), job.server_pid(0)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        stores[0].push("w", mx.nd.ones(3))
        threading.Event().wait(3)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        stores[1].push("w", mx.nd.ones(3))
        each(lambda kv: kv.barrier())
        for kv in stores:
            assert (pull(kv, "w", np.zeros(3, "f")) == 2).all() and kv.get_num_dead_node(7) == 0


def test_a_worker_rejected_because_of_a_death_knows_of_the_death():
    """The server's rejection may arrive before the coordinator's message. A program that waits for the dead must see it."""
    with workers(2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        connection, late = stores[0]._client.coordinator, []
        handle, connection.handle = connection.handle, late.append
        stores[1]._client.loop._stopping = True  # its connections end without a leave
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 died"):
            pull(stores[0], "w", np.zeros(3, "f"))
        assert stores[0].get_num_dead_node(4) == 1
        with worker(job, 1):
            until(lambda: late and not late[-1]["gone"])
            connection.handle = handle
            handle({"op": "gone", "gone": {}, "generation": late[0]["generation"] - 1})  # sent before the death
            assert stores[0].get_num_dead_node(4) == 1
            for m in late:
                handle(m)
            connection.learn_gone({1: "died"}, late[0]["generation"])  # an earlier rejection
            assert stores[0].get_num_dead_node(4) == 0


def cut_off(client):
    """Cut its connection to the coordinator. Returns a function that lets it connect again."""
    coordinator = client.coordinator
    coordinator._connect = lambda: None
    client.loop.call_soon(lambda: coordinator.stream._socket.shutdown(socket.SHUT_RDWR))
    return lambda: delattr(coordinator, "_connect")


def test_a_worker_that_was_cut_off_comes_back_with_its_rank():
    """Its pushes meanwhile are not rejected. They are sent again when the servers know of its return."""
    with workers(2, snapshot_rounds=2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        client = stores[1]._client
        connect = cut_off(client)
        until(lambda: stores[0].get_num_dead_node(4) == 1)
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="key 'w', round 1: worker 1 died"):
            pull(stores[0], "w", np.zeros(3, "f"))
        stores[1].push("w", mx.nd.ones(3) * 2)
        client.rounds([0])  # the push has arrived, and was dropped
        connect()
        client.request("missing", of="init")  # it is answered on the new connection
        assert push_until_applied(stores[0], "w", mx.nd.ones(3)) == pull(stores[1], "w", np.zeros(3, "f"))[0] == 3


def test_a_round_that_another_worker_has_seen_is_applied_again_with_the_same_contributions():
    """The server died before worker 0 got its answer, and worker 1 is cut off. Its next push does not replace the first."""
    with workers(2) as (job, stores, each):
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0)))
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        (remote,), other, unseen = stores[0]._client.servers, stores[1]._client, []
        remote._on_answer = unseen.append
        each(lambda kv: kv.push("w", mx.nd.ones(3) * (kv.rank + 1)))
        assert pull(stores[1], "w", np.zeros(3, "f"))[0] == -3
        until(lambda: unseen)
        pid = job.server_pid(0)
        os.kill(pid, signal.SIGSTOP)  # it learns nothing of what follows, and writes nothing
        connect = cut_off(other)
        until(lambda: stores[0].get_num_dead_node(4) == 1)
        os.kill(pid, signal.SIGKILL)
        until(lambda: remote.incarnation == 2)
        del remote._on_answer
        with pytest.raises(DeadWorkerError, match="key 'w', round 1: worker 1 died"):
            pull(stores[0], "w", np.zeros(3, "f"))
        connect()
        other.request("missing", of="init")
        until(lambda: stores[0].get_num_dead_node(4) == 0)
        stores[0].push("w", mx.nd.ones(3) * 7)
        with pytest.raises(KVStoreError, match="round 1 already includes an earlier push"):
            pull(stores[0], "w", np.zeros(3, "f"))
        each(lambda kv: kv.push("w", mx.nd.ones(3) * (kv.rank + 4)))
        assert each(lambda kv: pull(kv, "w", np.zeros(3, "f"))[0]) == [-12, -12]


def test_a_worker_that_was_replaced_while_cut_off_gets_an_error():
    """Its pushes and requests, which would never be answered, fail with the reason."""
    with workers(2, snapshot_rounds=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        client = stores[1]._client
        connect = cut_off(client)
        until(lambda: stores[0].get_num_dead_node(4) == 1)
        with worker(job, 1):
            stores[1].push("w", mx.nd.ones(3))
            connect()
            for act in (lambda: client.request("barrier", n=1), lambda: pull(stores[1], "w", np.zeros(3, "f")),
                        lambda: client.rounds([0]), lambda: client.request("barrier", n=2)):
                with pytest.raises(KVStoreError, match="worker 1 was declared dead, and the job does not wait for it any more"):
                    act()


def test_a_worker_leaves_correctly_however_long_it_takes(monkeypatch):
    """Its thread does not run for ten seconds. Other workers must not get an error that it died."""
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        client, late, runs = stores[1]._client, [0.0], threading.Event()
        monkeypatch.setattr(coordinator_connection, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late[0]))
        client.stall = 0.01
        client.loop.run_once = lambda ready: not runs.wait(TIMEOUT)
        leaving = each.submit(client.close)
        until(lambda: client.loop._inbox)
        late[0] = 10.0
        until(lambda: len(client.loop._inbox) > 2 or client.loop._stopping)  # it has looked at the clock
        del client.loop.run_once
        runs.set()
        leaving.result(TIMEOUT)
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 left"):
            pull(stores[0], "w", np.zeros(3, "f"))


def test_any_number_of_requests_waits_for_a_coordinator():
    with workers(1) as (job, (kv,), _):
        os.kill(job.host.pid, signal.SIGSTOP)
        kill_coordinator(job)
        until(lambda: kv.get_num_dead_node(1) == 1)
        requests = [kv._client.coordinator._start("info") for _ in range(1000)]
        os.kill(job.host.pid, signal.SIGCONT)
        assert [r.answer.result(TIMEOUT)["id"] for r in requests] == [r.message["id"] for r in requests]


def test_a_rank_that_is_not_free_yet_is_requested_again(monkeypatch):
    """However late the coordinator's first answer is. A worker that joins at a barrier waits as long as for a barrier."""
    now, asked = [0.0], []

    def request(op, timeout, rank, **_):
        now[0] += 50
        asked.append(timeout)
        if len(asked) == 1:
            raise KVStoreError("worker 1 has joined already")
        return {"rank": rank}

    c = client.Client.__new__(client.Client)
    c.timeout, c.credentials, c.request = 600.0, SimpleNamespace(public="key"), request
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    assert c._join_when_free("sync", 1) == {"rank": 1} and c._join_when_free("sync", "new") == {"rank": "new"}
    assert asked == [60.0, 60.0, 600.0]


def test_a_handshake_discards_earlier_contributions():
    """A contribution before it does not count until it is sent again, so no message in between can be misunderstood."""
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        remote, client = stores[1]._client.servers[0], stores[1]._client
        stores[1].push("w", mx.nd.ones(3))
        client.rounds([0])  # it has arrived
        on_reply, back = remote._on_handshake_reply, threading.Event()

        def on_handshake_reply(frame):
            on_reply(frame)
            remote.flush = lambda: None  # the repeated contribution is not sent yet
            back.set()

        remote._on_handshake_reply = on_handshake_reply
        client.loop.call_soon(remote.reconnect)
        assert back.wait(TIMEOUT)
        stores[0].push("w", mx.nd.ones(3) * 4)
        assert list(stores[0]._client.rounds([0]).values()) == [0]
        del remote.flush, remote._on_handshake_reply
        client.loop.call_soon(remote.flush)
        assert [pull(kv, "w", np.zeros(3, "f")).tolist() for kv in stores] == [[5] * 3] * 2


def test_a_long_wait_names_the_missing_workers_and_ends_at_the_deadline(caplog):
    with workers(2) as (_, stores, each):
        stores[0]._client.stall = 0.1
        with caplog.at_level(logging.WARNING, "tritium.kvstore"):
            waiting = each.submit(stores[0].barrier)
            until(lambda: "worker 0: barrier waits for workers [1]" in caplog.text)
        stores[1].barrier()
        waiting.result(TIMEOUT)
        stores[0]._client.timeout = 0.3
        with pytest.raises(KVStoreError, match=r"barrier: worker 1 did not arrive within 0 s\. TRITIUM_KV_TIMEOUT sets the"):
            stores[0].barrier()


def test_workers_that_initialize_different_keys_get_an_error_that_names_them():
    """At once if all wait for each other, at the deadline if one of them is busy."""
    with workers(2) as (_, stores, each):
        def init(kv):
            kv.init("w", mx.nd.zeros(3))
            with pytest.raises(KVStoreError, match=r"init: workers wait for each other, because they initialize different "
                                                   r"keys: worker 0 initializes 'a'; worker 1 initializes 'b'\. All workers"):
                kv.init("ab"[kv.rank], mx.nd.zeros(3))

        each(init)
        stores[0]._client.timeout = 0.1
        with pytest.raises(KVStoreError, match=r"worker 1 did not arrive: worker 0 initializes 'c'; worker 1 has not called"):
            stores[0].init("c", mx.nd.zeros(3))
        stores[0]._client.timeout = TIMEOUT
        each(lambda kv: kv.init("d", mx.nd.ones(3)))
        assert [pull(kv, "d", np.zeros(3, "f")).tolist() for kv in stores] == [[1] * 3] * 2
