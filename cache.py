"""Cache: a bounded dict for what is worked out once and looked up often."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(dict[K, V]):
    """A dict of at most maxsize entries. A full one is emptied, so that a program with ever new shapes does not grow for ever.

    Any thread may read and write: each of these operations is atomic in Python. Two threads that miss the same key both work
    the value out, and the one stored last stays.
    """

    __slots__ = ("maxsize",)

    def __init__(self, maxsize: int = 4096):
        super().__init__()
        self.maxsize = maxsize

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.maxsize:
            self.clear()
        super().__setitem__(key, value)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of key; if key is missing, store and return make()."""
        try:
            return self[key]
        except KeyError:
            pass
        value = self[key] = make()
        return value


def key_of(value: Any) -> Hashable:
    """Return a key that differs for values of different types (1, 1.0, True) and for 0.0 and -0.0. Tuples: element by element.

    Raises TypeError for what cannot be hashed.
    """
    if isinstance(value, tuple):
        return tuple, *map(key_of, value)
    if isinstance(value, float) and value == 0:
        return type(value), value, math.copysign(1, value)
    hash(value)
    return type(value), value
