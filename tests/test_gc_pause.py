"""gc_pause: a long queue is kept out of the collector's rounds, and given back; a program's own freezing is left alone."""

import gc
import threading

import pytest
from tritium import gc_pause
from tritium.context import cpu
from tritium.engine import ThreadedEngine


@pytest.fixture(autouse=True)
def clean():
    gc.unfreeze()
    yield
    gc.unfreeze()


def queue_up(engine, n):
    """Push n functions that wait for an event, and return the event."""
    gate, v = threading.Event(), engine.new_variable()
    engine.push_sync(lambda run: gate.wait(), cpu(), [], [v])
    for _ in range(n):
        engine.push_sync(lambda run: None, cpu(), [v], [])
    return gate.set


def test_a_long_queue_pauses_the_garbage_collector():
    engine = ThreadedEngine(1)
    go = queue_up(engine, 3 * gc_pause.MANY)
    assert gc.get_freeze_count() > 2 * gc_pause.MANY
    go()
    engine.wait_for_all()
    assert gc.get_freeze_count() == 0
    go = queue_up(engine, gc_pause.MANY // 2)
    assert gc.get_freeze_count() == 0
    go()
    engine.stop()


def test_two_engines_share_one_pause():
    one, two = ThreadedEngine(1), ThreadedEngine(1)
    go1, go2 = queue_up(one, gc_pause.MANY + 1), queue_up(two, gc_pause.MANY + 1)
    go1()
    one.wait_for_all()
    assert gc.get_freeze_count() > 0
    go2()
    two.wait_for_all()
    assert gc.get_freeze_count() == 0
    one.stop()
    two.stop()


def test_objects_frozen_by_the_program_stay_frozen():
    gc.freeze()
    before = gc.get_freeze_count()
    engine = ThreadedEngine(1)
    queue_up(engine, gc_pause.MANY + 1)()
    engine.stop()
    assert gc.get_freeze_count() >= before * 0.9 > 0


def test_the_collector_is_off_until_the_last_block_ends():
    assert gc.isenabled()
    first, second = gc_pause.gc_paused(), gc_pause.gc_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # as of two threads
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_program_that_turned_the_collector_off_finds_it_off():
    gc.disable()
    try:
        with gc_pause.gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
