"""Order and memory on real GPUs: copies in every direction, assignments and scratch, on every kind of stream.

torch is a stand-in whose streams run in the worst order allowed. Oracle: the same program on NumPy arrays, step by step.
"""

import gc
import os
import random
import threading

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.torch_stand_in import World
from tritium.context import GPU_MODE, cpu, gpu
from tritium.engine import NaiveEngine, ThreadedEngine
from tritium.engine.gpu import cuda
from tritium.engine.memory import storage
from tritium.graph import options
from tritium.kernels.gpu import launch
from tritium.ndarray.dispatch import plan

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="replaces the interpreted GPU")

N = 600  # elements of an array: more than a tiny one's
KINDS = ("compute", "copy", "priority", "default")
PLACES = (cpu(0), gpu(0), gpu(1))
LANES = (None, "copy", "priority")
INTERPRETED = launch._run
CACHED = (cuda.num_gpus, cuda._stream, cuda._dtypes, cuda._device)


@pytest.fixture
def devices(monkeypatch):
    """Make two stand-in GPUs, with a function of a stream that says whether it lags."""
    monkeypatch.setattr(cuda, "GPU_MODE", "cuda")
    monkeypatch.setattr(storage, "_pools", {})
    before = mx.engine.current()

    def stop():
        made = mx.engine.current()
        mx.engine.set_current(before)
        if made is not before:
            made.stop()
        gc.collect()  # what came from these devices

    def make(slow, engine=ThreadedEngine):
        stop()
        world = World(slow)
        monkeypatch.setattr(cuda, "_torch", lambda: world)
        monkeypatch.setattr(launch, "_run", world.launch(INTERPRETED))
        for cached in CACHED:
            cached.cache_clear()
        cuda._staging.clear()
        for device in range(world.devices):
            for kind in KINDS[:3]:
                cuda.stream(device, kind).name = kind
        mx.engine.set_current(engine(*([2] if engine is ThreadedEngine else [])))
        plan.CACHE.clear()
        return world
    yield make
    stop()
    plan.CACHE.clear()
    cuda._staging.clear()
    for cached in CACHED:
        cached.cache_clear()


def all_slow(stream):
    return True


def slow_kind(kind):
    return lambda stream: stream.name == kind


def slow_device(device):
    return lambda stream: stream.device_index == device


WORST = {"all": all_slow, **{k: slow_kind(k) for k in KINDS[:3]}, "gpu(0)": slow_device(0), "gpu(1)": slow_device(1)}


def run_on(place, lane, body, reads, writes):
    """body(run) as an engine function."""
    mx.engine.current().push_sync(body, place, [a.chunk.var for a in reads], [a.chunk.var for a in writes], prop=lane)


def add(run, a, b, c, lane_scratch=None):
    """c = a + b, perhaps by way of scratch that is overwritten first."""
    a, b, c = a.device_array(), b.device_array(), c.device_array()
    if lane_scratch is None:
        c.write(np.add, a, b)
    else:
        lane_scratch[...] = 77
        lane_scratch.write(np.add, a, b)
        c.write(np.positive, lane_scratch)


