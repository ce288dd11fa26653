"""RecordIO: files of byte records as MXNet writes them, read one after another or by key. The format: framing.py."""

from __future__ import annotations

import functools
import mmap
import numbers
import os
import struct
import warnings
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import FileError
from ..image.codec import decode, decode_as_stored, opencv, stored_channels
from .appender import Appender, opened
from .files import ByteSource
from .framing import FIRST, HEAD, LAST, LENGTH_BITS, MAGIC, MAGIC_BYTES, MAX_PART, MIDDLE, WHOLE, describe_damage, find_offsets
from .framing import frame as frame

_AHEAD = 1 << 18  # bytes that are read ahead, where records are small; more do not stay in a core's own cache
_SMALL = 1 << 15  # a record of more bytes is read alone


_WHOLE = (int, np.integer)
_seek, _END, _unpack_from = os.lseek, os.SEEK_END, HEAD.unpack_from  # looked up once, not for a record


def find_records(path: str | os.PathLike) -> np.ndarray:
    """The byte offset of every record in a file, int64[N], found without an index.

    Every part is checked to end where the next begins, so a damaged file is a FileError and not a shorter list.
    """
    with ByteSource(path) as source:
        offsets, damage = find_offsets(source)
    if damage:
        raise FileError(f"{describe_damage(source.path, offsets, damage)}.")
    return offsets


