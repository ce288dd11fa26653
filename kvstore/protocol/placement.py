"""Placement: which shard holds which part of a key. Decided once, in the order in which keys are made."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import ParameterError

Key = int | str
_MANY_ROWS = 16  # for each part: no part is then more than 1/16 longer than another


class Part(NamedTuple):
    """Elements [start, stop) of the key's flat value, on a shard."""

    shard: int
    start: int
    stop: int


def tag(key: Key) -> str:
    """A key with its type, so that 7 and "7" differ."""
    return f"s:{key}" if isinstance(key, str) else f"i:{key}"


def untag(tagged: str) -> Key:
    """The key that `tag` was given. Raises ParameterError for anything else."""
    if tagged[:2] == "s:":
        return tagged[2:]
    try:
        if tagged[:2] != "i:":
            raise ValueError
        return int(tagged[2:])
    except ValueError:
        raise ParameterError(f"KVStore: {tagged!r} is no key with its type before it.") from None


def number(tagged: str) -> int:
    """The 31-bit number that stands for a key in frames. Two keys may share one; whoever makes the table looks (`place`)."""
    return zlib.crc32(tagged.encode()) & 0x7FFFFFFF


def bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """[start, stop) of equal parts, rounded as MXNet does: part i ends at round(size / parts · (i + 1))."""
    ends = [0] + [math.floor(size / parts * (i + 1) + 0.5) for i in range(parts)]
    return list(itertools.pairwise(ends))


def place(shape: Sequence[int], itemsize: int, loads: Sequence[int], big: int, whole: bool = False) -> list[Part]:
    """The parts of a value, given the bytes that are on each shard already.

    big:    values of so many elements or more are split over all shards; between rows, where there are many rows.
    whole:  never split: for optimizers that take norms of a whole value.
    """
    size = math.prod(shape)
    if size >= big and len(loads) > 1 and not whole:
        row = size // shape[0] if shape[0] >= _MANY_ROWS * len(loads) else 1
        return [Part(i, a * row, b * row) for i, (a, b) in enumerate(bounds(size // row, len(loads)))]
    least = min(range(len(loads)), key=lambda i: (loads[i], i))
    return [Part(least, 0, size)]
