"""Fork, exit, stop and a change of engine end while other threads push without a pause; a wait that could never end raises.

Each test runs in a process of its own, because a failure hangs.
"""

import os
import subprocess
import sys

import pytest

HEAD = """
import faulthandler, gc, os, signal, sys, threading, time
from tritium.context import cpu
from tritium import engine as engines
from tritium.engine import NaiveEngine, ThreadedEngine, current, set_current
from tritium.errors import EngineError
faulthandler.dump_traceback_later(100, exit=True)
engine = {"naive": NaiveEngine, "threaded": lambda: ThreadedEngine(2)}[sys.argv[1]]()
v = engine.new_variable()
going, over, pushed = threading.Event(), threading.Event(), [0]

def push_on(engine=lambda: engine, waits=False, yields=False):
    '''Push without a pause on three threads. Returns when 1,000 functions were pushed.

    yields: functions let other threads run, and each thread keeps 50 in the queue, so that it never empties.
    '''
    def on():
        mine, ran, n = engine().new_variable(), [], 0
        try:
            while not over.is_set():
                for _ in range(20):
                    engine().push_sync(lambda run: ran.append(time.sleep(0) if yields else None), cpu(), [], [mine])
                    pushed[0] += 1
                    n += 1
                    while yields and n - len(ran) > 50: time.sleep(0)
                if waits:
                    engine().wait_for_var(mine)
                    if len(ran) != n:
                        print("a wait ended early", flush=True)
                if pushed[0] > 1000: going.set()
                if pushed[0] % 1000 == 0: time.sleep(0.001)
        except EngineError as e:
            refused.append(str(e))
    threads = [threading.Thread(target=on, daemon=True) for _ in range(3)]
    for t in threads: t.start()
    going.wait()
    return threads
refused = []
"""


def python(code, kind="threaded", **env):
    return subprocess.run([sys.executable, "-c", HEAD + code, kind], capture_output=True, text=True, timeout=250,
                          env={**os.environ, "TRITIUM_GPU": "off", "TRITIUM_EXIT_TIMEOUT": "1", **env})


def said(done):
    return done.returncode, done.stdout.strip(), done.stderr.strip()


KINDS = pytest.mark.parametrize("kind", ["naive", "threaded"])


@KINDS
def test_exit_ends_while_other_threads_push(kind):
    assert said(python("push_on(yields=True)\nprint('end')", kind)) == (0, "end", "")


def test_exit_refuses_pushes_of_other_threads_if_the_queue_never_empties():
    """Each function is held until the next one was pushed."""
    assert said(python("""
held = threading.Semaphore(0)
def feed():
    try:
        while True:
            engine.push_sync(lambda run: held.acquire(), cpu(), [], [v], name="feed")
            going.set()
            held.release() if pushed[0] else None
            pushed[0] += 1
    except EngineError as e:
        held.release()
        print(e, flush=True)
threading.Thread(target=feed, daemon=True).start()
going.wait()
""")) == (0, "feed: the interpreter is ending and accepts nothing more from other threads.", "")


