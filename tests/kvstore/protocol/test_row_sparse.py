"""Row-sparse contributions, in one process and in several. Oracle: the same gradients as dense arrays, added up by NumPy."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from support.kvstore_cluster import array, pull, workers
from tritium.errors import ParameterError, ShapeError
from tritium.kvstore.protocol.row_sparse import Rows, add, slice_shape, splits_between_rows

SHAPE = (64, 3)
sparse = mx.nd.sparse.row_sparse_array


def gradient(*seed, rows=SHAPE[0]):
    """(indices, values) of some rows, possibly none."""
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.choice(rows, size=rng.integers(0, 9), replace=False))
    return numbers, rng.normal(size=(len(numbers), SHAPE[1])).astype("f")


def dense(*gradients):
    """Their sum, added up in this order."""
    total = np.zeros(SHAPE, "f")
    for numbers, values in gradients:
        total[numbers] += values
    return total


def as_sparse(gradient):
    numbers, values = gradient
    return sparse((mx.nd.array(values), numbers), shape=SHAPE) if len(numbers) else mx.nd.sparse.zeros("row_sparse", SHAPE)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_rows_are_summed_in_order(seeds):
    given = [gradient(s) for s in seeds]
    total = add([Rows(*g) for g in given])
    assert (np.diff(total.indices) > 0).all()
    np.testing.assert_array_equal(total.into(np.empty(SHAPE, "f")), dense(*given))


@pytest.mark.parametrize("slices, shape, whole_rows", [
    ([(0, 0, 192)], (64, 3), True), ([(0, 0, 96), (1, 96, 192)], (64, 3), True), ([(0, 0, 95), (1, 95, 192)], (64, 3), False),
    ([(0, 0, 3), (1, 3, 7)], (7,), True), ([(0, 0, 1)], (), False),
])
def test_slices_of_whole_rows_keep_their_shape(slices, shape, whole_rows):
    assert splits_between_rows(slices, shape) == whole_rows
    if len(slices) > 1:
        assert slice_shape(shape, slices, 0) == ((slices[0][2] // int(np.prod(shape[1:])), *shape[1:]) if whole_rows else (95,))


def rows_of(kv, key, *numbers):
    """The rows of a key in a dense array, and in a row-sparse one: two outs of one call."""
    full, some = mx.nd.zeros(SHAPE), mx.nd.sparse.zeros("row_sparse", SHAPE)
    kv.row_sparse_pull(key, out=[full, some], row_ids=[array(numbers, "int64"), array(numbers[::-1], "int64")])
    np.testing.assert_array_equal(full.asnumpy(), some.asnumpy())
    return full.asnumpy()


def only(values, *numbers):
    kept = np.zeros(SHAPE, "f")
    kept[list(numbers)] = values[list(numbers)]
    return kept


def test_local_replaces_the_value_by_the_rows_and_zeros():
    """As MXNet does: rows that no worker pushed are 0."""
    kv = mx.kv.create("local")
    kv.init("w", sparse(mx.nd.ones(SHAPE)))
    some = [gradient(1), gradient(2)]
    kv.push("w", [as_sparse(g) for g in some])
    np.testing.assert_array_equal(pull(kv, "w", np.zeros(SHAPE, "f")), dense(*some))
    np.testing.assert_array_equal(rows_of(kv, "w", 5, 1, 1, 63), only(dense(*some), 5, 1, 63))
    kv.push("w", mx.nd.sparse.zeros("row_sparse", SHAPE))
    assert not pull(kv, "w", np.zeros(SHAPE, "f")).any()


def updated(optimizer, rounds):
    """The weights after rounds of gradients (each a list, added up in order), by an updater fed with row-sparse sums."""
    updater, weight = mx.optimizer.get_updater(optimizer()), mx.nd.ones(SHAPE)
    for gradients in rounds:
        numbers = np.unique(np.concatenate([n for n, _ in gradients]))
        updater("w", as_sparse((numbers, dense(*gradients)[numbers])), weight)
    return weight.asnumpy()


SGD = lambda: mx.optimizer.SGD(learning_rate=0.5, momentum=0.9, wd=0.01)


def test_local_updates_only_the_pushed_rows():
    kv = mx.kv.create("local")
    kv.set_optimizer(SGD())
    kv.init("w", mx.nd.ones(SHAPE))
    rounds = [[gradient(step, d) for d in range(2)] for step in range(4)]
    for gradients in rounds:
        kv.push("w", [as_sparse(g) for g in gradients])
    np.testing.assert_array_equal(pull(kv, "w", np.zeros(SHAPE, "f")), updated(SGD, rounds))


def test_rows_of_several_workers_with_a_server_that_dies(monkeypatch):
    """Rows go to the servers of their slices; a round without rows counts; a killed server loses nothing."""
    monkeypatch.setenv("MXNET_KVSTORE_BIGARRAY_BOUND", "100")
    rounds = [[gradient(step, rank) for rank in range(2)] for step in range(8)]
    rounds[3][1] = (np.zeros(0, np.int64), np.zeros((0, SHAPE[1]), "f"))
    with workers(2, servers=2, snapshot_rounds=3) as (job, _, each):
        def run(kv):
            kv.set_optimizer(SGD())
            kv.init("w", mx.nd.ones(SHAPE))
            for step, gradients in enumerate(rounds):
                if kv.rank == 0 and step == 5:
                    os.kill(job.server_pid(0), signal.SIGKILL)
                kv.push("w", as_sparse(gradients[kv.rank]))
                some = rows_of(kv, "w", 63, 0, 31, 32)
            assert len(kv._keys["w"].slices) == 2
            return pull(kv, "w", np.zeros(SHAPE, "f")), some

        for weights, some in each(run):
            np.testing.assert_array_equal(weights, updated(SGD, rounds))
            np.testing.assert_array_equal(some, only(weights, 63, 0, 31, 32))


def test_dense_and_sparse_pushes_together_rows_in_many_runs_and_async(monkeypatch):
    """One worker pushes rows, one an array; 9 MB of rows are sent in three runs; dist_async updates by each push."""
    wide = (20, 120_000)
    with workers(2) as (_, _, each):
        def run(kv):
            kv.init("m", mx.nd.ones(SHAPE)), kv.init("wide", mx.nd.ones(wide))
            kv.push("m", as_sparse(gradient(7)) if kv.rank else array(dense(gradient(8))))
            some = mx.nd.ones((19, wide[1])) * (kv.rank + 1)
            kv.push("wide", sparse((some, np.arange(1, 20)), shape=wide))
            out = mx.nd.sparse.zeros("row_sparse", wide)
            kv.row_sparse_pull("wide", out=out, row_ids=array(np.arange(20), "int64"))
            return pull(kv, "m", np.zeros(SHAPE, "f")), out.asnumpy()

        for mixed, got in each(run):
            np.testing.assert_array_equal(mixed, dense(gradient(8), gradient(7)))
            assert (got[0] == 0).all() and (got[1:] == 3).all()
    with workers(1, "dist_async") as (_, (kv,), _):
        kv.set_optimizer(SGD())
        kv.init("w", mx.nd.ones(SHAPE))
        for step in range(3):
            kv.push("w", as_sparse(gradient(step)))
        np.testing.assert_array_equal(rows_of(kv, "w", *range(64)), updated(SGD, [[gradient(step)] for step in range(3)]))


@pytest.mark.parametrize("act, error, text", [
    (lambda kv: kv.push("w", [mx.nd.ones(SHAPE), as_sparse(gradient(1))]), ParameterError, "some arrays are dense, some row-spa"),
    (lambda kv: kv.push("w", sparse((mx.nd.ones((1, 3)), [1]), shape=(9, 3))), ShapeError, r"key 'w' holds float32\[64,3\]"),
    (lambda kv: kv.pull("w", mx.nd.sparse.zeros("row_sparse", SHAPE)), ParameterError, "pull cannot fill a row-sparse array"),
    (lambda kv: kv.row_sparse_pull("w", sparse(SHAPE), row_ids=array([64], "int64")), ShapeError,
     "row indices from 64 to 64; the value has 64 rows"),
])
def test_invalid_calls_raise_an_error(act, error, text):
    kv = mx.kv.create("local")
    kv.init("w", mx.nd.ones(SHAPE))
    with pytest.raises(error, match=text):
        act(kv)
