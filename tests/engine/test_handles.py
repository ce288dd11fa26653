"""Handles: copies of vars, operators, engines and on_complete are the same thing; they cannot be pickled."""

import copy
import pickle

import pytest
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.errors import EngineError


@pytest.fixture(params=["naive", "threaded"])
def engine(request):
    e = NaiveEngine() if request.param == "naive" else ThreadedEngine(2)
    yield e
    e.stop()


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda x: copy.deepcopy({"here": [x]})["here"][0]])
def test_a_copied_handle_orders_like_the_original(engine, make):
    v, log = engine.new_variable(), []
    w = make(v)
    assert w is v
    for i in range(200):
        engine.push_sync(lambda run, i=i: log.append(i), cpu(i % 2), [], [(v, w)[i % 2]])
    engine.wait_for_var(w)
    assert log == list(range(200))
    engine.delete_variable(w)
    with pytest.raises(EngineError, match=r"late: mutable_vars\[0\] was deleted"):
        engine.push_sync(lambda run: None, cpu(), [], [v], name="late")


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_copy_of_an_operator_is_deleted_with_it(engine, make):
    ran = []
    opr = engine.new_operator(lambda run, on_complete: (ran.append(1), on_complete()), [], [], name="once")
    twin = make(opr)
    engine.push(twin, cpu())
    engine.delete_operator(opr)
    with pytest.raises(EngineError, match="once: the operator was deleted"):
        engine.push(twin, cpu())
    engine.wait_for_all()
    assert ran == [1]


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_a_copy_of_an_engine_pushes_to_the_same_queues(engine, make):
    v, ran = engine.new_variable(), []
    make(engine).push_sync(lambda run: ran.append(1), cpu(), [], [v])
    engine.wait_for_all()
    make(engine).wait_for_all()
    assert ran == [1]


def test_dropping_a_copy_of_on_complete_does_not_fail_the_operator(engine):
    v, ran = engine.new_variable(), []

    def fn(run, on_complete):
        copy.copy(on_complete)
        ran.append(1)
        on_complete()
    engine.push_async(fn, cpu(), [], [v], name="copies")
    engine.wait_for_var(v)
    engine.wait_for_all()
    assert ran == [1]


def test_a_handle_cannot_be_pickled(engine):
    opr = engine.new_operator(lambda run, on_complete: on_complete(), [], [])
    for handle in (engine.new_variable(), opr, engine):
        with pytest.raises(EngineError, match=rf"pickle: {type(handle).__name__} means something in this process only"):
            pickle.dumps(handle)
