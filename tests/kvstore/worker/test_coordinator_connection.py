"""The coordinator dies and comes back, or does not; long waits are reported. Oracle: the same calls undisturbed."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tritium as mx
import zmq
from support.kvstore_cluster import TIMEOUT, closing, insist, pull, stands, until, worker, worker_process, workers
from tritium.errors import DeadWorkerError, KVStoreError
from tritium.kvstore.job.local_job import Job
from tritium.kvstore.wire import sockets
from tritium.kvstore.worker import client, coordinator_connection
from tritium.kvstore.worker.dist import DistKVStore


def kill_coordinator(job):
    """Kill it; its process number."""
    pid = job.coordinator_pid()
    os.kill(pid, signal.SIGKILL)
    return pid


def test_transfers_go_on_without_it_and_requests_wait_for_the_next_one():
    """A worker asks for a barrier while there is no coordinator, another one before: both pass. So do joining and new keys."""
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.barrier())
        early = each.submit(stores[0].barrier)
        until(lambda: stores[1]._client.request("missing", of="barrier")["ranks"] == [1])
        os.kill(job.host.pid, signal.SIGSTOP)  # it starts the next one when it goes on
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
def test_killed_at_any_point_it_changes_nothing(seed):
    """Kills at points drawn by seed: the weights are those of the undisturbed run, and nobody hears of it."""
    at = set(np.random.default_rng(seed).choice(12, size=3, replace=False).tolist())

    def run(kill):
        with workers(2, shards=2, every=3) as (job, _, each):
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


def kept(job):
    """What the coordinator keeps on disk."""
    return sockets.read_secret(job.folder / "coordinator.json")


def test_its_port_is_given_to_nobody_else_while_it_is_away():
    with Job() as job:
        os.kill(job.host.pid, signal.SIGSTOP)
        port = kept(job)["port"]
        stands(kill_coordinator(job), "Z")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        os.kill(job.host.pid, signal.SIGCONT)
        with worker(job, 0) as kv:
            kv.barrier()
        assert kept(job)["port"] == port


def test_who_was_joining_joins_the_next_one():
    """It had been let in, which its server had yet to hear before it is told."""
    with Job() as job, ThreadPoolExecutor(1) as pool:
        until(lambda: kept(job)["state"]["shards"][0][2] == 1)
        server = job.shard_pid(0)
        os.kill(server, signal.SIGSTOP)
        joining = pool.submit(DistKVStore, "dist_sync", job.file, timeout=TIMEOUT)
        until(lambda: kept(job)["state"]["workers"][0][1] == 1)
        kill_coordinator(job)
        os.kill(server, signal.SIGCONT)
        kv = joining.result(TIMEOUT)
        with closing([kv]):
            kv.init("w", mx.nd.zeros(3))
            kv.push("w", mx.nd.ones(3))
            assert pull(kv, "w", np.zeros(3, "f")).tolist() == [1] * 3 and kv._client.incarnation == 1


def test_without_one_for_good_requests_are_errors():
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        for s in stores:
            s._client.control.within = 0.3
        job.host.kill()  # nobody starts it again
        job.host.wait()
        kill_coordinator(job)
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        assert [pull(s, "w", np.zeros(3, "f")).tolist() for s in stores] == [[2] * 3] * 2
        with pytest.raises(KVStoreError, match=r"coordinator is gone, or refuses this worker's key\. Transfers under way go on"):
            stores[0].barrier()


@pytest.mark.nightly
def test_a_server_that_dies_with_the_coordinator_loses_nothing():
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0)))
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        kill_coordinator(job)
        os.kill(job.shard_pid(0), signal.SIGKILL)
        each(lambda kv: [kv.push("w", mx.nd.ones(3)) for _ in range(3)])
        assert [pull(s, "w", np.zeros(3, "f")).tolist() for s in stores] == [[-8] * 3] * 2


@pytest.mark.nightly
def test_a_worker_that_dies_while_it_is_away_is_noticed(monkeypatch):
    """It is given time to come back (here: little), then it is dead."""
    monkeypatch.setenv("TRITIUM_KV_BACK_WITHIN", "1")
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        os.kill(job.host.pid, signal.SIGSTOP)
        stores[1]._client.control._me = None  # it will not say that it is back
        kill_coordinator(job)
        os.kill(job.host.pid, signal.SIGCONT)
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 died; the round is not applied"):
            pull(stores[0], "w", np.zeros(3, "f"))
        assert stores[0].get_num_dead_node(4) == 1


STOPS = f"""
import os, signal, time, tritium as mx
from tritium.errors import DeadWorkerError
{inspect.getsource(insist)}
kv = mx.kv.create("dist_sync")
for key in "wv":
    kv.init(key, mx.nd.zeros(3))
