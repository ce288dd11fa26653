"""Races of memory, streams and captures on GPUs, each with its mend, and with the mend taken out: then the stand-in for torch,
whose streams run in the worst order allowed, must show the fault.
"""

import contextlib
import gc
import itertools
import threading
import warnings

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.lagging_devices import N, add, all_slow, busy, run_on, slow_kind, wait_until_called
from tritium.context import GPU_MODE, gpu
from tritium.engine.gpu import cuda, streams, transfer
from tritium.engine.memory import storage
from tritium.graph import options
from tritium.graph.executor import cuda_graph

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="replaces the interpreted GPU")
STREAM, FROM = cuda.stream, streams._of_others


# ---- programs: each is right, whatever the order ------------------------------------------------------------------------
def copied_from_the_host(devices, monkeypatch):
    """The block of an array that a queued kernel writes goes to mx.nd.array, which copies on another stream."""
    devices(slow_kind("compute"))
    ran = busy(gpu(0))
    gc.collect()
    b = mx.nd.array(np.arange(N), ctx=gpu(0))
    assert not ran  # nobody had to wait for the kernel
    cuda.stream(0).record_event().synchronize()
    assert ran and (b.asnumpy() == np.arange(N)).all()


def outside():
    """An array whose memory is taken outside of functions, and written from the host on the copy stream."""
    array = storage.array((N,), np.float32, gpu(0))
    transfer.from_host(array, np.arange(N, dtype=np.float32))
    return array


def taken_outside_of_functions(devices, monkeypatch):
    devices(slow_kind("compute"))
    ran = busy(gpu(0))
    gc.collect()
    array = outside()
    cuda.stream(0).record_event().synchronize()
    assert ran and (transfer.to_host(array) == np.arange(N)).all()


def scratch_of_another_stream(devices, monkeypatch):
    """Memory of a function on another stream than compute's, scratch or a result's, while a kernel still has it in hand."""
    for lane, scratch in itertools.product(("copy", "priority"), (True, False)):
        devices(slow_kind("compute"))
        b = mx.nd.array(np.arange(N), ctx=gpu(0))
        ran = busy(gpu(0))
        gc.collect()
        out = mx.nd.empty((N,), ctx=gpu(0))
        run_on(gpu(0), lane, lambda run, b=b, out=out, scratch=scratch: add(
            run, b, b, out, run.workspace((N,), np.float32) if scratch else None), [b], [out])
        out.wait_to_read()
        cuda.stream(0).record_event().synchronize()
        assert ran and (out.asnumpy() == 2 * np.arange(N)).all()


def dropped_while_another_stream_reads(devices, monkeypatch):
    """Dropped while a function on another stream has only been enqueued."""
    for lane in ("copy", "priority"):
        devices(slow_kind(lane))
        out, a = mx.nd.empty((N,), ctx=gpu(0)), mx.nd.empty((N,), ctx=gpu(0))
        run_on(gpu(0), None, lambda run, a=a: a.device_array().__setitem__(..., 3), [], [a])
        run_on(gpu(0), lane, lambda run, a=a, out=out: add(run, a, a, out), [a], [out])
        wait_until_called(out, gpu(1))  # there: gpu(0)'s compute stream must not learn that it was called
        del a
        gc.collect()
        b = mx.nd.empty((N,), ctx=gpu(0))
        b[:] = -1
        assert (b.asnumpy() == -1).all() and (out.asnumpy() == 6).all()


def read_behind_the_writer(devices, monkeypatch):
    devices(slow_kind("compute"))
    a, out = mx.nd.empty((N,), ctx=gpu(0)), mx.nd.empty((N,), ctx=gpu(0))
    run_on(gpu(0), None, lambda run: a.device_array().__setitem__(..., 3), [], [a])
    run_on(gpu(0), "copy", lambda run: add(run, a, a, out), [a], [out])
    assert (out.asnumpy() == 6).all()


def written_behind_the_readers(devices, monkeypatch):
    devices(slow_kind("copy"))
    a, out = mx.nd.array(np.arange(N), ctx=gpu(0)), mx.nd.empty((N,), ctx=gpu(0))
    run_on(gpu(0), "copy", lambda run: add(run, a, a, out), [a], [out])
    run_on(gpu(0), None, lambda run: a.device_array().__setitem__(..., -1), [], [a])
    wait_until_called(a, gpu(0))
    assert (out.asnumpy() == 2 * np.arange(N)).all()


def read_by_the_host(devices, monkeypatch):
    devices(all_slow)
    a = mx.nd.empty((N,), ctx=gpu(0))
    a[:] = 3
    assert (a.asnumpy() == 3).all()


