"""Indexing: views write through, other parts are copies. Oracle: NumPy, except that no index leaves shape ()."""

import numpy as np
import pytest
from tritium import ndarray as nd
from tritium.errors import MXNetError, ShapeError
from tritium.ndarray import autograd

VALUES = np.arange(60, dtype="float32").reshape(3, 4, 5)
VIEWS = [0, -1, slice(1, 3), slice(None), slice(2, 1), (1, 2), (1, 2, 3), (0, slice(1, 3)), Ellipsis, (2, Ellipsis),
         (slice(1, 2), slice(1, 3)), None, (None, 1), np.int64(1)]
COPIES = [(slice(None), 1), (slice(None), slice(None, None, 2)), slice(None, None, 2), slice(None, None, -1),
          (Ellipsis, 0), (slice(None), slice(2, 0, -1), slice(None, None, -2)), (slice(None), None, slice(1, 3))]
ADVANCED = [[0, 2], np.array([2, 0, 0]), ([0, 1], [1, 2]), (slice(None), [3, 0]), VALUES > 20,
            np.array([True, False, True]), (0, [1, 1]), ([-1],), np.array([[0, 1], [2, 2]]), (Ellipsis, [0, 4])]


def want_of(key):
    part = VALUES[key]
    return part if part.ndim else part.reshape(1)


@pytest.mark.parametrize("key", [*VIEWS, *COPIES, *ADVANCED], ids=str)
def test_indexing_reads_as_numpy(key, ctx):
    got = nd.array(VALUES, ctx)[key].asnumpy()
    assert got.shape == want_of(key).shape and np.array_equal(got, want_of(key))


@pytest.mark.parametrize("key", VIEWS, ids=str)
def test_contiguous_parts_are_views(key):
    a = nd.array(VALUES)
    a[key][:] = -1
    want = VALUES.copy()
    want[key] = -1
    assert np.array_equal(a.asnumpy(), want)


@pytest.mark.parametrize("key", [*COPIES, *ADVANCED], ids=str)
def test_parts_that_are_not_contiguous_are_copies(key):
    a = nd.array(VALUES)
    a[key][:] = -1
    assert np.array_equal(a.asnumpy(), VALUES)


@pytest.mark.parametrize("key", [*VIEWS, *COPIES, *ADVANCED], ids=str)
@pytest.mark.parametrize("kind", ["number", "numpy", "array"])
def test_indexing_writes_as_numpy(key, kind, ctx):
    a, want = nd.array(VALUES, ctx), VALUES.copy()
    new = np.float32(-7) if kind == "number" else -1 - np.arange(VALUES[key].size, dtype="float32").reshape(VALUES[key].shape)
    want[key] = new
    a[key] = nd.array(new, ctx) if kind == "array" else float(new) if kind == "number" else new
    assert np.array_equal(a.asnumpy(), want)


def test_views_of_views_share_one_memory():
    a = nd.array(VALUES)
    a[1:][0].reshape(20)[3:5][:] = 0
    want = VALUES.copy()
    want[1].reshape(20)[3:5] = 0
    assert np.array_equal(a.asnumpy(), want)


def test_values_broadcast_and_are_cast(ctx):
    a = nd.zeros((2, 3), ctx, dtype="int32")
    a[:] = np.array([1.9, -1.9, 300.0])
    assert a.tolist() == [[1, -1, 300]] * 2
    a[1] = nd.array([[7, 8, 9]], ctx)
    a[0, 1:] = 2.7
    assert a.tolist() == [[1, 2, 2], [7, 8, 9]]


def test_numbers_are_cut_wrapped_and_saturated_to_the_dtype(ctx):
    a = nd.zeros((2,), ctx, dtype="uint8")
    a[:] = -1
    assert a.tolist() == [255, 255] and nd.full((1,), 2.9, ctx, "int8").item() == 2
    assert nd.full((1,), 200, ctx, "int8").item() == -56
    b = nd.full((2,), -1e9, ctx, "float16")
    b[0] = 1e9
    assert b.tolist() == [float("inf"), float("-inf")]


def test_overlapping_assignment_reads_first(ctx):
    a = nd.array(np.arange(6), ctx)
    a[1:] = a[:-1]
    assert a.tolist() == [0, 0, 1, 2, 3, 4]


def test_a_later_change_of_the_source_is_not_seen(ctx):
    a, source = nd.zeros((1000, 100), ctx), np.ones((1000, 100), "float32")
    a[:] = source
    source[:] = 5
    assert a.asnumpy().max() == 1


def test_arrays_on_another_context_are_copied(ctx):
    a = nd.zeros((2, 2))
    a[1] = nd.array([3, 4], ctx)
    assert a.tolist() == [[0, 0], [3, 4]]


