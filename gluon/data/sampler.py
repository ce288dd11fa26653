"""Samplers: orders of sample indices. BatchSampler groups the indices of another sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...errors import check_choice
from ...show import Shown

__all__ = ["BatchSampler", "FilterSampler", "RandomSampler", "Sampler", "SequentialSampler"]


class Sampler(Shown):
    """Base class. A sampler is iterated once per epoch, and has a length."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__: a sampler must define it.")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__}.__len__: a sampler must define it.")


class SequentialSampler(Sampler):
    """Indices start, start + 1, ..., start + length - 1."""

    def __init__(self, length: int, start: int = 0):
        self._length, self._start = length, start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """Indices 0 to length - 1 in a new random order each time, drawn from NumPy's global generator."""

    def __init__(self, length: int):
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        indices = np.arange(self._length)
        np.random.shuffle(indices)
        return iter(indices)

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """Indices of the samples of dataset for which fn(sample) is true. All samples are read once, now."""

    def __init__(self, fn: Callable[[Any], Any], dataset: Any):
        self._fn, self._dataset = fn, dataset
        self._indices = [i for i, sample in enumerate(dataset) if fn(sample)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class BatchSampler(Sampler):
    """Lists of batch_size indices of sampler.

    last_batch:  of fewer indices that are left at the end: "keep" returns them as a smaller batch, "discard" drops them,
                 "rollover" puts them in front of the next epoch.
    Raises ParameterError for another last_batch.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep"):
        check_choice("BatchSampler", "last_batch", last_batch, ("keep", "discard", "rollover"))
        self._sampler, self._batch_size, self._last_batch = sampler, batch_size, last_batch
        self._prev: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._prev = self._prev, []
        for i in self._sampler:
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._prev = batch

    def __len__(self) -> int:
        if self._last_batch == "keep":
            return -(-len(self._sampler) // self._batch_size)
        held = len(self._prev) if self._last_batch == "rollover" else 0
        return (held + len(self._sampler)) // self._batch_size
