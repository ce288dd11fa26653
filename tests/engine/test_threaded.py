"""ThreadedEngine: random programs have exactly the results of the serial engine. Oracle: NaiveEngine."""

import threading

import pytest
from support.engine_programs import Foreign, alone, random_program, run_program
from tritium import cpu
from tritium.engine import NaiveEngine, ThreadedEngine, Var

SEEDS, CHUNK = 1200, 60


@pytest.fixture(scope="module")
def machines():
    foreign = Foreign()
    engines = [ThreadedEngine(1), ThreadedEngine(4)]
    yield NaiveEngine(), engines, foreign
    for e in engines:
        e.stop()
    foreign.close()


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_threads_agree_with_serial(start, machines):
    naive, engines, foreign = machines
    for seed in range(start, start + CHUNK):
        program = random_program(seed)
        want = run_program(program, naive, foreign)
        for engine in engines:
            assert run_program(program, engine, foreign) == want, f"seed {seed}, {engine.workers} workers"


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(0, 21_000, 1000))
def test_twenty_thousand_programs_agree_with_serial(start, machines):
    naive, engines, foreign = machines
    for seed in range(1_000_000 + start, 1_001_000 + start):
        program = random_program(seed, n=30, cells=6)
        want = run_program(program, naive, foreign)
        for engine in engines:
            assert run_program(program, engine, foreign) == want, f"seed {seed}, {engine.workers} workers"


def test_long_program(machines):
    naive, engines, foreign = machines
    program = random_program(0, n=5000, cells=20)
    want = run_program(program, naive, foreign)
    assert [run_program(program, e, foreign) for e in engines] == [want, want]


@pytest.mark.parametrize("number", [0, 1])
def test_only_what_nothing_stands_before_is_begun_and_before_a_worker_gets_it(machines, number):
    engine, done, var, other = alone(machines[1][number]), [], Var(), Var()
    engine.push_async(lambda _, on_complete: done.append(on_complete), cpu(), [], [var])
    engine.push_sync(lambda _: done.append("behind"), cpu(), [var], [], begin=lambda: done.append("begun too early"))
    engine.push_sync(lambda _: done.append("ran"), cpu(), [], [other], begin=lambda: done.append("begun"))
    engine.wait_for_var(other)
    (complete,) = [d for d in done if callable(d)]
    complete()
    engine.wait_for_all()
    assert [d for d in done if isinstance(d, str)] == ["begun", "ran", "behind"]
    opr = engine.new_operator(lambda _: done.append("ran again"), [], [var], synchronous=True)
    engine.push(opr, cpu(), begin=lambda: done.append("begun again"))
    engine.wait_for_var(var)
    assert done[-2:] == ["begun again", "ran again"]


@pytest.mark.parametrize("prop, there", [("inline", True), (None, False)])
def test_inline_functions_run_in_the_thread_that_completes_what_they_wait_for(machines, prop, there):
    """The copy of a value that came over a network, by the thread that received it; ordinary work goes to a worker."""
    _, (engine, _), _ = machines
    begun, var, ran = [], Var(), []
    alone(engine).push_async(lambda _, on_complete: begun.append(on_complete), cpu(), [], [var], prop="inline")
    engine.push_sync(lambda _: ran.append(threading.get_ident()), cpu(), [var], [], prop=prop)
    engine.push_sync(lambda _: ran.append(0), cpu(), [], [var], prop=prop)  # not ready at once: a worker's
    completed, seen = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (begun.pop()(), completed.set(), seen.wait()))  # it lives on: idents are used again
    other.start()
    completed.wait()  # inside a function this thread, too, would give inline functions to a worker
    engine.wait_for_var(var)
    seen.set()
    assert ran[1] == 0 and (ran[0] == other.ident) is there
    other.join()


@pytest.mark.parametrize("prop, here", [("inline", True), (None, False)])
def test_a_prepared_operator_runs_in_the_pushing_thread_if_it_is_inline(machines, prop, here):
    _, (engine, _), _ = machines
    var, ran = Var(), []

    def function(run, on_complete):  # asynchronous: a wait leaves it to the worker
        ran.append(threading.get_ident() == threading.main_thread().ident)
        on_complete()
    opr = alone(engine).new_operator(function, [], [var], prop=prop)
    for _ in range(2):
        engine.push(opr, cpu())
        engine.wait_for_var(var)
    assert ran == [here, here]


def test_readers_of_a_failed_asynchronous_function_do_not_run_inline(machines):
    _, (engine, _), _ = machines
    begun, var, ran = [], Var(), []
    alone(engine).push_async(lambda _, on_complete: begun.append(on_complete), cpu(), [], [var], prop="inline")
    engine.push_sync(lambda _: ran.append(1), cpu(), [var], [], prop="inline")
    begun.pop()(ValueError("lost"))
    with pytest.raises(ValueError, match="lost"):
        engine.wait_for_var(var)
    assert not ran


def test_catch_up_waits_for_half_of_the_tasks_in_flight():
    engine, v, go, ran = ThreadedEngine(1), Var(), threading.Event(), []
    engine.push_sync(lambda run: go.wait(), cpu(), [], [v])
    for i in range(99):
        engine.push_sync(lambda run, i=i: ran.append(i), cpu(), [], [v])
    go.set()
    engine.catch_up(patience=100)
    assert len(ran) >= 48
    engine.wait_for_all()
    engine.catch_up(patience=100)  # nothing is pending
    for _ in range(3):
        engine.push_sync(lambda run: None, cpu(), [], [v])
    engine.catch_up(patience=100)  # not far
    engine.stop()


def test_catch_up_returns_if_the_tasks_wait_for_the_calling_thread():
    """The function needs a lock that the pushing thread holds, or an event that it sets later."""
    engine, v, mine, go = ThreadedEngine(2), Var(), threading.Lock(), threading.Event()

    def work(run):
        with mine:
            go.wait()
    with mine:
        for _ in range(60):
            engine.push_sync(work, cpu(), [], [v])
        engine.catch_up(patience=0.01)
    go.set()
    engine.wait_for_all()
    engine.stop()


def test_catch_up_does_not_hold_back_functions_of_the_engine():
    engine, v, returned, go = ThreadedEngine(1), Var(), threading.Event(), threading.Event()

    def work(run):
        for _ in range(60):
            engine.push_sync(lambda run: None, cpu(), [], [v])
        engine.catch_up(patience=1e9)
        returned.set()
        go.wait()
    engine.push_sync(work, cpu(), [], [v])
    assert returned.wait(60)
    go.set()
    engine.wait_for_all()
    engine.stop()
