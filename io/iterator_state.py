"""What every `state_dict` and `load_state_dict` of an iterator shares: states come from files, and may be anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ParameterError

MOST_EPOCHS = 1 << 32  # their random numbers are counted in 32 bits


def state_of(it: Any, name: str) -> dict[str, Any]:
    """An inner iterator's state. Raises ParameterError, in the name of the outer one, if it has none."""
    if not hasattr(it, "state_dict"):
        raise ParameterError(f"{name}.state_dict: the inner iterator, a {type(it).__name__}, has no state_dict.")
    return it.state_dict()


def check_keys(name: str, state: Any, keys: Iterable[str]) -> None:
    """Raises ParameterError unless state is a dict of these keys."""
    keys = list(keys)
    if not isinstance(state, dict) or set(state) != set(keys):
        raise ParameterError(f"{name}.load_state_dict: this is not a state of {name}: it must hold {', '.join(keys)}.")


def integers(name: str, state: dict[str, Any], *keys: str) -> list[int]:
    """The values of keys. Raises ParameterError where one is no whole number."""
    for key in keys:
        if type(state[key]) is not int:
            raise ParameterError(f"{name}.load_state_dict: {key} {state[key]!r} is no whole number.")
    return [state[key] for key in keys]


def integer_pairs(name: str, state: dict[str, Any], key: str) -> list[tuple[Any, int]]:
    """The value of key, [[number or text, whole number], ...]. Raises ParameterError where it is none."""
    found = []
    for pair in state[key] if isinstance(state[key], list) else [None]:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or type(pair[0]) not in (int, str) or type(pair[1]) is not int:
            raise ParameterError(f"{name}.load_state_dict: {key} {state[key]!r} is no list of pairs.")
        found.append((pair[0], pair[1]))
    return found