class MXRecordIO:
    """Reads or writes the records of a file in order.

    uri:   path of the file.
    flag:  "r" or "w" (which empties the file).
    Damage, a foreign file and a file cut short are a FileError that names file, record number and byte offset.
    Reading is by position: a forked child has a place of its own in the file. What is written is in the file at the latest
    when it is closed; where the disk is full that is a FileError too, and the file ends with a whole record.
    """

    def __init__(self, uri: str | os.PathLike, flag: str):
        self.is_open = False
        self.uri = os.fspath(uri)
        self.flag = flag
        self.open()

    def open(self) -> None:
        """Open the file again, at its beginning."""
        if self.flag not in ("r", "w"):
            raise FileError(f"{self.uri}: flag {self.flag!r} is not 'r' or 'w'.")
        self.writable = self.flag == "w"
        self._out = Appender(self.uri, "record") if self.writable else None
        self._file = None if self.writable else opened(self.uri, "rb")
        self._descriptor = self._file.fileno() if self._file else -1
        self._size = os.fstat(self._descriptor).st_size if self._file else 0  # bytes that may be read; bounds every allocation
        self._at = 0
        self._count = 0  # records read or written so far
        self._sought: tuple[Any, int] | None = None  # a key, and the byte of its record: what a message calls that one
        self._map: Any = _mapped(self._file) if self._file else None  # None too where it cannot be mapped
        self._window, self._window_at = b"", 0  # bytes of the file that were read ahead, and where they stand in it
        self._small = False  # whether the record before the next is: then many more are near
        self.pid = os.getpid()
        self.is_open = True

    def close(self) -> None:
        """Close the file; what was written is on disk."""
        if self.is_open:
            self.is_open = False
            self._window, self._map, self._small = b"", None, False
            try:
                self._flush()
            finally:
                self._give_back()

    def _flush(self) -> None:
        """Bring what was written to the file."""
        if self._out is not None:
            self._out.flush()

    def _give_back(self) -> None:
        for file in (self._file, self._out):
            if file is not None:
                file.close()

    def reset(self) -> None:
        """Go back to the first record. A file that is being written is emptied."""
        self.close()
        self.open()

    def __enter__(self):
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self):
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_file", "_out")} | {"_map": None, "_window": b""}
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
        """Add a record as it stands in the file."""
        assert self._out is not None
        full = self._out.append(framed)
        self._at += len(framed)
        self._count += 1
        if full:
            try:
                self._flush()
            except FileError:
                self.is_open = False  # a later close must not write the lines of records that are not there
                self._give_back()
                raise

    def read(self) -> bytes | None:
        """The next record, or None at the end of the file."""
        window, head = self._window, self._at - self._window_at
        end = len(window)
        if 0 <= head <= end - 8:
            magic, word = _unpack_from(window, head)
            stop = head + 8 + word
            after = stop + (-word & 3)
            if magic == MAGIC and after <= end:  # so word is a length alone: a whole record
                self._at += after - head
                self._count += 1
                return window[head + 8 : stop]
        return self._read_beyond()

    def _read_beyond(self) -> bytes | None:
        """The next record, where the window does not hold it whole."""
        if self._small:
            self._small = False
            self._read_ahead()
            record = self.read()
        else:
            record = self._whole_at(self._at)
            if record is None:
                return self._joined()
            self._count += 1
        self._small = record is not None and len(record) <= _SMALL
        return record

    def _read_ahead(self) -> None:
        """Fill the window with what comes next."""
        self._window_at = self._at & -mmap.PAGESIZE  # whole pages are copied fastest
        self._window = os.pread(self._descriptor, min(_AHEAD, self._size - self._window_at), self._window_at)

    def _joined(self) -> bytes | None:
        """The next record part by part, wherever it stands, with all that can be wrong with it; None at the end."""
        self._check(writing=False)
        start = self._at
        if start == self._size:
            return None
        try:
            record = self._parts(start)
        except FileError:
            self._at = start  # no part of what is damaged counts as read
            raise
        self._count += 1
        return record

    def _parts(self, start: int) -> bytes:
        cflag, payload = self._part(start)
        if cflag not in (WHOLE, FIRST):
            raise self._damage(start, f"begins with a part of kind {cflag}, and only 0 and 1 begin a record")
        pieces = [payload]
        while cflag not in (WHOLE, LAST):
            at = self._at
            if at == self._size:
                raise self._damage(start, "is split, and the file ends before its last part")
            cflag, payload = self._part(start)
            if cflag not in (MIDDLE, LAST):
                raise self._damage(start, f"is split, and at byte {at:,} a part of kind {cflag} cuts in")
            pieces += (MAGIC_BYTES, payload)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _whole_at(self, start: int) -> bytes | None:
        """The record at a byte of the map, if it is one whole part."""
        data, size = self._map, self._size
        # the map of a file that became shorter must not be touched, so its size is asked for every time
        if data is None or start + 8 > size or _seek(self._descriptor, 0, _END) < size:
            return None
        magic, word = _unpack_from(data, start)
        stop = start + 8 + word
        end = stop + (-word & 3)
        if magic != MAGIC or word > MAX_PART or end > size:
            return None
        self._at = end
        return data[start + 8 : stop]

    def _take(self, at: int, count: int) -> bytes:
        """The bytes of the file from at on; fewer than count if it became shorter."""
        return os.pread(self._descriptor, count, at)

    def tell(self) -> int:
        """The byte where the next record is written or read."""
        return self._at

    def _part(self, record: int) -> tuple[int, bytes]:
        at, left = self._at, self._size - self._at
        if left < HEAD.size:
            raise self._damage(record, f"is cut short: its head needs 8 bytes, {left} are left")
        head = self._take(at, HEAD.size)
        if len(head) < HEAD.size:
            raise self._damage(record, "is gone: the file became shorter while it was read")
        magic, word = HEAD.unpack(head)
        if magic != MAGIC:
            what = "this is not a RecordIO file" if at == 0 else "the file is damaged"
            raise self._damage(record, f"has no magic number at byte {at:,} ({magic:#010x}, not {MAGIC:#010x}): {what}")
        length = word & MAX_PART
        padded = (length + 3) // 4 * 4
        if padded > left - HEAD.size:
            raise self._damage(record, f"is cut short: it takes {padded:,} more bytes, {left - HEAD.size:,} are left")
        payload = self._take(at + HEAD.size, length)
        if len(payload) != length:
            raise self._damage(record, "is gone: the file became shorter while it was read")
        self._at = at + HEAD.size + padded
        return word >> LENGTH_BITS, payload

    def _damage(self, offset: int, what: str) -> FileError:
        name = f"with key {self._sought[0]!r}" if self._sought and self._sought[1] == offset else self._count
        return FileError(f"{self.uri}: record {name} at byte {offset:,} {what}.")

    def _check(self, *, writing: bool) -> None:
        if not self.is_open:
            raise FileError(f"{self.uri}: the file is closed. Call open() or reset().")
        if writing != self.writable:
            need = "w" if writing else "r"
            raise FileError(f"{self.uri}: opened with flag {self.flag!r}. Open it with {need!r} for this.")
        if writing and self.pid != os.getpid():
            raise FileError(f"{self.uri}: opened for writing by another process. Open one file in each process.")


