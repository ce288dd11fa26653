"""dist_sync and dist_async with real processes. Oracle: the same pushes, added up by NumPy, or by a `local` store."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tritium as mx
from support.kvstore_cluster import TIMEOUT, array, pull, until, worker, worker_process, workers
from tritium.errors import KVStoreError, ParameterError, ShapeError
from tritium.kvstore.job.local_job import LocalJob
from tritium.kvstore.local import LocalKVStore
from tritium.kvstore.wire.frame import LARGEST_MESSAGE, FrameType
from tritium.kvstore.worker.dist import DistKVStore
from tritium.kvstore.worker.requests import Question


@pytest.fixture(scope="module")
def two():
    """Two workers, two servers; every test uses keys of its own."""
    with workers(2, servers=2) as job:
        yield job


def test_values_are_replaced_by_sums_in_rank_order(two, rng):
    """Sizes around one message, shared memory, and the limit for splitting. Two rounds, since a sum replaces the value."""
    _, _, each = two
    shapes = {"a": (3, 5), "b": (1 << 18,), "c": (1100, 1000), "d": (70000,), "e": (0,), "f": ()}
    data = {(k, r): rng.normal(size=s).astype("f") for k, s in shapes.items() for r in range(2)}
    first = {k: rng.normal(size=s).astype("f") for k, s in shapes.items()}

    def run(kv):
        kv.init(list(shapes), [array(first[k] if kv.rank == 0 else first[k] * 0) for k in shapes])
        begin = {k: pull(kv, k, first[k]) for k in shapes}
        for _ in range(2):
            kv.push(list(shapes), [array(data[k, kv.rank]) for k in shapes], priority=3)
        return begin, {k: pull(kv, k, first[k]) for k in shapes}

    for begin, end in each(run):
        for k in shapes:
            np.testing.assert_array_equal(begin[k], first[k])
            np.testing.assert_array_equal(end[k], data[k, 0] + data[k, 1])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "int64"])
def test_every_dtype_is_summed(two, dtype):
    _, _, each = two
    value = np.arange(7).astype(dtype)

    def run(kv):
        kv.init(f"t.{dtype}", array(value, dtype))
        kv.push(f"t.{dtype}", array(value, dtype))
        return pull(kv, f"t.{dtype}", value)

    for got in each(run):
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(got, value + value)


def test_devices_are_added_up_first_and_the_pushed_arrays_do_not_change(two):
    _, _, each = two

    def run(kv):
        kv.init("dev", mx.nd.zeros(4))
        grads = [mx.nd.full(4, 1.0 + i, ctx=mx.cpu(i)) for i in range(3)]
        outs = [mx.nd.zeros(4, ctx=mx.cpu(i)) for i in range(3)]
        kv.pushpull("dev", grads, outs)
        for o in outs:
            assert (o.asnumpy() == 12).all()
        assert [g.asnumpy()[0] for g in grads] == [1, 2, 3]
        alone = mx.nd.ones(4)
        kv.push("dev", alone)
        alone[:] = 7  # push has read it as of the call
        assert (pull(kv, "dev", np.zeros(4, "f")) == 2).all()
        assert (alone.asnumpy() == 7).all()

    each(run)


def test_workers_push_keys_in_any_order(two):
    _, _, each = two
    names = [f"o{i}" for i in range(20)]

    def run(kv):
        kv.init(names, [mx.nd.zeros(3)] * 20)
        for _ in range(3):
            for name in np.random.default_rng(kv.rank).permutation(names):
                kv.push(str(name), mx.nd.ones(3) * int(name[1:]))
        return [pull(kv, n, np.zeros(3, "f"))[0] for n in names]

    assert each(run) == [[2.0 * i for i in range(20)]] * 2


def test_workers_push_keys_alone_and_in_lists_in_any_order(two):
    """A list does not wait for a round that another worker contributes to only after its own list."""
    _, _, each = two

    def run(kv):
        kv.init(["alone", "list"], [array([0.0]), array([0.0])])
        mine, other = ("alone", "list") if kv.rank else ("list", "alone")
        kv.push(mine, array([1.0]))
        kv.push(["alone", "list"], [array([2.0]), array([2.0])])
        kv.push(other, array([3.0]))
        return [float(pull(kv, k, np.zeros(1, "f"))[0]) for k in ("alone", "list")]

    assert each(run) == [[5.0, 5.0]] * 2


def test_a_list_ends_when_all_of_its_keys_have(caplog):
    """Worker 1 has finished with y and still needs x, which worker 0 pushes in a list with y: both wait, and a warning says so.
    Without the list, each key goes on by itself."""
    with workers(2, policy="wait") as (_, (a, b), each):
        each(lambda kv: kv.init(["x", "y"], [array([0.0])] * 2))
        a._client.stall = 0.1
        a.push(["x", "y"], [array([1.0])] * 2)
        a.push("x", array([2.0]))
        for n in (10.0, 20.0):
            b.push("x", array([n]))
        until(lambda: "key 'y' round 1 waits for workers [1]" in caplog.text)
        assert sorted(a._client.rounds([0]).values()) == [0, 1]  # x has not gone on to round 2
        b.push("y", array([10.0]))
        assert [float(pull(kv, k, np.zeros(1, "f"))[0]) for kv in (a, b) for k in "xy"] == [22.0, 11.0] * 2
        a.push("x", array([1.0])), a.push("y", array([1.0])), a.push("x", array([2.0]))
        for n in (10.0, 20.0):
            b.push("x", array([n]))
        assert float(pull(b, "x", np.zeros(1, "f"))[0]) == 22.0
        b.push("y", array([10.0]))


def test_a_barrier_waits_for_all_workers_and_none_is_dead(two):
    _, stores, each = two
    assert sorted(s.rank for s in stores) == [0, 1] and {s.num_workers for s in stores} == {2}
    assert [s.get_num_dead_node(7) for s in stores] == [0, 0] and stores[0].type == "dist_sync"
    passed = []
    late = threading.Event()

    def run(kv):
        if kv.rank == 1:
            late.wait(TIMEOUT)
        else:
            threading.Timer(0.05, late.set).start()
        kv.barrier()
        passed.append(late.is_set())

    each(run)
    assert passed == [True, True]


@pytest.mark.parametrize("act, error, text", [
    (lambda kv: kv.push("never", mx.nd.ones(2)), ParameterError, "KVStore.push: no key 'never'"),
    (lambda kv: kv.push("shape", mx.nd.ones(3)), ShapeError, r"key 'shape' holds float32\[2\]"),
    (lambda kv: kv.init("shape", mx.nd.ones(2)), ParameterError, "key 'shape' exists already"),
    (lambda kv: kv.save_optimizer_states("x"), KVStoreError, "the store has no optimizer"),
    (lambda kv: kv.set_gradient_compression({"type": "1bit"}), ParameterError, "is not {\"type\": \"2bit\""),
    (lambda kv: kv.set_gradient_compression({"type": "2bit", "threshold": -1}), ParameterError, "threshold=-1 must be"),
])
def test_invalid_calls_raise_an_error(two, act, error, text):
    _, _, each = two

    def run(kv):
        if "shape" not in kv._keys:
            kv.init("shape", mx.nd.ones(2))
        with pytest.raises(error, match=text):
            act(kv)

    each(run)


def test_an_updater_function_is_not_sent_to_the_servers(two):
    _, stores, each = two
    each(lambda kv: kv.init("upd", mx.nd.ones(2)))
    stores[0].set_updater(lambda *_: None)
    with pytest.raises(KVStoreError, match="an updater function cannot be sent to the servers"):
        stores[0].push("upd", mx.nd.ones(2))
    stores[0].set_updater(None)


def train(kv, steps, shapes, optimizer):
    """Deterministic pushes; the weights after `steps`, for a store of any kind."""
    kv.set_optimizer(optimizer())
    kv.init(list(range(len(shapes))), [array(np.linspace(-1, 1, int(np.prod(s))).reshape(s)) for s in shapes])
    for step in range(steps):
        for i, s in enumerate(shapes):
            g = np.random.default_rng([step, i, kv.rank]).normal(size=s)
            kv.push(i, array(g))
    return [pull(kv, i, np.zeros(s, "f")) for i, s in enumerate(shapes)]


SHAPES = [(7, 5), (300, 400), (513, 512)]


@pytest.mark.parametrize("optimizer", [
    lambda: mx.optimizer.SGD(momentum=0.9, learning_rate=0.1, wd=1e-3, rescale_grad=0.5),
    pytest.param(lambda: mx.optimizer.Adam(lr_scheduler=mx.lr_scheduler.FactorScheduler(2, 0.5), learning_rate=0.01),
                 marks=pytest.mark.nightly),
], ids=["sgd", "adam"])
def test_one_worker_is_bit_identical_to_local(optimizer):
    with workers(1) as (_, (kv,), _):
        got = train(kv, 4, SHAPES, optimizer)
    for a, b in zip(got, train(mx.kv.create("local"), 4, SHAPES, optimizer)):
        np.testing.assert_array_equal(a, b)


def test_two_runs_are_bit_identical_and_states_can_be_loaded_with_another_number_of_servers(tmp_path, monkeypatch):
    """The second run has another number of servers, which splits its arrays. Then both load states from a file, and continue."""
    monkeypatch.setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "100000")
    sgd = lambda: mx.optimizer.SGD(momentum=0.9, learning_rate=0.1)
    results, files = [], []

    for servers in (1, 3):
        with workers(2, servers=servers) as (_, stores, each):
            both = each(lambda kv: train(kv, 3, SHAPES, sgd))
            results.append(both[0])
            for a, b in zip(*both):
                np.testing.assert_array_equal(a, b)
            file = tmp_path / f"{servers}.states"
            stores[0].save_optimizer_states(file)
            files.append(file.read_bytes())
            stores[0].load_optimizer_states(tmp_path / "1.states")

            def again(kv):
                for i, s in enumerate(SHAPES):
                    kv.push(i, array(np.ones(s)))
                return [pull(kv, i, np.zeros(s, "f")) for i, s in enumerate(SHAPES)]

            results.append(each(again)[0])
    for a, b in zip(results[0] + results[1], results[2] + results[3]):
        np.testing.assert_array_equal(a, b)


def test_async_applies_every_push_and_needs_an_optimizer():
    with workers(2, "dist_async") as (_, stores, each):
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        stores[0].push("w", mx.nd.ones(3))
        with pytest.raises(KVStoreError, match=r"worker 0, key 'w', round 1: dist_async needs an optimizer on the server"):
            pull(stores[0], "w", np.zeros(3, "f"))
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0)))

        def run(kv):
            seen = []
            for _ in range(5):
                kv.push("w", mx.nd.ones(3))
                seen.append(-pull(kv, "w", np.zeros(3, "f"))[0])
            return seen

        for seen in each(run):
            assert seen == sorted(seen) and all(s >= i + 1 for i, s in enumerate(seen))  # at least one's own
        each(lambda kv: kv.barrier())
        assert each(lambda kv: pull(kv, "w", np.zeros(3, "f"))[0]) == [-10, -10]


def test_members_join_and_leave_at_barriers():
    """Two workers, then three, then two others: each round is the sum over the members, whose ranks change."""
    with workers(2) as (job, stores, each):
        def step(*members):
            """Push 10 to the power of the number that each joined with; return what each pulls."""
            for kv in members:
                kv.push("w", mx.nd.ones(2) * 10.0 ** kv._client.rank)
            return [(pull(kv, "w", np.zeros(2, "f"))[0], kv.rank, kv.num_workers) for kv in members]

        def barrier(*members):
            for done in [each.submit(kv.barrier) for kv in members]:
                done.result(TIMEOUT)

        a, b = stores
        each(lambda kv: kv.init("w", mx.nd.zeros(2)))
        assert step(a, b) == [(11, 0, 2), (11, 1, 2)]
        joining = each.submit(DistKVStore, "dist_sync", job.file, rank="new")
        until(lambda: a._client.request("info")["growing"] == 1)
        assert step(a, b) == [(11, 0, 2), (11, 1, 2)]  # it joins at the next barrier
        barrier(a, b)
        c = joining.result(TIMEOUT)
        stores.append(c)
        c.init("w", mx.nd.zeros(2))
        assert pull(c, "w", np.zeros(2, "f"))[0] == 11  # the current value, not its own
        assert step(a, b, c) == [(111, 0, 3), (111, 1, 3), (111, 2, 3)]
        leaving = each.submit(a.leave)
        barrier(b, c)
        leaving.result(TIMEOUT)
        assert step(b, c) == [(110, 0, 2), (110, 1, 2)] and not a._client.loop.alive
        inits = [each.submit(kv.init, "v", mx.nd.ones(2) * kv._client.rank) for kv in (b, c)]
        assert [i.result(TIMEOUT) for i in inits] and pull(c, "v", np.zeros(2, "f"))[0] == 1  # the value of the lowest rank


def test_max_staleness_delays_a_worker_that_is_too_far_ahead():
    """Worker 0 may be two pushes ahead of worker 1. A pull beyond that waits, is reported, and ends with the slow one's push."""
    with workers(2, "dist_async", max_staleness=2) as (_, (fast, slow), each):
        each(lambda kv: kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0)))
        each(lambda kv: kv.init("w", mx.nd.zeros(3)))
        for n in (1, 2):
            fast.push("w", mx.nd.ones(3))
            assert pull(fast, "w", np.zeros(3, "f"))[0] == -n
        fast.push("w", mx.nd.ones(3))
        LocalKVStore.barrier(fast)  # the push has arrived
        held = each.submit(pull, fast, "w", np.zeros(3, "f"))
        assert pull(slow, "w", np.zeros(3, "f"))[0] == -3 and not held.done()
        slow.push("w", mx.nd.ones(3))
        assert held.result(TIMEOUT)[0] == -4
        fast.push("w", mx.nd.ones(3))
        held = each.submit(pull, fast, "w", np.zeros(3, "f"))
        slow.close()  # a worker that has left is not waited for
        assert held.result(TIMEOUT)[0] == -5


