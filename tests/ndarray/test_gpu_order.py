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
from support import torch_stand_in
from support.lagging_devices import KINDS, N, add, all_slow, run_on, slow_device, slow_kind, wait_until_called
from tritium.context import GPU_MODE, cpu, gpu
from tritium.engine import NaiveEngine, ThreadedEngine, task_cost
from tritium.engine.gpu import cuda, transfer
from tritium.engine.memory import storage
from tritium.kernels.gpu import launch
from tritium.kvstore import array_ops

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="replaces the interpreted GPU")

PLACES = (cpu(0), gpu(0), gpu(1))
LANES = (None, "copy", "priority")
WORST = {"all": all_slow, **{k: slow_kind(k) for k in KINDS[:3]}, "gpu(0)": slow_device(0), "gpu(1)": slow_device(1)}


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


@pytest.mark.parametrize("slow", [all_slow, slow_device(0), slow_kind("copy"), slow_kind("compute")])
def test_copies_between_gpus_do_not_pass_the_host(slow, devices, monkeypatch):
    devices(slow)
    a = mx.nd.empty((N,), ctx=mx.gpu(0))
    a[:] = 3
    half, stored = mx.nd.empty((N,), ctx=mx.gpu(1), dtype="float16"), mx.nd.empty((N,), ctx=mx.gpu(1))
    with monkeypatch.context() as patch:
        for name in ("to_host", "from_host"):
            patch.setattr(transfer, name, lambda *args: pytest.fail("values pass the host"))
        there = a.as_in_context(mx.gpu(1))
        a.copyto(half)
        array_ops.copy(a, stored)
        a[:] = 4
        mx.nd.waitall()
    assert [(x.asnumpy() == 3).all() for x in (there, half, stored)] == [True] * 3 and (a.asnumpy() == 4).all()


def test_uploads_do_not_hold_the_worker_that_launches(devices):
    """Values of the host arrive while a function on the compute stream has not returned."""
    devices(slow_kind("compute"))
    gate, x = threading.Event(), mx.nd.empty((N,), ctx=mx.gpu(0))
    run_on(mx.gpu(0), None, lambda run: gate.wait(60), [], [x])
    b = mx.nd.array(np.arange(N)).as_in_context(mx.gpu(0))
    assert (b.asnumpy() == np.arange(N)).all() and not gate.is_set()
    gate.set()
    assert ((b + 1).asnumpy() == np.arange(N) + 1).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pinned_arrays_are_copied_from_by_the_device(dtype, devices):
    world = devices(all_slow)
    values = np.arange(50_000) % 100
    a = mx.nd.array(values, ctx=mx.cpu_pinned(), dtype=dtype)
    assert cuda.wrap(a.asnumpy()).is_pinned() is False and cuda.wrap(a.device_array().view(np.uint8)).is_pinned()
    pinned = world.pins
    b = a.as_in_context(gpu(0))
    a[:] = 7
    mx.nd.waitall()
    assert world.pins == pinned  # no staging memory
    assert (b.asnumpy() == values).all() and (a.asnumpy() == 7).all()
    mx.nd.array(values, dtype=dtype).as_in_context(gpu(0)).wait_to_read()
    assert world.pins > pinned + 1  # other memory passes through it


def test_a_result_is_read_with_one_wait(devices, monkeypatch):
    """Right behind the last small work of a stream on that stream; otherwise on the copy stream, behind the writer alone."""
    devices(all_slow)
    a = mx.nd.array(np.arange(N), ctx=gpu(0))
    a.asnumpy()
    waited, wait = [], cuda.wait
    monkeypatch.setattr(cuda, "wait", lambda event: (waited.append(event.on.name), wait(event)))
    for _ in range(2):  # the first finds the launches
        b = a + a
        waited.clear()
        assert (b.asnumpy() == 2 * np.arange(N)).all()
    assert waited == ["compute"]
    later = mx.nd.empty((N,), ctx=gpu(0))
    run_on(gpu(0), None, lambda run: later.device_array().__setitem__(..., 3), [], [later])
    assert (b.asnumpy() == 2 * np.arange(N)).all() and (later.asnumpy() == 3).all()
    assert waited == ["compute", "copy", "copy"]


def test_the_main_thread_leaves_a_wait_for_a_gpu_to_a_worker(devices, monkeypatch):
    """Which waits without the GIL. All workers are busy until the main thread has looked at the short function it waits for."""
    devices(all_slow)
    engine, gate, threads, asked = mx.engine.current(), threading.Event(), [], []

    def query(event):
        gate.set()
        asked.append(event)
        assert len(asked) < 100, "the main thread tests the event over and over"
        return event.done

    a, var = mx.nd.empty((N,), ctx=gpu(0)), engine.new_variable()
    run_on(gpu(0), None, lambda run: a.device_array().__setitem__(..., 3), [], [a])
    wait_until_called(a, gpu(0))
    monkeypatch.setattr(torch_stand_in.Event, "query", query)
    monkeypatch.setattr(task_cost, "of", lambda task: 0)
    for _ in range(2):
        engine.push_sync(lambda run: gate.wait(60), cpu(), [], [])
    engine.push_sync(lambda run: threads.append(threading.current_thread()), cpu(), [a.chunk.var], [var])
    engine.wait_for_var(var)
    assert len(asked) == 1 and threads != [threading.main_thread()]


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
    assert results[0].asnumpy()[0] == 2 and len(recorded) == 1  # that of the copy
    results = [a + a for _ in range(70)]
    assert len(recorded) == 3  # after each 32 of them
    results[0].wait_to_read()
    assert len(recorded) == 3 and len(stream.queue) == 70 - 12  # which share an event with the 20 before


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
