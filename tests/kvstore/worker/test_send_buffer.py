"""Several arrays in one piece of memory: they do not overlap, and the memory comes back when the last user has let go."""

from __future__ import annotations

import numpy as np
import pytest
import tritium as mx
from tritium.kvstore.wire.shared_memory import SMALLEST, Slot
from tritium.kvstore.worker.send_buffer import Piece


class Client:
    """As much of a client as a piece of memory needs."""

    def __init__(self, shared):
        self.shared, self.taken, self.given = shared, [], []

    def take_slot(self, nbytes):
        self.taken.append(Slot(7, np.zeros(nbytes, np.uint8)))
        return self.taken[-1]

    def give_slot(self, slot):
        self.given.append(slot)


LIKE = [((5,), "float32"), ((), "float64"), ((0,), "float32"), ((SMALLEST // 4, 3), "float32"), ((3,), "uint8"), ((2,), "int64")]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_arrays_are_apart_and_where_they_say(shared, apart):
    client = Client(shared)
    piece = Piece(client, [mx.nd.zeros(shape, dtype=dtype) for shape, dtype in LIKE], apart)
    for i, (a, (shape, dtype)) in enumerate(zip(piece.arrays, LIKE)):
        assert a.shape == shape and a.dtype == np.dtype(dtype)
        a[...] = i + 1
    for i, (a, place) in enumerate(zip(piece.arrays, piece.places)):
        assert (a.asnumpy() == i + 1).all()
        if shared:
            segment, at = place
            raw = client.taken[0].view[at:at + a.nbytes]
            assert segment == 7 and raw.tobytes() == a.asnumpy().tobytes() and at % np.dtype(a.dtype).itemsize == 0
        else:
            assert place is None
    assert len({a.chunk.var for a in piece.arrays}) == (len(LIKE) if apart else 1)


def test_equal_dtypes_lie_side_by_side():
    piece = Piece(Client(True), [mx.nd.zeros(n) for n in (5, 1, SMALLEST, 3)])
    assert [at for _, at in piece.places] == [0, 20, 24, 24 + 4 * SMALLEST]


def test_small_pieces_take_no_shared_memory():
    client = Client(True)
    assert Piece(client, [mx.nd.zeros(4)]).places == [None] and not client.taken


def test_the_last_user_gives_the_memory_back():
    client = Client(True)
    piece = Piece(client, [mx.nd.zeros(SMALLEST)])
    piece.lend(2)
    piece.release()
    assert not client.given
    piece.release()
    assert client.given == client.taken