PUSHES_LAST = """
import logging
import tritium as mx
for name in ("coordinator_connection", "remote_server"):  # no warning of a long wait on stderr, however slow the machine is
    logging.getLogger(f"tritium.kvstore.worker.{name}").setLevel(logging.ERROR)
kv = mx.kv.create("dist_sync")
print("joined", flush=True)
for key in "wv": kv.init(key, mx.nd.zeros((600, 600)))
for key in "wv": kv.push(key, mx.nd.ones((600, 600)) * 5)
"""


def test_the_last_pushes_of_a_script_arrive():
    """The script does not wait for them; the store does, at exit."""
    with LocalJob(2) as job, worker(job, 0) as kv, worker_process(job, 1, PUSHES_LAST, stderr=subprocess.PIPE) as script:
        assert script.stdout.readline() == "joined\n"  # the deadline of init does not include the start of a process
        for key in "wv":
            kv.init(key, mx.nd.zeros((600, 600)))
        for key in "wv":
            kv.push(key, mx.nd.ones((600, 600)))
        assert [pull(kv, key, np.zeros((600, 600), "f"))[0, 0] for key in "wv"] == [6, 6]
        assert (script.stderr.read(), script.wait(TIMEOUT)) == ("", 0)


CATCHES = """
import tritium as mx
kv = mx.kv.create("dist_sync")
out = mx.nd.zeros(3)
kv.init("w", out)
kv.push("w", out); kv.pull("w", out); out.wait_to_read()
print("there", flush=True)
try:
    kv.push("w", out); kv.pull("w", out); out.wait_to_read()
except mx.MXNetError as e:
    print(type(e).__name__)
"""