class MXIndexedRecordIO(MXRecordIO):
    """Reads records by key, or writes them with one, beside an index file of `key<TAB>byte offset` lines.

    idx_path:  the index. If it does not exist, reading rebuilds it in memory (keys 0, 1, ...) and says so in a warning.
    key_type:  what makes a key of its text.
    """

    def __init__(self, idx_path: str | os.PathLike, uri: str | os.PathLike, flag: str,
                 key_type: Callable[..., Any] = int):
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.fidx: Appender | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx, self.keys = {}, []
        self._rows = array("q")  # the offsets of keys 0, 1, ..., if the index has these and no others
        self._plain = 0  # how many of them can be read from the map without a closer look
        if self.writable:
            self.fidx = Appender(self.idx_path, "line")
        else:
            try:
                self._load_index()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._plain = 0
        super().close()

    def _flush(self) -> None:
        """First the records, then their lines: an index never lists what is not there."""
        super()._flush()
        if self.fidx is not None:
            self.fidx.flush()

    def _give_back(self) -> None:
        super()._give_back()
        if self.fidx is not None:
            self.fidx.close()
            self.fidx = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"fidx": None}

    def _damage(self, offset: int, what: str) -> FileError:
        sought = self._sought is not None and self._sought[1] == offset
        return super()._damage(offset, f"{what}. {self.idx_path} says that it begins there" if sought else what)

    def _load_index(self) -> None:
        if not os.path.exists(self.idx_path):
            offsets = find_records(self.uri)
            warnings.warn(f"{self.idx_path}: no such index; rebuilt from {self.uri}: {len(offsets):,} records, "
                          f"keys 0 to {len(offsets) - 1}.", stacklevel=4)
            self.keys = [self.key_type(i) for i in range(len(offsets))]
            self.idx = dict(zip(self.keys, offsets.tolist()))
            return
        with opened(self.idx_path, "rb") as file:
            text = file.read()
        fields = self._plain_index(text)
        if fields is None:
            self._read_index(text)
        else:
            del self.idx, self.keys  # made when they are asked for
            self._fields = fields
            if fields[0] == 0 and fields[-2] == len(fields) // 2 - 1:  # the keys rise: they are 0, 1, ...
                self._rows = array("q", fields[1::2].tobytes())
                self._plain = len(self._rows) if self._map is not None else 0

    @functools.cached_property
    def keys(self) -> list[Any]:
        """The keys, in the order of the index."""
        return self._fields[0::2].tolist()

    @functools.cached_property
    def idx(self) -> dict[Any, int]:
        """The byte offset of every key."""
        return dict(zip(self._fields[0::2].tolist(), self._fields[1::2].tolist()))

    def _offset(self, key: Any) -> int | None:
        """Where the record with a key begins. Without the dictionary if that can be: it is slow to make, and large."""
        rows = self._rows
        return rows[key] if isinstance(key, _WHOLE) and 0 <= key < len(rows) else self.idx.get(key)

    def _plain_index(self, text: bytes) -> np.ndarray | None:
        """The numbers of an index of `number<TAB>offset` lines with nothing wrong in it, or None: look closer."""
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) < ord("0"))
        digits = np.diff(ends, prepend=-1) - 1
        lines = len(ends) // 2
        if self.key_type is not int or not lines or text.translate(None, b"0123456789") != b"\t\n" * lines:
            return None
        if ends[-1] != len(text) - 1 or digits.min() < 1 or digits.max() > 18:
            return None
        fields = np.fromstring(text.decode("ascii"), np.int64, sep=" ")
        keys, offsets = fields[0::2], fields[1::2]
        rising = bool(np.all(keys[1:] > keys[:-1]))  # so no key stands twice
        placed = bool(offsets.max() <= self._size - HEAD.size and offsets.min() >= 0 and not np.any(offsets & 3))
        return fields if rising and placed else None

    def _read_index(self, text: bytes) -> None:
        """The index line by line, told where it is wrong."""
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
            if not 0 <= offset <= self._size - HEAD.size or offset % 4:
                raise FileError(f"{self.idx_path}: line {number}: key {key!r} points at byte {offset:,} of "
                                f"{self.uri}, where no record can begin (it has {self._size:,} bytes). "
                                f"Delete the index to have it rebuilt.")
            if key in self.idx:
                warnings.warn(f"{self.idx_path}: line {number}: key {key!r} stands twice; the last one counts.",
                              stacklevel=5)
            self.idx[key] = offset
            self.keys.append(key)

    def seek(self, idx: Any) -> None:
        """Go to the record with key idx."""
        self._check(writing=False)
        offset = self._offset(idx)
        if offset is None:
            raise FileError(f"{self.uri}: no record has key {idx!r}. The index holds {len(self.idx):,} keys.")
        self._at = offset
        self._small = False  # those behind it need not be wanted
        self._sought = idx, offset

    def read_idx(self, idx: Any) -> bytes:
        """The record with key idx."""
        # as _whole_at, without a call: half of what a short record costs is asking for the file's size
        if idx.__class__ is int and 0 <= idx < self._plain and _seek(self._descriptor, 0, _END) >= self._size:
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
    """What stands before the data of a labelled record.

    flag:   0 if label is one number; else how many float32 labels follow the header.
    label:  a number, or float32[flag].
    id, id2: the record's number, and its upper 64 bits.
    """

    flag: int
    label: Any
    id: int
    id2: int


