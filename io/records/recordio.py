"""RecordIO: files of byte records as MXNet writes them, read in order or by key. framing.py describes the format."""

from __future__ import annotations

import functools
import mmap
import numbers
import os
import struct
import warnings
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...dtype import as_dtype
from ...errors import FileError, UnreachableError
from ...show import Shown
from ..image.codec import FORMATS, decode, decode_as_stored, encode, opencv, stored_channels
from .appender import Appender
from .files import ByteSource, Closable
from .framing import HEADER, MAGIC, MAX_PART, describe_damage, find_offsets, read_record
from .framing import frame as frame

_AHEAD = 1 << 18  # bytes that are read ahead where records are small; more do not fit into a core's cache
_SMALL = 1 << 15  # a larger record is read alone
_INTEGERS = (int, np.integer)
_seek, _END, _unpack_from = os.lseek, os.SEEK_END, HEADER.unpack_from  # looked up once instead of for each record


def find_records(path: str | os.PathLike) -> np.ndarray:
    """Return the byte offset of every record in a file, int64[N], without an index.

    Raises FileError for a damaged file: every part must end where the next begins.
    """
    with ByteSource(path) as source:
        offsets, damage = find_offsets(source)
    if damage:
        raise FileError(f"{describe_damage(source.path, offsets, damage)}.")
    return offsets


class MXRecordIO(Shown, Closable):
    """Reads or writes the records of a file in order.

    uri:   path of the file; for reading, also a URL.
    flag:  "r" or "w" (which empties the file).
    A damaged, truncated or foreign file raises FileError that names file, record number and byte offset. Reading is by
    position, so a forked child has its own place in the file. Written records are in the file when it is closed, or
    earlier. When the disk is full, FileError is raised, and the file ends with a complete record.
    """

    def __init__(self, uri: str | os.PathLike, flag: str):
        self.is_open = False
        self.uri = os.fspath(uri)
        self.flag = flag
        self.open()

    def open(self) -> None:
        """Open the file again at its beginning."""
        if self.flag not in ("r", "w"):
            raise FileError(f"{self.uri}: flag {self.flag!r} is not 'r' or 'w'.")
        self.writable = self.flag == "w"
        self._out = Appender(self.uri, "record") if self.writable else None
        self._source = None if self.writable else ByteSource(self.uri)
        self._descriptor, self._size = (self._source.descriptor, self._source.size) if self._source else (-1, 0)
        self._at = 0
        self._count = 0  # records read or written so far
        self._sought: tuple[Any, int] | None = None  # the last key, and the offset of its record, for messages
        self._map: Any = _mapped(self._descriptor)
        self._window, self._window_at = b"", 0  # bytes that were read ahead, and their offset in the file
        self._small = False  # the last record was small, so reading ahead pays
        self.pid = os.getpid()
        self.is_open = True

    def close(self) -> None:
        """Close the file. Written records are then on disk."""
        if self.is_open:
            self.is_open = False
            self._window, self._map, self._small = b"", None, False
            try:
                self._flush()
            finally:
                self._release()

    def _flush(self) -> None:
        if self._out is not None:
            self._out.flush()

    def _release(self) -> None:
        for file in (self._source, self._out):
            if file is not None:
                file.close()

    def reset(self) -> None:
        """Go back to the first record. A file open for writing is emptied."""
        self.close()
        self.open()

    def __del__(self):
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_source", "_out")} | {"_map": None, "_window": b""}
        if self.writable:
            self.close()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["is_open"]:
            self.is_open = False
            self.open()

    def write(self, buf: bytes) -> None:
        """Append one record."""
        self._check(writing=True)
        self._append(frame(bytes(buf)))

    def _append(self, framed: bytes) -> None:
        assert self._out is not None
        full = self._out.append(framed)
        self._at += len(framed)
        self._count += 1
        if full:
            try:
                self._flush()
            except FileError:
                self.is_open = False  # a later close must not write index lines of missing records
                self._release()
                raise

    def read(self) -> bytes | None:
        """Return the next record, or None at the end of the file."""
        window, start = self._window, self._at - self._window_at
        end = len(window)
        if 0 <= start <= end - 8:
            magic, word = _unpack_from(window, start)
            stop = start + 8 + word
            after = stop + (-word & 3)
            if magic == MAGIC and after <= end:  # so the kind is 0, a whole record, and word is its length
                self._at += after - start
                self._count += 1
                return window[start + 8 : stop]
        return self._read_outside_window()

    def _read_outside_window(self) -> bytes | None:
        if self._small:
            self._small = False
            self._read_ahead()
            record = self.read()
        else:
            record = self._read_from_map(self._at)
            if record is None:
                return self._read_parts()
            self._count += 1
        self._small = record is not None and len(record) <= _SMALL
        return record

    def _read_ahead(self) -> None:
        self._window_at = self._at & -mmap.PAGESIZE  # whole pages are copied fastest
        count = min(_AHEAD, self._size - self._window_at)
        if self._descriptor >= 0:
            self._window = os.pread(self._descriptor, count, self._window_at)
        elif self._source is not None:
            self._window = self._source.read(self._window_at, self._window_at + count)

    def _read_from_map(self, start: int) -> bytes | None:
        """Return the record at a byte of the memory map, or None unless it is a single complete part."""
        data, size = self._map, self._size
        # touching the map of a file that became shorter would crash, so its size is checked every time
        if data is None or start + 8 > size or _seek(self._descriptor, 0, _END) < size:
            return None
        magic, word = _unpack_from(data, start)
        stop = start + 8 + word
        end = stop + (-word & 3)
        if magic != MAGIC or word > MAX_PART or end > size:
            return None
        self._at = end
        return data[start + 8 : stop]

    def _read_parts(self) -> bytes | None:
        """Read the next record part by part, with all checks; None at the end."""
        self._check(writing=False)
        start, source = self._at, self._source
        if start == self._size or source is None:
            return None

        def read(first: int, stop: int) -> bytes:
            try:
                return source.read(first, stop)
            except UnreachableError:
                raise
            except FileError:
                raise self._damage(start, "is gone: the file became shorter while it was read") from None

        record, end = read_record(read, start, self._size, lambda text: self._damage(start, text))
        if end > self._size:
            raise self._damage(start, f"is cut short: {end - self._size} bytes of its padding are missing")
        self._at = end
        self._count += 1
        return record

    def tell(self) -> int:
        """Return the byte offset of the next record."""
        return self._at

    def _damage(self, offset: int, text: str) -> FileError:
        name = f"with key {self._sought[0]!r}" if self._sought and self._sought[1] == offset else self._count
        return FileError(f"{self.uri}: record {name} at byte {offset:,} {text}.")

    def _check(self, *, writing: bool) -> None:
        if not self.is_open:
            raise FileError(f"{self.uri}: the file is closed. Call open() or reset().")
        if writing != self.writable:
            need = "w" if writing else "r"
            raise FileError(f"{self.uri}: opened with flag {self.flag!r}. Open it with {need!r} for this.")
        if writing and self.pid != os.getpid():
            raise FileError(f"{self.uri}: opened for writing by another process. Open one file in each process.")