kv.push("v", mx.nd.ones(3) * 2)
kv._client.rounds([0])  # what was pushed has arrived
print("there", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
kv.push("w", mx.nd.ones(3))
for key, value in ("w", 1), ("v", 2):
    print(insist(kv, key, mx.nd.ones(3) * value), flush=True)
"""


def test_a_connection_that_is_back_before_its_loss_is_heard_of():
    """On a busy machine libzmq connects anew before the worker's thread has run. It asks again, and nobody is dead."""
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        stores[0].push("w", mx.nd.ones(3))
        watch = stores[1]._client.control._watch
        heard, events = watch.lost, []
        watch.lost = lambda: events.extend(heard()) or ()
        former = kill_coordinator(job)
        until(lambda: events and job.coordinator_pid() != former)
        each(lambda kv: kv.init("v", mx.nd.zeros(3)))
        watch.lost = lambda: [events.pop()] if events else heard()
        stores[1].push("w", mx.nd.ones(3))
        each(lambda kv: kv.barrier())
        assert [pull(kv, "w", np.zeros(3, "f")).tolist() for kv in stores] == [[2] * 3] * 2
        until(lambda: not events and [kv.get_num_dead_node(7) for kv in stores] == [0, 0])


@pytest.mark.nightly
def test_who_is_silent_for_seconds_is_not_taken_for_dead(monkeypatch):
    """On a busy machine a process may not run for a while. Coordinator and server are stopped for 3 s, and nobody notices."""
    monkeypatch.delenv("TRITIUM_KV_LOST_AFTER")
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        each(lambda kv: kv.push("w", mx.nd.ones(3)))
        pids = job.coordinator_pid(), job.shard_pid(0)
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


def test_a_worker_that_was_only_silent_comes_back_as_itself(monkeypatch):
    """SIGSTOP: taken for dead after a while, which ends the others' round. SIGCONT: it goes on, and so do they.

    What it had pushed before, and was dropped then, it sends again.
    """
    monkeypatch.setenv("TRITIUM_KV_LOST_AFTER", "1")
    with Job(2) as job, worker_process(job, 1, STOPS) as stopped:
        with worker(job, 0) as kv:
            for key in "wv":
                kv.init(key, mx.nd.zeros(3))
            assert stopped.stdout.readline() == "there\n"
            kv.push("w", mx.nd.ones(3))
            with pytest.raises(DeadWorkerError, match="key 'w', round 1: worker 1 died; the round is not applied"):
                pull(kv, "w", np.zeros(3, "f"))
            os.kill(stopped.pid, signal.SIGCONT)
            until(lambda: kv.get_num_dead_node(4) == 0)
            kv.push("w", mx.nd.ones(3) * 4)
            kv.push("v", mx.nd.ones(3))
            assert [insist(kv, "w", mx.nd.ones(3) * 4), insist(kv, "v", mx.nd.ones(3))] == [5, 3]
            assert stopped.stdout.read() == "5.0\n3.0\n"


def test_who_is_refused_because_of_a_death_knows_of_it():
    """The server's refusal may come before the coordinator's news: who waits for the worker to be back would not wait."""
    with workers(2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        coordinator_connection, late = stores[0]._client.control, []
        hear, coordinator_connection._hear = coordinator_connection._hear, late.append
        stores[1]._client._stopping = True  # its connections end, and it has not left
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 died"):
            pull(stores[0], "w", np.zeros(3, "f"))
        assert stores[0].get_num_dead_node(4) == 1
        with worker(job, 1):
            until(lambda: late and not late[-1]["gone"])
            coordinator_connection._hear = hear
            hear({"op": "gone", "gone": {}, "generation": late[0]["generation"] - 1})  # on its way since before the death
            assert stores[0].get_num_dead_node(4) == 1
            for m in late:
                hear(m)
            coordinator_connection.heard_of({1: "died"}, late[0]["generation"])  # a refusal of before
            assert stores[0].get_num_dead_node(4) == 0


def cut_off(client):
    """Its connection to the coordinator ends, of which it does not hear. Returns what makes another."""
    s, address = client.control.socket, client.control.job["address"]
    client._hand(lambda: s.disconnect(address))
    return lambda: client._hand(lambda: s.connect(address))


def test_who_is_cut_off_comes_back_as_itself():
    """What it pushes meanwhile is not refused: it is sent again when servers know that it is back."""
    with workers(2, every=2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        client = stores[1]._client
        connect = cut_off(client)
        until(lambda: stores[0].get_num_dead_node(4) == 1)
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="key 'w', round 1: worker 1 died"):
            pull(stores[0], "w", np.zeros(3, "f"))
        stores[1].push("w", mx.nd.ones(3) * 2)
        client.rounds([0])  # what it pushed has arrived, and was dropped
        connect()
        client.request("missing", of="init")  # now it hears
        assert insist(stores[0], "w", mx.nd.ones(3)) == pull(stores[1], "w", np.zeros(3, "f"))[0] == 3


def test_a_round_that_another_has_heard_of_is_made_again_as_it_was():
    """Its server died before worker 0 was answered, and worker 1 is cut off: what worker 0 pushes next is not taken instead."""
    with workers(2) as (job, stores, each):
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0)))
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        (link,), other, unheard = stores[0]._client.links, stores[1]._client, []
        link._take_answers = unheard.append
        each(lambda kv: kv.push("w", mx.nd.ones(3) * (kv.rank + 1)))
        assert pull(stores[1], "w", np.zeros(3, "f"))[0] == -3
        until(lambda: unheard)
        pid = job.shard_pid(0)
        os.kill(pid, signal.SIGSTOP)  # it does not hear of what happens now, and writes nothing
        connect = cut_off(other)
        until(lambda: stores[0].get_num_dead_node(4) == 1)
        os.kill(pid, signal.SIGKILL)
        until(lambda: link.incarnation == 2)
        del link._take_answers
        with pytest.raises(DeadWorkerError, match="key 'w', round 1: worker 1 died"):
            pull(stores[0], "w", np.zeros(3, "f"))
        connect()
        other.request("missing", of="init")
        until(lambda: stores[0].get_num_dead_node(4) == 0)
        stores[0].push("w", mx.nd.ones(3) * 7)
        with pytest.raises(KVStoreError, match="round 1 was made after all"):
            pull(stores[0], "w", np.zeros(3, "f"))
        each(lambda kv: kv.push("w", mx.nd.ones(3) * (kv.rank + 4)))
        assert each(lambda kv: pull(kv, "w", np.zeros(3, "f"))[0]) == [-12, -12]


