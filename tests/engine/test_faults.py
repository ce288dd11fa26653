"""Faults: functions that raise, complete twice or never, waits in wrong places, misuse. Each raises, none hangs."""

import gc
import re
import signal
import threading
import time

import pytest
from tritium.context import cpu, gpu
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.engine.worker_pool import WorkerPool
from tritium.errors import ContextError, EngineError


@pytest.fixture(params=[1, 4])
def threaded(request):
    e = ThreadedEngine(request.param)
    yield e
    e.start()
    e.stop()


def fail(run):
    raise ValueError("too hot")


# ---- errors that travel ---------------------------------------------------------------------------------------------
def test_error_names_operator_and_pushing_line(engine):
    v = engine.new_variable()
    engine.push_sync(fail, cpu(), [], [v], name="oven")
    line = test_error_names_operator_and_pushing_line.__code__.co_firstlineno + 2
    with pytest.raises(ValueError, match=rf"^oven: too hot \(pushed at .*test_faults\.py:{line}\)$"):
        engine.wait_for_var(v)
    engine.wait_for_var(v)  # raised once
    engine.wait_for_all()


def test_error_of_another_shape_keeps_its_type_and_arguments(engine):
    def fn(run):
        raise OSError(2, "No such file")
    v = engine.new_variable()
    engine.push_sync(fn, cpu(), [], [v], name="read")
    with pytest.raises(FileNotFoundError) as e:
        engine.wait_for_var(v)
    assert e.value.errno == 2 and re.match(r"in operator read, pushed at .*test_faults\.py:\d+", e.value.__notes__[0])


def test_readers_of_poisoned_variables_are_skipped_and_poison_theirs(engine):
    a, b, c, d = (engine.new_variable() for _ in range(4))
    ran = []
    engine.push_sync(fail, cpu(), [], [a], name="first")
    engine.push_sync(lambda run: ran.append("b"), cpu(), [a], [b], name="second")
    engine.push_sync(lambda run: ran.append("c"), cpu(), [b], [c], name="third")
    engine.push_sync(lambda run: ran.append("d"), cpu(), [], [d], name="apart")
    with pytest.raises(ValueError, match="first: too hot"):
        engine.wait_for_var(c)
    engine.wait_for_var(d)
    assert ran == ["d"]
    with pytest.raises(ValueError, match="first: too hot"):  # a and b are still poisoned
        engine.wait_for_all()
    engine.wait_for_var(a)
    engine.wait_for_var(b)


def test_writing_a_poisoned_variable_clears_it_but_wait_for_all_raises_the_failure(engine):
    v = engine.new_variable()
    engine.push_sync(fail, cpu(), [], [v], name="oven")
    engine.push_sync(lambda run: None, cpu(), [], [v], name="again")
    engine.wait_for_var(v)
    with pytest.raises(ValueError, match="oven: too hot"):
        engine.wait_for_all()
    engine.wait_for_all()


def test_wait_for_all_raises_the_failure_pushed_first(engine):
    a, b = engine.new_variable(), engine.new_variable()
    gate = threading.Event()
    if isinstance(engine, NaiveEngine):
        gate.set()

    def first(run):
        gate.wait()
        raise ValueError("first")

    def second(run):
        gate.set()
        raise ValueError("second")
    engine.push_sync(first, cpu(0), [], [a], name="one")
    engine.push_sync(second, cpu(1), [], [b], name="two")
    with pytest.raises(ValueError, match="one: first"):
        engine.wait_for_all()
    engine.wait_for_all()


def test_an_error_of_a_function_without_variables_is_raised_by_wait_for_all(engine):
    engine.push_sync(fail, cpu(), [], [], name="lonely")
    with pytest.raises(ValueError, match="lonely: too hot"):
        engine.wait_for_all()


def test_workers_survive_anything(threaded):
    def leave(run):
        raise SystemExit("bye")
    ran = []
    for i in range(100):
        v = threaded.new_variable()
        threaded.push_sync(leave, cpu(), [], [v], name=f"exit{i}")
        with pytest.raises(SystemExit, match=f"exit{i}: bye"):
            threaded.wait_for_var(v)
        threaded.push_sync(lambda run, i=i: ran.append(i), cpu(), [], [v])
    threaded.wait_for_all()
    assert ran == list(range(100))


