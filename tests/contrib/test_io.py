"""mx.contrib.io.DataLoaderIter: a loader as a DataIter. A list of batches stands for the loader."""

import pytest
import tritium as mx
from tritium.errors import ParameterError

BATCHES = [(mx.nd.array([[1, 2], [3, 4], [5, 6]]), mx.nd.array([0, 1, 2])), (mx.nd.array([[7, 8]]), mx.nd.array([3]))]


def test_batches_of_two_epochs_the_last_one_filled_up():
    iterator = mx.contrib.io.DataLoaderIter(BATCHES, data_name="x", dtype="float16")
    assert iterator.batch_size == 3
    assert [tuple(d) for d in (*iterator.provide_data, *iterator.provide_label)] == [("x", (3, 2)), ("softmax_label", (3,))]
    for _ in range(2):
        first, last = iterator
        assert first.pad == 0 and last.pad == 2
        assert first.data[0].asnumpy().tolist() == [[1, 2], [3, 4], [5, 6]] and first.label[0].asnumpy().tolist() == [0, 1, 2]
        assert last.data[0].asnumpy().tolist() == [[7, 8]] * 3 and last.label[0].asnumpy().tolist() == [3] * 3
        assert last.data[0].dtype == last.label[0].dtype == mx.nd.ones(1, dtype="float16").dtype
        iterator.reset()


def test_a_loader_without_batches():
    with pytest.raises(ParameterError, match="DataLoaderIter: the loader has no batches"):
        mx.contrib.io.DataLoaderIter([])