def test_a_caught_error_is_not_reported_again_at_exit():
    with LocalJob(2) as job, worker_process(job, 1, CATCHES, stderr=subprocess.PIPE) as script, worker(job, 0) as kv:
        kv.init("w", mx.nd.zeros(3))
        kv.push("w", mx.nd.ones(3))
        assert script.stdout.readline() == "there\n"
        kv.close()
        assert script.stdout.read() == "DeadWorkerError\n" and script.wait(TIMEOUT) == 0 and script.stderr.read() == ""


def test_a_plain_script_starts_its_own_job_and_leaves_nothing(tmp_path):
    code = ("import tritium as mx; kv = mx.kv.create('dist'); kv.init(3, mx.nd.ones(2)); kv.push(3, mx.nd.ones(2) * 4); "
            "o = mx.nd.zeros(2); kv.pull(3, o); print(o.asnumpy().tolist(), kv._own_job.folder, kv._own_job.id)")
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRITIUM_KV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, cwd=tmp_path, env=env)
    assert done.stdout.startswith("[4.0, 4.0]"), done.stderr
    _, _, folder, job = done.stdout.split()
    assert not os.path.exists(folder) and not [n for n in os.listdir("/dev/shm") if job in n] and done.stderr == ""


def test_requests_made_while_a_store_closes_end():
    """The thread handles a request and then ends; or it has ended after a caller saw that it had not."""
    with workers(1) as (_, (kv,), _):
        kv.init("w", mx.nd.zeros(3))
        client, asked, errors = kv._client, [], []
        (remote,), loop = client.servers, client.loop

        def ask():
            asked.append(Question(0, FrameType.SAVE))
            client.submit(asked[-1:], errors.append)

        def check(now):
            if not asked:
                loop._stopping = True
                ask()

        remote.check = check
        until(lambda: asked)
        loop._thread.join(TIMEOUT)
        loop._closed = False  # as the caller saw it
        ask()
        kv.push("w", mx.nd.ones(3))
        loop._closed = True
        assert [str(e) for e in errors] == ["KVStore: the store is closed."] * 2
        with pytest.raises(KVStoreError, match="the store is closed"):
            mx.nd.waitall()


