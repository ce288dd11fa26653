"""Appender: a file that grows by pieces, of which each is there whole or not at all, also when the disk is full."""

from __future__ import annotations

import contextlib
import os
from typing import IO, Any

from ...atomic_file import open_regular
from ...errors import FileError

_BEHIND = 1 << 20  # bytes that are written at once: the system keeps them in one piece, and reading them back takes half as long


class Appender:
    """An empty file at path, to which `append` adds; the bytes go there with `flush`.

    A forked child does not write what waits in its parent.
    what:  how messages call a piece.
    """

    def __init__(self, path: str, what: str):
        self.path, self.what = path, what
        self._file = opened(path, "wb")
        self._pid = os.getpid()
        self._waiting = bytearray()
        self._count = self._kept = 0  # pieces: appended, and in the file
        self._size = 0  # bytes of those in the file

    def append(self, piece: bytes) -> bool:
        """Add one; says whether so much waits that it is time to flush."""
        self._waiting += piece
        self._count += 1
        return len(self._waiting) >= _BEHIND

    def flush(self) -> None:
        """Bring what waits to the file. Raises FileError, and then the file ends with a whole piece and is closed."""
        waiting, self._waiting = self._waiting, bytearray()
        if self._pid != os.getpid():
            return
        try:
            left = memoryview(waiting)
            while left:
                left = left[self._file.write(left):]
        except OSError as e:
            with contextlib.suppress(OSError):  # a device, a pipe
                self._file.truncate(self._size)
            self._file.close()
            raise FileError(f"{self.path}: {self.what} {self._kept:,} at byte {self._size:,} cannot be written: {e.strerror}. "
                            f"The {self._kept:,} before are there, the {self._count - self._kept:,} from it on are not.") from e
        self._kept, self._size = self._count, self._size + len(waiting)

    def close(self) -> None:
        """Give the file back; what was not flushed is forgotten."""
        self._file.close()


def opened(path: str, mode: str) -> IO[Any]:
    """A file without a buffer; mode "rb" or "wb". Raises FileError that names it, also where something else than a file would be
    read."""
    try:
        return open(path, mode, 0, opener=open_regular if mode == "rb" else None)
    except FileError:
        raise
    except (OSError, ValueError) as e:
        raise FileError(f"{path}: cannot be opened: {getattr(e, 'strerror', e)}.") from e
