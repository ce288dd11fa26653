"""The functions that a server needs from `tritium.train`, which installs them: optimizers as data, and their states.

    to_spec(optimizer) -> dict of JSON values     from_spec(dict) -> optimizer
    join_states([(key, shape, [(start, stop, bytes)])]) -> bytes of one state file
    split_states(bytes, source, [(key, shape, [(start, stop, shape of the slice)])]) -> {(key, start): bytes}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import KVStoreError

_hooks: dict[str, Callable[..., Any]] = {}


def install(**hooks: Callable[..., Any]) -> None:
    _hooks.update(hooks)


def hook(name: str) -> Callable[..., Any]:
    """Return an installed function. Raises KVStoreError if it is not installed."""
    try:
        return _hooks[name]
    except KeyError:
        raise KVStoreError(f"KVStore: this process knows no optimizers ({name}). Import tritium first.") from None
