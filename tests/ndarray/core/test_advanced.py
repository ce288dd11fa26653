"""Keys of indices and masks that live on the device, mixed with those of the host. Oracle: NumPy."""

import numpy as np
import pytest
import tritium as mx
from tritium import ndarray as nd
from tritium.engine.gpu import transfer
from tritium.kernels.gpu.load import INTERPRET
from tritium.ndarray import autograd

VALUES = np.arange(120, dtype="float32").reshape(3, 4, 5, 2)
I, J = np.array([[2, 0], [-1, 2]]), np.array([1, -4])
ROWS, PLANE = np.array([True, False, True]), VALUES[:, :, 0, 0] % 3 < 1
KEYS = {
    "rows": I, "one row": np.array(1), "axis 1": (slice(None), J), "last axis": (Ellipsis, J // 4), "two axes": (I, J),
    "two apart": (I, slice(None), J), "apart and before": (slice(1), J, slice(None), I - I), "number and indices": (1, J),
    "indices and number": (J // 2, 2), "number apart": (J // 2, slice(None), 3),
    "steps": (slice(None, None, -2), J, slice(1, 4, 2)),
    "new axes": (None, J // 2, None, slice(1, 3), None), "in the middle": (slice(None), J, J + 4 - 4, slice(None)),
    "mask of rows": ROWS, "mask of two axes": PLANE, "mask of all": VALUES > 50, "mask of none": VALUES < 0,
    "mask of an axis": (slice(None), np.array([0, 1, 1, 0], bool)), "mask of the middle": (1, VALUES[1, :, :, 0] > 50),
    "mask and indices": (ROWS, J), "mask, then steps": (ROWS, slice(3, None, -1), Ellipsis, 0),
    "mask apart": (ROWS, slice(1, 3), np.array([4, 0])), "no indices": np.zeros((0,), "int64"), "empty slice": (slice(0), J),
}
DTYPES = ["int64", "int32", "float32", "uint8"]


def on(key, ctx, dtype="int64"):
    """The key with its arrays on ctx: masks as bool, indices in dtype."""
    one = lambda k: nd.array(k, ctx, dtype="bool" if k.dtype == bool else dtype) if isinstance(k, np.ndarray) and k.ndim else k
    return tuple(map(one, key)) if isinstance(key, tuple) else one(key)


def by_numpy(key):
    part = VALUES[key]
    return part if part.ndim else part.reshape(1)


@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("name", KEYS)
def test_arrays_of_a_context_index_as_numpy(name, where, ctx):
    if where == "gpu" and not mx.context.num_gpus():
        pytest.skip("no gpu")
    got = nd.array(VALUES, ctx)[on(KEYS[name], mx.Context(where, 0))]
    assert got.shape == by_numpy(KEYS[name]).shape and np.array_equal(got.asnumpy(), by_numpy(KEYS[name]))


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("kind", ["number", "all", "broadcast"])
def test_arrays_of_a_context_select_what_is_written(name, kind, ctx):
    part = VALUES[KEYS[name]]
    new = {"number": np.float32(-1), "all": -1 - np.arange(part.size, dtype="float32").reshape(part.shape),
           "broadcast": np.full(part.shape[-1:], -3, "float32")}[kind]
    want = VALUES.copy()
    want[KEYS[name]] = new
    a = nd.array(VALUES, ctx)
    a[on(KEYS[name], ctx)] = float(new) if kind == "number" else nd.array(new, ctx)
    assert np.array_equal(a.asnumpy(), want)


@pytest.mark.parametrize("name", KEYS)
def test_the_gradient_of_what_is_selected_adds_up(name, ctx):
    x = nd.array(VALUES, ctx)
    x.attach_grad()
    with autograd.record():
        y = x[on(KEYS[name], ctx)]
    u = np.arange(1, y.size + 1, dtype="float32").reshape(y.shape)
    y.backward(nd.array(u, ctx))
    want = np.zeros_like(VALUES)
    np.add.at(want, KEYS[name], u.reshape(VALUES[KEYS[name]].shape))
    assert np.array_equal(x.grad.asnumpy(), want)


@pytest.mark.parametrize("key", [J, np.array([True, False, True])], ids=["indices", "mask"])
def test_the_gradient_of_a_gradient_is_taken_again(key, ctx):
    x, u = nd.array([1.0, 2, 3], ctx), nd.array([1.0, 10], ctx)
    x.attach_grad()
    with autograd.record():
        y = x[on(key % 3 if key.dtype != bool else key, ctx)]
        (g,) = autograd.grad([y * y], [x], head_grads=[u], create_graph=True)
        z = (g * g).sum()
    z.backward()
    at = np.flatnonzero(key) if key.dtype == bool else key % 3
    sums = np.zeros(3)  # of the head's derivatives by element; g = 2 sums x
    np.add.at(sums, at, u.asnumpy())
    assert np.allclose(x.grad.asnumpy(), 8 * sums**2 * x.asnumpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_of_any_dtype(dtype, ctx):
    assert nd.array(VALUES, ctx)[nd.array([2, 0, 2], ctx, dtype=dtype)].asnumpy().tolist() == VALUES[[2, 0, 2]].tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int64", "bool"])
def test_arrays_of_any_dtype_are_selected_and_written(dtype, ctx):
    values = np.arange(6).reshape(3, 2) % 2 if dtype == "bool" else np.arange(6).reshape(3, 2)
    a = nd.array(values, ctx, dtype=dtype)
    assert a[nd.array([2, 1], ctx, dtype="int64")].asnumpy().astype(int).tolist() == values[[2, 1]].tolist()
    a[nd.array([1, 0, 1], ctx) > 0] = nd.array([[0, 1], [1, 0]], ctx, dtype=dtype)
    assert a.asnumpy().astype(int).tolist() == [[0, 1], values[1].tolist(), [1, 0]]


def test_of_several_values_for_one_element_the_last_stays(ctx, rng):
    at, new, want = rng.integers(0, 50, 900), rng.normal(size=(900, 3)).astype("float32"), np.zeros((50, 3), "float32")
    want[at] = new
    a = nd.zeros((50, 3), ctx)
    a[nd.array(at, ctx, dtype="int32")] = nd.array(new, ctx)
    assert np.array_equal(a.asnumpy(), want)


def test_a_mask_of_many_blocks(ctx, rng):
    x = rng.normal(size=200_000).astype("float32")
    a = nd.array(x, ctx)
    assert np.array_equal(a[a > 1].asnumpy(), x[x > 1])
    a[a > 1] = nd.array(-np.arange((x > 1).sum(), dtype="float32"), ctx)
    x[x > 1] = -np.arange((x > 1).sum())
    assert np.array_equal(a.asnumpy(), x)


def test_a_part_that_overlaps_what_is_written_is_read_first(ctx):
    a = nd.array(np.arange(6), ctx)
    a[nd.array([1, 2, 3], ctx, dtype="int64")] = a[:3]
    assert a.tolist() == [0, 0, 1, 2, 4, 5]


def test_a_mask_that_was_overwritten_is_indices_again_on_every_context(ctx):
    a = nd.array([10.0, 20, 30], ctx)
    m = a > 15
    m += 1
    assert a[m].tolist() == [20, 30, 30]


@pytest.mark.parametrize("key, message", [
    ([3], "index 3 is out of bounds for axis 0 with size 3"), ([0, -4], "index -4 is out of bounds for axis 0 with size 3"),
    ((slice(None), [9, -9]), "is out of bounds for axis 1 with size 4"),
    ((0, 0, 0, 0, [0]), "too many indices"),
    (np.array([True, False]), "boolean index did not match .* axis 0; size of axis is 3"),
    ((Ellipsis, [0], Ellipsis), "an index can only have")], ids=str)
@pytest.mark.parametrize("write", [False, True])
def test_wrong_keys_are_index_errors(key, message, write, ctx):
    a = nd.array(VALUES, ctx)
    one = lambda k: np.array(k) if isinstance(k, list) else k
    arrays = tuple(map(one, key)) if isinstance(key, tuple) else one(key)
    for k in (key, on(arrays, ctx)):
        with pytest.raises(IndexError, match=message):
            if write:
                a[k] = 1
            else:
                a[k]
    assert np.array_equal(a.asnumpy(), VALUES)


def test_boolean_mask_selects_along_any_axis(ctx):
    a, keep = nd.array(VALUES, ctx), np.array([0, 2, 0, 1.0])
    assert np.array_equal(nd.contrib.boolean_mask(a, nd.array(keep, ctx), axis=1).asnumpy(), VALUES[:, keep != 0])


@pytest.mark.skipif(not INTERPRET, reason="needs TRITIUM_GPU=interpret")
def test_no_array_of_a_gpu_passes_through_the_host(monkeypatch):
    a, b = nd.zeros((500, 40), mx.gpu()), nd.array(np.arange(300) % 7, mx.gpu(), dtype="int32")
    mask, new = nd.array(np.arange(500) % 3, mx.gpu()) > 0, nd.ones((333, 40), mx.gpu())
    a.wait_to_read(), b.wait_to_read(), mask.wait_to_read()
    moved = []
    for name in ("to_host", "from_host"):
        whole = getattr(transfer, name)
        monkeypatch.setattr(transfer, name, lambda t, *more, whole=whole: moved.append(int(np.prod(t.shape))) or whole(t, *more))
    a[b] = a[b] + 1
    a[mask] = new
    a.attach_grad()
    with autograd.record():
        y = a[mask].sum() + a[b].sum()
    y.backward()
    a.grad.wait_to_read()
    assert max(moved) <= 2  # bounds of indices, and numbers of elements