_IR = struct.Struct("<IfQQ")


def pack(header: IRHeader | tuple, s: bytes) -> bytes:
    """One record's bytes: header, labels, data. `header.flag` is set from the label."""
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        return _IR.pack(0, header.label, header.id, header.id2) + s
    label = np.asarray(header.label, "<f4")
    return _IR.pack(label.size, 0, header.id, header.id2) + label.tobytes() + s


def unpack(s: bytes, where: str = "recordio.unpack") -> tuple[IRHeader, bytes]:
    """The header (its label a float, or float32[flag]) and the data of a record. Raises FileError if s is too short.

    where: what the message says the record is.
    """
    if len(s) < _IR.size:
        raise FileError(f"{where}: a record of {len(s)} bytes holds no header, which takes {_IR.size}.")
    header, s = IRHeader(*_IR.unpack_from(s)), s[_IR.size:]
    if header.flag:
        if 4 * header.flag > len(s):
            raise FileError(f"{where}: record {header.id} says {header.flag:,} labels, "
                            f"{len(s):,} bytes follow.")
        header = header._replace(label=np.frombuffer(s, "<f4", header.flag).astype(np.float32))
        s = s[4 * header.flag:]
    return header, s


def pack_img(header: IRHeader | tuple, img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """`pack` of an encoded image.

    img:      uint8[height, width] or [height, width, 3], blue first, as OpenCV has it.
    quality:  JPEG quality 1 to 100, or PNG compression 0 to 9.
    """
    cv2 = opencv("pack_img")
    option = {".jpg": cv2.IMWRITE_JPEG_QUALITY, ".jpeg": cv2.IMWRITE_JPEG_QUALITY, ".png": cv2.IMWRITE_PNG_COMPRESSION}
    if img_fmt.lower() not in option:
        raise FileError(f"pack_img: img_fmt {img_fmt!r} is not one of {', '.join(option)}.")
    done, encoded = cv2.imencode(img_fmt, img, [option[img_fmt.lower()], quality])
    assert done, f"pack_img: OpenCV could not encode {img.dtype}{list(img.shape)} as {img_fmt}"
    return pack(header, encoded.tobytes())


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """The header and the decoded image, uint8, blue first. iscolor: -1 as stored, 0 grey, 1 colour.

    Raises FileError where the image is damaged or cut short, also where OpenCV would fill the rest with grey.
    """
    header, data = unpack(s)
    try:
        if iscolor < 0 and data[:2] != b"\xff\xd8":
            return header, decode_as_stored(data)
        img = decode(data, stored_channels(data) if iscolor < 0 else 3 if iscolor else 1)[:, :, ::-1]
    except FileError as e:
        raise FileError(f"unpack_img: record {header.id}: {str(e).rstrip('.')}.") from None
    return header, np.ascontiguousarray(img if img.shape[2] > 1 else img[:, :, 0])


def _mapped(file: Any) -> mmap.mmap | None:
    """A file's bytes as memory, or None where that cannot be: an empty file, a pipe."""
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