def test_who_was_cut_off_and_is_replaced_hears_of_it():
    """Nothing that it pushes will ever be answered: it ends, and what it asks for, with the reason."""
    with workers(2, every=2) as (job, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        client = stores[1]._client
        connect = cut_off(client)
        until(lambda: stores[0].get_num_dead_node(4) == 1)
        with worker(job, 1):
            stores[1].push("w", mx.nd.ones(3))
            connect()
            for act in (lambda: client.request("barrier", n=1), lambda: pull(stores[1], "w", np.zeros(3, "f")),
                        lambda: client.rounds([0]), lambda: client.request("barrier", n=2)):
                with pytest.raises(KVStoreError, match="worker 1 was taken for dead, and is not waited for any more"):
                    act()


def test_who_leaves_is_heard_however_long_it_takes(monkeypatch):
    """Here its thread does not run before ten seconds are over. Others would be told that it died."""
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        client, late, runs = stores[1]._client, [0.0], threading.Event()
        monkeypatch.setattr(coordinator_connection, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late[0]))
        client.stall = 0.01
        client._turn = lambda told: not runs.wait(TIMEOUT)
        leaving = each.submit(client.close)
        until(lambda: client._inbox)
        late[0] = 10.0
        until(lambda: len(client._inbox) > 2 or client._stopping)  # it has looked at the clock
        del client._turn
        runs.set()
        leaving.result(TIMEOUT)
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(DeadWorkerError, match="worker 1 left"):
            pull(stores[0], "w", np.zeros(3, "f"))


