"""Files that are written whole or not at all: what stood there before stays until the new one is complete. And read whole.

The one way files are written here: the bytes go to a new name beside the file, which is then given the file's name. The writer
holds a lock (flock) on it meanwhile. One that nobody has locked is what a killed process left, and the next save in that folder
removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator

from .errors import FileError

try:
    import fcntl
except ImportError:  # a system without such locks: there nothing is removed
    fcntl = None

_LEFT = re.compile(r"\..{0,50}\.[0-9a-f]{16}\.part", re.DOTALL)
_seen: set[str] = set()  # folders in which this process removed what others left
_READING = os.O_CLOEXEC | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # waits for no pipe's writer


@contextlib.contextmanager
def replace_file(path: str | os.PathLike, *, mode: int | None = None, sync: bool = True) -> Iterator[str]:
    """The name of a new, empty file to be filled; it takes path's place where the block ends, and vanishes where it fails.

    A link is followed, and the permissions of a file that is replaced stay: as plain open() has it. Of a device or a
    pipe the name is its own, since nothing can take its place.
    mode:    permissions, instead; 0o600 for a secret, which then no other user can read at any time.
    sync:    bring the bytes to the disk first, so that a loss of power leaves no half of them either.
    Raises:  FileError that names path, and then nothing has changed.
    """
    name = os.fsdecode(path)
    with _told(name, ValueError):  # a zero byte in it
        target = os.path.realpath(name)
        there = _existing(target)
        aside = there is None or stat.S_ISREG(there.st_mode)
        folder = os.path.dirname(target)
        if aside and (sync or folder not in _seen):  # what need not be synced is one of many small files: not for each of them
            _sweep(folder)
        new, lock = _create(target, 0o666 if mode is None else mode) if aside else (target, -1)
    if not aside:
        yield target
        return
    try:
        yield new
        with _told(name):
            if mode is None and there is not None:
                os.chmod(new, stat.S_IMODE(there.st_mode))
            if sync:
                _to_disk(new)
            os.replace(new, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        raise
    finally:
        os.close(lock)


def write_atomic(path: str | os.PathLike, data: str | bytes | Iterable[bytes | memoryview], *, mode: int | None = None,
                sync: bool = True) -> None:
    """Write data to path, whole or not at all, as replace_file does.

    data:  text (written in UTF-8), bytes, or pieces of them in order.
    """
    if isinstance(data, str):
        data = data.encode()
    with replace_file(path, mode=mode, sync=sync) as new, _told(os.fsdecode(path)), open(new, "wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def open_regular(path: str | os.PathLike, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file that is read; the opener that open() takes.

    Raises: FileError for a folder, a pipe or a device, which may have no end, or never begin; OSError as open() does.
    """
    descriptor = os.open(path, flags | _READING)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError(f"{os.fsdecode(path)}: is a folder, a pipe or a device, and not a file.")
    return descriptor


def read_file(path: str | os.PathLike) -> bytes:
    """The bytes that a file has when it is opened. Raises as open_regular does."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def _existing(target: str) -> os.stat_result | None:
    """What stands at a name. Raises OSError where plain open() could not write it."""
    try:
        there = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(there.st_mode) or not os.access(target, os.W_OK):
        number = errno.EISDIR if stat.S_ISDIR(there.st_mode) else errno.EACCES
        raise OSError(number, os.strerror(number))
    return there


def _create(target: str, mode: int) -> tuple[str, int]:
    """A new, empty file beside target, hidden, with a name that no other call uses; and a descriptor that holds its lock."""
    folder, name = os.path.split(target)
    while True:
        new = os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}.part")
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        _lock(lock)
        if os.fstat(lock).st_nlink:
            return new, lock
        os.close(lock)  # another process took it for a leftover before it was locked


def _lock(descriptor: int, wait: bool = True) -> bool:
    """Lock a file for as long as the descriptor is open; whether that could be done. A file system may have no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _sweep(folder: str) -> None:
    """Remove the unfinished files in a folder that no living process writes. What cannot be removed stays."""
    _seen.add(folder)
    with contextlib.suppress(OSError):
        for name in filter(_LEFT.fullmatch, os.listdir(folder)):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | _READING)
                try:
                    if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor, wait=False):
                        os.unlink(path)
                finally:
                    os.close(descriptor)


def _to_disk(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _told(name: str, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (OSError, *kinds) as e:
        raise FileError(f"{name}: cannot be written: {getattr(e, 'strerror', None) or e}. What stood there is unchanged.") from e
