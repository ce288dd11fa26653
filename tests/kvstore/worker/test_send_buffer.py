"""Several arrays in one buffer: they do not overlap, and the memory is freed after the last user."""

from __future__ import annotations

import numpy as np
import pytest
import tritium as mx
from tritium.kvstore.wire.shared_memory import SMALLEST, SharedSlot
from tritium.kvstore.worker.key_state import SendBuffer


class FakeClient:
    """The part of a client that a send buffer uses."""

    def __init__(self, shared):
        self.shared, self.taken, self.given = shared, [], []
        self.pool = self

    def take(self, nbytes):
        self.taken.append(SharedSlot(7, np.zeros(nbytes, np.uint8)))
        return self.taken[-1]

    def give(self, slot):
        self.given.append(slot)


LIKE = [((5,), "float32"), ((), "float64"), ((0,), "float32"), ((SMALLEST // 4, 3), "float32"), ((3,), "uint8"), ((2,), "int64")]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("separate", [True, False])
def test_arrays_do_not_overlap_and_places_are_correct(shared, separate):
    client = FakeClient(shared)
    buffer = SendBuffer(client, [mx.nd.zeros(shape, dtype=dtype) for shape, dtype in LIKE], separate)
    for i, (a, (shape, dtype)) in enumerate(zip(buffer.arrays, LIKE)):
        assert a.shape == shape and a.dtype == np.dtype(dtype)
        a[...] = i + 1
    for i, (a, place) in enumerate(zip(buffer.arrays, buffer.places)):
        assert (a.asnumpy() == i + 1).all()
        if shared:
            segment, at = place
            raw = client.taken[0].view[at:at + a.nbytes]
            assert segment == 7 and raw.tobytes() == a.asnumpy().tobytes() and at % np.dtype(a.dtype).itemsize == 0
        else:
            assert place is None
    assert len({a.chunk.var for a in buffer.arrays}) == (len(LIKE) if separate else 1)


def test_arrays_of_one_dtype_have_no_gaps():
    buffer = SendBuffer(FakeClient(True), [mx.nd.zeros(n) for n in (5, 1, SMALLEST, 3)])
    assert [at for _, at in buffer.places] == [0, 20, 24, 24 + 4 * SMALLEST]


def test_small_buffers_use_no_shared_memory():
    client = FakeClient(True)
    assert SendBuffer(client, [mx.nd.zeros(4)]).places == [None] and not client.taken


def test_the_last_release_frees_the_memory():
    client = FakeClient(True)
    buffer = SendBuffer(client, [mx.nd.zeros(SMALLEST)])
    buffer.lend(2)
    buffer.release()
    assert not client.given
    buffer.release()
    assert client.given == client.taken
