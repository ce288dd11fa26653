"""IntervalSampler: every k-th index, then those between them."""

from __future__ import annotations

from collections.abc import Iterator

from ....errors import ParameterError
from ...data.sampler import Sampler

__all__ = ["IntervalSampler"]


class IntervalSampler(Sampler):
    """Indices 0, interval, 2·interval, ... below length; with rollover then 1, 1 + interval, ..., until all have been visited.

    The length is that of the whole range also without rollover, as in MXNet. Raises ParameterError if interval > length.
    """

    def __init__(self, length: int, interval: int, rollover: bool = True):
        if interval > length:
            raise ParameterError(f"IntervalSampler: interval {interval} is larger than length {length}. Give at most length.")
        self._length, self._interval, self._rollover = length, interval, rollover

    def __iter__(self) -> Iterator[int]:
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self) -> int:
        return self._length