class MXIndexedRecordIO(MXRecordIO):
    """Reads or writes records by key, with an index file of `key<TAB>byte offset` lines.

    idx_path:  the index. If it does not exist, reading rebuilds it in memory (keys 0, 1, ...) with a warning.
    key_type:  converts the text of a key.
    """

    def __init__(self, idx_path: str | os.PathLike, uri: str | os.PathLike, flag: str, key_type: Callable[..., Any] = int):
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.fidx: Appender | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx, self.keys = {}, []
        self._rows = array("q")  # the offsets, if the keys are 0, 1, ...
        self._mapped_rows = 0  # how many of them `read_idx` may read from the map
        if self.writable:
            self.fidx = Appender(self.idx_path, "line")
        else:
            try:
                self._load_index()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._mapped_rows = 0
        super().close()

    def _flush(self) -> None:
        """Write the records before their lines: an index never lists missing records."""
        super()._flush()
        if self.fidx is not None:
            self.fidx.flush()

    def _release(self) -> None:
        super()._release()
        if self.fidx is not None:
            self.fidx.close()
            self.fidx = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"fidx": None}

    def _damage(self, offset: int, text: str) -> FileError:
        sought = self._sought is not None and self._sought[1] == offset
        return super()._damage(offset, f"{text}. {self.idx_path} lists this offset" if sought else text)

    def _load_index(self) -> None:
        if not os.path.exists(self.idx_path):
            offsets = find_records(self.uri)
            warnings.warn(f"{self.idx_path}: the index does not exist; rebuilt from {self.uri}: {len(offsets):,} records, "
                          f"keys 0 to {len(offsets) - 1}.", stacklevel=4)
            self.keys = [self.key_type(i) for i in range(len(offsets))]
            self.idx = dict(zip(self.keys, offsets.tolist()))
            return
        with ByteSource(self.idx_path) as file:
            text = file.read(0, file.size)
        fields = self._parse_plain_index(text)
        if fields is None:
            self._parse_index(text)
        else:
            del self.idx, self.keys  # then computed on demand
            self._fields = fields
            if fields[0] == 0 and fields[-2] == len(fields) // 2 - 1:  # the keys ascend, so they are 0, 1, ...
                self._rows = array("q", fields[1::2].tobytes())
                self._mapped_rows = len(self._rows) if self._map is not None else 0

    @functools.cached_property
    def keys(self) -> list[Any]:
        """The keys, in the order of the index."""
        return self._fields[0::2].tolist()

    @functools.cached_property
    def idx(self) -> dict[Any, int]:
        """The byte offset of every key."""
        return dict(zip(self._fields[0::2].tolist(), self._fields[1::2].tolist()))

    def _offset(self, key: Any) -> int | None:
        """Return the offset of a key's record, if possible without `idx`, which is slow to build and large."""
        rows = self._rows
        return rows[key] if isinstance(key, _INTEGERS) and 0 <= key < len(rows) else self.idx.get(key)

    def _parse_plain_index(self, text: bytes) -> np.ndarray | None:
        """Return the numbers of an index whose lines are `integer<TAB>offset`, ascending and valid; otherwise None."""
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) < ord("0"))
        digits = np.diff(ends, prepend=-1) - 1
        lines = len(ends) // 2
        if self.key_type is not int or not lines or text.translate(None, b"0123456789") != b"\t\n" * lines:
            return None
        if ends[-1] != len(text) - 1 or digits.min() < 1 or digits.max() > 18:
            return None
        fields = np.fromstring(text.decode("ascii"), np.int64, sep=" ")
        keys, offsets = fields[0::2], fields[1::2]
        ascending = bool(np.all(keys[1:] > keys[:-1]))  # so no key is repeated
        in_file = bool(offsets.max() <= self._size - HEADER.size and offsets.min() >= 0 and not np.any(offsets & 3))
        return fields if ascending and in_file else None

    def _parse_index(self, text: bytes) -> None:
        """Parse the index line by line. Raises FileError that names the wrong line."""
        try:
            lines = text.decode("utf-8").split("\n")
        except UnicodeDecodeError as e:
            raise FileError(f"{self.idx_path}: it is not text ({e.reason} at byte {e.start:,}). "
                            f"Delete the index to have it rebuilt.") from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                key_text, offset_text = line.rstrip("\r").split("\t")
                key, offset = self.key_type(key_text), int(offset_text)
            except (ValueError, TypeError):
                raise FileError(f"{self.idx_path}: line {number} is not `key<TAB>offset`: {line.strip()[:60]!r}. "
                                f"Delete the index to have it rebuilt.") from None
            if not 0 <= offset <= self._size - HEADER.size or offset % 4:
                raise FileError(f"{self.idx_path}: line {number}: key {key!r} points at byte {offset:,} of {self.uri}, where no "
                                f"record can begin (it has {self._size:,} bytes). Delete the index to have it rebuilt.")
            if key in self.idx:
                warnings.warn(f"{self.idx_path}: line {number}: key {key!r} is repeated; the last line counts.", stacklevel=5)
            self.idx[key] = offset
            self.keys.append(key)

    def seek(self, idx: Any) -> None:
        """Go to the record with key idx."""
        self._check(writing=False)
        offset = self._offset(idx)
        if offset is None:
            raise FileError(f"{self.uri}: no record has key {idx!r}. The index has {len(self.idx):,} keys.")
        self._at = offset
        self._small = False  # the next records may not be needed
        self._sought = idx, offset

    def read_idx(self, idx: Any) -> bytes:
        """Return the record with key idx."""
        # _read_from_map written out: checking the file's size is already half of the time of a short record
        if idx.__class__ is int and 0 <= idx < self._mapped_rows and _seek(self._descriptor, 0, _END) >= self._size:
            start, data = self._rows[idx] + 8, self._map
            magic, word = _unpack_from(data, start - 8)
            stop = start + word
            if magic == MAGIC and word <= MAX_PART and stop <= self._size:
                self._at = stop + (-word & 3)
                return data[start:stop]
        self.seek(idx)
        record = self.read()
        assert record is not None, f"{self.uri}: key {idx!r} points at the end of the file"
        return record

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append one record under key idx."""
        self._check(writing=True)
        key, offset, framed = self.key_type(idx), self._at, frame(bytes(buf))
        assert self.fidx is not None
        self.fidx.append(f"{key}\t{offset}\n".encode())
        self._append(framed)
        self.idx[key] = offset
        self.keys.append(key)


class IRHeader(NamedTuple):
    """The header of a labelled record.

    flag:   0 if label is one number; otherwise the number of float32 labels after the header.
    label:  a number, or float32[flag].
    id, id2: the record's ID; its upper 64 bits.
    """

    flag: int
    label: Any
    id: int
    id2: int


_IR = struct.Struct("<IfQQ")


def pack(header: IRHeader | tuple, s: bytes) -> bytes:
    """Return the bytes of one record: header, labels, data. The label determines the flag."""
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        return _IR.pack(0, header.label, header.id, header.id2) + s
    label = np.asarray(header.label, "<f4")
    return _IR.pack(label.size, 0, header.id, header.id2) + label.tobytes() + s


def unpack(s: bytes, where: str = "recordio.unpack") -> tuple[IRHeader, bytes]:
    """Return the header (with a float label, or float32[flag]) and the data of a record. Raises FileError if s is too short.

    where: the record's name in messages.
    """
    if len(s) < _IR.size:
        raise FileError(f"{where}: a record of {len(s)} bytes is shorter than the header of {_IR.size} bytes.")
    header, s = IRHeader(*_IR.unpack_from(s)), s[_IR.size:]
    if header.flag:
        if 4 * header.flag > len(s):
            raise FileError(f"{where}: record {header.id} has {header.flag:,} labels, but {len(s):,} bytes follow the header.")
        header = header._replace(label=np.frombuffer(s, "<f4", header.flag).astype(np.float32))
        s = s[4 * header.flag:]
    return header, s


def read_arrays(path: str | os.PathLike, shape: Sequence[int], dtype: Any = "uint8") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read a RecordIO file in which the data of each record are the raw bytes of an array.

    shape, dtype:  of each record's array.
    Returns:       data [N, *shape], label float32[N] and id uint64[N], in the order of the file.
    Raises:        FileError that names a record whose data have another size, or that has several labels.
    """
    path, shape, kind = os.fspath(path), tuple(shape), as_dtype(dtype)
    rows, labels, ids = [], [], []
    nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    with MXRecordIO(path, "r") as records:
        while (record := records.read()) is not None:
            header, payload = unpack(record)
            if len(payload) != nbytes or header.flag:
                raise FileError(f"{path}: record {len(rows)} holds {len(payload):,} bytes and {header.flag or 1} "
                                f"label(s); {kind}{list(shape)} takes {nbytes:,} bytes, with 1 label.")
            rows.append(np.frombuffer(payload, kind).reshape(shape))
            labels.append(header.label)
            ids.append(header.id)
    data = np.stack(rows) if rows else np.empty((0, *shape), kind)
    return data, np.array(labels, np.float32), np.array(ids, np.uint64)