def test_members_of_a_bulk_fail_one_by_one(engine):
    a, b, c = (engine.new_variable() for _ in range(3))
    ran = []
    with engine.bulk(10):
        engine.push_sync(lambda run: ran.append("a"), cpu(), [], [a], name="fine")
        engine.push_sync(fail, cpu(), [], [b], name="oven")
        engine.push_sync(lambda run: ran.append("c"), cpu(), [a, b], [c], name="skipped")
    engine.wait_for_var(a)
    with pytest.raises(ValueError, match="oven: too hot"):
        engine.wait_for_var(c)
    assert ran == ["a"]
    with pytest.raises(ValueError, match="oven: too hot"):
        engine.wait_for_var(b)
    engine.wait_for_all()


def test_the_pushing_line_is_the_users_not_the_packages(engine):
    v = engine.new_variable()

    def boom():
        raise ValueError("boom")
    engine.delete_variable(v, boom)  # pushes from inside the package
    with pytest.raises(ValueError, match=r"delete_variable: boom \(pushed at .*test_faults\.py:\d+\)"):
        engine.wait_for_all()


def test_what_a_function_pushes_runs_after_it(engine):
    v, order = engine.new_variable(), []

    def outer(run):
        engine.push_sync(lambda run: order.append("inner"), cpu(), [], [v])
        order.append("outer")
    engine.push_sync(outer, cpu(), [], [v])
    engine.wait_for_var(v)
    engine.wait_for_all()
    assert order == ["outer", "inner"]


# ---- on_complete ----------------------------------------------------------------------------------------------------
def test_a_second_call_of_on_complete_raises(engine):
    told = []

    def fn(run, on_complete):
        on_complete()
        with pytest.raises(EngineError, match="twice: on_complete was called after the operator had ended") as e:
            on_complete()
        told.append(e)
    v = engine.new_variable()
    engine.push_async(fn, cpu(), [], [v], name="twice")
    engine.wait_for_all()
    assert told


def test_raising_before_and_after_completing(engine):
    kept = []

    def before(run, on_complete):
        kept.append(on_complete)
        raise ValueError("before")

    def after(run, on_complete):
        on_complete()
        raise ValueError("after")
    v = engine.new_variable()
    engine.push_async(before, cpu(), [], [v], name="op")
    with pytest.raises(ValueError, match="op: before"):
        engine.wait_for_var(v)
    with pytest.raises(EngineError, match="op: on_complete was called after the operator had ended"):
        kept[0]()
    engine.push_async(after, cpu(), [], [v], name="op")
    with pytest.raises(ValueError, match="op: after"):
        engine.stop()  # the task completes before its function returns; stop() waits for the thread, too


def test_completion_from_another_thread_with_an_error(engine):
    threads = []

    def fn(run, on_complete):
        threads.append(threading.Thread(target=on_complete, args=(OSError("the disk is gone"),)))
        threads[-1].start()
    v = engine.new_variable()
    engine.push_async(fn, cpu(), [], [v], name="load")
    with pytest.raises(OSError, match="load: the disk is gone"):
        engine.wait_for_var(v)
    threads[0].join()


def test_a_dropped_on_complete_fails_the_operator(engine):
    v = engine.new_variable()
    engine.push_async(lambda run, on_complete: None, cpu(), [], [v], name="forgets")
    gc.collect()
    with pytest.raises(EngineError, match="forgets: on_complete was dropped without being called"):
        engine.wait_for_var(v)


def test_stop_names_what_never_completes():
    engine, kept = ThreadedEngine(1), []
    engine.push_async(lambda run, on_complete: kept.append(on_complete), cpu(), [], [], name="sleeper")
    with pytest.raises(EngineError, match=r"on_complete was not called within 0\.05 s by: sleeper\."):
        engine.stop(0.05)
    kept[0]()
    engine.stop()


def test_stop_waits_for_tasks_that_no_thread_has_begun(monkeypatch):
    """On a busy machine the worker may begin after the timeout that stop has for asynchronous functions."""
    engine, ran, looks = ThreadedEngine(1), [], []
    wait, start = engine._wait_idle, WorkerPool._start
    monkeypatch.setattr(WorkerPool, "_start", lambda pool: None)
    engine.push_async(lambda run, on_complete: (ran.append(1), on_complete()), cpu(), [], [], name="late")
    (pool,) = engine._pools.values()

    def look(timeout):
        looks.append(timeout)
        if len(looks) == 3:
            monkeypatch.undo()
            start(pool)
        return wait(timeout)
    engine._wait_idle = look
    engine.stop(0.01)
    assert ran == [1] and looks[:3] == [0.01] * 3


