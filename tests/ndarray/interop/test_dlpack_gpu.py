"""DLPack on GPUs, by a stand-in for torch whose streams run in the worst order allowed, and a producer of another library."""

import gc
import weakref

import numpy as np
import pytest
import tritium as mx
from support.lagging_devices import N, all_slow, busy, slow_kind
from support.torch_stand_in import on_device
from tritium import nd
from tritium.context import GPU_MODE, gpu
from tritium.engine.gpu import cuda
from tritium.errors import ContextError, DTypeError, MXNetError
from tritium.ndarray.interop import dlpack

pytestmark = pytest.mark.skipif(GPU_MODE != "interpret", reason="replaces the interpreted GPU")


class Producer:
    """An array of another library, on a device and a stream of its own. stream: what the consumer asked for."""

    def __init__(self, world, values, device=0, kind=2):
        self.world, self.values, self.device, self.kind = world, values, device, kind
        self.own, self.asked = world.made(device, "producer"), None

    def __dlpack_device__(self):
        return self.kind, self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked = stream
        consumer = next(s for s in self.world.streams if s.cuda_stream == stream)
        consumer.wait_event(self.own.record_event())
        return on_device(self.values.__dlpack__(max_version=max_version), self.device, self.kind)

    def write(self, value):
        """Enqueue a write."""
        def run():
            self.values[...] = value
        self.world.enqueue(self.own, run)


def values():
    return np.arange(N, dtype="float32")


@pytest.mark.parametrize("device", [0, 1])
def test_memory_of_a_device_is_shared(device, devices):
    world = devices(all_slow)
    x = Producer(world, values(), device)
    a = nd.from_dlpack(x)
    assert a.ctx == gpu(device) and a.shape == (N,) and a.dtype is np.float32
    assert x.asked == cuda.stream(device).cuda_stream
    assert (a.asnumpy() == values()).all()
    a += 1
    a.wait_to_read()
    assert (x.values == values() + 1).all()


def written_by_the_producer_before(devices):
    """Its stream lags: neither our compute stream nor the copy to the host overtakes it."""
    for slow in (all_slow, lambda stream: stream.name == "producer"):
        world = devices(slow)
        x = Producer(world, values())
        x.write(7)
        assert (nd.from_dlpack(x).asnumpy() == 7).all()
        x.write(8)
        assert ((nd.from_dlpack(x) + 1).asnumpy() == 9).all()


def dropped_while_a_kernel_has_it_in_hand(devices):
    """The owner of the memory has it back when no stream of ours uses it any more."""
    world = devices(all_slow)
    x = Producer(world, values())
    memory = weakref.ref(x.values)
    a = nd.from_dlpack(x)
    del x.values
    assert memory() is not None
    ran = []
    owner = memory()
    weakref.finalize(owner, lambda: ran.append((b.asnumpy() == 2 * values()).all()))
    del owner
    b = a + a
    mx.engine.current().wait_for_all()
    del a
    gc.collect()
    mx.engine.current().wait_for_all()
    assert memory() is None and ran == [True]


def test_the_producers_work_comes_first(devices):
    written_by_the_producer_before(devices)


def test_without_its_event_the_stand_in_shows_the_fault(devices, monkeypatch):
    monkeypatch.setattr(Producer, "__dlpack__", lambda self, *, stream=None, max_version=None: on_device(
        self.values.__dlpack__(max_version=max_version), self.device))
    with pytest.raises(AssertionError):
        written_by_the_producer_before(devices)


def freed_before_the_kernels(devices, monkeypatch, ends):
    """Return for each release of memory whether the kernel that was queued before had run then."""
    devices(all_slow)
    seen, ran = [], busy(gpu(0))
    monkeypatch.setattr(dlpack, "_release", lambda managed: seen.append(bool(ran)))
    monkeypatch.setattr(cuda, "ends_of_streams", ends)
    dlpack._release_behind_streams(None, 0)
    mx.engine.current().wait_for_all()
    return seen


