"""What a shard needs of the training floor, handed in by it: optimizers as data, and their states cut and joined.

    to_spec(optimizer) -> dict of JSON values     from_spec(dict) -> optimizer
    join_states([(key, shape, [(start, stop, bytes)])]) -> bytes of one state file
    split_states(bytes, source, [(key, shape, [(start, stop, shape of the part)])]) -> {(key, start): bytes}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import KVStoreError

_hooks: dict[str, Callable[..., Any]] = {}


def install(**hooks: Callable[..., Any]) -> None:
    """Hand in to_spec, from_spec, join_states and split_states."""
    _hooks.update(hooks)


def hook(name: str) -> Callable[..., Any]:
    """One of them. Raises KVStoreError where nobody handed it in."""
    try:
        return _hooks[name]
    except KeyError:
        raise KVStoreError(f"KVStore: no optimizers are known in this process ({name}). Import tritium as a whole.") from None
