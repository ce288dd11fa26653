"""DataLoader: batches of a dataset, read in this thread, in threads or in worker processes."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.pool import ThreadPool
from multiprocessing.reduction import ForkingPickler as ForkingPickler  # packages import it from here
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...context import Context, cpu_pinned
from ...errors import LoaderTimeoutError, ParameterError
from ...ndarray import NDArray
from ...show import Shown, settings
from . import sampler as _sampler
from .shared_array import dumps, loads, shared_empty
from .shared_array import rebuild_ndarray as rebuild_ndarray
from .shared_array import reduce_ndarray as reduce_ndarray
from .worker_pool import WorkerPool

__all__ = ["DataLoader"]


# ---- samples to batches -------------------------------------------------------------------------------------------------
def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Return a batch of samples: arrays and numbers are stacked in their dtype, tuples element by element as a list."""
    if isinstance(data[0], tuple):
        return [default_batchify_fn(elements) for elements in zip(*data)]
    if isinstance(data[0], NDArray):
        return _stacked(data, lambda shape, dtype: nd.empty(shape, data[0].ctx.work, dtype))
    values = np.asarray(data)
    return nd.array(values, dtype=values.dtype)


def default_mp_batchify_fn(data: Sequence[Any]) -> Any:
    """Return a batch as default_batchify_fn does, in memory that is sent to another process without a copy."""
    if isinstance(data[0], tuple):
        return [default_mp_batchify_fn(elements) for elements in zip(*data)]
    return _stacked(data, shared_empty)


def _stacked(data: Sequence[Any], empty: Callable[..., NDArray]) -> NDArray:
    """Return arrays or numbers joined along a new first axis, in an array of empty(shape, dtype)."""
    if isinstance(data[0], NDArray) and data[0].ctx.is_gpu:
        return nd.stack(*data)
    samples = [_values(d) for d in data]
    out = empty((len(data), *samples[0].shape), np.result_type(*{a.dtype for a in samples}))
    np.stack(samples, out=out.device_array())  # no other thread knows the array yet
    return out


def _values(sample: Any) -> np.ndarray:
    """Return a sample as a NumPy array, without a copy if possible."""
    if isinstance(sample, NDArray):
        sample.wait_to_read()
        return sample.device_array()
    return np.asarray(sample)


def _as_in_context(data: Any, ctx: Context) -> Any:
    """Return a batch with its arrays on ctx; tuples become lists."""
    if isinstance(data, NDArray):
        return data.as_in_context(ctx)
    return [_as_in_context(d, ctx) for d in data] if isinstance(data, (list, tuple)) else data


