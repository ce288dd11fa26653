"""The keys of a job: which server holds which slice of each, and the coordinator's table of them.

The order in which keys are created determines where they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import FrameError, ParameterError

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


def bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """Return [start, stop) of equal parts, rounded as MXNet does: part i ends at round(size / parts · (i + 1))."""
    ends = [0] + [math.floor(size / parts * (i + 1) + 0.5) for i in range(parts)]
    return list(itertools.pairwise(ends))


def place(shape: Sequence[int], loads: Sequence[int], split_size: int, never_split: bool = False) -> list[tuple[int, int, int]]:
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


@dataclass
class KeyEntry:
    """A key. slices: [server, start, stop] of each.

    id:      its number in frames.
    filled:  its initial value is on the servers.
    called:  ranks that have called init for it.
    """

    id: int
    key: str
    shape: list[int]
    dtype: str
    slices: list[list[int]]
    filled: bool = False
    called: set[int] = field(default_factory=set)

    def message(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("filled", "called")}

    def add_to(self, loads: list[int]) -> None:
        """Add the bytes of its slices to those of each server."""
        for server, start, stop in self.slices:
            loads[server] += (stop - start) * np.dtype(self.dtype).itemsize


class KeyTable(dict[str, KeyEntry]):
    """The keys of a job by their names.

    created:      number of keys that were ever created.
    never_split:  new keys are placed on one server each, because an optimizer needs the norm of a whole value.
    """

    def __init__(self, servers: int):
        super().__init__()
        self._servers = servers
        self.created, self.never_split = 0, False

    def __missing__(self, key: str) -> KeyEntry:
        raise FrameError(f"there is no key {key!r}")

    def add(self, keys: Iterable[Sequence[Any]], split_size: int) -> list[KeyEntry]:
        """Add those of the keys (name, shape, dtype) that are new, and return their entries. split_size: as in `place`."""
        loads = [0] * self._servers
        for e in self.values():
            e.add_to(loads)
        new: list[KeyEntry] = []
        for key, shape, dtype in [k for k in keys if k[0] not in self]:
            size = math.prod(shape)
            if min(shape, default=0) < 0 or size >= 1 << 40 or key[:2] not in ("s:", "i:") or dtype not in np.sctypeDict:
                raise FrameError(f"key {key!r} of {dtype}{shape}: invalid")
            slices = [list(s) for s in place(shape, loads, split_size, self.never_split)]
            new.append(KeyEntry(self.created + len(new), key, shape, dtype, slices))
            new[-1].add_to(loads)
        self.created += len(new)
        self.update((e.key, e) for e in new)
        return new

    def check(self, rank: int, keys: Iterable[Sequence[Any]], first: int) -> None:
        """Raise FrameError if rank initializes a key with another shape or dtype than rank `first` did."""
        for key, *layout in keys:
            e = self.get(key)
            if e is not None and layout and [list(layout[0]), layout[1]] != [e.shape, e.dtype]:
                raise FrameError(f"key {key[2:]!r} is {e.dtype}{e.shape} for rank {first}, {layout[1]}{list(layout[0])} for rank "
                                 f"{rank}")

    def note_call(self, rank: int, keys: Iterable[Sequence[Any]]) -> list[KeyEntry]:
        """Note that a rank has called init for keys. Returns those that exist."""
        entries = [self[k[0]] for k in keys if k[0] in self]
        for e in entries:
            e.called.add(rank)
        return entries

    def on_server(self, index: int) -> list[KeyEntry]:
        return [e for e in self.values() if index in {s[0] for s in e.slices}]

    def state(self) -> list[dict[str, Any]]:
        return [{**vars(e), "called": sorted(e.called)} for e in self.values()]

    def resume(self, state: Iterable[dict[str, Any]]) -> None:
        """Restore the keys from `state()`."""
        self.update({e["key"]: KeyEntry(**{**e, "called": set(e["called"])}) for e in state})
