"""BatchPlan: the rows of each batch, over parts and epochs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritium.errors import ParameterError, ShapeError
from tritium.io.plan import BatchPlan


def epochs(plan, count):
    """Return [(rows without padding, all rows)] of each batch, a list for each of `count` complete epochs."""
    begin, out = 0, []
    for epoch in range(count):
        batches = []
        for batch in range(plan.batches(begin)):
            rows = plan.numbers(epoch, begin, batch).tolist()
            batches.append((rows[:len(rows) - plan.pad(begin, batch)], rows))
        out.append(batches)
        begin = plan.following(begin)
    return out


@given(st.integers(1, 120), st.integers(1, 9), st.sampled_from([1, 2, 3, 7, 100, 101]), st.booleans(), st.booleans())
def test_parts_are_a_disjoint_union_in_equally_many_batches(rows, batch_size, parts, shuffle, round_batch):
    plans = [BatchPlan(rows, batch_size, num_parts=parts, part_index=i, shuffle=shuffle, round_batch=round_batch)
             for i in range(parts)]
    for of_epoch in zip(*(epochs(plan, 1 if round_batch and parts == 1 else 3) for plan in plans)):
        assert len({len(batches) for batches in of_epoch}) == 1
        assert all(len(full) == batch_size for batches in of_epoch for _, full in batches)
        assert sorted(row for batches in of_epoch for kept, _ in batches for row in kept) == list(range(rows))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_with_round_batch_epochs_follow_each_other_without_a_gap(rows, batch_size, seed, shuffle):
    """The batches of four consecutive epochs are the joined orders of the epochs."""
    plan = BatchPlan(rows, batch_size, shuffle=shuffle, seed=seed)
    given_rows = [row for batches in epochs(plan, 4) for _, full in batches for row in full]
    orders = [int(plan._rows_at(epoch, np.array([at]))[0]) for epoch in range(40) for at in range(rows)]
    if not shuffle or batch_size <= rows:  # a batch larger than an epoch contains rows of several epochs
        assert given_rows == orders[:len(given_rows)]


def test_shuffling_depends_on_seed_epoch_and_part_alone():
    def order(**kw):
        return BatchPlan(50, 50, shuffle=True, **kw).numbers(kw.pop("epoch", 0), 0, 0).tolist()

    plan = BatchPlan(50, 50, shuffle=True, seed=1)
    first = [plan.numbers(e, 0, 0).tolist() for e in range(3)]
    assert [plan.numbers(e, 0, 0).tolist() for e in (2, 0, 1)] == [first[2], first[0], first[1]]
    assert len({tuple(f) for f in first}) == 3 and order(seed=1) == first[0] != order(seed=2)


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 3), st.booleans())
def test_after_yields_every_other_row_of_the_part_once(rows, batch_size, batch, shuffle):
    plan = BatchPlan(rows, batch_size, num_parts=2, part_index=1, shuffle=shuffle)
    batch %= plan.batches()
    row = int(plan.numbers(1, 0, batch)[0])
    if plan.size:
        assert sorted([row, *plan.after(1, 0, batch, 0)]) == list(range(plan.first, plan.first + plan.size))


@pytest.mark.parametrize("rows, batch_size, more, error, text", [
    (3, 0, {}, ParameterError, r"^It: batch_size=0 is less than 1\.$"),
    (3, 1, {"num_parts": 2, "part_index": 2}, ParameterError,
     r"^It: part_index=2 is out of range for num_parts=2\. Parts count from 0\.$"),
    (0, 1, {}, ShapeError, r"^It: x.rec has no rows\.$"),
])
def test_invalid_sizes_are_named(rows, batch_size, more, error, text):
    with pytest.raises(error, match=text):
        BatchPlan(rows, batch_size, name="It", source="x.rec", **more)
