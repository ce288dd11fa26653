"""NDArrayIter: batches against those of MXNet 1.9.1 for the same calls (ndarray_iter.json), and tests beyond them."""

import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium.errors import DTypeError, ParameterError, ShapeError

CASES = json.loads(Path(__file__).with_name("ndarray_iter.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['n']}by{c['batch']}-{c['mode']}{'-shuffled' * c['shuffle']}")
def test_batches_are_mxnets(case):
    n = case["n"]
    np.random.seed(case["seed"])
    it = mx.io.NDArrayIter(np.arange(n), {"b": np.arange(n) * 2, "a": np.arange(n)[:, None]}, case["batch"],
                           case["shuffle"], case["mode"])
    assert [[d.name, list(d.shape)] for d in it.provide_data + it.provide_label] == case["provide"]
    for number, epoch in enumerate(case["epochs"]):  # fewer epochs are compared where MXNet fails
        got = []
        for batch in it:
            got.append([batch.data[0].asnumpy().astype(int).tolist(), batch.pad])
            assert batch.index.tolist() == got[-1][0]
            assert batch.label[0].asnumpy().ravel().tolist() == got[-1][0]
            assert (batch.label[1].asnumpy() / 2).tolist() == got[-1][0]
        assert got == epoch
        it.hard_reset() if number == 2 else it.reset()


def test_roll_over_with_batches_larger_than_the_data():
    it = mx.io.NDArrayIter(np.arange(5), batch_size=12, last_batch_handle="roll_over")
    seen = []
    for _ in range(5):
        seen.append([b.index.tolist() for b in it])
        it.reset()
    assert seen[:2] == [[], []]
    assert seen[2] == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]]


def test_its_own_seed_is_independent_of_numpys():
    def epochs(seed):
        it = mx.io.NDArrayIter(np.arange(30), batch_size=5, shuffle=True, seed=seed)
        first = [b.index.tolist() for b in it]
        it.reset()
        return [first, [b.index.tolist() for b in it]]

    np.random.seed(1)
    a = epochs(3)
    np.random.seed(2)
    b = epochs(3)
    assert a == b and a != epochs(4)
    assert a[0] != a[1], "each epoch has its own order"
    assert sorted(np.concatenate(a[1])) == list(range(30))


def test_lists_dicts_and_dtypes():
    it = mx.io.NDArrayIter([np.zeros((4, 2), "int64"), mx.nd.zeros((4,), dtype="int32")], batch_size=2)
    assert [(d.name, d.shape, d.dtype) for d in it.provide_data] == [
        ("_0_data", (2, 2), np.float32), ("_1_data", (2,), np.int32)]
    batch = next(it)
    assert [a.dtype for a in batch.data] == [np.float32, np.int32]
    assert batch.label == [] and str(batch) == "DataBatch: data shapes: [(2, 2), (2,)] label shapes: None"
    it = mx.io.NDArrayIter({"z": np.ones((6, 1)), "a": np.ones((6, 2))}, batch_size=3)
    assert [name for name, _ in it.provide_data] == ["a", "z"] == [name for name, _ in it.data]


def test_the_batch_axis_follows_the_layout():
    it = mx.io.NDArrayIter(np.arange(24).reshape(4, 3, 2), np.arange(3), batch_size=2, layout="TNC")
    assert it.provide_data[0].shape == (4, 2, 2) and it.provide_label[0].shape == (2,)
    batches = [b.data[0].asnumpy() for b in it]
    assert np.array_equal(batches[1][:, 0], np.arange(24).reshape(4, 3, 2)[:, 2])


@pytest.mark.parametrize("make, error, text", [
    (lambda: mx.io.NDArrayIter(np.ones(4), np.ones(3)), ShapeError, "'data' has 4 examples, 'softmax_label' has 3"),
    (lambda: mx.io.NDArrayIter(np.ones(4), last_batch_handle="drop"), ParameterError, "last_batch_handle='drop' is not"),
    (lambda: mx.io.NDArrayIter(np.ones(4), batch_size=0), ParameterError, "batch_size=0 is less than 1"),
    (lambda: mx.io.NDArrayIter({}), ParameterError, "data is empty"),
    (lambda: mx.io.NDArrayIter(np.ones((0, 2))), ShapeError, "'data' has no examples"),
    (lambda: mx.io.NDArrayIter(5.0), ShapeError, "'data' is a single number"),
    (lambda: mx.io.NDArrayIter({"x": object()}), DTypeError, "'x' is a object that cannot become an array"),
])
def test_bad_input_is_named(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_the_arrays_of_users_iterators_get_names():
    named = mx.io._init_data({"b": np.zeros(2), "a": mx.nd.ones((3, 2), dtype="int32")}, False, "data")
    assert [(k, v.shape, v.dtype) for k, v in named] == [("a", (3, 2), np.int32), ("b", (2,), np.float32)]
    assert mx.io._init_data(None, True, "label") == [] == mx.io._init_data([], True, "label")
    with pytest.raises(ParameterError, match="_init_data: 'data' has no array"):
        mx.io._init_data([], False, "data")