@KINDS
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_engines_work_in_parent_and_child_of_a_fork_while_other_threads_push(kind):
    done = python("""
push_on(waits=True)
for _ in range(3):
    child = os.fork()
    if not child:
        ran, w = [], engine.new_variable()
        for i in range(100):
            engine.push_sync(lambda run, i=i: ran.append(i), cpu(i % 2), [], [w])
        engine.wait_for_var(w)
        os._exit(0 if ran == list(range(100)) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
engine.wait_for_all()
""", kind)
    assert said(done) == (0, "0\n0\n0", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_tasks_in_flight_at_a_fork_fail_in_the_child_only():
    """A function waits for a thread that the fork holds up, so the fork stops waiting and prints that."""
    done = python("""
held, begun = threading.Event(), threading.Event()
w, x = engine.new_variable(), engine.new_variable()
engine.push_sync(lambda run: (begun.set(), held.wait()), cpu(), [], [v], name="slow")
engine.push_sync(lambda run: None, cpu(), [v], [w], name="behind")
begun.wait()
def waits():
    engine.push_sync(lambda run: None, cpu(), [], [x])
    engine.wait_for_var(x)
    going.set()
    while not over.is_set():
        engine.push_sync(lambda run: None, cpu(), [], [x], name="kept")
        engine.wait_for_var(x)
    held.set()
t = threading.Thread(target=waits, daemon=True)
t.start()
going.wait()
child = os.fork()
if not child:
    for var in (v, w):
        try: engine.wait_for_var(var)
        except EngineError as e: print(str(e).split(" (pushed")[0], flush=True)
    engine.push_sync(lambda run: print("anew", flush=True), cpu(), [], [v])
    engine.wait_for_var(v)
    try: engine.wait_for_all()
    except EngineError as e: print(str(e).split(" (pushed")[0], flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
over.set()
engine.wait_for_all()
print("intact")
""")
    lost = "was in flight in the parent when this process was forked. Wait for it before os.fork."
    assert done.stdout.splitlines() == [f"slow: {lost}", f"behind: {lost}", "anew", f"kept: {lost}", "0", "intact"] or \
        done.stdout.splitlines() == [f"slow: {lost}", f"behind: {lost}", "anew", "0", "intact"]
    assert done.stderr.startswith("tritium: fork: stop: these functions did not end within 1 s: slow. Other threads")


@KINDS
def test_stop_refuses_pushes_of_other_threads(kind):
    done = python("""
threads = push_on(yields=True)
engine.stop()
for t in threads: t.join()
print(len(refused), set(refused))
""", kind)
    assert said(done) == (0, "3 {'push: the engine was stopped. Call start() to use it again.'}", "")


@KINDS
@pytest.mark.parametrize("other", ["NaiveEngine", "ThreadedEngine"])
def test_the_engine_changes_while_other_threads_push_and_wait(kind, other):
    done = python(f"""
set_current(engine)
threads = push_on(current, waits=True, yields=True)
for i in range(20):
    set_current([{other}(), engine][i % 2])
over.set()
for t in threads: t.join()
current().wait_for_all()
print(refused)
""", kind)
    assert said(done) == (0, "[]", "")


@pytest.mark.parametrize("how", ["push", "bulk", "wait"])
def test_pushes_during_a_change_of_engine_run_on_the_new_one_in_order(how):
    """The old engine cannot drain before the other thread has pushed, and waits if it is to wait."""
    done = python(f"""
how = {how!r}
set_current(engine)
held, begun, order = threading.Event(), threading.Event(), []
engine.push_sync(lambda run: (begun.set(), held.wait()), cpu(), [], [v])
begun.wait()
other = NaiveEngine()
w = engine.new_variable()
def release_when_waiting(gate):
    while not gate.waiting: time.sleep(0)
    held.set()
def pushes():
    while engine._gate is None: time.sleep(0)
    old = current()
    with old.bulk(2) if how == "bulk" else threading.Lock():
        for i in range(5):
            old.push_sync(lambda run, i=i: order.append((i, type(current()).__name__)), cpu(i % 2), [], [w])
    if how == "wait":
        threading.Thread(target=release_when_waiting, args=(old._gate,)).start()
        old.wait_for_var(w)
        assert len(order) == 5, order
    else:
        held.set()
t = threading.Thread(target=pushes)
t.start()
set_current(other)
t.join()
other.push_sync(lambda run: order.append((5, type(current()).__name__)), cpu(), [], [w])
other.wait_for_var(w)
print([i for i, _ in order], set(name for _, name in order), engine._pending)
""")
    assert said(done) == (0, "[0, 1, 2, 3, 4, 5] {'NaiveEngine'} 0", "")


MIDDLE = "in the middle of the engine's own work"


@pytest.mark.parametrize("where, wait", [("_route", "wait_for_var(v)"), ("_route", "stop()"), ("_finish", "wait_for_all()"),
                                         ("_submit", "wait_for_var(v)")])
def test_a_wait_in_a_finalizer_during_bookkeeping_raises(where, wait):
    """The function called where is replaced by one that runs a finalizer first."""
    done = python(f"""
from tritium.engine import interrupts
class Drops:
    def __del__(self):
        try:
            engine.{wait}
            print("waited")
        except EngineError as e:
            print(e)
done_once = []
plain = ThreadedEngine.{where}
@interrupts.ki_protected
def middle(self, *args):
    if threading.current_thread() is main and not done_once:
        done_once.append(1)
        d = Drops(); del d
    return plain(self, *args)
main = threading.current_thread()
engine.push_sync(lambda run: None, cpu(), [], [v])
engine.wait_for_all()
held = threading.Event()
engine.push_sync(lambda run: held.wait(), cpu(), [], [v])
ThreadedEngine.{where} = middle
engine.push_sync(lambda run: None, cpu(), [], [v], prop="inline" if {where!r} == "_finish" else None)
if not done_once: engine.push_sync(lambda run: None, cpu(), [], [engine.new_variable()], prop="inline")
held.set()
engine.wait_for_all()
""")
    name = {"wait_for_var(v)": "wait_for_var"}.get(wait, "wait_for_all")
    assert said(done) == (0, f"{name}: called by a finalizer or a signal handler {MIDDLE}, which goes on only when that returns. "
                             f"Push there, and wait elsewhere.", "")


def test_a_wait_in_a_signal_handler_during_bookkeeping_raises():
    done = python("""
from tritium.engine import interrupts
said = []
def handler(number, frame):
    try: engine.wait_for_var(v)
    except EngineError as e: said.append(str(e))
signal.signal(signal.SIGTERM, handler)
route = ThreadedEngine._route
@interrupts.ki_protected
def middle(*args):
    if threading.current_thread() is threading.main_thread() and not said:
        signal.raise_signal(signal.SIGTERM)
    return route(*args)
held = threading.Event()
engine.push_sync(lambda run: held.wait(), cpu(), [], [v])
ThreadedEngine._route = middle
engine.push_sync(lambda run: None, cpu(), [], [engine.new_variable()])
held.set()
engine.wait_for_all()
print(said[0].split(",")[0])
""")
    assert said(done) == (0, f"wait_for_var: called by a finalizer or a signal handler {MIDDLE}", "")


@pytest.mark.parametrize("kind", ["naive", "threaded"])
def test_a_wait_in_a_signal_handler_for_the_function_it_interrupted_raises(kind):
    """w is written after v, which the interrupted function writes."""
    done = python("""
w, said = engine.new_variable(), []
def handler(number, frame):
    for var in (v, w):
        try:
            engine.wait_for_var(var)
            said.append("waited")
        except EngineError as e: said.append(str(e))
signal.signal(signal.SIGTERM, handler)
def fn(run):
    engine.push_sync(lambda run: None, cpu(), [v], [w], name="behind")
    signal.raise_signal(signal.SIGTERM)
engine.push_sync(fn, cpu(), [], [v], name="fn", prop="inline")
engine.wait_for_all()
print(len(said), *said, sep="|")
""", kind)
    code, out, err = said(done)
    assert (code, err) == (0, "")
    assert "waited" not in out and out.startswith("2|")


def test_a_function_that_waits_for_a_task_behind_itself_raises_and_others_do_not():
    done = python("""
a, b, c, d = (engine.new_variable() for _ in range(4))
begun, pushed = threading.Event(), threading.Event()
def fn(run):
    begun.set()
    pushed.wait()
    for var in (b, c, d):
        try: print("waited", engine.wait_for_var(var))
        except EngineError as e: print(e, flush=True)
engine.push_sync(fn, cpu(), [v], [a], name="fn")
begun.wait()
engine.push_sync(lambda run: None, cpu(), [v], [d], name="beside")  # a reader beside a reader
engine.push_sync(lambda run: None, cpu(), [a], [b], name="next")
engine.push_sync(lambda run: None, cpu(1), [b], [c], name="last")
pushed.set()
engine.wait_for_all()
""")
    assert said(done) == (0, "fn: a running function waits for a var that next mutates, which waits for that function itself.\n"
                             "fn: a running function waits for a var that last mutates, which waits for that function itself.\n"
                             "waited None", "")
