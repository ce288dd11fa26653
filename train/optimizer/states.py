"""Optimizer states as data: a tree of arrays to bytes and back, in the layout of safetensors. Never a pickle.

Layout, little-endian: u64 length of the header, a JSON header, then raw array bytes. The header maps a tensor's name to
its dtype, shape and byte range; `__metadata__` says which tensor stands where in the tree, and carries the caller's own
JSON. Source: github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dtype import bfloat16
from ...errors import FileError

FORMAT = "tritium-optimizer-states-1"

_CODES = {
    "F64": np.dtype("float64"), "F32": np.dtype("float32"), "F16": np.dtype("float16"), "BF16": bfloat16,
    "I64": np.dtype("int64"), "I32": np.dtype("int32"), "I16": np.dtype("int16"), "I8": np.dtype("int8"),
    "U8": np.dtype("uint8"), "U16": np.dtype("uint16"), "U32": np.dtype("uint32"), "U64": np.dtype("uint64"),
    "BOOL": np.dtype("bool"),
}
_NAMES = {d: c for c, d in _CODES.items()}

Tree = Any  # None, a numpy array, or a tuple of trees


def dump(states: Mapping[int | str, Tree], extra: Mapping[str, Any]) -> bytes:
    """The bytes of states, one tree per key, and of extra, which JSON must hold."""
    tensors: list[np.ndarray] = []

    def place(tree: Tree) -> Any:
        if tree is None:
            return None
        if isinstance(tree, tuple):
            return [place(t) for t in tree]
        tensors.append(np.asarray(tree, order="C"))  # ascontiguousarray would turn () into (1,)
        return len(tensors) - 1

    trees = [[key, place(tree)] for key, tree in states.items()]
    header: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "trees": json.dumps(trees), "extra": json.dumps(dict(extra))}
    }
    at = 0
    for i, t in enumerate(tensors):
        header[str(i)] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(t.tobytes() for t in tensors)])


def load(data: bytes, source: str = "optimizer states") -> tuple[dict[int | str, Tree], dict[str, Any]]:
    """What `dump` was given. Nothing is allocated before every range is checked.

    source:  the file's name, for messages.
    Raises:  FileError that names source, the offset and the reason.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise FileError(f"{source}: offset 0: the header should have {size} bytes, the file has {len(data)} in all: "
                        f"cut short, or of another format.")
    try:
        header = json.loads(data[8 : 8 + size])
        meta = header.pop("__metadata__")
        if meta["format"] != FORMAT:
            raise ValueError(f"the format is {meta['format']!r}, not {FORMAT!r}")
        trees, extra = json.loads(meta["trees"]), json.loads(meta["extra"])
        body = memoryview(data)[8 + size :]
        tensors = {int(name): _tensor(entry, body) for name, entry in header.items()}
        states = {_key(key): _grow(tree, tensors) for key, tree in trees}
        if not isinstance(extra, dict):
            raise ValueError("the extra part is no object")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise FileError(f"{source}: offset 8: the header is damaged: {type(e).__name__}: {e}.") from e
    return states, extra


def _tensor(entry: dict[str, Any], body: memoryview) -> np.ndarray:
    dtype = _CODES[entry["dtype"]]
    shape = tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, start, end)) or not start <= end <= len(body):
        raise ValueError(f"bytes {start}..{end} of a body of {len(body)}, shape {shape}")
    if math.prod(shape) * dtype.itemsize != end - start:
        raise ValueError(f"shape {shape} of {dtype} does not fill bytes {start}..{end}")
    return np.frombuffer(body[start:end], dtype).reshape(shape)


def _key(key: Any) -> int | str:
    if type(key) not in (int, str):
        raise ValueError(f"a key is {key!r}")
    return key


def _grow(tree: Any, tensors: dict[int, np.ndarray]) -> Tree:
    if tree is None:
        return None
    if isinstance(tree, list):
        return tuple(_grow(t, tensors) for t in tree)
    return tensors[tree]
