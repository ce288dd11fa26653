"""Fork and exit: nothing is lost, nothing hangs, unfinished functions are named."""

import os
import subprocess
import sys
import threading

import pytest
from tritium.context import cpu
from tritium.engine import ThreadedEngine

HEAD = """
import os, sys, threading, time
from tritium.context import cpu
from tritium.engine import ThreadedEngine, current
engine = ThreadedEngine(2)
v = engine.new_variable()
"""


def python(code, **env):
    return subprocess.run([sys.executable, "-c", HEAD + code], capture_output=True, text=True, timeout=250,
                          env={**os.environ, **env})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_tasks_are_in_flight():
    engine, cells = ThreadedEngine(4), []
    v = engine.new_variable()
    for i in range(2000):
        engine.push_sync(lambda run, i=i: cells.append(i), cpu(i % 2), [], [v])
    child = os.fork()
    if not child:
        status = 1
        try:
            for i in range(2000, 3000):
                engine.push_sync(lambda run, i=i: cells.append(i), cpu(i % 2), [], [v])
            engine.wait_for_all()
            status = 0 if cells == list(range(3000)) else 2
        finally:
            os._exit(status)
    assert cells == list(range(2000))  # drained before
    for i in range(2000, 2500):
        engine.push_sync(lambda run, i=i: cells.append(i), cpu(), [], [v])
    engine.wait_for_all()
    assert cells == list(range(2500))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_nothing_but_the_main_thread_is_forked():
    engine = ThreadedEngine(3)
    engine.push_sync(lambda run: run.parallel(lambda i: None, 9), cpu(), [], [])
    child = os.fork()
    if not child:
        os._exit(0 if not [t for t in threading.enumerate() if t.name.startswith("tritium")] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_from_inside_an_engine_function():
    """A function that forks cannot be waited for; the child has a working engine, the parent loses nothing."""
    engine, ran, children = ThreadedEngine(2), [], []
    v, w = engine.new_variable(), engine.new_variable()

    def forks(run):
        child = os.fork()
        if child:
            children.append(child)
            return
        status = 1
        try:
            fresh = ThreadedEngine(2)
            u, seen = fresh.new_variable(), []
            for i in range(100):
                fresh.push_sync(lambda run, i=i: seen.append(i), cpu(), [], [u])
            fresh.wait_for_all()
            status = 0 if seen == list(range(100)) else 2
        finally:
            os._exit(status)
    engine.push_sync(forks, cpu(), [], [v])
    for i in range(200):
        engine.push_sync(lambda run, i=i: ran.append(i), cpu(i % 2), [v], [w])
    engine.wait_for_all()
    assert ran == list(range(200))
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    engine.stop()


def test_exit_drains():
    done = python("for i in range(50):\n    engine.push_sync(lambda run, i=i: print(i), cpu(), [], [v])")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(i) for i in range(50)]


def test_exit_while_a_function_runs():
    done = python("engine.push_sync(lambda run: (time.sleep(0.2), print('done')), cpu(), [], [v])")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_exit_starts_threads_that_are_first_needed_at_exit():
    done = python("gate = threading.Event()\n"
                  "engine.push_sync(lambda run: gate.wait(), cpu(), [], [v])\n"
                  "engine.push_sync(lambda run: print('other'), cpu(5), [v], [])\n"
                  "import atexit\natexit.register(gate.set)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "other\n", "")


def test_exit_names_what_never_completes():
    done = python("kept = []\n"
                  "engine.push_async(lambda run, done: kept.append(done), cpu(), [], [v], name='sleeper')\n"
                  "engine.push_sync(lambda run: None, cpu(), [v], [], name='behind')", TRITIUM_EXIT_TIMEOUT="1")
    assert done.returncode == 0
    assert done.stderr == "tritium: exit: stop: on_complete was not called within 1 s by: sleeper.\n"


def test_exit_prints_errors_that_no_wait_has_raised():
    done = python("def fn(run): raise ValueError('too hot')\nengine.push_sync(fn, cpu(), [], [v], name='oven')")
    assert done.returncode == 0
    assert done.stderr.startswith("tritium: exit: an error that no wait has raised: ValueError: oven: too hot (pushed at <")


def test_exit_does_not_print_errors_that_a_wait_has_raised():
    """The error still poisons v and the readers of v, and was caught once. Another error is printed."""
    fail = ("def fn(run): raise ValueError(run and 'too hot')\n"
            "w = engine.new_variable()\n"
            "engine.push_sync(fn, cpu(), [], [v], name='oven')\n"
            "engine.push_sync(lambda run: None, cpu(), [v], [w], name='bread')\n"
            "try: engine.wait_for_var(w)\n"
            "except ValueError: print('caught')\n")
    done = python(fail)
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\n", "")
    done = python(fail + "engine.push_sync(fn, cpu(), [], [engine.new_variable()], name='kettle')")
    assert done.stderr.startswith("tritium: exit: an error that no wait has raised: ValueError: kettle: too hot (pushed at <")


def test_interrupts_while_pushing_leave_a_working_engine():
    """Ctrl-C lands anywhere in push; afterwards everything pushed runs and nothing hangs."""
    done = python("""
import signal, random
random.seed(1)
ran, caught, inside = [], 0, False
def deliver(number, frame):
    global inside
    if inside:  # and not where this script itself could not catch it
        inside = False
        raise KeyboardInterrupt
signal.default_int_handler = deliver  # which the engine's handler calls
main = threading.get_ident()
over = threading.Event()
def disturb():
    while not over.wait(random.random() * 0.002):
        signal.pthread_kill(main, signal.SIGINT)
t = threading.Thread(target=disturb)
vs = [engine.new_variable() for _ in range(5)]
t.start()
while caught < 300:
    try:
        inside = True
        for k in range(100):
            engine.push_sync(lambda run: ran.append(1), cpu(), [vs[k % 5]], [vs[(k + 1) % 5]],
                             prop='inline' if k % 3 == 0 else None)
        engine.wait_for_var(vs[0])
        inside = False
    except KeyboardInterrupt:
        caught += 1
over.set()
t.join()
try:
    engine.wait_for_all()
except KeyboardInterrupt:  # it ended a function, and is reported like any error
    pass
engine.wait_for_all()
assert all(v.held == 0 and v.queue is None for v in vs)
print('well')
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")


@pytest.mark.parametrize("kind", ["NaiveEngine", "ThreadedEngine", "ThreadedEnginePerDevice"])
def test_engine_is_chosen_by_environment(kind):
    done = python("print(type(current()).__name__)", TRITIUM_ENGINE_TYPE=kind)
    assert (done.returncode, done.stdout.strip()) == (0, kind.removesuffix("PerDevice"))


def test_unknown_engine_and_number_in_the_environment():
    done = python("current()", TRITIUM_ENGINE_TYPE="NaivEngine")
    assert "ParameterError: TRITIUM_ENGINE_TYPE: 'NaivEngine' is not one of " in done.stderr
    assert "Did you mean 'NaiveEngine'" in done.stderr
    done = python("ThreadedEngine()", TRITIUM_NUM_WORKERS="many")
    assert "ParameterError: TRITIUM_NUM_WORKERS: 'many' is not an integer of at least 1." in done.stderr


def test_workers_from_environment():
    done = python("print(engine.workers, ThreadedEngine().workers)", MXNET_CPU_WORKER_NTHREADS="3")
    assert done.stdout.split() == ["2", "3"]
