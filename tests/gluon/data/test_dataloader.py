"""DataLoader: every kind of worker gives the same batches; errors, dying workers, Ctrl-C, and arrays through shared memory.

tests/gluon/data/test_golden.py compares batches with MXNet's.
"""

import gc
import multiprocessing
import os
import random
import signal
import threading

import numpy as np
import pytest
import tritium as mx
from tritium.errors import LoaderTimeoutError, MXNetError, ParameterError
from tritium.gluon.data import ArrayDataset, DataLoader, Dataset, SimpleDataset, worker_pool
from tritium.gluon.data.dataloader import ForkingPickler, _as_in_context, _MultiWorkerIter, default_mp_batchify_fn

ROWS = np.arange(10 * 700, dtype="float32").reshape(10, 700)
WORKERS = [{}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True}]
IDS = ["here", "processes", "threads"]


class Calls(Dataset):
    """Samples of a function of the index."""

    def __init__(self, fn, length=10):
        self.fn, self.length = fn, length

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        return self.fn(idx)


def values(loader):
    return [[part.asnumpy() for part in batch] for batch in loader]


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
@pytest.mark.parametrize("arrays", ["numpy", "ndarray"])
def test_batches_hold_the_samples_in_order(workers, arrays):
    rows = ROWS if arrays == "numpy" else mx.nd.array(ROWS)
    loader = DataLoader(ArrayDataset(rows, np.arange(10)), batch_size=4, **workers)
    assert len(loader) == 3
    for _ in range(2):
        found = values(loader)
        assert [list(labels) for _, labels in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        np.testing.assert_array_equal(np.concatenate([data for data, _ in found]), ROWS)


@pytest.mark.parametrize("workers", WORKERS, ids=IDS)
def test_an_error_keeps_its_class_and_names_the_sample(workers):
    def fail(i):
        if i == 5:
            raise KeyError("no such word")
        return np.float32(i)

    batches = iter(DataLoader(Calls(fail), batch_size=2, **workers))
    assert [next(batches).asnumpy().tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="no such word") as caught:
        next(batches)
    assert caught.value.__notes__ == ["DataLoader: the error was raised by sample 5 of the dataset."]


class Picky(Exception):
    """Takes two arguments, and is pickled with one."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def test_an_error_that_cannot_be_pickled_is_described():
    def fail(i):
        raise Picky("this", "that")

    with pytest.raises(MXNetError, match=r"Picky: this and that\. DataLoader: the error was raised by sample 0 of the dataset"):
        next(iter(DataLoader(Calls(fail), batch_size=2, num_workers=1)))


@pytest.mark.parametrize("end, how", [(lambda: os._exit(3), "ended with exit code 3"),
                                      (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL")])
def test_a_worker_that_dies_is_an_error_and_the_next_epoch_works(tmp_path, end, how):
    died = tmp_path / "died"

    def die_once(i):
        if i == 6 and not died.exists():
            died.touch()
            end()
        return np.float32(i)

    loader = DataLoader(Calls(die_once), batch_size=2, num_workers=2)
    with pytest.raises(MXNetError, match=f"DataLoader: worker process 1 .* {how} while it computed a batch"):
        list(loader)
    assert [b.asnumpy().tolist() for b in loader] == [[i, i + 1] for i in range(0, 10, 2)]


def test_a_batch_that_takes_too_long_is_an_error():
    loader = DataLoader(Calls(lambda i: signal.pause()), batch_size=2, num_workers=1, timeout=0.05)
    with pytest.raises(LoaderTimeoutError, match=r"a batch took longer than timeout=0\.05 seconds"):
        next(iter(loader))
    assert issubclass(LoaderTimeoutError, multiprocessing.TimeoutError)  # which MXNet raises


@pytest.mark.parametrize("place, call, ends", [("wait", 3, True), ("loads", 3, True), ("dumps", 4, True),
                                               ("loads", 2, False), ("dumps", 3, False)])
def test_after_ctrl_c_anywhere_the_next_epoch_works(monkeypatch, place, call, ends):
    """ends: it came while a message was sent or received, so that the workers cannot be used any more."""
    loader = DataLoader(SimpleDataset(ROWS), batch_size=2, num_workers=2)
    real, calls = getattr(worker_pool, place), []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == call and os.getpid() == loader._worker_pool.owner:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(worker_pool, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    assert loader._worker_pool.closed == ends
    np.testing.assert_array_equal(np.concatenate([b.asnumpy() for b in loader]), ROWS)


def test_workers_end_with_their_loader():
    loader = DataLoader(SimpleDataset([1, 2, 3]), batch_size=1, num_workers=2)
    processes = list(loader._worker_pool._processes)
    sentinels = [p.sentinel for p in processes]
    batches = iter(loader)
    next(batches)
    del batches, loader
    gc.collect()
    assert not processes or len(multiprocessing.connection.wait(sentinels, 5)) == len(sentinels)


def test_random_numbers_of_workers_differ_and_follow_from_the_seed():
    draw = Calls(lambda i: np.array([np.random.rand(), mx.nd.random.uniform(shape=1).asscalar()]), 6)

    def run(seed):
        np.random.seed(seed)
        random.seed(0)
        return np.concatenate([b.asnumpy() for b in DataLoader(draw, batch_size=1, num_workers=2)])

    first = run(1)
    assert len({*first.ravel()}) == first.size
    np.testing.assert_array_equal(first, run(1))
    assert not np.array_equal(first, run(2))


def test_descriptors_and_memory_of_unread_batches_are_freed():
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    loader = DataLoader(SimpleDataset(ROWS), batch_size=2, num_workers=2)
    list(loader)
    before = descriptors()
    for _ in range(3):
        next(iter(loader))  # the other batches are computed, and read by nobody
    kept = [b for _ in range(5) for b in loader]
    assert descriptors() <= before  # also while batches are kept
    np.testing.assert_array_equal(kept[-1].asnumpy(), ROWS[8:])


def test_threads_may_iterate_over_one_loader():
    loader = DataLoader(SimpleDataset(ROWS), batch_size=2, num_workers=2)
    found = {}

    def epoch(number):
        found[number] = np.concatenate([b.asnumpy() for b in loader._prefetch_iter()])

    threads = [threading.Thread(target=epoch, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        np.testing.assert_array_equal(found[i], ROWS)


CACHED = []


def batchify_twice(samples):
    """The same array twice, and one that this process keeps."""
    batch = default_mp_batchify_fn(samples)
    if not CACHED:
        CACHED.append(default_mp_batchify_fn([ROWS[9]] * 3))
    return [batch, batch, CACHED[0]]


def test_memory_is_used_again_but_never_while_an_array_is():
    loader = DataLoader(SimpleDataset(ROWS), batch_size=2, num_workers=1, batchify_fn=batchify_twice)
    places = set()  # of memory, by key
    for _ in range(6):  # epochs, in which some batches are kept and others dropped
        kept = []
        for i, batch in enumerate(loader):
            places.update(part.chunk.block.memory.region.key for part in batch)
            kept += [batch] if i % 2 else []
        for (first, again, cached), start in zip(kept, (2, 6)):
            np.testing.assert_array_equal(first.asnumpy(), ROWS[start:start + 2])
            np.testing.assert_array_equal(again.asnumpy(), ROWS[start:start + 2])
            np.testing.assert_array_equal(cached.asnumpy(), [ROWS[9]] * 3)
    assert len(places) < 40  # of 90 arrays


class Doubled(_MultiWorkerIter):
    """What packages write: an iterator that sends its own function to the workers."""

    def _push_next(self):
        indices = next(self._iter, None)
        if indices is None:
            return
        self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, (indices, batchify_doubled, None))
        self._sent_idx += 1


def batchify_doubled(samples):
    out = mx.nd.empty((len(samples), *samples[0].shape), ctx=mx.Context("cpu_shared", 0))
    return mx.nd.stack(*(mx.nd.array(s) * 2 for s in samples), out=out)


def test_iterator_can_be_subclassed_and_batchify_may_use_cpu_shared():
    loader = DataLoader(SimpleDataset(ROWS), batch_size=5, num_workers=1)
    found = list(Doubled(loader._worker_pool, None, loader._batch_sampler, prefetch=1))
    np.testing.assert_array_equal(np.concatenate([b.asnumpy() for b in found]), ROWS * 2)


POOLED = []


def keep_rows(rows):
    POOLED.append(rows)


def transformed_batch(indices, factor, batchify):
    return bytes(ForkingPickler.dumps(batchify([POOLED[0][i] * factor for i in indices])))


class OwnPool(_MultiWorkerIter):
    """As packages that start a pool of multiprocessing themselves, and hand their functions more than indices."""

    def __init__(self, factor, *args, **kwargs):
        self._factor = factor
        super().__init__(*args, **kwargs)

    def _push_next(self):
        indices = next(self._iter, None)
        if indices is not None:
            self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(
                self._worker_fn, (indices, self._factor, self._batchify_fn))
            self._sent_idx += 1


def test_iterator_works_with_a_pool_of_multiprocessing():
    loader = DataLoader(SimpleDataset(ROWS), batch_size=4)
    with multiprocessing.get_context("fork").Pool(2, keep_rows, [ROWS]) as pool:
        found = list(OwnPool(3, pool, default_mp_batchify_fn, loader._batch_sampler, pin_memory=True, pin_device_id=0,
                             worker_fn=transformed_batch, prefetch=2))
    assert [b.shape[0] for b in found] == [4, 4, 2] and found[0].context == mx.cpu_pinned(0)
    np.testing.assert_array_equal(np.concatenate([b.asnumpy() for b in found]), ROWS * 3)


def send(queue, x):
    queue.put([x, x[1:2], mx.nd.array([1, 2], dtype="float16")])
    queue.close()
    queue.join_thread()
    signal.pause()  # the memory's descriptor is fetched from this process


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_arrays_pass_through_any_queue(dtype):
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    x = mx.nd.array(ROWS % 100, dtype=dtype)
    process = fork.Process(target=send, args=(queue, x), daemon=True)
    process.start()
    whole, part, small = queue.get()
    process.terminate()
    process.join()
    assert whole.dtype == x.dtype and small.dtype == np.float16
    np.testing.assert_array_equal(whole.asnumpy(), x.asnumpy())
    np.testing.assert_array_equal(part.asnumpy(), x.asnumpy()[1:2])
    assert small.asnumpy().tolist() == [1, 2]


def test_pinned_batches_mix_with_others():
    loader = DataLoader(ArrayDataset(ROWS, np.arange(10)), batch_size=5, pin_memory=True)
    data, label = next(iter(loader))
    assert data.context == mx.cpu_pinned(0) and label.context == mx.cpu_pinned(0)
    total = data + mx.nd.ones((5, 700))
    assert total.context == mx.cpu(0)
    np.testing.assert_array_equal(total.asnumpy(), ROWS[:5] + 1)
    moved = _as_in_context((data, [label, 3]), mx.cpu(0))
    assert isinstance(moved, list) and moved[0].context == mx.cpu(0) and moved[1][1] == 3


def test_prefetch_and_auto_reload():
    read = []
    loader = DataLoader(Calls(lambda i: read.append(i) or np.float32(i), 6), batch_size=1, num_workers=1, thread_pool=True,
                        prefetch=2, auto_reload=True)
    assert loader._iter is not None
    assert [b.asscalar() for b in loader] == list(range(6))
    assert loader._iter is not None  # the next epoch is begun
    loader.clean()
    assert loader._iter is None


def test_batchify_keeps_structure():
    batch = default_mp_batchify_fn([(np.ones((2, 2), "uint8"), (1, mx.nd.ones(3)))] * 4)
    assert batch[0].shape == (4, 2, 2) and batch[0].dtype == np.uint8
    assert batch[1][0].dtype == np.int64 and batch[1][1].shape == (4, 3)


@pytest.mark.parametrize("given, message", [
    ({}, "neither batch_size nor batch_sampler is given"),
    ({"batch_size": 2, "shuffle": True, "sampler": [1]}, "shuffle and sampler are both given"),
    ({"batch_size": 2, "batch_sampler": [[1]]}, "batch_sampler is given with batch_size"),
    ({"batch_size": 2, "timeout": 0}, "timeout=0 must be positive"),
    ({"batch_size": 2, "last_batch": "wrap"}, "last_batch='wrap' is not one of 'keep', 'discard', 'rollover'"),
])
def test_parameters_are_checked(given, message):
    with pytest.raises(ParameterError, match=message):
        DataLoader([1, 2, 3], **given)


def test_a_local_batchify_function_cannot_go_to_a_process():
    loader = DataLoader([1, 2, 3], batch_size=2, num_workers=1, batchify_fn=lambda samples: samples)
    with pytest.raises(ParameterError, match="batchify_fn or indices cannot be passed to a worker process"):
        list(loader)


def test_the_older_loader_reads_the_same_batches():
    loader = mx.gluon.data.dataloader.DataLoaderV1(list(range(5)), batch_size=2, last_batch="discard")
    assert [b.asnumpy().tolist() for b in loader] == [[0, 1], [2, 3]]
