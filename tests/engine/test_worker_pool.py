"""WorkerPool and waits: workers wake one another, a waiter runs short functions itself, no task is overlooked."""

import signal
import threading
from contextlib import contextmanager

import pytest
from support.engine_programs import alone
from tritium.context import cpu
from tritium.engine import ThreadedEngine, interrupts, task_cost
from tritium.engine.deps import Task
from tritium.engine.failure import Failure
from tritium.engine.gpu.streams import PendingEvents
from tritium.engine.worker_pool import WorkerPool


@pytest.fixture
def engine():
    e = ThreadedEngine(4)
    yield e
    e.start()
    e.stop()


def test_one_push_wakes_as_many_workers_as_there_is_work(engine):
    """Four functions that need one another to run at the same time: a worker that is woken wakes the next."""
    for _ in range(200):
        barrier = threading.Barrier(4)
        for _ in range(4):
            engine.push_sync(lambda run, b=barrier: b.wait(250), cpu(), [], [])
        engine.wait_for_all()


def test_a_burst_while_all_sleep_and_while_all_work(engine):
    ran = []
    for n in [1, 2, 3, 50, 1, 500] * 20:
        for _ in range(n):
            engine.push_sync(lambda run: ran.append(1), cpu(), [], [])
        engine.wait_for_all()
    assert len(ran) == (1 + 2 + 3 + 50 + 1 + 500) * 20


@contextmanager
def no_worker_free(engine):
    """Inside, no worker is quicker than the waiter."""
    begun, gate = threading.Barrier(engine.workers + 1), threading.Event()
    for _ in range(engine.workers):
        engine.push_sync(lambda run: (begun.wait(250), gate.wait()), cpu(), [], [])
    begun.wait(250)
    try:
        yield
    finally:
        gate.set()
        engine.wait_for_all()


def test_a_waiter_runs_a_short_function_itself(engine, monkeypatch):
    monkeypatch.setattr(task_cost, "of", lambda task: 1000)
    v, threads = engine.new_variable(), []
    with no_worker_free(engine):
        for _ in range(200):
            engine.push_sync(lambda run: threads.append(threading.get_ident()), cpu(), [], [v])
            engine.wait_for_var(v)
    assert threads == [threading.get_ident()] * 200


def test_a_waiter_leaves_a_long_function_to_a_worker(engine, monkeypatch):
    monkeypatch.setattr(task_cost, "of", lambda task: 10**9)
    v, threads = engine.new_variable(), []
    for _ in range(50):
        engine.push_sync(lambda run: threads.append(threading.get_ident()), cpu(), [], [v])
        engine.wait_for_var(v)
    assert len(threads) == 50 and threading.get_ident() not in threads


def a_chain(engine, ran, n):
    """Push n kernels that each read what the one before wrote; return what the last one writes."""
    before = engine.new_variable()
    for i in range(n):
        after = engine.new_variable()
        engine.push_sync(lambda run, i=i: ran.append((i, threading.get_ident())), cpu(), [before], [after], cost_key=object())
        before = after
    return before


@pytest.fixture
def no_worker(monkeypatch):
    """No worker is quicker than the waiter: none is started."""
    monkeypatch.setattr(WorkerPool, "_start", lambda pool: None)


def test_a_waiter_runs_what_its_variable_waits_for(engine, no_worker, monkeypatch):
    monkeypatch.setattr(task_cost, "of", lambda task: 1000)
    ran = []
    engine.wait_for_var(a_chain(engine, ran, 50))
    assert ran == [(i, threading.get_ident()) for i in range(50)]


@pytest.mark.parametrize("ready", [True, False])
def test_a_waiter_runs_no_function_that_may_wait_for_it(engine, no_worker, monkeypatch, ready):
    """ready: from the start, or after a kernel that the waiter runs."""
    monkeypatch.setattr(task_cost, "of", lambda task: 1000)
    ran, woken, between = [], threading.Lock(), engine.new_variable()
    woken.acquire()
    if not ready:
        engine.push_sync(lambda run: ran.append("kernel"), cpu(), [], [between], cost_key=object())
    engine.push_sync(lambda run: ran.append("function"), cpu(), [], [between])
    after = engine.new_variable()
    engine.push_sync(lambda run: ran.append("last"), cpu(), [between], [after])
    assert not engine._run_awaited(after, woken) and ran == ([] if ready else ["kernel"])
    (pool,) = engine._worker_pools.values()
    monkeypatch.undo()
    pool._start()
    engine.wait_for_var(after)
    assert ran[-2:] == ["function", "last"]


def test_a_waiter_sleeps_after_a_while(engine, no_worker, monkeypatch):
    """So that Ctrl-C ends the wait soon. The rest stays in its order."""
    monkeypatch.setattr(task_cost, "of", lambda task: 4_000_000)
    ran, woken = [], threading.Lock()
    woken.acquire()
    last = a_chain(engine, ran, 8)
    other = engine.new_variable()
    engine.push_sync(lambda run: ran.append("other"), cpu(), [], [other])
    assert not engine._run_awaited(last, woken) and [i for i, _ in ran] == [0, 1, 2, 3, 4]
    (pool,) = engine._worker_pools.values()
    monkeypatch.undo()
    pool._start()
    engine.wait_for_all()
    assert len(ran) == 9 and [r[0] for r in ran if r != "other"] == list(range(8))


