"""Where the bytes of a file come from: a local path, or anything fsspec opens ("s3://...", "memory://...")."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...atomic_file import open_regular
from ...errors import FileError, MissingLibraryError, UnreachableError

_TRIES = 4  # how often a remote file system is asked before its error counts
_GAP = 1 << 16  # bytes between two ranges up to which one question asks for both
_TOGETHER = 1 << 23  # bytes that one question asks for, if it asks for several ranges
_PAUSE = 0.1  # seconds before it is asked again; twice as long every time


class ByteSource:
    """The bytes of one file, read by position: any thread may read, and so may a forked child.

    path:  a local path, or a URL that fsspec knows (pip install 'tritium[cloud]').
    size:  bytes in the file when it was opened; nothing behind them is read.
    What cannot be reached, after it was asked for four times, is an UnreachableError.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self._open()

    def _open(self) -> None:
        self._fs: Any = None
        self._fd = -1
        if is_url(self.path):
            self._connect()
            self.size = int(self._ask(lambda: self._fs.size(self._remote)))
        else:
            try:
                self._fd = open_regular(self.path)
            except FileError:
                raise
            except (OSError, ValueError) as e:
                raise FileError(f"{self.path}: cannot be opened: {getattr(e, 'strerror', e)}.") from None
            self.size = os.fstat(self._fd).st_size

    def _connect(self) -> None:
        self._fs, self._remote = _filesystem(self.path)
        self._owner = os.getpid()

    @property
    def is_remote(self) -> bool:
        """Whether its bytes come from afar, so that asking for many at once saves time."""
        return self._fs is not None

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop). Raises FileError if the file became shorter, or cannot be reached."""
        return self.read_many([(start, stop)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of several ranges; from afar they are asked for together, near ones in one piece."""
        for start, stop in ranges:
            if not 0 <= start <= stop <= self.size:
                raise FileError(f"{self.path}: bytes {start:,} to {stop:,} are not in a file of {self.size:,} bytes.")
        if self._fs is None:
            pieces = [self._pread(start, stop - start) for start, stop in ranges]
        else:
            pieces = self._coalesced(ranges)
        for piece, (start, stop) in zip(pieces, ranges):
            if len(piece) != stop - start:
                raise FileError(f"{self.path}: became shorter while it was read: bytes {start:,} to {stop:,} were asked "
                                f"for, {len(piece):,} came.")
        return pieces

    def check(self) -> None:
        """Raises FileError if the file no longer has the size it was opened with."""
        size = os.fstat(self._fd).st_size if self._fs is None else int(self._ask(lambda: self._fs.size(self._remote)))
        if size != self.size:
            raise FileError(f"{self.path}: had {self.size:,} bytes when it was opened and has {size:,} now. Open it anew.")

    def close(self) -> None:
        """Give the file back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the file in another process. Raises FileError if it has another size by now."""
        self.path = state["path"]
        self._open()
        now, self.size = self.size, state["size"]
        if now != self.size:
            self.close()
            raise FileError(f"{self.path}: had {self.size:,} bytes when it was opened and has {now:,} now. Open it anew.")

    def __del__(self):
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def _pread(self, at: int, count: int) -> bytes:
        pieces = []
        while count:
            piece = os.pread(self._fd, min(count, 1 << 30), at)
            if not piece:
                break
            pieces.append(piece)
            at, count = at + len(piece), count - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _coalesced(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Ranges from afar, cut out of fewer and longer ones."""
        longer: list[tuple[int, int]] = []
        inside = [0] * len(ranges)  # of which longer one each is a part
        for i in sorted(range(len(ranges)), key=ranges.__getitem__):
            start, stop = ranges[i]
            if longer and start <= longer[-1][1] + _GAP and max(stop, longer[-1][1]) - longer[-1][0] <= _TOGETHER:
                longer[-1] = longer[-1][0], max(stop, longer[-1][1])
            else:
                longer.append((start, stop))
            inside[i] = len(longer) - 1
        pieces = self._fetch(longer)
        return [pieces[k][start - longer[k][0]:stop - longer[k][0]] for k, (start, stop) in zip(inside, ranges)]

    def _fetch(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Ranges from afar; those that fail or come short are asked for again, without the others."""
        pieces: list[Any] = [None] * len(ranges)
        missing = list(range(len(ranges)))

        def ask() -> None:
            answers = self._fs.cat_ranges([self._remote] * len(missing), [ranges[i][0] for i in missing],
                                          [ranges[i][1] for i in missing], on_error="return")
            for i, answer in zip(missing, answers):
                pieces[i] = answer
            missing[:] = [i for i in missing if isinstance(pieces[i], BaseException)
                          or len(pieces[i]) != ranges[i][1] - ranges[i][0]]
            if missing:
                piece, (start, stop) = pieces[missing[0]], ranges[missing[0]]
                raise piece if isinstance(piece, BaseException) else EOFError(
                    f"{len(piece):,} bytes came where bytes {start:,} to {stop:,} were asked for")

        self._ask(ask)
        return pieces

    def _ask(self, question: Callable[[], Any]) -> Any:
        """What the file system answers; asked again where it may have been the network's fault."""
        tries = 1
        if self._owner != os.getpid():  # a forked child has no thread that would answer
            self._connect()
        while True:
            try:
                return question()
            except Exception as e:  # every back end of fsspec raises errors of its own
                if tries == _TRIES or isinstance(e, (FileNotFoundError, PermissionError, NotImplementedError)):
                    raise UnreachableError(f"{self.path}: cannot be read: {type(e).__name__}: {str(e)[:200] or 'no reason given'}"
                                           f" (asked {tries} time{'s' * (tries > 1)}).") from e
            time.sleep(_PAUSE * 2 ** (tries - 1))
            tries += 1


def is_url(path: str) -> bool:
    """Whether a path is one for fsspec: it has `://` in it."""
    return "://" in path


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise MissingLibraryError(f"{url}: paths with :// are read through fsspec. Run: pip install 'tritium[cloud]'.") from None
    try:
        fs, path = fsspec.url_to_fs(url)
    except (ValueError, ImportError) as e:
        raise FileError(f"{url}: fsspec cannot open it: {e}.") from None
    assert isinstance(path, str)
    return fs, path


def expand(path: str | os.PathLike) -> list[str]:
    """The files a path stands for: itself, or, of a folder, the files in it by name, hidden ones left out."""
    path = os.fspath(path)
    if is_url(path):
        fs, inside = _filesystem(path)
        if not fs.isdir(inside):
            return [path]
        found = sorted(fs.unstrip_protocol(str(p)) for p in fs.ls(inside, detail=False) if fs.isfile(p))
    elif os.path.isdir(path):
        found = sorted(e.path for e in os.scandir(path) if e.is_file() and not e.name.startswith("."))
    else:
        return [path]
    if not found:
        raise FileError(f"{path}: the folder holds no file.")
    return found
