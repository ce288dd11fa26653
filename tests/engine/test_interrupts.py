"""interrupt: Ctrl-C inside a ki_protected function comes when it has ended; below one that opens, at once."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from tritium.engine import interrupts


@pytest.fixture(autouse=True)
def handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.install()
    yield
    signal.signal(signal.SIGINT, before)


@interrupts.ki_protected
def book(steps, between):
    steps.append("begun")
    between()
    steps.append("ended")


@interrupts.ki_unprotected
def user(fn):
    fn()


def knock():
    signal.raise_signal(signal.SIGINT)


def outlast():
    while True:  # until the interrupt comes
        pass


def test_an_interrupt_waits_until_a_protected_function_ends():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        book(steps, knock)
        outlast()
    assert steps == ["begun", "ended"]


def test_functions_below_an_unprotected_one_are_interrupted_at_once():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        book(steps, lambda: user(knock))
    assert steps == ["begun"]


def test_a_handler_set_by_the_program_is_left_alone():
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    interrupts.install()
    book([], knock)
    assert seen == [signal.SIGINT]


def test_a_postponed_interrupt_wakes_a_sleeping_main_thread():
    """It is postponed while the main thread keeps books, and comes when that blocks in a lock."""
    lock = threading.Lock()
    lock.acquire()

    @interrupts.ki_protected
    def keep_books():
        knock()
    keep_books()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(timeout=250)


def test_block_returns_the_result_of_acquire():
    lock = threading.Lock()
    assert interrupts.block(lock) and not interrupts.block(lock, 0.15) and not interrupts.block(lock, 0)
    lock.release()
    assert interrupts.block(lock, 20)


CHILD = """
import os, signal, sys, threading, time
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine
import tritium.engine.interrupts
engine = ThreadedEngine(2)
gate, v = threading.Event(), engine.new_variable()
kind = sys.argv[1]
def waits():
    if kind == "for a var": engine.wait_for_var(v)
    elif kind == "for all": engine.wait_for_all()
    elif kind == "stop": engine.stop()
    elif kind == "set_current":
        from tritium.engine import set_current
        set_current(engine); set_current(NaiveEngine())
    elif kind == "inline":
        engine.push_sync(lambda run: gate.wait(), cpu(), [], [engine.new_variable()], prop="inline")
def knock(): os.kill(os.getpid(), signal.SIGINT)
slowest = 0
for i in range(20):
    gate.clear()
    engine.push_sync(lambda run: gate.wait(), cpu(), [], [v])
    sent, about = [0], threading.Event()
    def later():
        about.wait()
        time.sleep(0.002 * (i % 5))
        sent[0] = time.perf_counter()
        knock()
    t = threading.Thread(target=later); t.start()
    try:
        about.set()
        waits()
        sys.exit("not interrupted")
    except KeyboardInterrupt:
        slowest = max(slowest, time.perf_counter() - sent[0])
    t.join()
    gate.set()
    engine.start()
    ran = []
    try: engine.wait_for_all()
    except KeyboardInterrupt: assert kind == "inline"
    engine.push_sync(lambda run: ran.append(1), cpu(), [], [v])
    engine.wait_for_var(v)
    assert ran == [1]
print(slowest)
"""


@pytest.mark.parametrize("seconds", [20, pytest.param(0.2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["for a var", "for all", "stop", "set_current", "inline"])
def test_ctrl_c_ends_any_wait_and_leaves_a_usable_engine(kind, seconds):
    """A real SIGINT in a process of its own, twenty times. It ends the wait within 0.2 s where the machine is not busy."""
    done = subprocess.run([sys.executable, "-c", CHILD, kind], capture_output=True, text=True, timeout=250,
                          env={**os.environ, "TRITIUM_GPU": "off"}, preexec_fn=lambda: signal.signal(
                              signal.SIGINT, signal.default_int_handler))
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) < seconds
