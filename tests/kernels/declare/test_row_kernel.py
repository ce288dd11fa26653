"""row_kernel: one body over the last axis or any other, sums that wait for sums, outputs smaller than the data."""

import numpy as np
import pytest
from support.layer_helpers import TARGETS, Run, close, to_device
from tritium.kernels.declare.row_kernel import row_kernel
from tritium.kernels.ir.lang import exp, row_index, row_max, row_sum, where
from tritium.kernels.op import Req, Spec


def run(body, arrays, views, results, kept, target, reqs=None, fill=5.0):
    outs = [np.full(r, fill, "d") for r in results]
    specs = [[Spec(a.shape, a.dtype) for a in group] for group in (arrays, outs)]
    kernel = row_kernel(body, views, results, kept, *specs, reqs or [Req.WRITE] * len(outs), target, "test")
    asked = [to_device(o, target) if r != Req.NULL else None for o, r in zip(outs, reqs or [Req.WRITE] * len(outs))]
    kernel(Run(target), [to_device(a, target) for a in arrays], asked)
    return outs


def spread(x, w):
    """A mean, what depends on it, what depends on that; the mean itself; a sum over everything but w's axis."""
    mean = row_sum(x) / 4
    e = exp(x - row_max(x))
    variance = row_sum((x - mean) * (x - mean))
    return (x - mean) * w + e / row_sum(e) * variance, mean, x * w


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis(axis, target, rng):
    x = np.moveaxis(rng.standard_normal((4, 3, 5)), 0, axis).copy()
    w = rng.standard_normal(4)
    view = tuple(4 if i == axis else 1 for i in range(3))
    kept = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    got = run(spread, [x, w], [x.shape, view], [x.shape, kept, view], kept, target)
    mean, e = x.mean(axis, keepdims=True), np.exp(x - x.max(axis, keepdims=True))
    variance = ((x - mean) ** 2).sum(axis, keepdims=True)
    close(got[0], (x - mean) * w.reshape(view) + e / e.sum(axis, keepdims=True) * variance)
    close(got[1], mean)
    close(got[2], (x * w.reshape(view)).sum(tuple(i for i in range(3) if i != axis), keepdims=True))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [1, 2])
def test_requests(axis, target, rng):
    x, w = rng.standard_normal((2, 3, 4)), np.ones(1)
    kept = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    shapes = [x.shape, kept, (1, 1, 1)]
    views = [x.shape, (1, 1, 1)]
    wrote = run(spread, [x, w], views, shapes, kept, target)
    added = run(spread, [x, w], views, shapes, kept, target, [Req.ADD] * 3)
    for a, b in zip(added, wrote):
        close(a, b + 5)
    close(run(spread, [x, w], views, shapes, kept, target, [Req.NULL, Req.WRITE, Req.NULL])[1], wrote[1])


@pytest.mark.parametrize("target", TARGETS)
def test_no_axes_that_fold_and_everything_folded(target, rng):
    x = rng.standard_normal((2, 3))
    close(run(lambda v: v * 2, [x], [(6,)], [(6,)], (6,), target)[0], x.ravel() * 2)
    close(run(lambda v: row_sum(v), [x], [(2, 3)], [(1, 1)], (1, 1), target)[0], [[x.sum()]])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(2, 3, 70), (2, 70, 3), (1, 130, 1), (3, 1, 5), (2, 5000, 2)])
@pytest.mark.parametrize("axis", [1, 2])
def test_the_index_in_the_row_picks_an_element_and_ends_rows(axis, shape, target, rng):
    x, n = rng.standard_normal(shape), shape[axis]
    kept = tuple(1 if i == axis else s for i, s in enumerate(shape))
    label, length = (rng.integers(low, n + 2, size=kept).astype("f") for low in (-1, 0))  # some are no index
    every = np.arange(n).reshape([-1 if i == axis else 1 for i in range(3)])

    def body(x, label, length):
        k = row_index()
        return where(k == label, x - 1, x), row_sum(where(k < length, x, 0)), where(length < 2, 7, x)

    got = run(body, [x, label, length], [shape, kept, kept], [shape, kept, shape], kept, target)
    close(got[0], x - (every == label))
    close(got[1], np.where(every < length, x, 0).sum(axis, keepdims=True))
    close(got[2], np.where(length < 2, 7, x))


@pytest.mark.parametrize("target", TARGETS)
def test_a_fraction_is_no_index_and_a_picked_infinity_stays_alone(target):
    x, label = np.arange(200.0).reshape(2, 100), np.array([[2.5], [7.0]])

    def body(x, k):
        return where(row_index() == k, x * np.inf, x), where(row_index() == k, x - 3, x)

    scaled, moved = run(body, [x, label], [x.shape, label.shape], [x.shape] * 2, (2, 1), target)
    close(np.argwhere(scaled != x), [[1, 7]])
    close(np.argwhere(moved != x), [[1, 7]])
    assert (scaled[1, 7], moved[1, 7]) == (np.inf, 104.0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows, last", [(37, 5), (20, 8000), (2, 9000), (1, 7), (9, 1)])
def test_sums_over_rows_beside_results_of_rows(rows, last, target, rng):
    """What LayerNorm's derivative asks for: the derivative by data, and two sums over all rows, one of them added."""
    x, dy, w = rng.standard_normal((rows, last)), rng.standard_normal((rows, last)), rng.standard_normal(last)

    def body(dy, x, w):
        d = x - row_sum(x) / last
        return d * w + row_sum(dy * w), dy * d, dy

    got = run(body, [dy, x, w], [x.shape, x.shape, (last,)], [x.shape, (last,), (last,)], (rows, 1), target,
              [Req.WRITE, Req.WRITE, Req.ADD])
    d = x - x.mean(1, keepdims=True)
    close(got[0], d * w + (dy * w).sum(1, keepdims=True))
    close(got[1], (dy * d).sum(0))
    close(got[2], 5 + dy.sum(0))


@pytest.mark.parametrize("target", TARGETS)
def test_a_softmax_of_long_rows(target, rng):
    """Rows that no block holds: the sum is scaled anew where the maximum grows."""
    x = rng.standard_normal((6, 20_001)) * 20
    x[1] = np.sort(x[1])
    x[2, 5], x[3], x[4, 100:9000], x[5, 7] = np.inf, -np.inf, -np.inf, np.nan

    def body(v):
        e = exp(v - row_max(v))
        return e / row_sum(e)

    got = run(body, [x], [x.shape], [x.shape], (6, 1), target)[0]
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    close(got[[0, 1, 4]], want[[0, 1, 4]])
