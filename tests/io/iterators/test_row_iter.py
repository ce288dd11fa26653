"""RowIter: the rows of each batch, for several parts and epochs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritium.errors import ParameterError, ShapeError
from tritium.io import DataDesc
from tritium.io.iterators.row_iter import RowIter
from tritium.io.plan import BatchPlan


class Numbers(RowIter):
    """Row i holds the number i and the label -i."""

    def __init__(self, rows, batch_size, **kw):
        plan = BatchPlan(rows, batch_size, name="Numbers", source="numbers", **kw)
        super().__init__("numbers", plan, DataDesc("data", (batch_size,)), DataDesc("label", (batch_size,)))

    def read(self, numbers):
        return numbers.astype(np.float32), -numbers.astype(np.float32)


def epoch(it):
    """Return [(rows, pad)] of an epoch, and reset the iterator."""
    batches = [(b.data[0].asnumpy().astype(int).tolist(), b.pad) for b in it]
    it.reset()
    return batches


def test_the_last_batch_wraps_around_and_the_next_epoch_begins_behind_it():  # as in MXNet 1.9.1's CSVIter for 7 rows
    it = Numbers(7, 3)
    assert epoch(it) == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 0, 1], 2)]
    assert epoch(it) == [([2, 3, 4], 0), ([5, 6, 0], 1)]
    assert epoch(it) == [([1, 2, 3], 0), ([4, 5, 6], 0)]
    assert epoch(it) == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 0, 1], 2)]


def test_without_round_batch_every_epoch_begins_at_the_front():
    it = Numbers(7, 3, round_batch=False)
    for _ in range(3):
        assert epoch(it) == [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 0, 1], 2)]


def test_an_epoch_left_early_begins_again():
    it = Numbers(7, 3)
    next(it)
    it.reset()
    assert epoch(it)[0] == ([0, 1, 2], 0)


@given(st.integers(1, 60), st.integers(1, 9), st.sampled_from([1, 2, 3, 7, 25, 61]), st.booleans())
def test_parts_are_a_disjoint_union_in_equally_many_batches(rows, batch_size, parts, round_batch):
    its = [Numbers(rows, batch_size, num_parts=parts, part_index=i, round_batch=round_batch) for i in range(parts)]
    for _ in range(3 if parts > 1 else 1):
        epochs = [epoch(it) for it in its]
        assert all(0 <= pad <= batch_size for e in epochs for _, pad in e)
        assert len({len(e) for e in epochs}) == 1
        kept = [row for e in epochs for batch, pad in e for row in batch[: len(batch) - pad]]
        assert sorted(kept) == list(range(rows))


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 30), st.booleans())
def test_a_state_continues_with_the_next_batch(rows, batch_size, steps, round_batch):
    def stream(it):
        while True:
            yield from ((b.index.tolist(), b.pad) for b in it)
            it.reset()

    first = Numbers(rows, batch_size, round_batch=round_batch)
    taken = stream(first)
    for _ in range(steps):
        next(taken)
    second = Numbers(rows, batch_size, round_batch=round_batch)
    second.load_state_dict(first.state_dict())
    other = stream(second)
    assert [next(taken) for _ in range(12)] == [next(other) for _ in range(12)]


def test_labels_and_index_go_with_the_rows():
    batch = next(Numbers(7, 3, num_parts=2, part_index=1))
    assert batch.index.tolist() == [3, 4, 5]
    assert batch.label[0].asnumpy().tolist() == [-3, -4, -5]


@pytest.mark.parametrize("call, error, text", [
    (lambda: Numbers(3, 0), ParameterError, r"Numbers: batch_size=0 is less than 1"),
    (lambda: Numbers(3, 1, num_parts=2, part_index=2), ParameterError, "part_index=2 is out of range for num_parts=2"),
    (lambda: Numbers(0, 1), ShapeError, "numbers has no rows"),
    (lambda: Numbers(3, 1).load_state_dict(Numbers(4, 1).state_dict()), ParameterError,
     "the state has rows 4, this iterator has 3"),
    (lambda: Numbers(3, 1).load_state_dict(Numbers(3, 1).state_dict() | {"begin": 99}), ParameterError, "begin 99"),
])
def test_invalid_arguments_and_states_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