# ---- misuse -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("push, message", [
    (lambda e, a, b: e.push_sync(print, cpu(), [a], [b, a], name="mix"),
     r"a var is both read and mutated: mutable_vars\[1\] is const_vars\[0\]"),
    (lambda e, a, b: e.push_async(print, cpu(), [a, b, a], [], name="mix"),
     r"a var is listed twice: const_vars\[0\] is const_vars\[2\]"),
    (lambda e, a, b: e.new_operator(print, [], [a, a], name="mix"),
     r"a var is listed twice: mutable_vars\[0\] is mutable_vars\[1\]"),
    (lambda e, a, b: e.push_sync(print, cpu(), ["a"], [], name="mix"), r"str is not a var\. Use new_variable\(\)\."),
    (lambda e, a, b: e.push_sync(print, cpu(), [], [], name="mix", prop="fast"),
     r"unknown prop 'fast'\. Known: None, normal, inline")])
def test_bad_lists_name_operator_and_var(push, message, engine):
    with pytest.raises(EngineError, match=f"^mix: {message}"):
        push(engine, engine.new_variable(), engine.new_variable())
    engine.wait_for_all()


def test_deleted_variables_and_operators_are_refused(engine):
    v, ran = engine.new_variable(), []
    engine.push_sync(lambda run: ran.append("use"), cpu(), [], [v])
    engine.delete_variable(v, lambda: ran.append("deleted"))
    with pytest.raises(EngineError, match=r"late: const_vars\[0\] was deleted"):
        engine.push_sync(lambda run: None, cpu(), [v], [], name="late")
    with pytest.raises(EngineError, match="the var was deleted before"):
        engine.delete_variable(v)
    opr = engine.new_operator(lambda run, on_complete: on_complete(), [], [], name="once")
    engine.push(opr, cpu())
    engine.delete_operator(opr)
    with pytest.raises(EngineError, match="once: the operator was deleted"):
        engine.push(opr, cpu())
    engine.wait_for_all()
    assert ran == ["use", "deleted"]


def test_push_after_stop(engine):
    engine.stop()
    with pytest.raises(EngineError, match=r"late: the engine was stopped\. Call start\(\) to use it again\."):
        engine.push_sync(lambda run: None, cpu(), [], [], name="late")
    engine.wait_for_all()
    engine.start()
    ran = []
    engine.push_sync(lambda run: ran.append(1), cpu(), [], [])
    engine.wait_for_all()
    assert ran == [1]


def test_a_missing_gpu_says_how_to_get_one(engine):
    with pytest.raises(ContextError, match=r"gpu\(7\): no such device: 1 GPU here\."):
        engine.push_sync(lambda run: None, gpu(7), [], [])


def test_a_function_that_waits_for_itself_is_refused(threaded):
    v = threaded.new_variable()
    threaded.push_sync(lambda run: threaded.wait_for_var(v), cpu(), [], [v], name="snake")
    with pytest.raises(EngineError, match="snake: a running function waits for a var that it mutates itself"):
        threaded.wait_for_var(v)
    threaded.push_sync(lambda run: threaded.wait_for_all(), cpu(), [], [v], name="snake")
    with pytest.raises(EngineError, match="snake: a running function waits for everything, itself included"):
        threaded.wait_for_var(v)


# ---- waiting ----------------------------------------------------------------------------------------------------------
def test_functions_that_wait_do_not_fill_the_pool(engine):
    """Ten functions each wait for one pushed after them."""
    order = []

    def outer(run, i):
        inner = engine.new_variable()
        engine.push_sync(lambda run: order.append(i), cpu(), [], [inner])
        engine.wait_for_var(inner)
        order.append(i)
    for i in range(10):
        engine.push_sync(lambda run, i=i: outer(run, i), cpu(), [], [])
    engine.wait_for_all()
    assert sorted(order) == sorted([*range(10), *range(10)])


def test_a_thousand_waiters(threaded):
    gate, v = threading.Event(), threaded.new_variable()

    def fn(run):
        gate.wait()
        raise ValueError("too hot")
    threaded.push_sync(fn, cpu(), [], [v], name="oven")
    told = []

    def wait():
        try:
            threaded.wait_for_var(v)
        except ValueError as e:
            told.append(str(e))
    threads = [threading.Thread(target=wait) for _ in range(1000)]
    for t in threads:
        t.start()
    while v.queue is None or len(v.queue) < 2 * 1000:  # a waiter, and that it reads: all must have come when it fails
        time.sleep(0)
    gate.set()
    for t in threads:
        t.join()
    assert len(told) == 1000 and "oven: too hot" in told[0]  # each thread that waited when it failed got the error
    threaded.wait_for_var(v)


