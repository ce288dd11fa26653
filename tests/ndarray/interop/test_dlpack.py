"""DLPack: memory is shared both ways, lives as long as either side holds it, and other tensors are refused."""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
import tritium as mx
from tritium import nd
from tritium.errors import MXNetError

torch = pytest.importorskip("torch")
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
          "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_through_torch(dtype, ctx):
    a = nd.array([[0, 1, 2], [3, 4, 5]], ctx, dtype)
    t = torch.from_dlpack(a)
    assert str(t.dtype) == f"torch.{dtype}" and t.tolist() == a.tolist()
    b = nd.from_dlpack(t)
    assert b.dtype is a.dtype and b.tolist() == a.tolist()
    t[1, 2] = 0
    if t.is_cuda:
        torch.cuda.synchronize()
    assert a.tolist()[1][2] == 0 == b.tolist()[1][2]  # one memory


def capsule_name(capsule):
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule)


def test_both_kinds_of_capsule():
    a = nd.array([1, 2, 3])
    assert capsule_name(a.__dlpack__()) == b"dltensor"
    assert capsule_name(a.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert capsule_name(a.__dlpack__(max_version=(1, 1))) == b"dltensor_versioned"
    assert capsule_name(a.to_dlpack_for_read()) == capsule_name(nd.to_dlpack_for_write(a)) == b"dltensor"
    for capsule in (a.__dlpack__(), a.__dlpack__(max_version=(1, 0))):
        b = nd.from_dlpack(capsule)
        b[0] = 9
        assert a.tolist() == [9, 2, 3]
        a[0] = 1
        with pytest.raises(MXNetError, match="consumed already"):
            nd.from_dlpack(capsule)
    with pytest.raises(MXNetError, match="a list is not a DLPack tensor"):
        nd.from_dlpack([1, 2])


def test_numpy_reads_and_writes_our_memory():
    a = nd.array([1, 2, 3])
    b = np.from_dlpack(a)
    a += 1
    a.wait_to_read()
    assert b.tolist() == [2, 3, 4]
    assert nd.from_dlpack(np.arange(3, dtype="int16")).tolist() == [0, 1, 2]


def test_copy():
    a = nd.array([1, 2, 3])
    b = nd.from_dlpack(a.__dlpack__(copy=True, max_version=(1, 0)))
    a[:] = 0
    assert b.tolist() == [1, 2, 3]


@pytest.mark.skipif(mx.context.GPU_MODE != "cuda", reason="needs a GPU: TRITIUM_GPU=cuda")
def test_torch_on_a_gpu():
    """Work of either side comes before the exchange, in both directions, and memory lives as long as either side holds it."""
    x = torch.zeros(1 << 24, device="cuda")
    for _ in range(20):
        x += 1
    a = nd.from_dlpack(x)
    assert a.ctx == mx.gpu(0) and a.chunk.block.address == x.data_ptr()
    b = a * 2
    del a, x
    assert (b.asnumpy() == 40).all()
    y = torch.from_dlpack(b)
    b += 1
    b.wait_to_read()
    assert y.data_ptr() == b.chunk.block.address and bool((y == 41).all())
    assert nd.from_dlpack(y).chunk.var is b.chunk.var
    with pytest.raises(MXNetError, match="Make it contiguous first"):
        nd.from_dlpack(y.view(2, -1).T)


def test_views_and_awkward_shapes():
    a = nd.array(np.arange(12.0).reshape(3, 4))
    assert torch.from_dlpack(a[1:3]).tolist() == a.tolist()[1:3]
    for shape in ((), (0,), (2, 0, 3), (1,)):
        x = torch.ones(shape)
        assert nd.from_dlpack(x).shape == shape and torch.from_dlpack(nd.zeros(shape)).shape == shape
    strided = torch.arange(12.0).reshape(3, 4).T
    assert nd.from_dlpack(strided).tolist() == strided.tolist()  # copied


def test_a_read_only_array_is_copied():
    x = np.arange(3.0)
    x.flags.writeable = False
    a = nd.from_dlpack(x) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else nd.from_numpy(x)
    a[:] = 5
    assert x.tolist() == [0, 1, 2]


def held_by(a):
    """A weak reference to an array's bytes, which a view of them keeps too."""
    return weakref.ref(a.chunk.block.memory)


def test_memory_lives_as_long_as_either_side_holds_it():
    a = nd.array(np.arange(100000.0))
    memory = held_by(a)
    t = torch.from_dlpack(a)
    del a
    gc.collect()
    assert memory() is not None and t[99999] == 99999
    del t
    gc.collect()
    assert memory() is None
    a = nd.ones((3,))
    memory = held_by(a)
    capsule = a.__dlpack__()
    del a
    gc.collect()
    assert memory() is not None
    del capsule  # never consumed
    gc.collect()
    assert memory() is None
    b = nd.from_dlpack(torch.arange(5.0))
    gc.collect()
    assert b.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (40, 50)], ids=str)
@pytest.mark.parametrize("arguments", [{}, {"max_version": (1, 0)}, {"max_version": (1, 0), "copy": True}], ids=str)
def test_memory_of_consumed_and_of_unused_capsules_is_released(dtype, shape, arguments):
    """Dropped, read here, read by torch."""
    a = nd.zeros(shape, dtype=dtype)
    memory = held_by(a)
    for take in (lambda x: x, nd.from_dlpack, torch.from_dlpack):
        taken = take(a.__dlpack__(**arguments))
        assert tuple(getattr(taken, "shape", shape)) == shape
        del taken
    del a
    gc.collect()
    assert memory() is None


def test_numpy_refuses_bfloat16_and_releases_the_memory():
    for shape in ((3,), (40, 50)):
        a = nd.ones(shape, dtype="bfloat16")
        memory = held_by(a)
        for _ in range(3):
            with pytest.raises((RuntimeError, BufferError), match="dtype"):
                np.from_dlpack(a)
        del a
        gc.collect()
        assert memory() is None


def test_tensors_that_cannot_be_imported():
    for bad in (np.ones(2, "complex64"), np.ones(2, "float32")[::-1]):
        with pytest.raises(MXNetError, match="from_dlpack: "):
            nd.from_dlpack(bad)
    with pytest.raises(BufferError, match="Copy it with as_in_context"):
        nd.ones((2,)).__dlpack__(dl_device=(2, 0))


def test_from_numpy_shares_memory_unless_zero_copy_is_false():
    x = np.arange(4, dtype="float32")
    a = nd.from_numpy(x)
    assert not x.flags.writeable and a.ctx == mx.cpu(0)
    a += 1
    a.wait_to_read()
    assert x.tolist() == [1, 2, 3, 4]
    y = np.arange(4.0)
    b = nd.from_numpy(y, zero_copy=False)
    b[:] = 0
    assert y.tolist() == [0, 1, 2, 3] and b.dtype is np.float64
    with pytest.warns(UserWarning, match="from_numpy: the array is not contiguous"):
        assert nd.from_numpy(np.arange(6.0).reshape(2, 3).T).shape == (3, 2)
    assert nd.from_numpy(np.ones(2, ml_dtypes.bfloat16)).dtype is ml_dtypes.bfloat16