def test_memory_goes_back_behind_our_streams(devices, monkeypatch):
    dropped_while_a_kernel_has_it_in_hand(devices)
    assert freed_before_the_kernels(devices, monkeypatch, cuda.ends_of_streams) == [True]
    assert freed_before_the_kernels(devices, monkeypatch, lambda device: []) == [False]  # the fault, without the mend


def test_memory_that_returns_keeps_its_variable(devices):
    devices(slow_kind("compute"))
    a = nd.array(values(), ctx=gpu(0))

    class Other:
        def __dlpack_device__(self):
            return a.__dlpack_device__()

        def __dlpack__(self, *, stream, max_version=None):
            return a.__dlpack__(stream=stream, max_version=max_version)

    b = nd.from_dlpack(Other())
    assert a.__dlpack_device__() == (2, 0) and b.chunk.var is a.chunk.var
    b += 1
    assert (a.asnumpy() == values() + 1).all()
    for capsule in (a.__dlpack__(), a.__dlpack__(max_version=(1, 0)), a.to_dlpack_for_read(), a.to_dlpack_for_write()):
        assert nd.from_dlpack(capsule).chunk.var is a.chunk.var
    c = nd.from_dlpack(a.__dlpack__(copy=True))
    c[:] = 0
    assert (a.asnumpy() == values() + 1).all()


def test_a_bare_capsule_names_no_stream(devices):
    world = devices(all_slow)
    x = Producer(world, values(), 1)
    x.write(5)
    assert (nd.from_dlpack(on_device(x.values.__dlpack__(max_version=(1, 0)), 1)).asnumpy() == 5).all()


def test_an_exported_array_is_complete(devices):
    devices(all_slow)
    a = nd.empty((N,), ctx=gpu(0))
    a[:] = 3
    capsule = a.__dlpack__(stream=1)
    assert (np.from_dlpack(Host(on_device(capsule, 0, 1))) == 3).all()


class Host:
    """A capsule, as NumPy takes it."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **asked):
        return self.capsule


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 3), (4, 1)])
def test_shapes(shape, devices):
    world = devices(all_slow)
    x = Producer(world, np.ones(shape, "float16"))
    assert np.array_equal(nd.from_dlpack(x).asnumpy(), x.values)


@pytest.mark.parametrize("make, kind, error, message", [
    (lambda: values().reshape(2, -1).T, 2, MXNetError, r"the array on gpu\(0\), of shape \(300, 2\), has strides of "
     r"\(4, 1200\) bytes; .* Make it contiguous first"),
    (lambda: values()[::2], 2, MXNetError, r"of shape \(300,\), has strides of \(8,\) bytes"),
    (lambda: values()[::-1], 2, MXNetError, "negative strides. Copy the array first"),
    (values, 10, ContextError, r"DLPack device \(10, 0\). Bring it to the host first"),
    (lambda: np.ones(3, "complex64"), 2, DTypeError, "element type 5 with 64 bits"),
    (lambda: np.frombuffer(bytes(12), "float32"), 2, MXNetError, r"the array on gpu\(0\) is read-only. Copy it first")])
def test_tensors_that_cannot_be_imported(make, kind, error, message, devices):
    world, x = devices(all_slow), make()
    if not x.flags.writeable and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("this NumPy exports nothing that is read-only")
    memory = weakref.ref(x)
    with pytest.raises(error, match="from_dlpack: .*" + message):
        nd.from_dlpack(Producer(world, x, kind=kind))
    del x
    gc.collect()
    assert memory() is None  # the refused capsule has given it back


def test_a_gpu_that_is_no_context():
    class Elsewhere:
        def __dlpack_device__(self):
            return 2, 7

    with pytest.raises(ContextError, match=r"device \(2, 7\), a GPU that is not among the contexts of this process"):
        nd.from_dlpack(Elsewhere())
