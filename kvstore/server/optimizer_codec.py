"""What a shard needs of the training floor, handed in by it: optimizers as data, and their states cut and joined.

    describe(optimizer) -> dict of JSON values     make(dict) -> optimizer
    join([(key, shape, [(start, stop, bytes)])]) -> bytes of one state file
    cut(bytes, source, [(key, shape, [(start, stop, shape of the part)])]) -> {(key, start): bytes}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import KVStoreError

_hooks: dict[str, Callable[..., Any]] = {}


def install(**hooks: Callable[..., Any]) -> None:
    """Hand in describe, make, join and cut."""
    _hooks.update(hooks)


def hook(name: str) -> Callable[..., Any]:
    """One of them. Raises KVStoreError where nobody handed it in."""
    try:
        return _hooks[name]
    except KeyError:
        raise KVStoreError(f"KVStore: no optimizers are known in this process ({name}). Import tritium as a whole.") from None
