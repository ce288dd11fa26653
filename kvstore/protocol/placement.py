"""Placement: decides which server holds which slice of a key. The order in which keys are created determines the result."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence

from ...errors import ParameterError

Key = int | str
_MANY_ROWS = 16  # rows for each slice: then no slice is more than 1/16 longer than another


def tag(key: Key) -> str:
    """Return a key with its type, so that 7 and "7" differ."""
    return f"s:{key}" if isinstance(key, str) else f"i:{key}"


def untag(tagged: str) -> Key:
    """Return the key of a result of `tag`. Raises ParameterError for any other text."""
    if tagged[:2] == "s:":
        return tagged[2:]
    try:
        if tagged[:2] != "i:":
            raise ValueError
        return int(tagged[2:])
    except ValueError:
        raise ParameterError(f"KVStore: {tagged!r} is not a key with a type prefix ('s:' or 'i:').") from None


def number(tagged: str) -> int:
    """Return the 31-bit number of a key in frames. Two keys may have the same number: the key table then picks another one."""
    return zlib.crc32(tagged.encode()) & 0x7FFFFFFF


def bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """Return [start, stop) of equal parts, rounded as MXNet does: part i ends at round(size / parts · (i + 1))."""
    ends = [0] + [math.floor(size / parts * (i + 1) + 0.5) for i in range(parts)]
    return list(itertools.pairwise(ends))


def place(shape: Sequence[int], itemsize: int, loads: Sequence[int], split_size: int, never_split: bool = False
          ) -> list[tuple[int, int, int]]:
    """Return the slices of a value: (server, start, stop) of elements of the flat value.

    loads:        bytes on each server.
    split_size:   values of at least so many elements are split over all servers; between rows, if there are many rows.
    never_split:  for optimizers that need the norm of a whole value.
    """
    size = math.prod(shape)
    if size >= split_size and len(loads) > 1 and not never_split:
        row = size // shape[0] if shape[0] >= _MANY_ROWS * len(loads) else 1
        return [(i, a * row, b * row) for i, (a, b) in enumerate(bounds(size // row, len(loads)))]
    least = min(range(len(loads)), key=lambda i: (loads[i], i))
    return [(least, 0, size)]
