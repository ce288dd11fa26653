"""The coordinator's table of keys: the number, the layout and the slices of each, and how far its initialization has come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import FrameError
from .placement import number, place


@dataclass
class KeyEntry:
    """A key. slices: [server, start, stop] of each.

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
        """Return the entry as it is sent to workers and servers."""
        return {"id": self.id, "key": self.key, "shape": self.shape, "dtype": self.dtype, "parts": self.slices}


class KeyTable(dict[str, KeyEntry]):
    """The keys of a job by their names, and the bytes on each server (`loads`).

    never_split:  new keys are placed on one server each, because an optimizer needs the norm of a whole value.
    """

    def __init__(self, servers: int):
        super().__init__()
        self.loads = [0] * servers
        self.never_split = False

    def add(self, keys: Iterable[Sequence[Any]], split_size: int) -> list[KeyEntry]:
        """Add those of the keys (name, shape, dtype) that are new, and return their entries. split_size: as in `place`."""
        taken, loads = {e.id for e in self.values()}, list(self.loads)
        new: list[KeyEntry] = []
        for key, shape, dtype, *_ in [k for k in keys if k[0] not in self]:
            shape = [int(n) for n in shape]
            size, itemsize = math.prod(shape), np.dtype(dtype).itemsize
            if size < 0 or size >= 1 << 40 or key[:2] not in ("s:", "i:"):
                raise FrameError(f"key {key!r} of shape {shape}: the name or the size is invalid")
            n = number(key)
            while n in taken:  # two keys with the same number: the later one takes the next free number
                n = (n + 1) & 0x7FFFFFFF
            taken.add(n)
            slices = place(shape, itemsize, loads, split_size, self.never_split)
            for server, start, stop in slices:
                loads[server] += (stop - start) * itemsize
            new.append(KeyEntry(n, key, shape, dtype, [list(s) for s in slices]))
        self.loads = loads
        self.update((e.key, e) for e in new)
        return new

    def remove(self, entries: Iterable[KeyEntry]) -> None:
        """Remove keys that the servers could not create."""
        for e in entries:
            del self[e.key]
            for server, start, stop in e.slices:
                self.loads[server] -= (stop - start) * np.dtype(e.dtype).itemsize

    def check(self, rank: int, key: Sequence[Any], first: int) -> None:
        """Raise FrameError if rank initializes a key with another shape or dtype than rank `first` did."""
        e = self.get(key[0])
        if e is not None and len(key) > 1 and [list(key[1]), key[2]] != [e.shape, e.dtype]:
            raise FrameError(f"key {key[0][2:]!r} is {e.dtype}{e.shape} for rank {first}, {key[2]}{list(key[1])} for rank {rank}")

    def on_server(self, index: int) -> list[KeyEntry]:
        """Return the keys that have a slice on a server."""
        return [e for e in self.values() if index in {s[0] for s in e.slices}]

    def split(self) -> list[str]:
        """Return the names of the keys that are split over servers."""
        return [e.key[2:] for e in self.values() if len(e.slices) > 1]

    # ---- surviving a restart --------------------------------------------------------------------------------------------
    def state(self) -> list[dict[str, Any]]:
        """Return the keys as JSON values."""
        return [{**e.message(), "filled": e.filled, "called": sorted(e.called)} for e in self.values()]

    def resume(self, state: Sequence[dict[str, Any]], loads: list[int], never_split: bool) -> None:
        """Restore the keys from `state()`."""
        self.loads, self.never_split = loads, never_split
        for e in state:
            self[e["key"]] = KeyEntry(e["id"], e["key"], e["shape"], e["dtype"], e["parts"], e["filled"], set(e["called"]))