def task_of(fn, cost_key=None):
    task = Task(fn, (), (), None, 0, 0, "test", None, False, False)
    task.cost_key = cost_key
    return task


def measured(task):
    task_cost.measure(task)
    return task.fn


def test_the_run_time_of_a_function_is_kept_by_its_code(monkeypatch):
    def fn(*args):
        seen.append(args)
    seen = []
    assert task_cost.of(task_of(fn)) is None and task_cost.of(task_of(None)) is None and task_cost.of(task_of(len)) is None
    measured(task_of(fn))(1, 2)
    assert seen == [(1, 2)] and task_cost.of(task_of(fn)) > 0
    assert measured(task_of(len)) is len
    monkeypatch.setattr(task_cost._costs, "maxsize", 1)
    measured(task_of(lambda: None))()
    assert task_cost.of(task_of(fn)) is None and len(task_cost._costs) == 1


def test_the_run_time_of_a_kernel_is_kept_by_its_cost_key():
    def fn(run):
        pass
    this, that = object(), object()
    measured(task_of(fn, this))(None)
    assert task_cost.of(task_of(fn, this)) > 0 and task_cost.of(task_of(len, this)) > 0
    assert task_cost.of(task_of(fn, that)) is None and task_cost.of(task_of(fn)) is None


def test_measuring_a_kernel_again_and_again_keeps_nothing():
    before = len(interrupts._codes)
    for _ in range(3):
        measured(task_of(lambda run: None, "sin"))(None)
    assert len(interrupts._codes) == before


def test_a_waiter_runs_a_kernel_that_takes_longer_than_other_functions_may(engine, monkeypatch):
    monkeypatch.setattr(task_cost, "of", lambda task: 10**6)
    v, kernels, others = engine.new_variable(), [], []
    with no_worker_free(engine):
        for _ in range(100):
            engine.push_sync(lambda run: kernels.append(threading.get_ident()), cpu(), [], [v], cost_key="kernel")
            engine.wait_for_var(v)
    assert kernels == [threading.get_ident()] * 100
    for _ in range(100):
        engine.push_sync(lambda run: others.append(threading.get_ident()), cpu(), [], [v])
        engine.wait_for_var(v)
    assert threading.get_ident() not in others and len(others) == 100


def test_ctrl_c_comes_after_the_kernel_that_the_waiter_runs():
    def kernel(run):
        signal.raise_signal(signal.SIGINT)
        ran.append(run)
    interrupts.install()
    ran = []
    with pytest.raises(KeyboardInterrupt):
        measured(task_of(kernel, "kernel"))("first")
        threading.Event().wait(20)
    assert ran == ["first"]


def test_an_error_of_a_function_that_the_waiter_runs_is_raised_by_the_wait(engine):
    v = engine.new_variable()

    def short(run):
        if fails:
            raise ValueError("too hot")
    for fails in [False] * 20 + [True] * 3:
        engine.push_sync(short, cpu(), [], [v], name="oven")
        if fails:
            with pytest.raises(ValueError, match="oven: too hot"):
                engine.wait_for_var(v)
        else:
            engine.wait_for_var(v)
    engine.wait_for_var(v)


def test_a_waiter_runs_only_functions_that_it_waits_for(engine):
    """Otherwise it might run something that needs a lock the waiter holds."""
    mine, other, threads = engine.new_variable(), engine.new_variable(), []
    hold, begun = threading.Event(), threading.Event()

    def short(run):
        threads.append(threading.get_ident())
    for _ in range(50):
        engine.push_sync(short, cpu(1), [], [mine])
        engine.wait_for_var(mine)
    threads.clear()

    def long(run):
        begun.set()
        hold.wait()
    engine.push_sync(long, cpu(1), [], [mine])
    begun.wait()
    engine.push_sync(short, cpu(1), [], [other])
    timer = threading.Timer(0.01, hold.set)
    timer.start()
    engine.wait_for_var(mine)
    timer.join()
    engine.wait_for_all()
    assert threading.get_ident() not in threads


def test_try_run_inline_neither_waits_nor_overtakes(engine):
    v, w, gate, begun, ran = engine.new_variable(), engine.new_variable(), threading.Event(), threading.Event(), []
    assert engine.try_run_inline(ran.append, (v, w), (), 1) and ran == [1] and v.held == w.held == 0

    def hold(run):
        begun.set()
        gate.wait()
    engine.push_sync(hold, cpu(), [], [v])
    begun.wait()
    assert not engine.try_run_inline(ran.append, (w, v), (), 2) and w.held == 0  # v is being written
    engine.push_sync(lambda run: None, cpu(), [v], [w])
    assert not engine.try_run_inline(ran.append, (w,), (), 3)  # a writer of w is queued
    gate.set()
    alone(engine)
    with pytest.raises(ZeroDivisionError):
        engine.try_run_inline(lambda: 1 / 0, (v,), ())
    assert v.held == 0
    assert engine.try_run_inline(ran.append, (v,), (), 4) and ran == [1, 4]


