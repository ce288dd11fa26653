"""Long lines on a GPU: sorted by merges of chunks, and summed or searched by several programs. Oracle: NumPy."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from support.operator_jobs import DTYPES, recorded
from tritium.kernels.declare.operator_property import gpu_module
from tritium.kernels.gpu.load import INTERPRET
from tritium.kernels.op import get

pytestmark = pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
pytest.importorskip("triton")
LENGTHS = [64, 65, 128, 129, 200, 321, 1000]


def on_gpu(x):
    return mx.nd.array(x, ctx=mx.gpu(0), dtype=x.dtype)


def ties(rng, shape, dtype="float32"):
    return rng.integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("ascend", [True, False])
def test_places_are_those_of_a_stable_sort(n, ascend, rng):
    x = ties(rng, (2, n, 3))
    x[0, rng.integers(0, n, 5), 1] = np.nan
    got = mx.nd.argsort(on_gpu(x), axis=1, is_ascend=ascend, dtype="int32").asnumpy()
    last = np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    assert np.array_equal(got, np.argsort(x, axis=1, kind="stable") if ascend else n - 1 - last)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("k", [1, 3, 64, 100])
def test_the_first_of_a_line_are_enough(n, k, rng):
    k, x = min(k, n), ties(rng, (2, n))
    order = n - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :k]
    values, places = mx.nd.topk(on_gpu(x), axis=1, k=k, ret_typ="both", dtype="int32")
    assert np.array_equal(places.asnumpy(), order)
    assert np.array_equal(values.asnumpy(), np.take_along_axis(x, order, axis=1))
    chosen = np.zeros_like(x)
    np.put_along_axis(chosen, order, 1, axis=1)
    assert np.array_equal(mx.nd.topk(on_gpu(x), axis=1, k=k, ret_typ="mask").asnumpy(), chosen)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64", "uint8"])
def test_lines_of_every_dtype_are_merged(dtype, rng):
    x = rng.integers(0, 100, 300).astype(dtype)
    assert np.array_equal(mx.nd.sort(on_gpu(x)).asnumpy(), np.sort(x))
    if dtype == "int64":
        x = x + 2**53 + np.arange(300) % 2  # which float64 does not tell apart
        assert np.array_equal(mx.nd.sort(on_gpu(x)).asnumpy(), np.sort(x))


def test_slices_with_equal_indices_are_added_in_their_order(rng):
    index, dy = rng.integers(0, 20, 500), rng.normal(size=(500, 4)).astype("float32")
    module, out = gpu_module("tensor.triton_take"), np.zeros((30, 4), np.float32)
    arrays = [on_gpu(a) for a in (dy, index.astype("int32"), out)]
    mx.nd.waitall()
    run = mx.engine.RunContext(mx.gpu(0))
    module.put(run, (1, 30, 4), 500, *(a.device_array() for a in arrays), wrap=False, add=False, by_order=True)
    for i in range(500):
        out[index[i]] += dy[i]
    assert np.array_equal(arrays[2].asnumpy(), out)


@pytest.fixture
def parted(monkeypatch):
    """Lines in parts of one block."""
    made = []

    def parts_of(programs, n, rows):
        made.append(-(-n // rows))
        return made[-1], 1

    for name in ("tensor.triton_cumsum", "tensor.triton_order"):
        monkeypatch.setattr(gpu_module(name), "parts_of", parts_of)
    return made


@pytest.mark.parametrize("shape, axis", [((2, 1000), 1), ((1030,), 0), ((3, 100, 5), 1)])
def test_running_sums_go_on_from_part_to_part(shape, axis, parted, rng):
    x = rng.integers(-50, 50, shape).astype("float32")  # whose sums are exact
    a = on_gpu(x)
    a.attach_grad()
    with mx.autograd.record():
        y = mx.nd.cumsum(a, axis=axis)
    y.backward(on_gpu(x))
    assert np.array_equal(y.asnumpy(), np.cumsum(x, axis=axis)) and max(parted) > 3
    assert np.array_equal(a.grad.asnumpy(), np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis))


def test_sums_of_parts_add_up_in_a_fixed_order(parted, rng):
    x = rng.normal(size=1000).astype("float32")
    first, again = (mx.nd.cumsum(on_gpu(x)).asnumpy() for _ in range(2))
    assert np.array_equal(first, again)
    assert_close(first, np.cumsum(x.astype("float64")))


@pytest.mark.parametrize("shape, axis", [((2, 1000), 1), ((1030,), 0), ((3, 100, 5), 1)])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_extreme_of_all_parts_is_found(name, shape, axis, parted, rng):
    for x in (ties(rng, shape), np.zeros(shape, "float32"), rng.normal(size=shape).astype("float32")):
        got = getattr(mx.nd, name)(on_gpu(x), axis=axis).asnumpy()
        assert np.array_equal(got, getattr(x, name)(axis=axis).reshape(got.shape))
    x = ties(rng, shape)
    x[..., -1] = np.nan  # in the last part, where the axis is the last
    got = getattr(mx.nd, name)(on_gpu(x), axis=axis).asnumpy()
    assert np.array_equal(got, getattr(x, name)(axis=axis).reshape(got.shape)) and max(parted) > 3


def test_a_gpu_shares_one_long_line_among_many_programs():
    """Recorded for 132 multiprocessors. A million elements are 4096 chunks, which twelve merges make one."""
    shape, grids = (1 << 20,), {}
    for name, params in (("cumsum", {}), ("argmax", {"axis": 0}), ("argsort", {"dtype": "int32"})):
        recorder = recorded(get(name), [shape], params, DTYPES["float32"], 90, backward=False)
        grids[name] = [grid for _, grid in recorder.launches]
    assert [g[1] for g in grids["cumsum"]] == [512, 512]
    assert [g[1] for g in grids["argmax"]] == [512, 1]
    assert len(grids["argsort"]) == 1 + 12

