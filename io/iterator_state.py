"""Checks shared by all `load_state_dict` methods. A state comes from a file and may hold anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ParameterError

MAX_EPOCHS = 1 << 32  # random numbers count the epoch in 32 bits


def state_of(it: Any, name: str) -> dict[str, Any]:
    """Return an inner iterator's state. Raises ParameterError, under the outer iterator's name, if it has none."""
    if not hasattr(it, "state_dict"):
        raise ParameterError(f"{name}.state_dict: the inner iterator, a {type(it).__name__}, has no state_dict.")
    return it.state_dict()


def check_keys(name: str, state: Any, keys: Iterable[str], own: Mapping[str, Any] | None = None) -> None:
    """Raise ParameterError unless state is a dict with exactly these keys, and with the iterator's own values."""
    keys = list(keys)
    if not isinstance(state, dict) or set(state) != set(keys):
        raise ParameterError(f"{name}.load_state_dict: this is not a state of {name}: it must hold {', '.join(keys)}.")
    for key, value in (own or {}).items():
        if state[key] != value:
            raise ParameterError(f"{name}.load_state_dict: the state has {key} {state[key]!r}, this iterator has {value!r}.")


def check_counts(name: str, valid: bool, **counts: Any) -> None:
    """Raise ParameterError with these values unless valid."""
    if not valid:
        values = ", ".join(f"{key} {value}" for key, value in counts.items())
        raise ParameterError(f"{name}.load_state_dict: {values} are out of range.")


def integers(name: str, state: dict[str, Any], *keys: str) -> list[int]:
    """Return the values of keys. Raises ParameterError if one is not an integer."""
    for key in keys:
        if type(state[key]) is not int:
            raise ParameterError(f"{name}.load_state_dict: {key} {state[key]!r} is not an integer.")
    return [state[key] for key in keys]


def integer_pairs(name: str, state: dict[str, Any], key: str) -> list[tuple[Any, int]]:
    """Return the value of key, [[integer or text, integer], ...]. Raises ParameterError if it has another form."""
    result = []
    for pair in state[key] if isinstance(state[key], list) else [None]:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or type(pair[0]) not in (int, str) or type(pair[1]) is not int:
            raise ParameterError(f"{name}.load_state_dict: {key} {state[key]!r} is not a list of pairs.")
        result.append((pair[0], pair[1]))
    return result
