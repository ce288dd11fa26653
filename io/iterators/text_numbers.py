"""Numbers out of text: at once by pyarrow where it is installed, one by one otherwise; the values are the same."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ...integers import cdiv


def numbers(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """What the words text[starts[i]:ends[i]] say, float64[n], each the double nearest to it.

    starts, ends:  int64[n], in the order of the text, which no two words share.
    Raises ValueError that names the first word that is no number.
    """
    read = _by_pyarrow()
    values = None if read is None else read(text, starts, ends)
    if values is None:  # Python has the last word, so that what is refused, and how, is the same without pyarrow
        words = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
        values = np.array([_number(word) for word in words], np.float64)
    return values


def _number(word: bytes) -> float:
    try:
        if b"_" not in word:  # Python takes 1_000
            return float(word)
    except ValueError:
        pass
    raise ValueError(f"{word[:60]!r} is no number.")


@functools.cache
def _by_pyarrow() -> Callable[[bytes, np.ndarray, np.ndarray], np.ndarray | None] | None:
    """As `numbers`, or None where Python may see it otherwise; None if pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import compute
    except ImportError:
        return None
    strings, double = pyarrow.large_string(), pyarrow.float64()

    def read(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        if not len(starts) or b"(" in text:  # it takes nan(1)
            return None
        bounds = np.empty(2 * len(starts), np.int64)
        bounds[0::2], bounds[1::2] = starts, ends
        every_second = np.full(cdiv(len(bounds), 8), 0b01010101, np.uint8)  # what stands between words is no value
        words = pyarrow.Array.from_buffers(strings, len(bounds) - 1, [pyarrow.py_buffer(b) for b in (every_second, bounds, text)])
        try:
            values = compute.cast(words, double)
        except pyarrow.ArrowInvalid:
            return None
        return np.frombuffer(values.buffers()[1], np.float64, len(values))[0::2]

    return read
