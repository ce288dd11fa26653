"""Workers start wherever a push comes from, also in the middle of a start, and end with the last reference to their engine."""

import gc
import threading
import weakref

import pytest
from tritium.context import cpu
from tritium.engine import ThreadedEngine
from tritium.engine.worker_pool import WorkerPool


def in_a_thread(fn, seconds=250):
    """Return True if fn, called on a thread of its own, ends in time."""
    t = threading.Thread(target=fn, daemon=True)
    t.start()
    t.join(seconds)
    return not t.is_alive()


@pytest.mark.parametrize("which", ["tritium-cpu(0)-compute", "tritium-helper"])
@pytest.mark.parametrize("where", ["before it begins", "after it is told"])
def test_a_finalizer_that_pushes_while_a_thread_starts(monkeypatch, which, where):
    """The garbage collector may run in the thread that starts another, and in that other before it says that it has begun."""
    engine, ran, begun = ThreadedEngine(3), [], []
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap_inner

    def finalizer():
        if len(begun) < 6 and threading.current_thread().name != "finalizer":
            begun.append(1)
            engine.push_sync(lambda run: run.parallel(lambda i: ran.append(i), 2), cpu(), [], [engine.new_variable()],
                             prop="inline" if which == "tritium-helper" else None)

    def starts(thread):
        if where == "after it is told" and thread.name.startswith(which):
            finalizer()
        start(thread)

    def boots(thread):
        if where == "before it begins" and thread.name.startswith(which):
            finalizer()
        bootstrap(thread)
    monkeypatch.setattr(threading.Thread, "start", starts)
    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", boots)

    def pushes():
        for _ in range(10):
            engine.push_sync(lambda run: run.parallel(lambda i: ran.append(i), 2), cpu(), [], [engine.new_variable()])
        engine.wait_for_all()
    assert in_a_thread(pushes)
    assert begun and sorted(ran) == [0] * (10 + len(begun)) + [1] * (10 + len(begun))
    engine.stop()


def workers():
    return [t for t in threading.enumerate() if t.name.startswith("tritium-")]


@pytest.mark.parametrize("how", ["idle", "with work", "in a bulk", "never used", "in the middle"])
def test_an_engine_without_references_ends_its_threads(how):
    gc.collect()
    before = set(workers())
    engine, ran, gate = ThreadedEngine(2), [], threading.Event()
    gone = weakref.ref(engine)
    v = engine.new_variable()
    if how != "never used":
        engine.push_sync(lambda run: run.parallel(lambda i: None, 4), cpu(), [], [v])
        engine.wait_for_var(v)
    if how == "with work":
        engine.push_sync(lambda run: gate.wait(), cpu(), [], [v])
        for i in range(100):
            engine.push_sync(lambda run, i=i: ran.append(i), cpu(i % 2), [], [v], prop="io" if i % 3 else None)
    elif how == "in a bulk":
        engine.set_bulk_size(3)
        for i in range(100):
            engine.push_sync(lambda run, i=i: ran.append(i), cpu(), [], [v])
        engine.wait_for_var(v)
    elif how == "in the middle":
        engine.push_async(lambda run, on_complete: threading.Thread(target=lambda: (gate.wait(), on_complete())).start(),
                          cpu(), [], [v])
        for i in range(100):
            engine.push_sync(lambda run, i=i: ran.append(i), cpu(i % 2), [], [v])
    started = set(workers()) - before
    assert bool(started) == (how != "never used")
    del engine
    gate.set()
    for _ in range(10_000):  # a worker has it until it sleeps
        gc.collect()
        left = [t for t in workers() if t not in before]
        if not left and gone() is None:
            break
        for t in left:
            t.join(0.02)
    assert gone() is None and set(workers()) <= before
    assert ran == (list(range(100)) if how in ("with work", "in a bulk", "in the middle") else [])


def test_tasks_put_while_a_pool_stops_are_run():
    """Pushes that come between the last look of the workers and their end are for fresh ones."""
    engine, ran = ThreadedEngine(2), []
    v = engine.new_variable()
    engine.push_sync(lambda run: None, cpu(), [], [v])
    engine.wait_for_all()
    (pool,) = engine._pools.values()

    def dismiss_all():
        told = WorkerPool.dismiss_all(pool)
        engine.push_sync(lambda run: ran.append(1), cpu(), [], [v])
        return told
    pool.dismiss_all = dismiss_all
    for _ in range(200):
        pool.stop()
        engine.wait_for_var(v)
    assert len(ran) == 200
    del pool.dismiss_all
    engine.stop()
    assert not pool._workers and len(pool._to_start) == 2


def test_a_dismissed_worker_leaves_no_task_behind():
    engine, ran = ThreadedEngine(2), []
    v = [engine.new_variable() for _ in range(4)]
    done = threading.Event()

    def pushes():
        while not done.is_set():
            for k in range(4):
                engine.push_sync(lambda run: ran.append(1), cpu(), [], [v[k]])
            engine.wait_for_var(v[0])
    t = threading.Thread(target=pushes)
    t.start()
    while not engine._pools:
        pass
    (pool,) = engine._pools.values()
    for _ in range(300):
        WorkerPool.stop(pool)
    done.set()
    t.join()
    n = len(ran)
    engine.wait_for_all()
    assert len(ran) >= n
    engine.stop()
