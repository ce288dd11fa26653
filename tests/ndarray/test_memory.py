"""Memory of programs that never wait. Oracle: counting by hand how many arrays can be needed at one time."""

import functools
import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tritium as mx
from tritium.context import cpu, gpu
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.engine.memory import storage
from tritium.errors import OutOfMemoryError
from tritium.ndarray.core import array_core

BYTES = 1 << 20  # of one array
SHAPE = (BYTES // 4,)
_numbers = itertools.count(500)


@pytest.fixture(params=[ThreadedEngine, NaiveEngine], ids=["threaded", "naive"])
def engine(request):
    """An engine with one CPU worker: what it keeps is then certain."""
    before = mx.engine.current()
    made = ThreadedEngine(1) if request.param is ThreadedEngine else NaiveEngine()
    mx.engine.set_current(made)
    yield made
    mx.engine.set_current(before)
    made.stop()


@pytest.fixture(params=["cpu", "gpu"])
def place(request):
    """A context, and with the CPU one whose memory nobody else uses."""
    return cpu(next(_numbers)) if request.param == "cpu" else gpu()


def chain(x):
    return x * 0.5 + 1


def recorded(x):
    x.attach_grad()
    with mx.autograd.record():
        y = (x * 0.5 + 1) * x
    y.backward()
    return y.detach() * 0.1 + x.grad * 0.1


def assigned(x):
    y = x * 0.5
    y[:100] = 1
    y += x
    return y[::-1] * 0.5


def joined(x):
    return mx.nd.concat(x, x * 2, dim=0).reshape((2, -1)).sum(axis=0) * 0.1


def copied(x):
    return x.copy().astype("float64").astype("float32").as_in_context(x.context)


def drawn(x):
    return mx.nd.random.uniform(shape=SHAPE, ctx=x.context) + x


def made(x):
    return mx.nd.zeros(SHAPE, ctx=x.context) + mx.nd.full(SHAPE, 2, ctx=x.context) * x


def into(x):
    out = mx.nd.empty(SHAPE, ctx=x.context)
    mx.nd.tanh(x, out=out)
    return out


STEPS = [chain, recorded, assigned, joined, copied, drawn, made, into]


@pytest.mark.parametrize("step", STEPS, ids=[s.__name__ for s in STEPS])
def test_arrays_that_are_only_queued_take_no_memory(step, engine, place):
    """The worker is held at the first function; then all that was pushed is done, with the memory of one step."""
    if place.is_gpu and step is not chain:
        pytest.skip("the interpreter is slow; the memory is taken in one place")
    rounds = 4 if place.is_gpu else 40
    x = mx.nd.ones(SHAPE, ctx=place)
    step(x).wait_to_read()
    x.wait_to_read()
    storage.release_all(place)
    before = storage.stats(place).in_use
    go = threading.Event()
    held = isinstance(engine, ThreadedEngine)
    if held:
        engine.push_sync(lambda run: go.wait(), place, (), (x.chunk.var,), name="hold")
    peak = []
    watch = lambda ctx, in_use, pooled: peak.append(in_use) if ctx == place else None
    try:
        for _ in range(rounds):
            x = step(x)
        queued = storage.stats(place).in_use
        storage.observers.append(watch)
    finally:
        go.set()
    try:
        x.wait_to_read()
        mx.nd.waitall()
    finally:
        storage.observers.remove(watch)
    assert not held or queued <= before + BYTES  # nothing had run
    assert max(peak, default=0) <= before + 12 * BYTES
    assert np.isfinite(x.asnumpy()).all()


def host_values(x, i):
    return mx.nd.dot(mx.nd.full((BYTES // 4 // 256, 256), 1, ctx=x.context) + np.ones((BYTES // 4 // 256, 256), np.float32),
                     mx.nd.ones((256, 256), ctx=x.context)).reshape((-1,)) + x * 0


def run_ahead(x, i):
    return x + mx.nd.full(SHAPE, i, ctx=x.context) * mx.nd.array(np.ones(SHAPE), ctx=x.context)


def test_the_program_waits_for_the_engine_once_per_limit_of_bytes(engine, monkeypatch):
    calls = []
    monkeypatch.setattr(array_core.RunAhead, "limit", 16 * BYTES)
    monkeypatch.setattr(array_core.RunAhead, "nbytes", 0)
    arrays = []
    monkeypatch.setattr(engine, "catch_up", lambda: calls.append(len(arrays)))
    for _ in range(100):
        arrays.append(mx.nd.empty(SHAPE))
    assert calls == [16, 33, 50, 67, 84]


@pytest.mark.parametrize("step", [host_values, run_ahead])
def test_memory_of_results_computed_ahead_is_bounded(step, monkeypatch):
    """Values from the host, and what many workers compute ahead of a chain: the thread that pushes lets them catch up."""
    monkeypatch.setattr(array_core.RunAhead, "limit", 16 * BYTES)
    place, before, engine = cpu(next(_numbers)), mx.engine.current(), ThreadedEngine(4)
    monkeypatch.setattr(engine, "catch_up", functools.partial(engine.catch_up, 100))
    mx.engine.set_current(engine)
    try:
        x = mx.nd.ones(SHAPE, ctx=place)
        for i in range(60):
            x = step(x, i)
        x.wait_to_read()
        mx.nd.waitall()
        assert storage.stats(place).peak <= 48 * BYTES
    finally:
        mx.engine.set_current(before)
        engine.stop()


def test_arrays_that_the_user_holds_keep_their_memory(engine):
    place = cpu(next(_numbers))
    xs = [mx.nd.full(SHAPE, i, ctx=place) for i in range(8)]
    ys = [x * 2 for x in xs]
    del xs
    assert [float(y[0].asscalar()) for y in ys] == [2 * i for i in range(8)]
    mx.nd.waitall()
    assert storage.stats(place).in_use == 8 * BYTES


def test_many_threads_read_the_same_values_of_an_unwritten_array():
    for _ in range(50):
        a = mx.nd.empty((2000,))
        start, seen = threading.Barrier(4), []

        def look(a=a, start=start, seen=seen):
            start.wait()
            seen.append(a.chunk.block.memory.ctypes.data)
        threads = [threading.Thread(target=look) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(set(seen)) == 1


def test_more_memory_than_the_machine_has_is_refused_at_the_request(engine):
    with pytest.raises(OutOfMemoryError, match=r"^storage\.alloc: cpu\(0\) cannot supply 4,503,599,627,370,496 bytes"):
        mx.nd.zeros((1 << 50,))


def in_a_child(code, limit_mb=None, workers=2):
    """Return the output of code, run in a process whose addresses end at limit_mb beyond what it has after the import."""
    limit = "" if limit_mb is None else (
        "import os, resource\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGE_SIZE')\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + ({limit_mb} << 20),) * 2)\n")
    first = "import tritium as mx\nx = mx.nd.ones((1024, 1024))\n(x * 0.5 + 1).wait_to_read()\n"
    environment = {**os.environ, "TRITIUM_NUM_WORKERS": str(workers), "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run([sys.executable, "-c", first + limit + code], capture_output=True, text=True, timeout=250,
                          env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_a_loop_that_never_waits_passes_under_a_limit():
    code = "for _ in range(300):\n    x = x * 0.5 + 1\nprint(x[0, 0].asscalar())"
    assert in_a_child(code, limit_mb=512) == "2.0\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.nightly
def test_the_peak_of_a_long_loop_is_a_few_arrays():
    code = ("import resource\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "for _ in range(1500):\n    x = x * 0.5 + 1\nx.wait_to_read()\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)")
    assert int(in_a_child(code)) < 200 << 10  # KiB