def test_any_number_of_requests_waits_for_a_coordinator():
    """Here in libzmq, which knows of no connection yet."""
    with zmq.Context() as context:
        keys = sockets.Keys.new()
        job = {**keys._asdict(), "server": keys.public, "address": "tcp://127.0.0.1:1"}  # where nobody listens
        c = coordinator_connection.Control(SimpleNamespace(_context=context, watch=lambda fd: None, unwatch=lambda fd: None), job)
        for n in range(1000):
            c._ask(coordinator_connection._Request({"op": "info", "id": n}, Future()))
            assert c.socket.get(zmq.EVENTS) & zmq.POLLOUT
        c.close()


def test_a_rank_that_is_not_free_yet_is_asked_for_again(monkeypatch):
    """However late the coordinator's first answer comes; and who joins at a barrier waits as long as anybody waits for one."""
    now, asked = [0.0], []

    def request(op, within, rank, **_):
        now[0] += 50
        asked.append(within)
        if len(asked) == 1:
            raise KVStoreError("worker 1 is here already")
        return {"rank": rank}

    c = client.Client.__new__(client.Client)
    c.timeout, c._keys, c.request = 600.0, SimpleNamespace(public="key"), request
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    assert c._join_when_free("sync", 1) == {"rank": 1} and c._join_when_free("sync", "new") == {"rank": "new"}
    assert asked == [60.0, 60.0, 600.0]


def test_a_hello_is_a_cut():
    """What was contributed before it does not count until it is sent again, so nothing said in between can be taken wrong."""
    with workers(2) as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        link, client = stores[1]._client.links[0], stores[1]._client
        stores[1].push("w", mx.nd.ones(3))
        client.rounds([0])  # it has arrived
        welcome, back = link._welcome, threading.Event()

        def welcomed(frame):
            welcome(frame)
            link._drain = lambda: None  # what is sent again stays here
            back.set()

        link._welcome = welcomed
        client._hand(lambda: link.connect(link._where))
        assert back.wait(TIMEOUT)
        stores[0].push("w", mx.nd.ones(3) * 4)
        assert list(stores[0]._client.rounds([0]).values()) == [0]
        del link._drain
        client._hand(link._drain)
        assert [pull(kv, "w", np.zeros(3, "f")).tolist() for kv in stores] == [[5] * 3] * 2


def test_a_long_wait_for_others_says_for_whom_and_ends_at_the_deadline(caplog):
    with workers(2) as (_, stores, each):
        stores[0]._client.stall = 0.1
        with caplog.at_level(logging.WARNING, "tritium.kvstore"):
            waiting = each.submit(stores[0].barrier)
            until(lambda: "worker 0: barrier waits for workers [1]" in caplog.text)
        stores[1].barrier()
        waiting.result(TIMEOUT)
        stores[0]._client.timeout = 0.3
        with pytest.raises(KVStoreError, match=r"barrier: worker 1 did not come within 0 s\. TRITIUM_KV_TIMEOUT sets the limit"):
            stores[0].barrier()


def test_workers_that_make_different_keys_are_told_who_makes_which():
    """At once where all wait for each other, whatever the deadline; at the deadline where one is at work."""
    with workers(2) as (_, stores, each):
        def init(kv):
            kv.init("w", mx.nd.zeros(3))
            with pytest.raises(KVStoreError, match=r"init: workers wait for each other, because they make different keys: "
                                                   r"worker 0 inits 'a'; worker 1 inits 'b'\. All must call init"):
                kv.init("ab"[kv.rank], mx.nd.zeros(3))

        each(init)
        stores[0]._client.timeout = 0.1
        with pytest.raises(KVStoreError, match=r"worker 1 did not come: worker 0 inits 'c'; worker 1 is in no init within 0 s"):
            stores[0].init("c", mx.nd.zeros(3))
        stores[0]._client.timeout = TIMEOUT
        each(lambda kv: kv.init("d", mx.nd.ones(3)))
        assert [pull(kv, "d", np.zeros(3, "f")).tolist() for kv in stores] == [[1] * 3] * 2
