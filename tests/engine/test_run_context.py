"""RunContext.parallel: every index once, errors, nesting, the same bits for any number of threads."""

import threading

import numpy as np
import pytest
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.engine.run_context import RunContext, ThreadTeam


@pytest.fixture(params=[0, 1, 3])
def run(request):
    helpers = ThreadTeam(request.param)
    yield RunContext(cpu(), None, helpers if request.param else None)
    helpers.stop()


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_every_index_is_called_once(run, n):
    seen = []
    run.parallel(seen.append, n)
    assert sorted(seen) == list(range(n))


def test_the_threads_of_the_team_take_part():
    helpers = ThreadTeam(2)
    barrier, who = threading.Barrier(3, timeout=250), set()

    def fn(i):
        barrier.wait()  # no call passes alone
        who.add(threading.get_ident())
    RunContext(cpu(), None, helpers).parallel(fn, 3)
    assert len(who) == 3
    helpers.stop()


def test_the_error_of_the_smallest_index_is_raised_after_all_ran(run):
    seen = []

    def fn(i):
        seen.append(i)
        if i in (3, 5, 90):
            raise ValueError(f"index {i}")
    for _ in range(20):
        with pytest.raises(ValueError, match=r"^index 3$"):
            run.parallel(fn, 100)
    assert len(seen) == 2000


def test_parallel_calls_nest(run):
    out = np.zeros((6, 5, 4), int)

    def inner(i, j):
        run.parallel(lambda k: out.__setitem__((i, j, k), i * 100 + j * 10 + k), 4)
    run.parallel(lambda i: run.parallel(lambda j: inner(i, j), 5), 6)
    assert (out == np.arange(6)[:, None, None] * 100 + np.arange(5)[:, None] * 10 + np.arange(4)).all()


def test_the_same_bits_on_every_engine(rng):
    a, b = rng.normal(size=(64, 300)).astype("float32"), rng.normal(size=(300, 80)).astype("float32")

    def product(engine):
        out = np.empty((64, 80), "float32")
        engine.push_sync(lambda run: run.parallel(
            lambda i: np.matmul(a[i * 8:i * 8 + 8], b, out=out[i * 8:i * 8 + 8]), 8), cpu(), [], [])
        engine.wait_for_all()
        return out.tobytes()
    engines = [NaiveEngine(), ThreadedEngine(1), ThreadedEngine(4)]
    assert len({product(e) for e in engines}) == 1
    for e in engines:
        e.stop()


def test_a_team_stops_and_starts_again():
    helpers, seen = ThreadTeam(2), []
    for _ in range(3):
        helpers.run(seen.append, 10)
        helpers.stop()
        assert not [t for t in threading.enumerate() if t.name.startswith("tritium-helper") and t in helpers._threads]
    assert len(seen) == 30
