"""index_array, index_copy, histogram, count_sketch: edges of their index formulas on both devices. Oracle: NumPy and loops."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close

C = mx.nd.contrib


def wrap(x, ctx, dtype="float32"):
    return mx.nd.array(np.asarray(x), ctx=ctx, dtype=dtype)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 2), (0, 3), (1, 1)])
@pytest.mark.parametrize("axes", [None, (0,), (-1, 0)])
def test_an_index_array_holds_the_place_of_each_element(shape, axes, ctx):
    got = C.index_array(wrap(np.zeros(shape), ctx), **({} if axes is None else {"axes": axes}))
    want = np.moveaxis(np.indices(shape), 0, -1)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got.asnumpy(), want if axes is None else want[..., list(axes)])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("rest", [(), (3,), (2, 0)])
def test_of_equal_indices_the_last_row_counts_and_all_get_the_derivative(dtype, rest, ctx, rng):
    old, new, index = rng.integers(0, 9, (5, *rest)), rng.integers(10, 19, (4, *rest)), [3, 1, 3, 0]
    arrays = [wrap(old, ctx, dtype), wrap(new, ctx, dtype)]
    for a in arrays:
        a.attach_grad()
    head = rng.integers(1, 9, (5, *rest))
    with mx.autograd.record():
        y = C.index_copy(arrays[0], wrap(index, ctx, "int64"), arrays[1])
    y.backward(wrap(head, ctx, dtype))
    want, kept = old.copy(), head.copy()
    for i, row in zip(index, new):
        want[i], kept[i] = row, 0
    np.testing.assert_array_equal(y.asnumpy(), want)
    np.testing.assert_array_equal(arrays[0].grad.asnumpy(), kept)
    np.testing.assert_array_equal(arrays[1].grad.asnumpy(), head[index])


@pytest.mark.parametrize("code, rest", [("numpy", (3,)), ("c", (4,)), ("numpy", (600,)), ("c", (601,))])  # each plan is new
def test_rows_are_replaced_and_added_by_either_code(code, rest, cpu_code, rng):
    cpu_code(code)
    old, new, index = rng.integers(0, 9, (5, *rest)), rng.integers(10, 19, (4, *rest)), [3, 1, 3, 0]
    arrays = [wrap(old, mx.cpu()), wrap(new, mx.cpu())]
    for a in arrays:
        a.attach_grad("add")
    head = rng.integers(1, 9, (5, *rest))
    for _ in range(3):  # by addresses, once that is possible
        with mx.autograd.record():
            y = C.index_copy(arrays[0], wrap(index, mx.cpu()), arrays[1])
        y.backward(wrap(head, mx.cpu()))
    want, kept = old.copy(), head.copy()
    for i, row in zip(index, new):
        want[i], kept[i] = row, 0
    np.testing.assert_array_equal(y.asnumpy(), want)
    np.testing.assert_array_equal(arrays[0].grad.asnumpy(), 3 * kept)
    np.testing.assert_array_equal(arrays[1].grad.asnumpy(), 3 * head[index])
    wrong = C.index_copy(arrays[0], wrap([0, 5, 1, 2], mx.cpu()), arrays[1])
    with pytest.raises(mx.errors.ShapeError, match=r"index_vector holds 0 to 5\. old_tensor has rows 0 to 4\."):
        wrong.wait_to_read()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_histograms_count_what_numpy_counts(dtype, ctx, rng):
    x = np.concatenate([rng.integers(-4, 8, 60), [0, 6, 6, 7, -1]]) / (1 if dtype == "int32" else 2)
    x = x.astype(dtype)
    edges = np.array([-1, 0, 0, 1, 3, 3] if dtype == "int32" else [-1, -0.5, -0.5, 1, 3, 3]).astype(dtype)
    counts, made = mx.nd.histogram(wrap(x, ctx, dtype), wrap(edges, ctx, dtype))
    want = np.histogram(x.astype("float64"), edges.astype("float64"))[0]
    assert counts.dtype == np.int64 and counts.asnumpy().tolist() == want.tolist()
    np.testing.assert_array_equal(made.asnumpy(), edges)
    counts, made = mx.nd.histogram(wrap(x, ctx, dtype), bins=4, range=(-1, 3))
    want = np.histogram(x.astype("float64"), 4, (-1, 3))
    assert counts.asnumpy().tolist() == want[0].tolist() and made.asnumpy().tolist() == want[1].tolist()


def test_histograms_of_what_is_not_a_number_and_of_nothing(ctx):
    x = wrap([np.nan, np.inf, -np.inf, 1, 2], ctx)
    assert mx.nd.histogram(x, bins=2, range=(0, 2))[0].asnumpy().tolist() == [0, 2]
    assert mx.nd.histogram(x, wrap([0, 2, np.inf], ctx))[0].asnumpy().tolist() == [1, 2]
    assert mx.nd.histogram(wrap(np.zeros((0, 3)), ctx), bins=3, range=(0, 2))[0].asnumpy().tolist() == [0, 0, 0]


def test_a_gpu_leaves_out_what_is_out_of_range(rng):
    gpu = mx.gpu()
    old, new = rng.normal(size=(3, 2)).astype("float32"), rng.normal(size=(3, 2)).astype("float32")
    y = C.index_copy(wrap(old, gpu), wrap([3, -1, 1], gpu, "int32"), wrap(new, gpu))
    np.testing.assert_array_equal(y.asnumpy(), [old[0], new[2], old[2]])
    y = C.count_sketch(wrap(old, gpu), wrap([0, 2], gpu), wrap([1, 1], gpu), out_dim=2)
    np.testing.assert_array_equal(y.asnumpy(), np.stack([old[:, 0], 0 * old[:, 0]], 1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_sketches_of_every_float_dtype(dtype, ctx, rng):
    x, h, s = rng.integers(-9, 9, (3, 200)), rng.integers(0, 7, 200), rng.choice([-1, 1], 200)
    want = np.zeros((3, 7))
    for i in range(200):
        want[:, h[i]] += x[:, i] * s[i]
    given = [mx.nd.array(v, ctx=ctx).astype(dtype) for v in (x, h, s)]
    assert_close(C.count_sketch(*given, out_dim=7).astype("float64"), want, dtype=dtype)
