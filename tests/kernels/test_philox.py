"""Philox 4x32-10: the published test vectors, and independence of where a draw begins."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import DTypeError
from tritium.kernels.philox import normal, philox4x32, uniform, words

#: counter, key, result: Random123's known answers for philox 4x32, 10 rounds.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize("counter, key, want", VECTORS)
def test_published_vectors(counter, key, want):
    got = philox4x32(*(np.array([c], np.uint64) for c in counter), *key)
    assert [int(g[0]) for g in got] == [int(w, 16) for w in want.split()]


def test_a_number_depends_on_seed_and_place_alone():
    everything = words(7, 0, 70000)
    for first, count in ((0, 1), (3, 10), (4, 4), (65533, 100), (12345, 40000)):
        assert (words(7, first, count) == everything[first:first + count]).all()
    assert (words(8, 0, 100) != everything[:100]).any()


def test_distributions():
    u, z = uniform(1, 0, 200000), normal(1, 0, 200000)
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.004 and abs(u.var() - 1 / 12) < 0.002
    assert abs(z.mean()) < 0.012 and abs(z.var() - 1) < 0.02 and abs((z**3).mean()) < 0.04
    mx.random.seed(1)
    counts = np.bincount(mx.nd.random.randint(2, 8, shape=(60000,)).asnumpy(), minlength=8)
    assert counts[:2].sum() == 0 and (abs(counts[2:] - 10000) < 500).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_never_reaches_one(name):
    from tritium.dtype import as_dtype

    assert (uniform(3, 0, 100000, as_dtype(name)) < 1).all()


def test_uniform_wants_a_floating_dtype():
    with pytest.raises(DTypeError, match=r"random: int32 is not a floating dtype. Use float32"):
        uniform(1, 0, 4, np.dtype("int32"))


@pytest.mark.parametrize("seed, offset", [(0, 0), (7, 3), (-1, 2**33 + 5), (2**63 + 9, 2**40 - 2)])
def test_a_few_numbers_are_the_first_of_many(seed, offset):
    many = words(seed, offset, 100)
    for count in (0, 1, 2, 5, 31, 32):
        few = words(seed, offset, count)
        assert few.dtype == many.dtype and few.tolist() == many[:count].tolist()