def _samples(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """Return samples. An error gets a note with the index of its sample."""
    read = []
    for i in indices:
        try:
            read.append(dataset[i])
        except Exception as e:
            e.add_note(f"DataLoader: the error was raised by sample {i} of the dataset.")
            raise
    return read


# ---- the functions of workers -------------------------------------------------------------------------------------------
_worker_dataset: Any = None


def _worker_initializer(dataset: Any, *_: Any) -> None:
    """Keep the dataset of this worker process."""
    global _worker_dataset
    _worker_dataset = dataset


def _worker_fn(samples: Sequence[Any], batchify_fn: Callable[[list[Any]], Any], dataset: Any = None) -> bytes:
    """Return a pickled batch, in a worker process."""
    return bytes(dumps(batchify_fn(_samples(_worker_dataset, samples))))


def _thread_worker_fn(samples: Sequence[Any], batchify_fn: Callable[[list[Any]], Any], dataset: Any) -> Any:
    """Return a batch, in a worker thread."""
    return batchify_fn(_samples(dataset, samples))


class _MultiWorkerIter:
    """One epoch of batches computed by a pool of workers, in the order of batch_sampler.

    worker_pool:  has `apply_async(function, arguments)`, whose result has `get(timeout)`.
    worker_fn:    called in a worker with indices, batchify_fn and dataset. Without dataset it returns a pickled batch.
    prefetch:     the number of batches asked for in advance.
    timeout:      seconds to wait for a batch.
    """

    def __init__(self, worker_pool: Any, batchify_fn: Callable[[list[Any]], Any], batch_sampler: Any, pin_memory: bool = False,
                 pin_device_id: int = 0, worker_fn: Callable[..., Any] = _worker_fn, prefetch: int = 0, dataset: Any = None,
                 data_loader: Any = None, timeout: float = 120):
        self._worker_pool, self._batchify_fn, self._batch_sampler = worker_pool, batchify_fn, batch_sampler
        self._worker_fn, self._dataset, self._data_loader, self._timeout = worker_fn, dataset, data_loader, timeout
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._data_buffer: dict[int, Any] = {}  # results by number of the batch
        self._rcvd_idx = self._sent_idx = 0
        self._iter = iter(self._batch_sampler)
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def _push_next(self) -> None:
        """Give the next batch to a worker."""
        indices = next(self._iter, None)
        if indices is None:
            return
        self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(
            self._worker_fn, (indices, self._batchify_fn, self._dataset))
        self._sent_idx += 1

    def __next__(self) -> Any:
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        result = self._data_buffer.pop(self._rcvd_idx)
        self._rcvd_idx += 1
        try:
            batch = result.get(self._timeout)
        except multiprocessing.TimeoutError:  # of a pool of multiprocessing
            raise LoaderTimeoutError(f"DataLoader: a batch took longer than timeout={self._timeout} seconds. Give a larger "
                                     f"timeout, or find out why reading its samples takes so long.") from None
        if self._dataset is None:
            batch = loads(batch)
        return _as_in_context(batch, cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    def next(self) -> Any:
        """Return the next batch."""
        return self.__next__()

    def __iter__(self) -> _MultiWorkerIter:
        return self


class DataLoader(Shown):
    """Batches of a dataset. Iterating over it is one epoch; `len` is the number of batches.

    dataset:        has a length and indices: a Dataset, a list, an array.
    batch_size:     samples per batch.
    shuffle:        draw a new order for each epoch, from NumPy's global generator.
    sampler:        the order of indices, instead of shuffle.
    last_batch:     "keep", "discard" or "rollover", see BatchSampler.
    batch_sampler:  lists of indices, instead of the four above.
    batchify_fn:    makes a batch of a list of samples.
    num_workers:    worker processes, or threads with thread_pool; 0: read in the calling thread.
    pin_memory:     put batches in memory that GPU pin_device_id copies from faster.
    prefetch:       batches read ahead of the consumer, by default twice the number of workers.
    thread_pool:    use threads. Faster than processes for samples that need little Python.
    timeout:        seconds to wait for a batch of a worker.
    auto_reload:    read ahead for the next epoch when an epoch has ended, and at once.

    An error in a sample keeps its class and gets a note with the sample's index. Worker processes are forked, so a dataset need
    not be picklable; batchify_fn must be. They have random numbers of their own, which follow from the seeds of the parent. A
    worker that dies raises MXNetError; a batch that takes too long, LoaderTimeoutError. The next epoch then starts new workers.
    """

    def __init__(self, dataset: Any, batch_size: int | None = None, shuffle: bool = False, sampler: Any = None,
                 last_batch: str | None = None, batch_sampler: Any = None,
                 batchify_fn: Callable[[list[Any]], Any] | None = None, num_workers: int = 0, pin_memory: bool = False,
                 pin_device_id: int = 0, prefetch: int | None = None, thread_pool: bool = False, timeout: float = 120,
                 auto_reload: bool = False):
        if timeout <= 0:
            raise ParameterError(f"DataLoader: timeout={timeout} must be positive.")
        if batch_sampler is None:
            if batch_size is None:
                raise ParameterError("DataLoader: neither batch_size nor batch_sampler is given. Give one of them.")
            if sampler is not None and shuffle:
                raise ParameterError("DataLoader: shuffle and sampler are both given. Give one of them.")
            if sampler is None:
                sampler = (_sampler.RandomSampler if shuffle else _sampler.SequentialSampler)(len(dataset))
            batch_sampler = _sampler.BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ParameterError("DataLoader: batch_sampler is given with batch_size, shuffle, sampler or last_batch. Give it "
                                 "alone.")
        self._dataset, self._batch_sampler = dataset, batch_sampler
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._thread_pool, self._timeout = thread_pool, timeout
        self._num_workers = max(0, num_workers)
        self._prefetch = max(0, 2 * self._num_workers if prefetch is None else int(prefetch))
        in_processes = self._num_workers > 0 and not thread_pool
        self._batchify_fn = batchify_fn or (default_mp_batchify_fn if in_processes else default_batchify_fn)
        self._worker_pool: Any = None
        self._iter: Iterator[Any] | None = None
        self.auto_reload = auto_reload
        self._start_workers()
        if auto_reload:
            self.refresh()

    def _facts(self) -> Mapping[str, Any]:
        return {k: v for k, v in {"samples": len(self._dataset), **settings(self)}.items() if v is not None}

    def _start_workers(self) -> None:
        """Start the pool, unless it runs."""
        ended = self._worker_pool is None or getattr(self._worker_pool, "closed", False)
        if self._num_workers == 0 or not ended:
            return
        if self._thread_pool:
            self._worker_pool = ThreadPool(self._num_workers)
            weakref.finalize(self, self._worker_pool.terminate)
        else:
            self._worker_pool = WorkerPool(self._num_workers, _worker_initializer, (self._dataset,))

    def __iter__(self) -> Iterator[Any]:
        if self._iter is None:
            self.refresh()
        batches, self._iter = self._iter, None  # read ahead for one epoch only
        assert batches is not None
        yield from batches
        if self._iter is None and self.auto_reload:
            self.refresh()

    def _prefetch_iter(self) -> Iterator[Any]:
        if self._num_workers == 0:
            return self._read_here()
        self._start_workers()
        return _MultiWorkerIter(
            self._worker_pool, self._batchify_fn, self._batch_sampler, pin_memory=self._pin_memory,
            pin_device_id=self._pin_device_id, worker_fn=_thread_worker_fn if self._thread_pool else _worker_fn,
            prefetch=self._prefetch, dataset=self._dataset if self._thread_pool else None, data_loader=self,
            timeout=self._timeout)

    def _read_here(self) -> Iterator[Any]:
        for indices in self._batch_sampler:
            batch = self._batchify_fn(_samples(self._dataset, indices))
            yield _as_in_context(batch, cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def refresh(self) -> None:
        """Begin a new epoch, and read its first batches ahead."""
        self._iter = self._prefetch_iter()

    def clean(self) -> None:
        """Drop what was read ahead."""
        self._iter = None


#: MXNet's older loader, which takes the first ten of DataLoader's parameters.
DataLoaderV1 = DataLoader
