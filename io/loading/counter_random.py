"""Random numbers as a function of (seed, epoch, record): the same in any thread, order and process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...integers import cdiv
from ...kernels.philox import philox4x32

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniforms(seed: int, epoch: int, records: np.ndarray, count: int) -> np.ndarray:
    """Return float64[n, count] in [0, 1), 32 random bits each: one row for each of records int64[n]."""
    blocks = cdiv(count, 4)
    record = np.repeat(records.astype(np.uint64), blocks)
    block = np.tile(np.arange(blocks, dtype=np.uint64), len(records))
    drawn = philox4x32(record & _LOW, record >> _HALF, block, np.full_like(block, epoch & 0xFFFFFFFF),
                       seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    words = np.stack(drawn, axis=1).reshape(len(records), blocks * 4)
    return words[:, :count] * 2.0**-32


def draw_from(numbers: Sequence[float]) -> Callable[[], float]:
    """Return a function that returns the numbers one after another."""
    remaining = iter(numbers)

    def draw() -> float:
        number = next(remaining, None)
        assert number is not None, f"an image takes more than {len(numbers)} random numbers"
        return number

    return draw