def read_by_two_threads(devices, monkeypatch):
    """The second reads while the first waits for its copy."""
    devices(all_slow)
    a, b = (mx.nd.array(np.full(N, v), ctx=gpu(0)) for v in (1, 2))
    a.asnumpy()  # from now on memory is kept
    wait, seen = cuda.wait, []

    def other_first(event):
        if not seen:
            seen.append(None)
            seen[0] = transfer.to_host(b.device_array())
        wait(event)

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "wait", other_first)
        values = transfer.to_host(a.device_array())
    assert (seen[0] == 2).all() and (values == 1).all()


def copied_between_gpus(devices, monkeypatch):
    """The function runs on a stream of the one device; torch copies on the current stream of the source."""
    for source, target in ((0, 1), (1, 0)):
        for slow in (all_slow, slow_kind("compute"), slow_kind("copy")):
            devices(slow)
            a, b = mx.nd.empty((N,), ctx=gpu(source)), mx.nd.empty((N,), ctx=gpu(target))
            run_on(gpu(source), None, lambda run, a=a: a.device_array().__setitem__(..., 4), [], [a])
            a.copyto(b)
            a[:] = 9
            assert (b.asnumpy() == 4).all() and (a.asnumpy() == 9).all()


def dropped_while_a_peer_copies(devices, monkeypatch):
    """The source's memory goes to another array while its copy to the other device has only been enqueued."""
    for source, target in ((0, 1), (1, 0)):
        devices(slow_kind("copy"))
        a, b = mx.nd.empty((N,), ctx=gpu(source)), mx.nd.empty((N,), ctx=gpu(target))
        run_on(gpu(source), None, lambda run, a=a: a.device_array().__setitem__(..., 4), [], [a])
        a.copyto(b)
        wait_until_called(b, gpu(target))
        del a
        gc.collect()
        c = mx.nd.empty((N,), ctx=gpu(source))
        c[:] = -1
        assert (c.asnumpy() == -1).all() and (b.asnumpy() == 4).all()


def written_by_another_devices_function(devices, monkeypatch):
    devices(slow_kind("copy"))
    a, out = mx.nd.empty((N,), ctx=gpu(1)), mx.nd.empty((N,), ctx=gpu(1))
    run_on(gpu(1), None, lambda run: a.device_array().__setitem__(..., 3), [], [a])
    run_on(gpu(0), None, lambda run: transfer.from_host(a.device_array(), np.full(N, 4, np.float32)), [], [a])
    run_on(gpu(1), None, lambda run: add(run, a, a, out), [a], [out])
    assert (out.asnumpy() == 8).all()


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