def program(r, steps):
    """Random copies, fills and sums over arrays on all places; values are compared on the way and at the end."""
    def values():
        return np.array([r.randint(-99, 99) for _ in range(6)] * (N // 6), np.float32)

    def fresh(place):
        v = values()
        return mx.nd.array(v, ctx=place), v
    known = [fresh(place) for place in PLACES for _ in range(2)]
    for _ in range(steps):
        i = r.randrange(len(known))
        a, v = known[i]
        what = r.choice(["new", "copy", "copy", "there", "read", "fill", "assign", "part", "pick", "sum", "sum", "space",
                         "space", "operator", "operator", "onto", "drop"])
        same = [(b, w) for b, w in known if b.context == a.context]
        if what == "new":
            known[i] = fresh(r.choice(PLACES))
        elif what == "copy":
            b, w = r.choice([k for k in known if k[0] is not a] or [fresh(PLACES[0])])
            b.copyto(a)
            v[...] = w
        elif what == "there":
            known.append((a.as_in_context(r.choice([p for p in PLACES if p != a.context])), v.copy()))
        elif what == "read":
            np.testing.assert_array_equal(a.asnumpy(), v)
        elif what == "fill":
            a[:] = v[...] = r.randint(-99, 99)
        elif what == "assign":
            start, new = r.randrange(N - 8), values()[:8]
            a[start:start + 8] = new
            v[start:start + 8] = new
        elif what == "part":
            b, w = r.choice(same)
            if b is not a:
                a[10:N // 2] = b[20:N // 2 + 10]
                v[10:N // 2] = w[20:N // 2 + 10]
        elif what == "pick":
            known.append((a[::-1], v[::-1].copy()))
        elif what in ("sum", "space") and a.context != cpu(0):
            (b, w), (c, u) = r.choice(same), r.choice(same)
            out, lane = mx.nd.empty((N,), ctx=a.context), r.choice(LANES)
            reads = list({id(x): x for x in (b, c)}.values())
            if what == "space":
                run_on(a.context, lane, lambda run, b=b, c=c, out=out: add(run, b, c, out, run.workspace((N,), np.float32)),
                       reads, [out])
            else:
                run_on(a.context, lane, lambda run, b=b, c=c, out=out: add(run, b, c, out), reads, [out])
            known.append((out, w + u))
        elif what == "operator":
            b, w = r.choice(same)
            new, value = r.choice([(a - b, v - w), (mx.nd.maximum(a, b), np.maximum(v, w)), (-a, -v)])
            known.append((new, value))
            new = value = None
        elif what == "onto":
            b, w = r.choice(same)
            mx.nd.elemwise_sub(a, b, out=a)
            v[...] = v - w
        elif what == "drop" and len(known) > 4:
            del known[i]
        del a, v
        while len(known) > 12:
            del known[r.randrange(len(known))]
        b = c = out = same = reads = None
    for a, v in known:
        np.testing.assert_array_equal(a.asnumpy(), v)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("worst", WORST)
def test_random_programs_compute_the_same_as_numpy(devices, worst, seed):
    serial = seed == 7
    world = devices(WORST[worst], NaiveEngine if serial else ThreadedEngine)
    program(random.Random(f"{worst} {seed}"), 120)
    assert world.reused > 5 or not serial  # with threads it depends on who is when done


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(300))
def test_many_random_programs(devices, seed):
    r = random.Random(seed)
    lagging = [(d, k) for d in range(2) for k in KINDS if r.random() < 0.5]
    devices(lambda s: (s.device_index, s.name) in lagging)
    program(r, 400)


def busy(place):
    """A function on the compute stream that has been enqueued and not begun, on memory that is dropped at once."""
    a = mx.nd.empty((N,), ctx=place)
    ran = []

    def body(run):
        a.device_array().write(lambda: ran.append(1) or 5)
    run_on(place, None, body, [], [a])
    wait_until_called(a, place)
    return ran


def wait_until_called(a, place):
    """The engine has called what was pushed to write a; the device may not have begun it. place: where to ask."""
    called = threading.Event()
    run_on(place, None, lambda run: called.set(), [a], [])
    assert called.wait(60)


def test_a_copy_from_the_host_is_not_overwritten_by_earlier_users_of_its_memory(devices):
    """Fault 1: the block of an array that a queued kernel writes goes to mx.nd.array, which copies on another stream."""
    devices(slow_kind("compute"))
    ran = busy(gpu(0))
    gc.collect()
    b = mx.nd.array(np.arange(N), ctx=gpu(0))
    assert not ran  # nobody had to wait for the kernel
    cuda.stream(0).record_event().synchronize()
    assert ran and (b.asnumpy() == np.arange(N)).all()


@pytest.mark.parametrize("lane", ["copy", "priority"])
def test_scratch_on_another_stream_is_not_overwritten(devices, lane):
    """Fault 2: memory taken for a function on another stream than compute's, while a kernel still has it in hand."""
    devices(slow_kind("compute"))
    b = mx.nd.array(np.arange(N), ctx=gpu(0))
    ran = busy(gpu(0))
    gc.collect()
    out = mx.nd.empty((N,), ctx=gpu(0))
    run_on(gpu(0), lane, lambda run: add(run, b, b, out, run.workspace((N,), np.float32)), [b], [out])
    out.wait_to_read()
    cuda.stream(0).record_event().synchronize()
    assert ran and (out.asnumpy() == 2 * np.arange(N)).all()


@pytest.mark.parametrize("lane", ["copy", "priority"])
def test_memory_that_another_stream_still_reads_is_not_reused(devices, lane):
    """Fault 2, the other way round: dropped while a function on another stream has only been enqueued."""
    devices(slow_kind(lane))
    out, a = mx.nd.empty((N,), ctx=gpu(0)), mx.nd.empty((N,), ctx=gpu(0))
    run_on(gpu(0), None, lambda run, a=a: a.device_array().__setitem__(..., 3), [], [a])
    run_on(gpu(0), lane, lambda run, a=a: add(run, a, a, out), [a], [out])
    wait_until_called(out, gpu(1))  # there: so that gpu(0)'s compute stream is told nothing
    del a
    gc.collect()
    b = mx.nd.empty((N,), ctx=gpu(0))
    b[:] = -1
    assert (b.asnumpy() == -1).all() and (out.asnumpy() == 6).all()


@pytest.mark.parametrize("source, target", [(0, 1), (1, 0)])
def test_a_copy_between_gpus_reads_what_was_written(devices, source, target):
    """Fault 3: the function runs on the target's stream; the reading is done on one of the source's."""
    for slow in WORST.values():
        devices(slow)
        a, b = mx.nd.empty((N,), ctx=gpu(source)), mx.nd.empty((N,), ctx=gpu(target))
        run_on(gpu(source), None, lambda run, a=a: a.device_array().__setitem__(..., 4), [], [a])
        a.copyto(b)
        a[:] = 9
        assert (b.asnumpy() == 4).all() and (a.asnumpy() == 9).all()


def test_the_serial_engine_finishes_a_gpu_function_in_its_push(devices):
    world = devices(all_slow, NaiveEngine)
    a = mx.nd.empty((N,), ctx=gpu(1))
    a[:] = 3
    assert not any(s.queue for s in world.streams) and (a.asnumpy() == 3).all()


def test_an_operator_is_enqueued_by_the_calling_thread_while_nothing_is_in_flight(devices, monkeypatch):
    devices(lambda stream: False)
    by, run = [], launch._run
    monkeypatch.setattr(launch, "_run", lambda *given: (by.append(threading.current_thread()), run(*given)))
    a = mx.nd.ones((8,), ctx=mx.gpu(0))
    mx.nd.waitall()
    by.clear()
    b = a + a
    assert by == [threading.main_thread()] and b.asnumpy().tolist() == [2.0] * 8
    held = threading.Event()
    mx.engine.current().push_sync(lambda run: held.wait(), mx.cpu(0), [], [a.chunk.var])
    c = a + b  # a is not written yet
    assert len(by) == 1
    held.set()
    assert c.asnumpy().tolist() == [3.0] * 8 and by[1] is not threading.main_thread()


def test_operators_share_an_event_that_is_recorded_when_somebody_waits(devices):
    """One event for many operators; what waits for one of them later waits for no more than 32."""
    devices(all_slow)
    a, recorded = mx.nd.ones((N,), ctx=mx.gpu(0)), []
    a.wait_to_read()
    stream = cuda.stream(0)
    record = stream.record_event
    stream.record_event = lambda: (recorded.append(len(stream.queue)), record())[1]
    results = [a + a for _ in range(20)]
    assert recorded == []
    assert results[0].asnumpy()[0] == 2 and len(recorded) == 1
    results = [a + a for _ in range(70)]
    assert len(recorded) == 3  # after each 32 of them
    results[0].wait_to_read()
    assert len(recorded) == 3 and len(stream.queue) == 70 - 32


def test_memory_of_small_results_is_given_out_again_without_torch(devices):
    world = devices(lambda stream: False)
    a = mx.nd.ones((N,), ctx=mx.gpu(0))
    b = a + a
    b.wait_to_read()
    taken, alloc = [], world.alloc
    world.alloc = lambda device, nbytes: (taken.append(nbytes), alloc(device, nbytes))[1]
    for _ in range(50):
        b = a + b
    assert len(taken) <= 1 and b.asnumpy()[0] == 52
    held = storage.stats(mx.gpu(0))
    del b
    gc.collect()
    assert storage.stats(mx.gpu(0)).pooled >= held.pooled
    c = (a + a).as_in_context(mx.cpu())  # read on another stream: torch decides when its memory is free
    assert c.asnumpy()[0] == 2


def test_a_backward_on_a_gpu_is_enqueued_by_the_calling_thread(devices, monkeypatch):
    devices(lambda stream: False)
    by, run = [], launch._run
    monkeypatch.setattr(launch, "_run", lambda *given: (by.append(threading.current_thread()), run(*given)))
    w = mx.nd.array(np.arange(N) % 7, ctx=mx.gpu(0))
    w.attach_grad()
    mx.nd.waitall()
    by.clear()
    for _ in range(5):  # the second and later ones have the program of the first
        with mx.autograd.record():
            y = (w * w - 2 * w) * w
        y.backward()
    v = w.asnumpy()
    assert (w.grad.asnumpy() == 3 * v * v - 4 * v).all()
    assert set(by) == {threading.main_thread()}


def test_a_full_device_is_tried_once_more_when_its_work_is_done(devices):
    world = devices(all_slow)
    tries, out, empty = [], mx.gpu(0), world.empty

    def full(shape, dtype, device=None, pin_memory=False):
        tries.append(sum(len(s.queue) for s in world.streams if s.device_index == 0))
        if len(tries) == 1:
            raise MemoryError("CUDA out of memory")
        return empty(shape, dtype, device, pin_memory)
    world.enqueue(cuda.stream(0), lambda: None)  # not done before the host waits
    world.empty = full
    storage.alloc(64, out)
    assert tries == [1, 0]
    world.empty = empty
    world.most = 1000
    with pytest.raises(mx.errors.OutOfMemoryError, match=r"gpu\(0\) cannot supply 4,096 bytes: .* Make the request smaller"):
        storage.alloc(4096, out)


def test_a_fault_of_the_device_says_where_it_was_found(devices):
    devices(all_slow)
    event = cuda.record(cuda.stream(1), "softmax")

    def broken():
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")
    event.query = event.synchronize = broken
    with pytest.raises(mx.errors.EngineError) as failure:
        cuda.wait(event)
    assert str(failure.value).startswith("gpu(1): an illegal memory access was encountered, found after softmax: there, or in a "
                                         "kernel before it. Run again with TRITIUM_GPU_SYNC=1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_device_memory_alone(devices, monkeypatch):
    world, dropped = devices(all_slow), []
    arrays = [mx.nd.ones((N,), ctx) for ctx in PLACES]
    views = [a[3:5] for a in arrays]
    mx.nd.waitall()
    monkeypatch.setattr(world, "dropped", lambda storage: dropped.append(storage.device))
    child = os.fork()
    if not child:
        del arrays, views
        storage._pools.clear()
        gc.collect()
        os._exit(len(dropped))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del arrays, views
    gc.collect()
    assert sorted(dropped) == [0, 1]


# ---- captured graphs --------------------------------------------------------------------------------------------------
def graph_of(ctx, n=40):
    """A composite that draws, a sampler, a factor that is refused for some matrices, and another that takes scratch after it."""
    x, a = mx.sym.Variable("x"), mx.sym.Variable("a")
    noise = mx.sym.sample_gamma(x, x, shape=(3,)) + mx.sym.Dropout(mx.sym.broadcast_axis(
        mx.sym.expand_dims(x, axis=1), axis=1, size=3), p=0.4)
    low = mx.sym.linalg_gemm2(mx.sym.linalg_potrf(a, name="low"), a)
    return mx.sym.Group([noise * 2, low + 1, mx.sym.linalg_det(a)]).simple_bind(ctx, "write", x=(n,), a=(2, 3, 3))


def steps_of(executor, rng, n=40):
    """The outputs of six steps, each with other data; an error in place of those whose matrix is refused."""
    mx.random.seed(11)
    seen, eye = [], np.eye(3, dtype="float32")
    for step in range(6):
        executor.forward(is_train=True, x=mx.nd.array(rng.uniform(0.5, 2, n)), a=mx.nd.array(np.stack([eye, eye]) * (
            -1 if step == 3 else step + 1)))
        try:
            seen.append([o.asnumpy() for o in executor.outputs])
        except mx.MXNetError as e:
            seen.append(str(e))
    return seen


@pytest.mark.parametrize("slow", [all_slow, lambda stream: False, slow_kind("copy"), slow_kind("compute")])
def test_a_captured_graph_computes_what_its_launches_do(slow, devices, monkeypatch):
    monkeypatch.setattr("tritium.graph.executor.compiled_program.compile_ahead", lambda segments: 0)
    want = steps_of(graph_of(mx.cpu()), np.random.default_rng(1))
    devices(slow)
    found = []
    for capture in (True, False):
        with options(capture=capture):
            executor = graph_of(mx.gpu(0))
        found.append(steps_of(executor, np.random.default_rng(1)))
        segments = executor._compile(True).forward
        assert [getattr(s, "is_captured", False) for s in segments] == [capture] * len(segments)
    for captured, launched, cpu_result in zip(*found, want, strict=True):
        if isinstance(captured, str):
            assert captured == launched and "low (_linalg_potrf): _linalg_potrf: matrix is not positive definite" in captured
            continue
        assert all(np.array_equal(a, b) for a, b in zip(captured, launched, strict=True))
        for a, b in zip(captured, cpu_result, strict=True):
            assert_close(a, b)
