"""GPUs that torch_stand_in.py stands for: the fixture `devices`, and functions that enqueue on their streams."""

import gc
import threading

import numpy as np
import pytest
import tritium as mx
from tritium.engine import ThreadedEngine
from tritium.engine.gpu import cuda, transfer
from tritium.engine.memory import storage
from tritium.kernels.gpu import launch
from tritium.ndarray.dispatch import plan

from support.torch_stand_in import World

N = 600  # elements of an array: more than a tiny one's
KINDS = ("compute", "copy", "priority", "default")
INTERPRETED = launch._run
CACHED = (cuda.num_gpus, cuda._stream, cuda.torch_dtypes, cuda._device)


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
        transfer._staging.clear()
        for device in range(world.devices):
            for kind in KINDS[:3]:
                cuda.stream(device, kind).name = kind
        mx.engine.set_current(engine(*([2] if engine is ThreadedEngine else [])))
        plan.CACHE.clear()
        return world
    yield make
    stop()
    plan.CACHE.clear()
    transfer._staging.clear()
    for cached in CACHED:
        cached.cache_clear()


def all_slow(stream):
    return True


def slow_kind(kind):
    return lambda stream: stream.name == kind


def slow_device(device):
    return lambda stream: stream.device_index == device


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
