"""ByteSource: a local file, or a remote one that fsspec opens ("s3://...", "memory://...")."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from ...atomic_file import open_regular
from ...errors import FileError, MissingLibraryError, UnreachableError

Opened = TypeVar("Opened")

_TRIES = 4  # attempts at a remote request
_MAX_GAP = 1 << 16  # bytes between two ranges that are fetched as one
_MAX_MERGED = 1 << 23  # bytes of a request for several ranges
_PAUSE = 0.1  # seconds before the first retry; doubled for each further one


class Closable:
    """Mixin: a `with` statement calls `close`."""

    def close(self) -> None:
        raise NotImplementedError(f"{type(self).__name__}.close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class ByteSource(Closable):
    """The bytes of one file, read by position, from any thread or forked child.

    path:  a local path, or a URL that fsspec supports (pip install 'tritium[cloud]').
    size:  bytes in the file when it was opened; later ones are not read.
    descriptor:  of a local file, else -1.
    Raises UnreachableError after four failed attempts at a remote file.
    """

    descriptor = -1

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self._fs: Any = None
        if is_url(self.path):
            self._connect()
        else:
            self.descriptor = open_local(self.path, open_regular)
        self.size = self._current_size()

    def _current_size(self) -> int:
        return os.fstat(self.descriptor).st_size if self._fs is None else int(self._retry(lambda: self._fs.size(self._remote)))

    def _connect(self) -> None:
        self._fs, self._remote = _filesystem(self.path)
        self._owner = os.getpid()

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop). Raises FileError if the file became shorter or cannot be reached."""
        return self.read_many([(start, stop)])[0]

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several ranges. Remote ranges are requested together, adjacent ones as one."""
        for start, stop in ranges:
            if not 0 <= start <= stop <= self.size:
                raise FileError(f"{self.path}: bytes {start:,} to {stop:,} are outside the file of {self.size:,} bytes.")
        if self._fs is None:
            pieces = [self._pread(start, stop - start) for start, stop in ranges]
        else:
            pieces = self._read_merged(ranges)
        for piece, (start, stop) in zip(pieces, ranges):
            if len(piece) != stop - start:
                raise FileError(f"{self.path}: became shorter while it was read: {len(piece):,} of the bytes {start:,} "
                                f"to {stop:,} are left.")
        return pieces

    def check(self) -> None:
        """Raise FileError if the file's size has changed since it was opened."""
        size = self._current_size()
        if size != self.size:
            raise FileError(f"{self.path}: had {self.size:,} bytes when it was opened and has {size:,} now. Open it again.")

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the file in another process. Raises FileError if its size has changed."""
        ByteSource.__init__(self, state["path"])
        self.size = state["size"]
        self.check()

    def __del__(self):
        self.close()

    def _pread(self, at: int, count: int) -> bytes:
        pieces = []
        while count:
            piece = os.pread(self.descriptor, min(count, 1 << 30), at)
            if not piece:
                break
            pieces.append(piece)
            at, count = at + len(piece), count - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_merged(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read remote ranges as parts of fewer and longer ones."""
        merged: list[tuple[int, int]] = []
        merged_of = [0] * len(ranges)
        for i in sorted(range(len(ranges)), key=ranges.__getitem__):
            start, stop = ranges[i]
            if merged and start <= merged[-1][1] + _MAX_GAP and max(stop, merged[-1][1]) - merged[-1][0] <= _MAX_MERGED:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
            merged_of[i] = len(merged) - 1
        pieces = self._fetch(merged)
        return [pieces[k][start - merged[k][0]:stop - merged[k][0]] for k, (start, stop) in zip(merged_of, ranges)]

    def _fetch(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Request remote ranges. A retry requests only those that failed or came incomplete."""
        pieces: list[Any] = [None] * len(ranges)
        missing = list(range(len(ranges)))

        def request() -> None:
            answers = self._fs.cat_ranges([self._remote] * len(missing), [ranges[i][0] for i in missing],
                                          [ranges[i][1] for i in missing], on_error="return")
            for i, answer in zip(missing, answers):
                pieces[i] = answer
            missing[:] = [i for i in missing if isinstance(pieces[i], BaseException)
                          or len(pieces[i]) != ranges[i][1] - ranges[i][0]]
            if missing:
                piece, (start, stop) = pieces[missing[0]], ranges[missing[0]]
                raise piece if isinstance(piece, BaseException) else EOFError(
                    f"{len(piece):,} bytes came instead of bytes {start:,} to {stop:,}")

        self._retry(request)
        return pieces

    def _retry(self, request: Callable[[], Any]) -> Any:
        """Return request(), repeated after errors that may be temporary."""
        if self._owner != os.getpid():  # a forked child lacks the file system's threads
            self._connect()
        for tries in range(1, _TRIES + 1):
            try:
                return request()
            except Exception as e:  # each fsspec back end has its own error classes
                if tries == _TRIES or isinstance(e, (FileNotFoundError, PermissionError, NotImplementedError)):
                    raise UnreachableError(f"{self.path}: cannot be read: {type(e).__name__}: {str(e)[:200] or 'no reason given'}"
                                           f" ({tries} attempt{'s' * (tries > 1)}).") from e
            time.sleep(_PAUSE * 2 ** (tries - 1))


def open_local(path: str | os.PathLike, opener: Callable[..., Opened]) -> Opened:
    """Return opener(path). Raises FileError that names the path."""
    try:
        return opener(path)
    except FileError:
        raise
    except (OSError, ValueError) as e:
        raise FileError(f"{os.fspath(path)}: cannot be opened: {getattr(e, 'strerror', e)}.") from e


def is_url(path: str) -> bool:
    """Return True for paths that fsspec opens, which contain `://`."""
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
    """Return [path], or the files in a folder sorted by name, without hidden ones."""
    path = os.fspath(path)
    if is_url(path):
        fs, inside = _filesystem(path)
        if not fs.isdir(inside):
            return [path]
        files = sorted(fs.unstrip_protocol(str(p)) for p in fs.ls(inside, detail=False) if fs.isfile(p))
    elif os.path.isdir(path):
        files = sorted(e.path for e in os.scandir(path) if e.is_file() and not e.name.startswith("."))
    else:
        return [path]
    if not files:
        raise FileError(f"{path}: the folder contains no files.")
    return files