def test_try_run_inline_writes_only_what_is_free(engine):
    v, w, gate, begun, ran = engine.new_variable(), engine.new_variable(), threading.Event(), threading.Event(), []

    def hold(run):
        begun.set()
        gate.wait()
    engine.push_sync(hold, cpu(), [w], [])
    begun.wait()
    assert engine.try_run_inline(lambda: ran.append((v.held, w.held)), (w,), (v,)) and ran == [(-1, 2)]
    assert not engine.try_run_inline(print, (v,), (w,)) and v.held == 0  # w is being read
    gate.set()
    alone(engine)
    assert v.version == 1 and v.held == w.held == 0
    v.failure = Failure(ValueError("late"), "before", None, 0)
    assert not engine.try_run_inline(print, (), (v,))  # a push clears it
    v.failure = None


def test_others_wait_for_a_function_that_writes_inline(engine):
    v, seen = engine.new_variable(), []

    def writes():
        engine.push_sync(lambda run: seen.append("reader"), cpu(), [v], [])
        engine.push_sync(lambda run: seen.append("writer"), cpu(), [], [v])
        seen.append("first")
    assert engine.try_run_inline(writes, (), (v,))
    engine.wait_for_all()
    assert seen == ["first", "reader", "writer"] and v.held == 0 and v.queue is None and v.version == 2


def test_writers_wait_for_a_function_that_runs_inline(engine):
    v, seen = engine.new_variable(), []

    def reads():
        engine.push_sync(lambda run: seen.append("writer"), cpu(), [], [v])
        engine.push_sync(lambda run: seen.append("reader"), cpu(), [v], [])
        seen.append("first")
    assert engine.try_run_inline(reads, (v,), ())
    engine.wait_for_all()
    assert seen == ["first", "writer", "reader"] and v.held == 0 and v.queue is None


def test_nothing_runs_inline_inside_a_bulk_or_while_profiled_or_stopped(engine):
    v = engine.new_variable()
    with engine.bulk(4):
        assert not engine.try_run_inline(print, (v,), ())
    engine.stop()
    assert not engine.try_run_inline(print, (v,), ())


class Owner:
    """An operand with the interface that try_call_inline uses."""

    def __init__(self, var=None):
        self._var = var


def test_try_call_inline_holds_the_bookkeeping_lock(engine):
    v, w, order = engine.new_variable(), engine.new_variable(), []

    def call(x):
        engine.push_sync(lambda run: order.append("writer"), cpu(), [], [v], prop="inline")
        order.append("called")
        return x
    assert engine.try_call_inline((Owner(v), Owner()), call, 7) == 7
    assert v.held == -1 or order == ["called", "writer"]  # the writer that came meanwhile is in flight without another push
    alone(engine)
    assert order == ["called", "writer"]
    assert engine.try_call_inline((Owner(v), Owner(w)), lambda: 1 / 0) is None  # the caller pushes it, and the wait raises
    assert engine.try_call_inline((Owner(v), Owner(w)), call, 8) == 8
    engine.wait_for_all()


def test_variables_with_pending_gpu_work_are_not_used_inline(engine):
    v, w = engine.new_variable(), engine.new_variable()
    v.pending_events = PendingEvents()
    for owners in ((Owner(v), Owner(w)), (Owner(w), Owner(v))):
        assert engine.try_call_inline(owners, int) is None
    assert not engine.try_run_inline(int, (w, v), ()) and w.held == v.held == 0
    assert engine.try_call_inline((Owner(w), Owner()), int) == 0 and engine.try_run_inline(int, (w,), ())


def test_try_call_inline_overtakes_nothing(engine):
    v, w, gate, begun = engine.new_variable(), engine.new_variable(), threading.Event(), threading.Event()

    def hold(run):
        begun.set()
        gate.wait()
    engine.push_sync(hold, cpu(), [], [v])
    begun.wait()
    assert engine.try_call_inline((Owner(v), Owner()), int) is None and engine.try_call_inline((Owner(), Owner(v)), int) is None
    engine.push_sync(lambda run: None, cpu(), [v], [w])
    assert engine.try_call_inline((Owner(w), Owner()), int) is None and engine.try_call_inline((Owner(), Owner()), int) == 0
    gate.set()
    engine.wait_for_all()
    with engine._lock:  # as if another thread were doing bookkeeping
        engine.push_sync(lambda run: None, cpu(), [], [v])
    assert engine.try_call_inline((Owner(v), Owner()), int) is None
    engine.wait_for_all()
    engine.stop()
    assert engine.try_call_inline((Owner(), Owner()), int) is None
