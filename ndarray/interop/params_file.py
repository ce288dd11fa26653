"""Arrays in files, in MXNet's format or as safetensors: `save`, `load`, `load_frombuffer`.

Layout, little-endian: u64 0x112, u64 0, u64 count, records, u64 number of names, each name as u64 length and UTF-8.
A record: V0 has no magic, u32 ndim, u32 sizes; V1 u32 0xF993FAC8, u32 ndim, i64 sizes; V2 u32 0xF993FAC9, i32 storage
type, i32 ndim, i64 sizes; V3 (0xF993FACA) as V2, with ndim 0 a scalar. Then in all of them i32 device type, i32 device
number, i32 type flag, and the elements. A sparse array has the shape of its elements before its shape, and after the type flag
i32 type flag and shape of each array of places, which follow the elements: row_sparse has rows, csr has indptr and indices.
Every length is checked against the bytes left before memory is allocated.
"""

from __future__ import annotations

import math
import os
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...atomic_file import read_file, write_atomic
from ...dtype import DTYPE_TO_FLAG, FLAG_TO_DTYPE
from ...errors import DTypeError, FileError, MXNetError, describe
from ..core.csr import CSRNDArray, csr_matrix
from ..core.ndarray import NDArray
from ..core.row_sparse import RowSparseNDArray, row_sparse_array
from ..core.sparse import BaseSparseNDArray
from ..functions.creation import array
from .safetensors import beyond_memory, is_safetensors, read_tensors, write_tensors

_LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_MAX_NDIM = 32
_STORAGE = {0: "dense", 1: "row_sparse", 2: "csr"}
_PLACES = {0: 0, 1: 1, 2: 2}  # arrays of places of each storage type
_DEVICES = (1, 2, 3, 5)  # cpu, gpu, cpu_pinned, cpu_shared


class SparseRecord(NamedTuple):
    """A sparse array in a file.

    data:    the stored elements.
    places:  row_sparse: (rows,); csr: (indptr, indices).
    """

    stype: int
    shape: tuple[int, ...]
    data: np.ndarray
    places: tuple[np.ndarray, ...]

    @property
    def dtype(self) -> np.dtype:
        """The type of the elements."""
        return self.data.dtype

    @property
    def size(self) -> int:
        """The number of stored elements."""
        return self.data.size

    @property
    def nbytes(self) -> int:
        """The bytes of elements and places."""
        return self.data.nbytes + sum(p.nbytes for p in self.places)

    def to_array(self) -> BaseSparseNDArray:
        """Return the array. Raises MXNetError for places that do not fit."""
        if self.stype == 1:
            data = array(self.data, dtype=self.dtype)
            return row_sparse_array((data, self.places[0]), self.shape)
        row_ends, columns = self.places
        return csr_matrix((self.data, columns, row_ends), self.shape, dtype=self.dtype)


def sparse_record(a: BaseSparseNDArray) -> SparseRecord:
    """Return an array as it stands in a file."""
    if isinstance(a, RowSparseNDArray):
        return SparseRecord(1, a.shape, a.data.asnumpy(), (a.rows.astype(np.int64),))
    assert isinstance(a, CSRNDArray)
    return SparseRecord(2, a.shape, a.data.asnumpy(), (a.row_ends.astype(np.int64), a.columns.astype(np.int64)))


