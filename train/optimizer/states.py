"""Optimizer states as a safetensors file of numbered arrays. Its metadata hold the tree of each key and further JSON.

A tree is None, an array, or a tuple of trees. Files are data: they are never pickled or run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import FileError
from ...ndarray.interop.safetensors import read_tensors, write_tensors

FORMAT = "tritium-optimizer-states-1"
Tree = Any  # None, an array, or a tuple of trees


def map_tree(fn: Callable[..., Any], *trees: Tree) -> Tree:
    """Return the tree of fn(arrays at one place), for trees of the same form."""
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, (tuple, list)):
        return tuple(map_tree(fn, *parts) for parts in zip(*trees))
    return fn(*trees)


def leaves(tree: Tree) -> list[Any]:
    """Return the arrays of a tree, from left to right."""
    arrays: list[Any] = []
    map_tree(arrays.append, tree)
    return arrays


def dump(states: Mapping[int | str, Tree], extra: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with one tree of NumPy arrays per key, and extra, a JSON object."""
    tensors: list[np.ndarray] = []

    def index_of(array: np.ndarray) -> int:
        tensors.append(np.asarray(array, order="C"))  # ascontiguousarray would turn () into (1,)
        return len(tensors) - 1

    trees = [[key, map_tree(index_of, tree)] for key, tree in states.items()]
    metadata = {"format": FORMAT, "trees": json.dumps(trees), "extra": json.dumps(dict(extra))}
    return b"".join(write_tensors([str(i) for i in range(len(tensors))], tensors, metadata))


def load(data: bytes, source: str = "optimizer states") -> tuple[dict[int | str, Tree], dict[str, Any]]:
    """Return the states and extra of a file's bytes. source: the name of the file, for messages.

    Raises FileError. No memory is allocated before all sizes are checked.
    """
    tensors, metadata = read_tensors(data, source)
    try:
        if metadata.get("format") != FORMAT:
            raise ValueError(f"the format is {metadata.get('format')!r}, not {FORMAT!r}")
        extra = json.loads(metadata["extra"])
        if not isinstance(extra, dict):
            raise ValueError("extra is not a JSON object")
        return {check_key(k): map_tree(lambda i: tensors[str(i)], tree) for k, tree in json.loads(metadata["trees"])}, extra
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise FileError(f"{source}: the metadata of the optimizer states are damaged: {type(e).__name__}: {e}.") from e


def check_key(key: Any) -> int | str:
    """Return the key of a tree. Raises ValueError unless it is an integer or text."""
    if type(key) not in (int, str):
        raise ValueError(f"a key is a {type(key).__name__}")
    return key
