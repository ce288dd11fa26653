"""Several arrays in one buffer: they do not overlap, and the memory is free when nothing refers to it."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import numpy as np
import pytest
import tritium as mx
from tritium.kvstore.wire.frame import INLINE
from tritium.kvstore.wire.shared_memory import SMALLEST, SegmentPool, SharedSlot
from tritium.kvstore.worker.key_state import SendBuffer


class FakeClient:
    """The part of a client that a send buffer uses."""

    def __init__(self, shared):
        self.shared, self.taken = shared, []
        self.pool = self

    def take(self, nbytes):
        self.taken.append(SharedSlot(7, np.zeros(nbytes, np.uint8)))
        return self.taken[-1]


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
            assert place == (INLINE, 0)
    assert len({a.chunk.var for a in buffer.arrays}) == (len(LIKE) if separate else 1)


def test_arrays_of_one_dtype_have_no_gaps():
    buffer = SendBuffer(FakeClient(True), [mx.nd.zeros(n) for n in (5, 1, SMALLEST, 3)])
    assert [at for _, at in buffer.places] == [0, 20, 24, 24 + 4 * SMALLEST]


def test_small_buffers_use_no_shared_memory():
    client = FakeClient(True)
    assert SendBuffer(client, [mx.nd.zeros(4)]).places == [(INLINE, 0)] and not client.taken


def test_memory_is_used_again_when_nothing_refers_to_it():
    """Not while an array in it, or bytes of it that wait to be sent, exist."""
    job = uuid.uuid4().hex
    client = SimpleNamespace(pool=SegmentPool(job, 0, 1), shared=True)
    try:
        buffer = SendBuffer(client, [mx.nd.zeros(SMALLEST)] * 2)
        (segment, _), _ = buffer.places
        data = buffer.arrays[1].device_array().reshape(-1)[3:].view(np.uint8).data
        del buffer
        others = [SendBuffer(client, [mx.nd.zeros(SMALLEST)] * 2) for _ in range(3)]
        assert segment not in [b.places[0][0] for b in others]
        del data
        assert SendBuffer(client, [mx.nd.zeros(SMALLEST)] * 2).places[0][0] == segment
    finally:
        client.pool.close()