class _Reader:
    """The bytes of one file, read in order. Every read checks its bounds first."""

    def __init__(self, data: memoryview, file: str):
        self.data, self.file, self.at = data, file, 0

    def fail(self, reason: str, at: int | None = None) -> FileError:
        where = self.at if at is None else at
        return FileError(f"load: {self.file}: {reason}, at byte {where:,} of {len(self.data):,}. "
                         f"The file is damaged, cut short, or not written by nd.save.")

    def take(self, count: int, field: str) -> memoryview:
        left = len(self.data) - self.at
        if count > left:
            raise self.fail(f"{field} needs {count:,} bytes, {left:,} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str, field: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), field))[0]


def read_arrays(data: bytes | memoryview, file: str = "buffer") -> tuple[list[str], list[Any]]:
    """Return the names and arrays in the bytes of a file, in order. The arrays are read-only views of data.

    file: the name used in messages.
    Returns: names (empty when a list was saved) and arrays, of which sparse ones are SparseRecords.
    Raises: FileError with file, byte and reason. Trailing bytes are a warning.
    """
    r = _Reader(memoryview(data), file)
    magic = r.number("Q", "the file's magic")
    if magic != _LIST_MAGIC:
        raise r.fail(f"magic is {magic:#x}, not {_LIST_MAGIC:#x}", 0)
    reserved = r.number("Q", "the reserved field")
    if reserved:
        raise r.fail(f"the reserved field is {reserved:#x}, not 0", 8)
    count = r.number("Q", "the number of arrays")
    if count * 4 > len(data) - r.at:  # a record takes four bytes at the very least
        raise r.fail(f"{count:,} arrays do not fit in {len(data) - r.at:,} bytes", 16)
    arrays = [_read_record(r, f"array {i}") for i in range(count)]
    named = r.number("Q", "the number of names")
    if named not in (0, count):
        raise r.fail(f"{named:,} names for {count:,} arrays", r.at - 8)
    names = [_read_name(r, i) for i in range(named)]
    if r.at < len(data):
        warnings.warn(f"load: {file}: {len(data) - r.at:,} bytes after the last name (byte {r.at:,}) are ignored.",
                      stacklevel=4)
    return names, arrays


def read_array(data: bytes | memoryview, file: str, name: str) -> tuple[np.ndarray, int]:
    """Return the array of one record, a read-only view of data, and the number of bytes of the record. Raises FileError."""
    r = _Reader(memoryview(data), file)
    found = _read_record(r, name)
    if isinstance(found, SparseRecord):
        raise r.fail(f"{name}: storage type {_STORAGE[found.stype]}: only dense arrays can be read here", 4)
    return found, r.at


def _read_name(r: _Reader, i: int) -> str:
    start = r.at
    raw = bytes(r.take(r.number("Q", f"the length of name {i}"), f"name {i}"))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise r.fail(f"name {i} is not UTF-8", start) from None


def _read_record(r: _Reader, field: str) -> np.ndarray | SparseRecord:
    start = r.at
    magic = r.number("I", field)
    stype, stored = 0, ()
    if magic in (_V2, _V3):
        stype = r.number("i", f"{field}: storage type")
        if stype not in _STORAGE:
            raise r.fail(f"{field}: storage type unknown ({stype})", r.at - 4)
        if stype:
            stored = _read_shape(r, f"{field}: shape of the elements", "i", "q")
        ndim, code = r.number("i", f"{field}: number of axes"), "q"
    elif magic == _V1:
        ndim, code = r.number("I", f"{field}: number of axes"), "q"
    else:
        ndim, code = magic, "I"  # V0: the number of axes stands where later versions have a magic
    if not 0 <= ndim <= _MAX_NDIM:
        raise r.fail(f"{field}: neither a record magic nor a number of axes: {ndim:#x}", start)
    if ndim == 0 and magic != _V3:
        raise r.fail(f"{field} has no shape: it was saved before it had one", start)
    at = r.at
    shape = _read_sizes(r, field, ndim, code)
    device = r.number("i", f"{field}: device type")
    if device not in _DEVICES:
        raise r.fail(f"{field}: unknown device type {device}", r.at - 4)
    r.number("i", f"{field}: device number")
    dtype = _read_dtype(r, field)
    if not stype:
        return _read_elements(r, field, shape, dtype, at)
    places = [(_read_dtype(r, f"{field}: places"), _read_shape(r, f"{field}: shape of the places", "i", "q"))
              for _ in range(_PLACES[stype])]
    data = _read_elements(r, field, stored, dtype, at)
    record = SparseRecord(stype, shape, data, tuple(_read_elements(r, f"{field}: places", s, d, at) for d, s in places))
    try:
        record.to_array()
    except MXNetError as e:
        raise r.fail(f"{field}: {str(e).rstrip('.')}", start) from None
    return record


def _read_shape(r: _Reader, field: str, count: str, code: str) -> tuple[int, ...]:
    at = r.at
    ndim = r.number(count, field)
    if not 0 <= ndim <= _MAX_NDIM:
        raise r.fail(f"{field}: {ndim} axes", at)
    return _read_sizes(r, field, ndim, code)


def _read_sizes(r: _Reader, field: str, ndim: int, code: str) -> tuple[int, ...]:
    at = r.at
    shape = struct.unpack(f"<{ndim}{code}", r.take(struct.calcsize(f"<{ndim}{code}"), f"{field}: shape"))
    if min(shape, default=0) < 0:
        raise r.fail(f"{field}: negative size in shape {shape}", at)
    return shape


def _read_dtype(r: _Reader, field: str) -> np.dtype:
    flag = r.number("i", f"{field}: type flag")
    dtype = FLAG_TO_DTYPE.get(flag)
    if dtype is None:
        raise r.fail(f"{field}: unknown type flag {flag}", r.at - 4)
    return dtype


def _read_elements(r: _Reader, field: str, shape: tuple[int, ...], dtype: np.dtype, at: int) -> np.ndarray:
    size = math.prod(shape)
    if size == 0 and beyond_memory(shape, dtype):
        raise r.fail(f"{field}: shape {shape} is larger than memory can be", at)
    data = r.take(size * dtype.itemsize, f"{field}: {dtype.name}{list(shape)}")
    return np.frombuffer(data, np.uint8).view(dtype).reshape(shape)


def write_arrays(names: Sequence[str], arrays: Sequence[np.ndarray | SparseRecord]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: V2 records; V3 for an array that is a scalar or has no elements."""
    yield struct.pack("<QQQ", _LIST_MAGIC, 0, len(arrays))
    for a in arrays:
        yield from write_record(a)
    yield struct.pack("<Q", len(names))
    for name in names:
        raw = name.encode("utf-8")
        yield struct.pack("<Q", len(raw)) + raw


def write_record(a: np.ndarray | SparseRecord) -> Iterator[bytes | memoryview]:
    """Yield the bytes of one record."""
    if isinstance(a, SparseRecord):
        yield struct.pack("<Ii", _V2, a.stype) + _shape_bytes(a.data.shape) + _shape_bytes(a.shape)
        yield struct.pack("<iii", 1, 0, DTYPE_TO_FLAG[a.dtype])
        yield b"".join(struct.pack("<i", DTYPE_TO_FLAG[p.dtype]) + _shape_bytes(p.shape) for p in a.places)
        for part in (a.data, *a.places):
            yield np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        return
    magic = _V2 if a.size and a.ndim else _V3
    yield struct.pack(f"<Iii{a.ndim}qiii", magic, 0, a.ndim, *a.shape, 1, 0, DTYPE_TO_FLAG[a.dtype])
    yield np.ascontiguousarray(a).reshape(-1).view(np.uint8).data


def _shape_bytes(shape: Sequence[int]) -> bytes:
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def save(fname: str | os.PathLike, data: Any,
         metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays to a file that MXNet can read too. An old file is replaced when the new one is complete.

    A name that ends in `.safetensors` selects that format, with any dtype and metadata; data is a dict then.

    data: one NDArray, a list of them, or a dict from names to them.
    Raises: TypeError for anything else; DTypeError for a dtype the format lacks (uint16, uint32, uint64, int16); FileError
            with the file's name if it cannot be written.
    """
    path = os.fspath(fname)
    tensors = path.endswith(".safetensors")
    if isinstance(data, (NDArray, BaseSparseNDArray)):
        data = [data]
    if isinstance(data, Mapping):
        names, arrays = list(data), list(data.values())
    elif isinstance(data, (list, tuple)):
        names, arrays = [], list(data)
    else:
        raise TypeError(f"save: data is a {type(data).__name__}. Give an NDArray, a list of them, or a dict.")
    if tensors and arrays and not names:
        raise TypeError("save: a safetensors file holds arrays by name. Give a dict.")
    if metadata and not tensors:
        raise TypeError("save: only safetensors files hold metadata. Let the name end in .safetensors.")
    for i, a in enumerate(arrays):
        label = repr(names[i]) if names else f"item {i}"
        if tensors and isinstance(a, BaseSparseNDArray):
            raise TypeError(f"save: {label} is a {a.stype} array, which a safetensors file cannot hold. Use tostype('default').")
        if not isinstance(a, (NDArray, BaseSparseNDArray)):
            raise TypeError(f"save: {label} is a {type(a).__name__}, not an NDArray. Wrap it in mx.nd.array(...).")
        if names and not isinstance(names[i], str):
            raise TypeError(f"save: name {label} is a {type(names[i]).__name__}, not a string.")
        if not tensors and np.dtype(a.dtype) not in DTYPE_TO_FLAG:
            raise DTypeError(f"save: {label}: {describe(a)}: the format has no such dtype. Convert it with astype, or "
                             f"save it as .safetensors.")
    values: list[Any] = [sparse_record(a) if isinstance(a, BaseSparseNDArray) else a.asnumpy() for a in arrays]
    write_atomic(path, write_tensors(names, values, metadata) if tensors else write_arrays(names, values))


def load(fname: str | os.PathLike) -> list[NDArray] | dict[str, NDArray]:
    """Return the arrays of a file written by nd.save, here or by MXNet, or of a safetensors file, on the current context.

    Returns: a list, or a dict if names were saved (of a repeated name the last array, with a warning).
    Raises: FileError with file, byte and reason, if any part of the file is damaged.
    """
    path = os.fspath(fname)
    return _load(read_file(path), path)


def load_metadata(fname: str | os.PathLike) -> dict[str, str]:
    """Return the metadata of a safetensors file. Raises FileError."""
    path = os.fspath(fname)
    return read_tensors(read_file(path), path)[1]


def load_frombuffer(buf: bytes | bytearray | memoryview) -> list[NDArray] | dict[str, NDArray]:
    """Do the same as `load` with bytes in memory."""
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise TypeError(f"load_frombuffer: buf is a {type(buf).__name__}, not bytes.")
    return _load(memoryview(buf), "buffer")


def _load(data: bytes | memoryview, file: str) -> list[NDArray] | dict[str, NDArray]:
    if is_safetensors(data):
        return {n: array(a, dtype=a.dtype) for n, a in read_tensors(data, file)[0].items()}
    names, arrays = read_arrays(data, file)
    loaded: list[Any] = [a.to_array() if isinstance(a, SparseRecord) else array(a, dtype=a.dtype) for a in arrays]
    if not names:
        return loaded
    if len(set(names)) < len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        warnings.warn(f"load: {file}: names stand more than once, the last array of each is kept: "
                      f"{', '.join(map(repr, twice))}.", stacklevel=3)
    return dict(zip(names, loaded))
