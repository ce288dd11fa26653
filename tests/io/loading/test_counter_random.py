"""uniforms: a function of seed, epoch and record alone. Oracle: one record at a time, and the definition of uniform."""

import numpy as np
import pytest
from tritium.io.loading.counter_random import draw_from, uniforms


def test_a_records_random_numbers_do_not_depend_on_other_records():
    records = np.array([7, 0, 2**40 + 7, 7])
    together = uniforms(3, 5, records, 10)
    assert together.shape == (4, 10) and np.array_equal(together[0], together[3])
    for i, record in enumerate(records):
        assert np.array_equal(together[i], uniforms(3, 5, np.array([record]), 17)[0, :10])


def test_seed_epoch_record_and_position_each_change_the_numbers():
    base = uniforms(3, 5, np.arange(2), 8)
    assert len(set(base.ravel())) == 16
    for other in (uniforms(4, 5, np.arange(2), 8), uniforms(3 + 2**32, 5, np.arange(2), 8), uniforms(3, 6, np.arange(2), 8)):
        assert not set(base.ravel()) & set(other.ravel())


def test_they_are_uniform():
    numbers = uniforms(0, 0, np.arange(5000), 16)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, 20)[0] / numbers.size - 0.05).max() < 0.002
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.05


def test_draw_from_returns_the_numbers_in_order_and_refuses_more():
    draw = draw_from([0.25, 0.5])
    assert (draw(), draw()) == (0.25, 0.5)
    with pytest.raises(AssertionError, match="takes more than 2 random numbers"):
        draw()