def captured(devices, monkeypatch, meanwhile=lambda world: None):
    """A graph's runs; meanwhile(world) is called in each capture."""
    monkeypatch.setattr("tritium.graph.executor.compiled_program.compile_ahead", lambda segments: 0)
    world = devices(all_slow)
    world.meanwhile = lambda: meanwhile(world)
    executor = graph_of(mx.gpu(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a failed capture's
        steps_of(executor, np.random.default_rng(1))
    assert world.faults == []
    assert all(s.is_captured for s in executor._compile(True).forward)


def beside(work):
    """Run work in another thread, which may fail. Returns: the thread."""
    def run():
        with contextlib.suppress(AssertionError):
            work()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def captured_while_others_allocate(devices, monkeypatch):
    made = []

    def meanwhile(world):
        thread = beside(lambda: made.append(outside()))
        thread.join(60)
        assert not thread.is_alive()
    captured(devices, monkeypatch, meanwhile)
    assert made and all((transfer.to_host(a) == np.arange(N)).all() for a in made)


class Busy:
    """A lock. tried: set when a thread finds it held."""

    def __init__(self, lock):
        self.lock, self.tried = lock, threading.Event()

    def __enter__(self):
        if not self.lock.acquire(False):
            self.tried.set()
            self.lock.acquire()

    def __exit__(self, *exc):
        self.lock.release()


class Open:
    """In place of a lock: it is never held, and tried when it is let go."""

    def acquire(self, blocking=True):
        return True

    def release(self):
        pass


def captured_while_a_device_is_full(devices, monkeypatch):
    """Another thread's allocation fails, and all work of the device is waited for."""
    threads, lock = [], Busy(cuda._capture_lock)

    def meanwhile(world):
        if threads:
            return
        empty, calls = world.empty, []

        def full(*args, **kwargs):
            if threading.current_thread() in threads and not calls:
                calls.append(1)
                raise MemoryError("CUDA out of memory")
            return empty(*args, **kwargs)
        world.empty = full
        ready = threading.Event()

        def work():
            ready.wait(60)
            try:
                cuda.alloc(64, 0)
            finally:
                lock.tried.set()
        threads.append(beside(work))
        ready.set()
        assert lock.tried.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(cuda, "_capture_lock", lock)
        captured(devices, monkeypatch, meanwhile)
        threads[0].join(60)


# ---- and their mends ------------------------------------------------------------------------------------------------------
def nothing(*args, **kwargs):
    pass


def of_the_compute_stream(nbytes, device_id):
    """Memory that belongs to one stream, whoever asks."""
    with cuda.run_on(cuda.stream(device_id)):
        return cuda._torch().empty(nbytes, dtype=cuda._torch().uint8, device=cuda._device(device_id))


class SharedStaging(list):
    """Staging memory that stays here while it is used."""

    def pop(self):
        if not self:
            raise IndexError
        return self[-1]


def on_device_in_order(before, after):
    """cuda.on_device without one of its waits."""
    @contextlib.contextmanager
    def on_device(device_id):
        own, caller, s = cuda.own_stream(device_id), getattr(cuda._calling, "stream", None), cuda.stream(device_id, "copy")
        if own is not None or caller is None:
            with inner(device_id) as found:
                yield found
            return
        if before:
            s.wait_event(caller.record_event())
        with cuda.run_on(s):
            yield s
        if after:
            caller.wait_event(s.record_event())
    inner = cuda.on_device
    return on_device


def one_stream_for_captures(device_id, kind="compute"):
    return STREAM(device_id, "compute" if kind == "capture" else kind)


#: name -> (where the mend is, its name, what stands there when it is out, the program that goes wrong)
MENDS = {
    "a new block waits for its earlier users": (cuda, "share", nothing, taken_outside_of_functions),
    "memory is of the stream that asks": (cuda, "alloc", of_the_compute_stream, scratch_of_another_stream),
    "memory is of the stream that copies": (cuda, "alloc", of_the_compute_stream, copied_from_the_host),
    "memory is kept for the streams that use it": (cuda, "used_by", nothing, dropped_while_another_stream_reads),
    "memory is kept for a peer that copies it": (cuda, "used_by", nothing, dropped_while_a_peer_copies),
    "readers wait for the writer": (streams, "_of_others", lambda r, w, s: FROM((), w, s), read_behind_the_writer),
    "writers wait for the readers": (streams, "_of_others", lambda r, w, s: FROM(r, (), s), written_behind_the_readers),
    "the host waits for its copy": (cuda, "wait", nothing, read_by_the_host),
    "a copy to the host waits for the writer": (cuda, "stream_waits", nothing, read_by_the_host),
    "staging memory has one user": (transfer, "_staging", SharedStaging(), read_by_two_threads),
    "a peer's copy waits for the caller": (cuda, "on_device", on_device_in_order(False, True), copied_between_gpus),
    "the caller waits for a peer's copy": (cuda, "on_device", on_device_in_order(True, False),
                                           written_by_another_devices_function),
    "captures have a stream of their own": (cuda, "stream", one_stream_for_captures, captured_while_others_allocate),
    "no collection in a capture": (cuda, "gc_paused", contextlib.nullcontext, captured),
    "no wait for a device in a capture": (cuda, "_capture_lock", Open(), captured_while_a_device_is_full),
    "a capture has the workspaces of the first run": (cuda_graph._ReplayContext, "next", nothing, captured),
}


@pytest.mark.parametrize("program", dict.fromkeys(m[3] for m in MENDS.values()), ids=lambda p: p.__name__)
def test_no_order_makes_it_wrong(program, devices, monkeypatch):
    program(devices, monkeypatch)


@pytest.mark.parametrize("mend", MENDS)
def test_without_its_mend_the_stand_in_shows_the_fault(mend, devices, monkeypatch):
    place, name, instead, program = MENDS[mend]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, instead)
        with pytest.raises(AssertionError):
            program(devices, monkeypatch)


@pytest.mark.parametrize("slow", [all_slow, lambda stream: False, slow_kind("copy"), slow_kind("compute")])
def test_a_captured_graph_computes_what_its_launches_do(slow, devices, monkeypatch):
    monkeypatch.setattr("tritium.graph.executor.compiled_program.compile_ahead", lambda segments: 0)
    want = steps_of(graph_of(mx.cpu()), np.random.default_rng(1))
    world, found = devices(slow), []
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
    assert world.faults == []
