"""ImageIter with a seed: resuming, worker processes, errors. (test_image checks its batches.)"""

import gc
import os
import random

import numpy as np
import pytest
import tritium as mx
from support.image_files import picture, write_records
from tritium.errors import FileError, MXNetError, ParameterError
from tritium.io.image.codec import encode
from tritium.io.image.image_iter import seeded


class Slow(mx.image.Augmenter):
    """A Python transform that draws from both generators and fails on request."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.fails_at = fails_at

    def __call__(self, src):
        if self.fails_at is not None and np.array_equal(src.asnumpy()[0, 0], picture(self.fails_at, 24, 28)[0, 0]):
            os._exit(7)
        return src + random.randrange(50) + float(np.random.randint(50))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.rec"
    write_records(path, [b"no image" if i == 4 else encode(picture(i, 24, 28), 1, ".png") for i in range(11)])
    return path


def iterator(path, **kw):
    chain = [Slow(), mx.image.CastAug(), mx.image.ColorJitterAug(0.3, 0.3, 0.3), mx.image.HorizontalFlipAug(0.5)]
    return mx.image.ImageIter(**{"batch_size": 4, "data_shape": (3, 24, 28), "path_imgrec": path, "aug_list": chain,
                                 "shuffle": True, "seed": 3, "on_error": "skip", **kw})


def epoch(it):
    got = [(b.data[0].asnumpy().tobytes(), b.label[0].asnumpy().tolist(), b.pad) for b in it]
    it.reset()
    return got


def test_worker_processes_give_equal_batches(records):
    alone = iterator(records)
    want = [epoch(alone), epoch(alone)]
    assert want[0] != want[1] and [pad for *_, pad in want[0]] == [0, 0, 2]
    with_workers = iterator(records, workers=2)
    assert [epoch(with_workers), epoch(with_workers)] == want
    processes = with_workers._pool._processes[:]
    next(with_workers)
    with_workers.reset()
    with_workers.reset()
    for _ in range(2):
        alone.reset()
    assert epoch(with_workers) == epoch(alone), "left in the middle of an epoch"
    assert len(with_workers.skipped) == 0 and with_workers._pool._processes == processes
    with_workers.close()
    assert with_workers._pool is None


def test_an_image_is_augmented_differently_in_every_epoch(records):
    it = iterator(records, shuffle=False)
    first, second = epoch(it), epoch(it)
    assert [labels for _, labels, _ in first] == [labels for _, labels, _ in second]
    assert all(a != b for (a, *_), (b, *_) in zip(first, second))


def test_a_transform_that_kills_its_process_is_reported(records):
    it = iterator(records, workers=1, aug_list=[Slow(fails_at=2)], shuffle=False)
    with pytest.raises(MXNetError, match=r"^ImageIter: worker process 0 died with exit code 7\. It was processing .*a\.rec: "
                                         r"record 2 at byte [\d,]+\.$"):
        next(it)
    assert next(it).label[0].asnumpy().tolist() == [0, 1, 3, 5], "a new process continues after it"
    number = it._pool._processes[0].pid
    del it
    gc.collect()
    with pytest.raises(ProcessLookupError):  # dropping the iterator ends its process and waits for it
        os.kill(number, 0)


@pytest.mark.parametrize("how", ["pad", "discard", "roll_over"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_a_state_continues_with_the_next_batch(records, how, steps):
    def stream(it):
        while True:
            for b in it:
                yield b.data[0].asnumpy().tobytes(), b.label[0].asnumpy().tolist(), b.pad
            it.reset()

    first, second = iterator(records, last_batch_handle=how), iterator(records, last_batch_handle=how)
    taken, other = stream(first), stream(second)
    for _ in range(steps):
        next(taken)
    second.load_state_dict(first.state_dict())
    assert [next(taken) for _ in range(7)] == [next(other) for _ in range(7)]


def test_the_global_random_generators_are_restored(records):
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), str(np.random.get_state())
    next(iterator(records))
    assert (random.getstate(), str(np.random.get_state())) == before
    with seeded((1, 2, 3)):
        first = random.random(), np.random.rand()
    with seeded((1, 2, 3)):
        assert (random.random(), np.random.rand()) == first
    with seeded((1, 2, 4)):
        assert (random.random(), np.random.rand()) != first


def test_after_an_error_only_the_bad_image_is_missing(records):
    it = iterator(records, on_error="raise", shuffle=False)
    next(it)
    with pytest.raises(FileError, match=r"^ImageIter: .*a\.rec: record 4 at byte"):
        next(it)
    assert [b.label[0].asnumpy().tolist() for b in it] == [[5, 6, 7, 8], [9, 10, 0, 1]]


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100, 101])
@pytest.mark.parametrize("how", ["pad", "discard"])
def test_parts_give_equally_many_batches_even_without_an_image(records, parts, how):
    epochs = [epoch(iterator(records, num_parts=parts, part_index=i, last_batch_handle=how)) for i in range(parts)]
    assert len({len(e) for e in epochs}) == 1
    if how == "pad":
        assert sorted(x for e in epochs for _, rows, pad in e for x in rows[:4 - pad]) == [i for i in range(11) if i != 4]


@pytest.mark.parametrize("call, text", [
    (lambda records: iterator(records, workers=2, seed=None), r"^ImageIter: workers=2 needs a seed"),
    (lambda records: iterator(records, workers=-1), r"^ImageIter: workers=-1 is less than 0\."),
    (lambda records: iterator(records, seed=None).state_dict(), r"^ImageIter\.state_dict: without a seed .*Give seed=\."),
])
def test_workers_and_states_need_a_seed(records, call, text):
    with pytest.raises(ParameterError, match=text):
        call(records)


@pytest.mark.parametrize("change, text", [
    (lambda records, state: iterator(records, seed=4).state_dict(), "the state has plan "),
    (lambda records, state: iterator(records, last_batch_handle="discard").state_dict(), "the state has last_batch_handle "),
    (lambda records, state: iterator(records, num_parts=2).state_dict(), "the state has plan "),
    (lambda records, state: {}, "this is not a state of ImageIter: it must hold data, plan"),
    (lambda records, state: {**state, "cur": 12}, r"cur 12, given 0, rest \[\] are out of range"),
])
def test_invalid_states_are_refused(records, change, text):
    it = iterator(records)
    with pytest.raises(ParameterError, match=rf"\.load_state_dict: .*{text}"):
        it.load_state_dict(change(records, it.state_dict()))


def test_a_state_of_another_list_is_refused(tmp_path):
    (tmp_path / "1.png").write_bytes(encode(picture(1, 24, 28), 1, ".png"))
    it, other = (iterator(None, imglist=[[label, "1.png"]], path_root=tmp_path) for label in (1, 2))
    with pytest.raises(ParameterError, match="the state has data "):
        it.load_state_dict(other.state_dict())
