"""bulk: fewer tasks, the same results in the same order."""

import contextlib
import threading

import pytest
import tritium as mx
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine, base, bulk, current, deps, naive, set_bulk_size, set_current, threaded
from tritium.errors import EngineError


@pytest.fixture(params=["naive", "threaded"])
def engine(request, monkeypatch):
    """sizes: how many functions each task has that reached the bookkeeping."""
    e, module = (NaiveEngine(), naive) if request.param == "naive" else (ThreadedEngine(2), threaded)
    e.sizes = []

    def add(task):
        if task.pool is not None and task.pool.engine is e:
            e.sizes.append(len(getattr(task, "members", [0])))
        return deps.add(task)
    monkeypatch.setattr(module, "add", add)
    yield e
    e.stop()


def push(engine, log, n, v, ctx=None, **kw):
    for i in range(n):
        engine.push_sync(lambda run, i=i: log.append(i), ctx or cpu(), [], [v], **kw)


def test_up_to_n_functions_are_merged_into_one_task(engine):
    v, log = engine.new_variable(), []
    with engine.bulk(4):
        push(engine, log, 10, v)
    engine.wait_for_var(v)
    assert engine.sizes == [4, 4, 2] and log == list(range(10))


def test_another_context_priority_or_kind_ends_a_merged_task(engine):
    v, log = engine.new_variable(), []
    with engine.bulk(100):
        push(engine, log, 2, v)
        push(engine, log, 3, v, cpu(1))
        push(engine, log, 1, v, priority=1)
        engine.push_async(lambda run, done: done(), cpu(), [], [v])
        push(engine, log, 2, v)
        engine.wait_for_var(v)  # a wait inside queues the collected functions
        assert log == [0, 1, 0, 1, 2, 0, 0, 1]
    assert engine.sizes == [2, 3, 1, 1, 2]


def test_pushes_and_waits_of_other_threads_queue_collected_functions(engine):
    v, log = engine.new_variable(), []
    with engine.bulk(100):
        push(engine, log, 2, v)
        for action in (lambda: engine.push_sync(lambda run: log.append("other"), cpu(), [], [v]),
                       lambda: engine.wait_for_var(v)):
            t = threading.Thread(target=action)
            t.start()
            t.join()
            engine.wait_for_var(v)
            push(engine, log, 1, v)
    engine.wait_for_var(v)
    assert log == [0, 1, "other", 0, 0]


def test_set_bulk_size_lasts(engine):
    before = set_current(engine)
    try:
        v, log = engine.new_variable(), []
        assert set_bulk_size(3) == 0
        push(current(), log, 5, v)
        assert set_bulk_size(0) == 3
        with bulk(2):
            push(current(), log, 2, v)
        push(current(), log, 1, v)
        engine.wait_for_all()
        assert engine.sizes == [3, 2, 2, 1] and log == [0, 1, 2, 3, 4, 0, 1, 0]
    finally:
        set_current(before)


def test_a_bulk_of_no_functions_is_refused(engine):
    with pytest.raises(EngineError, match=r"bulk: n is 0\. Give a positive number"):
        with engine.bulk(0):
            pass


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_bulk_inside_another_keeps_the_order(engine, lasting, n):
    v, log = engine.new_variable(), []
    if lasting:
        engine.set_bulk_size(10)
    with contextlib.nullcontext() if lasting else engine.bulk(10):
        push(engine, log, 1, v)
        with engine.bulk(n):
            push(engine, log, 3, v)
            engine.push_async(lambda run, done: (log.append("async"), done()), cpu(), [], [v])
            push(engine, log, 1, v)
        push(engine, log, 2, v)
    engine.set_bulk_size(0)
    engine.wait_for_var(v)
    assert log == [0, 0, 1, 2, "async", 0, 0, 1]
    assert engine.sizes == {1: [1, 1, 1, 1, 1, 1, 2], 2: [1, 2, 1, 1, 1, 2], 7: [1, 3, 1, 1, 2]}[n]


def test_arrays_in_a_bulk_inside_another(engine):
    before = set_current(engine)
    try:
        a, b = mx.nd.zeros((2, 3)), mx.nd.zeros((2, 3))
        with bulk(10):
            a[:] = 1
            with bulk(2):
                b[:] = a + 1
                c = b * 10
        assert c.asnumpy().tolist() == [[20.0] * 3] * 2
    finally:
        set_current(before)


def test_a_bulk_of_a_prepared_operator_inside_another(engine):
    v, log = engine.new_variable(), []
    opr = engine.new_operator(lambda run, done: (log.append("prepared"), done()), [], [v])
    with engine.bulk(10):
        push(engine, log, 2, v)
        with engine.bulk(5):
            engine.push(opr, cpu())
            push(engine, log, 1, v)
    engine.wait_for_var(v)
    assert log == [0, 1, "prepared", 0]


@pytest.mark.parametrize("flush", [False, True])
def test_a_finalizer_that_pushes_during_merging_keeps_the_order(engine, monkeypatch, flush):
    """Merging allocates, so the garbage collector may run a finalizer in its middle."""
    v, log, made = engine.new_variable(), [], []

    class Made(base.BulkTask):
        __slots__ = ()

        def __init__(self, *args):
            super().__init__(*args)
            if not made:
                made.append(1)
                push(engine, log, 1, v)
                engine.push_async(lambda run, done: (log.append("async"), done()), cpu(), [], [v])
    monkeypatch.setattr(base, "BulkTask", Made)
    with engine.bulk(5):
        push(engine, log, 3, v)
        if flush:
            engine.flush()
    engine.wait_for_var(v)
    assert log == [0, 1, 2, 0, "async"]


def test_functions_of_a_bulk_may_wait_for_a_thread_that_pushes(engine):
    """Another thread's push queues this one's bulk, and must not wait for the functions in it."""
    v, w, log = engine.new_variable(), engine.new_variable(), []
    begun, pushed = threading.Event(), threading.Event()

    def other():
        with engine.bulk(10):
            begun.wait()
            push(engine, log, 1, w)
            pushed.set()

    def waits(run):
        begun.set()
        log.append("in time" if pushed.wait(60) else "too late")
    thread = threading.Thread(target=other)
    thread.start()
    with engine.bulk(2):
        engine.push_sync(waits, cpu(), [], [v], prop="inline")
        engine.push_sync(waits, cpu(), [], [v], prop="inline")
    thread.join()
    engine.wait_for_all()
    assert log.count("in time") == 2
