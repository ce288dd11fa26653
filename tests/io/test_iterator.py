"""DataDesc, DataBatch, DataIter and ResizeIter."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import MXNetError


def test_a_description_is_a_pair_with_dtype_and_layout():
    d = mx.io.DataDesc("data", [2, 3], np.float16, "NC")
    name, shape = d
    assert (name, shape) == ("data", (2, 3)) == d
    assert (d.dtype, d.layout) == (np.float16, "NC")
    assert "DataDesc[data,(2, 3)" in repr(d)
    assert [mx.io.DataDesc.get_batch_axis(x) for x in (None, "NCHW", "TNC", "CHW")] == [0, 0, 1, -1]
    a, b = mx.io.DataDesc.get_list([("a", (1,)), ("b", (2,))], [("a", np.int32)])
    assert (a.dtype, b.dtype) == (np.int32, np.float32)


def test_a_batch_needs_lists():
    with pytest.raises(MXNetError, match="DataBatch: data is a ndarray"):
        mx.io.DataBatch(np.ones(3))


class Squares(mx.io.DataIter):
    """An iterator as users write them, with the four methods only."""

    def __init__(self):
        super().__init__(batch_size=1)
        self.i = -1
        self.provide_data, self.provide_label = [mx.io.DataDesc("data", (1,))], []

    def reset(self):
        self.i = -1

    def iter_next(self):
        self.i += 1
        return self.i < 3

    def getdata(self):
        return [mx.nd.array([self.i**2])]

    def getlabel(self):
        return []

    def getpad(self):
        return 0


def values(it):
    return [float(b.data[0].asnumpy()[0]) for b in it]


def test_a_users_own_iterator():
    it = Squares()
    assert values(it) == [0, 1, 4] and values(it) == []
    it.reset()
    assert values(it) == [0, 1, 4]


def test_resized():
    short = mx.io.ResizeIter(Squares(), 2)
    assert values(short) == [0, 1]
    short.reset()
    assert values(short) == [0, 1]
    long = mx.io.ResizeIter(Squares(), 5, reset_internal=False)
    assert values(long) == [0, 1, 4, 0, 1]
    long.reset()
    assert values(long) == [4, 0, 1, 4, 0]
    assert long.provide_data == [("data", (1,))]


def test_resizing_an_empty_image_is_refused():
    it = Squares()
    it.iter_next = lambda: False
    with pytest.raises(MXNetError, match="has no batch at all"):
        mx.io.ResizeIter(it, 2).next()
