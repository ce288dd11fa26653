"""Appender: a file to which complete pieces are appended, also when the disk becomes full."""

from __future__ import annotations

import contextlib
import functools
import os

from ...errors import FileError
from .files import open_local

_FLUSH_BYTES = 1 << 20  # written at once: the file is less fragmented, and reading it back takes half as long


class Appender:
    """An empty file at path. `append` buffers pieces, `flush` writes them.

    A forked child does not write what its parent has buffered.
    unit:  the name of a piece in messages.
    """

    def __init__(self, path: str, unit: str):
        self.path, self.unit = path, unit
        self._file = open_local(path, functools.partial(open, mode="wb", buffering=0))
        self._pid = os.getpid()
        self._buffer = bytearray()
        self._appended = self._written = 0  # pieces
        self._size = 0  # bytes in the file

    def append(self, piece: bytes) -> bool:
        """Add one piece. Returns True if it is time to flush."""
        self._buffer += piece
        self._appended += 1
        return len(self._buffer) >= _FLUSH_BYTES

    def flush(self) -> None:
        """Write the buffer. After a FileError the file is closed and ends with a complete piece."""
        buffer, self._buffer = self._buffer, bytearray()
        if self._pid != os.getpid():
            return
        try:
            left = memoryview(buffer)
            while left:
                left = left[self._file.write(left):]
        except OSError as e:
            with contextlib.suppress(OSError):  # a device, a pipe
                self._file.truncate(self._size)
            self._file.close()
            raise FileError(f"{self.path}: {self.unit} {self._written:,} at byte {self._size:,} cannot be written: {e.strerror}. "
                            f"The {self._written:,} before it are in the file, the {self._appended - self._written:,} from it on "
                            f"are not.") from e
        self._written, self._size = self._appended, self._size + len(buffer)

    def close(self) -> None:
        """Close the file without writing the buffer."""
        self._file.close()