def test_keyboard_interrupt_reaches_a_waiting_thread(threaded):
    gate, v = threading.Event(), threaded.new_variable()
    waiting = threading.Event()

    def fn(run):
        waiting.set()
        gate.wait()
    threaded.push_sync(fn, cpu(), [], [v])

    def interrupt():
        waiting.wait()
        while v.queue is None:
            time.sleep(0)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        threaded.wait_for_var(v)
    thread.join()
    gate.set()
    threaded.wait_for_all()


def test_a_hundred_thousand_pending(threaded):
    gate, v, seen = threading.Event(), threaded.new_variable(), []
    threaded.push_sync(lambda run: gate.wait(), cpu(), [], [v])
    for i in range(100_000):
        threaded.push_sync(lambda run, i=i: seen.append(i), cpu(), (), (v,))
    gate.set()
    threaded.wait_for_all()
    assert seen == list(range(100_000))


def test_many_threads_push(threaded):
    """Each thread's own order is kept; every function runs once."""
    cells, variables = [[] for _ in range(4)], [threaded.new_variable() for _ in range(4)]

    def push(who):
        for i in range(500):
            c = (who + i) % 4
            threaded.push_sync(lambda run, c=c, i=i: cells[c].append((who, i)), cpu(i % 2), [], [variables[c]])
    threads = [threading.Thread(target=push, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    threaded.wait_for_all()
    assert sum(map(len, cells)) == 4000
    for cell in cells:
        for who in range(8):
            mine = [i for w, i in cell if w == who]
            assert mine == sorted(mine)


def test_the_highest_priority_runs_first():
    engine, gate, order = ThreadedEngine(1), threading.Event(), []
    started = threading.Event()

    def hold(run):
        started.set()
        gate.wait()
    engine.push_sync(hold, cpu(), [], [])
    started.wait()
    for p in (0, -1, 3, 0, -2, 7, 3):
        engine.push_sync(lambda run, p=p: order.append(p), cpu(), [], [], priority=p)
    gate.set()
    engine.wait_for_all()
    assert order == [7, 3, 3, 0, 0, -1, -2]
    engine.stop()


def test_pushing_from_a_finalizer_inside_a_push(threaded):
    """The garbage collector may run a finalizer anywhere. Each push here is interrupted by one."""
    ran, gone = [], []

    class Drops:
        def __del__(self):
            threaded.push_sync(lambda run: ran.append(1), cpu(), [], [threaded.new_variable()])
            gone.append(1)

    old = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            d = Drops()
            d.me = d
            del d
            threaded.push_sync(lambda run: None, cpu(), [], [threaded.new_variable()])
    finally:
        gc.set_threshold(*old)
    while len(gone) < 200:  # while a worker's collection stands still in a finalizer, ours does nothing
        gc.collect()
        time.sleep(0)
    threaded.wait_for_all()
    assert len(ran) == 200


def test_tasks_run_in_the_pushing_thread_if_no_thread_can_be_started(monkeypatch):
    """As Python 3.12 has it while the interpreter ends."""
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    engine, order = ThreadedEngine(2), []
    v = engine.new_variable()
    for i in range(10):
        engine.push_sync(lambda run, i=i: run.parallel(lambda k: order.append(i), 2), cpu(i % 2), [], [v])
    engine.wait_for_all()
    assert order == [i for i in range(10) for _ in range(2)]
    engine.stop()


@pytest.mark.parametrize("priority", ["x", 1.5, float("nan"), object(), [1]])
def test_a_priority_that_is_not_an_integer_is_refused_before_anything_is_queued(engine, priority):
    v, ran = engine.new_variable(), []
    opr = engine.new_operator(lambda run, on_complete: on_complete(), [], [v], name="op")
    for push in (lambda: engine.push_sync(lambda run: None, cpu(), [], [v], name="op", priority=priority),
                 lambda: engine.push_async(lambda run, done: done(), cpu(), [], [v], name="op", priority=priority),
                 lambda: engine.push(opr, cpu(), priority)):
        with pytest.raises(EngineError, match=r"^op: priority is '.*'\. Give an integer\."):
            push()
    engine.push_sync(lambda run: ran.append(1), cpu(), [], [v], priority=True)
    engine.wait_for_var(v)
    assert ran == [1]
