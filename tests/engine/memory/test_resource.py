"""resource: random numbers are handed out by count in push order; scratch memory belongs to one run."""

import threading

import numpy as np
import pytest
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.engine.memory import resource, storage
from tritium.engine.run_context import POOLED
from tritium.errors import EngineError


def test_random_numbers_of_all_contexts_are_reserved_in_push_order():
    resource.seed(42)
    assert [resource.get_random(5), resource.get_random(0), resource.get_random(3, cpu(1)), resource.get_random(1)] == \
        [(42, 0), (42, 5), (42, 5), (42, 8)]
    resource.seed(42)
    assert resource.get_random(1) == (42, 0)


def test_a_context_may_have_its_own_stream():
    resource.seed(1)
    resource.seed(2, cpu(1))
    assert [resource.get_random(4, cpu(1)), resource.get_random(4, cpu(0)), resource.get_random(4, cpu(1))] == \
        [(2, 0), (1, 0), (2, 4)]
    resource.seed(3)
    assert resource.get_random(1, cpu(1)) == (3, 0)
    resource.seed(-1)
    assert resource.get_random(1) == ((1 << 64) - 1, 0)


def test_no_random_number_is_reserved_twice():
    resource.seed(0)
    taken = []
    threads = [threading.Thread(target=lambda: taken.extend(resource.get_random(3)[1] for _ in range(500)))
               for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(taken) == list(range(0, 12_000, 3))


@pytest.mark.parametrize("call, text", [
    (lambda: resource.seed(0, "cpu"), r'resource\.seed: ctx is \'cpu\'\. Give a context or "all"\.'),
    (lambda: resource.get_random(-1), r"resource\.get_random: count is negative: -1"),
])
def test_wrong_arguments_raise(call, text):
    with pytest.raises(EngineError, match=text):
        call()


@pytest.mark.parametrize("engine", [NaiveEngine(), ThreadedEngine(4)], ids=["naive", "threaded"])
def test_functions_with_scratch_do_not_disturb_each_other(engine, ctx):
    wrong = []

    def use(run, array, k):
        array[:] = k
        private = run.workspace((3,), "int32")
        private[:] = k
        if not (bool((array == k).all()) and bool((private == k).all())):
            wrong.append(k)
    for k in range(200):
        engine.push_sync(lambda run, k=k: use(run, run.workspace((50 + k,), "int32"), k), ctx, [], [])
    engine.wait_for_all()
    assert not wrong


def test_small_scratch_of_the_host_is_not_the_pools():
    own = cpu(97)  # of no other test: those of test_storage.py begin at 100
    taken = []

    def use(run):
        for n in (POOLED - 1, POOLED):
            array = run.workspace((1, n), "int8")
            taken.append((array.shape, array.dtype, storage.stats(own).in_use))

    NaiveEngine().push_sync(use, own, [], [])
    assert taken == [((1, POOLED - 1), np.dtype("int8"), 0), ((1, POOLED), np.dtype("int8"), POOLED)]
