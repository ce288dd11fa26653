"""Parsing numbers in text: together by pyarrow if it is installed, else one by one by Python, with equal results."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ...integers import cdiv


def numbers(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Parse the words text[starts[i]:ends[i]] to the nearest doubles, float64[n].

    starts, ends:  int64[n], ascending; the words do not overlap.
    Raises ValueError that names the first word that is not a number.
    """
    parse = _pyarrow_parser()
    values = None if parse is None else parse(text, starts, ends)
    if values is None:  # Python decides which words are refused, so that it does not depend on pyarrow
        words = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
        values = np.array([_number(word) for word in words], np.float64)
    return values


def _number(word: bytes) -> float:
    try:
        if b"_" not in word:  # Python accepts 1_000
            return float(word)
    except ValueError:
        pass
    raise ValueError(f"{word[:60]!r} is not a number.")


@functools.cache
def _pyarrow_parser() -> Callable[[bytes, np.ndarray, np.ndarray], np.ndarray | None] | None:
    """Return a function like `numbers` that returns None where Python may decide otherwise; None without pyarrow."""
    try:
        import pyarrow
        from pyarrow import compute
    except ImportError:
        return None
    strings, double = pyarrow.large_string(), pyarrow.float64()

    def parse(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        if not len(starts) or b"(" in text:  # pyarrow accepts nan(1)
            return None
        bounds = np.empty(2 * len(starts), np.int64)
        bounds[0::2], bounds[1::2] = starts, ends
        every_second = np.full(cdiv(len(bounds), 8), 0b01010101, np.uint8)  # the text between words is null
        words = pyarrow.Array.from_buffers(strings, len(bounds) - 1, [pyarrow.py_buffer(b) for b in (every_second, bounds, text)])
        try:
            values = compute.cast(words, double)
        except pyarrow.ArrowInvalid:
            return None
        return np.frombuffer(values.buffers()[1], np.float64, len(values))[0::2]

    return parse