def test_a_store_cannot_be_used_in_a_forked_child(two):
    _, stores, _ = two
    loop = stores[0]._client.loop
    loop.pid -= 1
    try:
        with pytest.raises(KVStoreError, match="cannot be used in a forked child"):
            stores[0].barrier()
    finally:
        loop.pid += 1


@pytest.mark.parametrize("interface", [None, "127.0.0.1"])
def test_values_and_states_of_any_size_go_over_a_connection(tmp_path, monkeypatch, interface):
    """Without shared memory; each is longer than the longest message about several keys."""
    monkeypatch.setenv("TRITIUM_KV_SHARED", "0")
    n = LARGEST_MESSAGE // 4 + 1000
    with workers(1, interface=interface) as (_, (kv,), _each):
        kv.set_optimizer(mx.optimizer.SGD(momentum=0.5, learning_rate=1.0))
        kv.init("w", mx.nd.zeros(n))
        first, second = mx.nd.arange(n), mx.nd.ones(n) * 3
        kv.push("w", first)
        kv.save_optimizer_states(tmp_path / "states")
        kv.push("w", mx.nd.zeros(n))
        kv.load_optimizer_states(tmp_path / "states")
        kv.push("w", second)
        np.testing.assert_array_equal(pull(kv, "w", first), -(first * 2 + second).asnumpy())


