"""bulk: fewer operations, the same results in the same order."""

import threading

import pytest
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine, bulk, current, set_bulk_size, set_current
from tritium.errors import EngineError


@pytest.fixture(params=["naive", "threaded"])
def engine(request):
    e = NaiveEngine() if request.param == "naive" else ThreadedEngine(2)
    e.sizes = []
    submit = e._submit
    e._submit = lambda task: (e.sizes.append(len(getattr(task, "tasks", [0]))), submit(task))[1]
    yield e
    e.stop()


def push(engine, log, n, v, ctx=None, **kw):
    for i in range(n):
        engine.push_sync(lambda run, i=i: log.append(i), ctx or cpu(), [], [v], **kw)


def test_up_to_n_functions_become_one_operation(engine):
    v, log = engine.new_variable(), []
    with engine.bulk(4):
        push(engine, log, 10, v)
    engine.wait_for_var(v)
    assert engine.sizes == [4, 4, 2] and log == list(range(10))


def test_another_context_priority_or_kind_ends_an_operation(engine):
    v, log = engine.new_variable(), []
    with engine.bulk(100):
        push(engine, log, 2, v)
        push(engine, log, 3, v, cpu(1))
        push(engine, log, 1, v, priority=1)
        engine.push_async(lambda run, done: done(), cpu(), [], [v])
        push(engine, log, 2, v)
        engine.wait_for_var(v)  # a wait inside sees what was pushed
        assert log == [0, 1, 0, 1, 2, 0, 0, 1]
    assert engine.sizes == [2, 3, 1, 1, 2]


def test_other_threads_see_what_was_collected(engine):
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


def test_misuse(engine):
    with pytest.raises(EngineError, match=r"bulk: n is 0\. Give a positive number"):
        with engine.bulk(0):
            pass
