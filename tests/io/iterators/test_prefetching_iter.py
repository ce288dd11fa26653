"""PrefetchingIter: the batches of the inner iterators, one ahead; errors, several iterators, forks."""

import os

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError


def source(n=10, offset=0):
    return mx.io.NDArrayIter(np.arange(n) + offset, np.arange(n), 4)


def labels(it):
    return [(b.data[0].asnumpy().tolist(), b.label[0].asnumpy().tolist(), b.pad) for b in it]


def test_every_epoch_gives_the_inner_batches():
    it, plain = mx.io.PrefetchingIter(source()), source()
    assert it.provide_data == plain.provide_data and it.provide_label == plain.provide_label and it.batch_size == 4
    for _ in range(3):
        assert labels(it) == labels(plain)
        it.reset(), plain.reset()
    next(it)
    it.reset()
    assert labels(it) == labels(plain)


def test_several_iterators_joined_under_new_names():
    it = mx.io.PrefetchingIter([source(), source(offset=5)], [{"data": "a"}, {"data": "b"}], [{}, {"softmax_label": "second"}])
    assert [d.name for d in it.provide_data] == ["a", "b"] and [d.name for d in it.provide_label] == ["softmax_label", "second"]
    for b in it:
        assert (b.data[1] - b.data[0]).asnumpy().tolist() == [5] * 4 and len(b.label) == 2
    uneven = mx.io.PrefetchingIter([source(), source(4)])
    next(uneven)
    with pytest.raises(ParameterError, match="the iterators have different numbers of batches"):
        next(uneven)
    for wrong in (([],), (source(), [{}, {}])):
        with pytest.raises(ParameterError, match=r"^PrefetchingIter: (iters is empty|rename_data has 2 entries for 1 iterators)"):
            mx.io.PrefetchingIter(*wrong)


class Failing(mx.io.ResizeIter):
    def next(self):
        batch = super().next()
        if self.cur == 2:
            raise ZeroDivisionError("the second batch")
        return batch


def test_an_error_is_raised_in_place_of_its_batch():
    it = mx.io.PrefetchingIter(Failing(source(), 3))
    next(it)
    with pytest.raises(ZeroDivisionError, match="the second batch"):
        next(it)
    assert len(list(it)) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_continues_to_read():
    it = mx.io.PrefetchingIter(source())
    next(it)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(list(it)) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(it)) == 2