def pack_img(header: IRHeader | tuple, img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encode an image and `pack` it.

    img:      uint8[height, width] or [height, width, 3], blue first, as OpenCV has it.
    quality:  JPEG quality 1 to 100, or PNG compression 0 to 9.
    """
    if img_fmt.lower() not in FORMATS:
        raise FileError(f"pack_img: img_fmt {img_fmt!r} is not one of {', '.join(FORMATS)}.")
    opencv("pack_img")  # its error names this function
    return pack(header, encode(img, quality, img_fmt.lower(), blue_first=True))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """Return the header and the decoded image, uint8, blue first. iscolor: -1 as stored, 0 grey, 1 colour.

    Raises FileError for a damaged or truncated image, also where OpenCV would fill the missing part with grey.
    """
    header, data = unpack(s)
    try:
        if iscolor < 0 and data[:2] != b"\xff\xd8":
            return header, decode_as_stored(data)
        img = decode(data, stored_channels(data) if iscolor < 0 else 3 if iscolor else 1)[:, :, ::-1]
    except FileError as e:
        raise FileError(f"unpack_img: record {header.id}: {str(e).rstrip('.')}.") from None
    return header, np.ascontiguousarray(img if img.shape[2] > 1 else img[:, :, 0])


def _mapped(descriptor: int) -> mmap.mmap | None:
    """Map a file into memory. Returns None if that is impossible: for an empty or remote file."""
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if descriptor >= 0 else None
    except (OSError, ValueError):
        return None
