"""The safetensors format: named arrays and strings about them. Data only: reading runs nothing.

Layout, little-endian: u64 n; n bytes of JSON {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__":
{string: string}}; then the bytes to which the offsets refer, without gaps. Every number is checked against the
size of the file before memory is allocated; arrays are views of the file's bytes.
Source: https://github.com/huggingface/safetensors (format description).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtype import DTYPES
from ...errors import DTypeError, FileError, describe

_HEADER_LIMIT = 100_000_000  # bytes: what the format allows
_MAX_NDIM = 32
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool"}
_DTYPES = {code: DTYPES[name] for code, name in _NAMES.items()}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
METADATA = "__metadata__"


def is_safetensors(data: bytes | memoryview) -> bool:
    """Return True if a JSON object begins where a `.params` file has its reserved zero."""
    return bytes(data[8:9]) == b"{"


def read_tensors(data: bytes | memoryview, file: str = "buffer") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays by name, as read-only views of data, and the metadata.

    file: the name used in messages.
    Raises: FileError with file, byte and reason.
    """
    view = memoryview(data).cast("B")

    def fail(reason: str, at: int) -> FileError:
        return FileError(f"load: {file}: {reason}, at byte {at:,} of {len(view):,}. "
                         f"The file is damaged, cut short, or not a safetensors file.")

    if len(view) < 8:
        raise fail("the header's length needs 8 bytes", 0)
    (n,) = struct.unpack("<Q", view[:8])
    if n > min(len(view) - 8, _HEADER_LIMIT):
        raise fail(f"the header would have {n:,} bytes", 0)
    try:
        header = json.loads(str(view[8:8 + n], "utf-8"), object_pairs_hook=_once, parse_constant=_refuse)
    except RecursionError:
        raise fail("the header is nested too deeply", 8) from None
    except ValueError as e:
        raise fail(f"the header is not JSON ({str(e)[:80]})", 8) from None
    if not isinstance(header, dict):
        raise fail("the header is not a JSON object", 8)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise fail(f"{METADATA} is not an object of strings", 8)
    body = view[8 + n:]
    ranges: list[tuple[int, int, str]] = []
    tensors: dict[str, np.ndarray] = {}
    for name, entry in header.items():
        dtype, shape, begin, end = _entry(name, entry, len(body), lambda reason: fail(reason, 8))
        ranges.append((begin, end, name))
        raw = np.frombuffer(body[begin:end], np.uint8)
        if dtype == np.bool_ and raw.size and raw.max() > 1:
            raise fail(f"{name[:80]!r}: a bool is neither 0 nor 1", 8 + n + begin)
        tensors[name] = raw.view(dtype).reshape(shape)
    at = 0
    for begin, end, name in sorted(ranges):
        if begin != at:
            raise fail(f"{name[:80]!r} begins at {begin:,} of the data, where {at:,} is next: arrays overlap or leave gaps",
                       8 + n + at)
        at = end
    if at != len(body):
        raise fail(f"{len(body) - at:,} bytes after the last array", 8 + n + at)
    return tensors, metadata


def _entry(name: str, entry: Any, available: int, fail: Any) -> tuple[np.dtype, tuple[int, ...], int, int]:
    """Check the header's entry of one array, and return its dtype, shape, begin and end."""
    name = name[:80]
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise fail(f"{name!r} has no dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise fail(f"{name!r}: dtype {str(code)[:20]!r} cannot be read; known: {', '.join(_DTYPES)}")
    if not _are_sizes(shape) or len(shape) > _MAX_NDIM:
        raise fail(f"{name!r}: shape {str(shape)[:60]} is not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= available:
        raise fail(f"{name!r}: data_offsets {str(offsets)[:60]} do not lie in the {available:,} bytes of data")
    if math.prod(shape) * dtype.itemsize != offsets[1] - offsets[0] or beyond_memory(shape, dtype):
        raise fail(f"{name!r}: {dtype.name}{str(shape)[:60]} does not have {offsets[1] - offsets[0]:,} bytes")
    return dtype, tuple(shape), offsets[0], offsets[1]


def beyond_memory(shape: Sequence[int], dtype: np.dtype) -> bool:
    """Return True if NumPy refuses a shape. It counts the bytes along nonempty axes even if another axis is empty."""
    return math.prod(d or 1 for d in shape) * dtype.itemsize > np.iinfo(np.int64).max


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a name occurs twice")
    return entries


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def write_tensors(names: Sequence[str], arrays: Sequence[np.ndarray], metadata: Mapping[str, str] | None = None
                  ) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file. Raises DTypeError for a dtype the format lacks, TypeError for other metadata."""
    header: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise TypeError("save: metadata is not a dict from strings to strings.")
        header[METADATA] = dict(metadata)
    at = 0
    for name, a in zip(names, arrays):
        if name == METADATA:
            raise TypeError(f"save: the name {METADATA!r} is reserved by the format. Use another name.")
        if a.dtype not in _CODES:
            raise DTypeError(f"save: {name!r}: {describe(a)}: the format has no such dtype. Convert it with astype.")
        header[name] = {"dtype": _CODES[a.dtype], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for a in arrays:
        yield np.ascontiguousarray(a).reshape(-1).view(np.uint8).data