def test_a_store_closed_by_an_exception_has_not_left_with_success():
    with workers(3, policy="wait") as (_, stores, _each):
        coordinator = stores[0]._client.coordinator
        stores[1].close()
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            stores[2].close()
        until(lambda: coordinator.gone == {2: "ended"})
        assert stores[0].get_num_dead_node(4) == 1
        assert stores[0]._client.request("info")["gone"] == {"1": "left", "2": "ended"}


def test_a_replacement_continues_with_the_incomplete_step():
    """The dead worker had pushed one key of the step, and not the other."""
    with LocalJob(2, policy="wait") as job, worker(job, 0) as kv:
        with worker(job, 1) as other:
            each = (kv, other)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda s: s.init(["a", "b", "never"], [mx.nd.zeros(3)] * 3), each))
            assert other.resume() == 0
            for s in each:
                s.push(["a", "b"], [mx.nd.ones(3)] * 2)
            for s in each:
                s.push("a", mx.nd.ones(3) * 5)
            assert [pull(s, "a", np.zeros(3, "f"))[0] for s in each] == [10, 10]
            kv.push("b", mx.nd.ones(3) * 2)
            other._client.close(False)
        with worker(job, 1) as another:
            assert another.resume() == 1
            another.init(["a", "b", "never"], [mx.nd.zeros(3)] * 3)
            another.push(["a", "b"], [mx.nd.ones(3) * 7] * 2)  # the step of the dead worker
            assert [pull(another, k, np.zeros(3, "f"))[0] for k in "ab"] == [10, 9] and pull(kv, "b", np.zeros(3, "f"))[0] == 9
            for s in (kv, another):
                s.push(["a", "b"], [mx.nd.ones(3)] * 2)
            assert [pull(s, k, np.zeros(3, "f"))[0] for s in (kv, another) for k in "ab"] == [2] * 4