def test_float_arrays_as_keys_are_truncated():
    a = nd.array([10, 20, 30])
    assert a[nd.array([2.0, 0.9])].tolist() == [30, 10]
    assert a[nd.array([1, 0, 1], dtype="bool")].tolist() == [10, 30]


@pytest.mark.parametrize("key", [3, -4, (0, 4), (0, 0, 0, 0), (Ellipsis, Ellipsis), [5]])
def test_an_index_out_of_bounds_is_an_index_error(key):
    with pytest.raises(IndexError):
        nd.array(VALUES)[key]


def test_a_value_that_does_not_fit_is_named_with_its_target():
    with pytest.raises(ShapeError, match=r"float32\[3\].*does not fit \(2, 2\)"):
        nd.zeros((2, 2))[:] = np.zeros(3)


@pytest.mark.parametrize("key", [1, slice(0, 2), (slice(None), 1), (0, slice(None, None, -1)), [0, 2, 2], VALUES > 9,
                                 (slice(None), None, 1)], ids=str)
def test_gradient_of_a_part(key, ctx):
    x = nd.array(VALUES, ctx)
    x.attach_grad()
    with autograd.record():
        y = x[key]
    u = np.arange(1, y.size + 1, dtype="float32").reshape(y.shape)
    y.backward(nd.array(u, ctx))
    want = np.zeros_like(VALUES)
    np.add.at(want, key, u.reshape(VALUES[key].shape))
    assert np.array_equal(x.grad.asnumpy(), want)


def test_writing_to_a_recorded_array_is_refused():
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record(), pytest.raises(MXNetError, match="part of a recorded computation"):
        x[:] = 1


def test_reshape_shares_and_passes_gradients():
    x = nd.array(VALUES)
    x.reshape(-1)[0] = 9
    assert x[0, 0, 0].item() == 9 and x.reshape((0, -3)).shape == (3, 20) and x.reshape(shape=(-1, 4)).shape == (15, 4)
    x.attach_grad()
    with autograd.record():
        y = x.reshape((5, 12))
    y.backward(nd.array(np.arange(60).reshape(5, 12)))
    assert np.array_equal(x.grad.asnumpy(), np.arange(60, dtype="float32").reshape(3, 4, 5))


def test_a_comparison_selects(ctx):
    x = np.array([[1.0, -2, 3], [-4, 5, -6]], "float32")
    a = nd.array(x, ctx)
    assert a[a > 0].tolist() == [1, 3, 5] and a[a.sum(axis=1) > 0].tolist() == x[x.sum(1) > 0].tolist()
    assert a[(a > 0) & (a < 4)].tolist() == [1, 3] and a[(a < -3) | (a == 5)].tolist() == [-4, 5, -6]
    assert a[~(a > 0)].tolist() == [-2, -4, -6] and a[(a > 0) ^ (a > 2)].tolist() == [1]
    assert a[nd.array([1, 0], ctx)].tolist() == x[[1, 0]].tolist()  # no comparison: positions
    a[a < 0] = 0
    assert a.tolist() == [[1, 0, 3], [0, 5, 0]]
    a[a > 0] = nd.array([7, 8, 9], ctx)
    assert a.tolist() == [[7, 0, 8], [0, 9, 0]]
    a[a > 100] = 5
    assert a[a > 100].shape == (0,)


def test_a_mask_that_was_overwritten_is_an_array_of_indices_again():
    a = nd.array([10.0, 20, 30])
    m = a > 15
    m += 1
    assert a[m].tolist() == [20, 30, 30]


def test_not_of_an_array_that_is_not_a_mask_is_refused():
    with pytest.raises(TypeError, match=r"~: float32\[2\]@cpu\(0\) is not a mask"):
        ~nd.ones((2,))
    with pytest.raises(TypeError):
        nd.ones((2,)) & nd.ones((2,))
    assert (~nd.array([True, False], dtype="bool")).tolist() in ([0, 1], [False, True])


def test_the_inner_methods_of_mxnet():
    x = nd.array(np.arange(6).reshape(3, 2))
    assert x._at(1).asnumpy().tolist() == [2, 3] and x._slice(1, 3).asnumpy().tolist() == [[2, 3], [4, 5]]
    x._slice(1, 3)[:] = 7  # a view
    x._at(0)._sync_copyfrom(np.array([8, 9]))
    assert x.asnumpy().tolist() == [[8, 9], [7, 7], [7, 7]]
    with pytest.raises(ShapeError, match=r"_sync_copyfrom: the source has the shape \(3,\), and the array is float32\[3,2\]"):
        x._sync_copyfrom(np.zeros(3))
