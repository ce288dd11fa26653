"""Atomic writing of files: the old file stays until the new one is complete. And reading of regular files.

All files are written in this way: the bytes go to a new file in the same folder, which is then renamed. The writer holds a lock
(flock) on the new file meanwhile. An unlocked one was left by a killed process, and the next write in that folder removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator

from .errors import FileError, MissingFileError

try:
    import fcntl
except ImportError:  # on a system without such locks nothing is removed
    fcntl = None

_LEFT = re.compile(r"\..{0,50}\.[0-9a-f]{16}\.part", re.DOTALL)
_swept: set[str] = set()  # folders in which this process removed leftovers
_READING = os.O_CLOEXEC | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # does not wait for a pipe's writer


@contextlib.contextmanager
def replace_file(path: str | os.PathLike, *, mode: int | None = None, sync: bool = True) -> Iterator[str]:
    """`with replace_file(path) as new:` fill the new, empty file named new. It replaces path at the end of the block.

    If the block raises, the new file is removed. Links are followed, and a replaced file's permissions stay, as with open().
    A device or a pipe is written directly, because it cannot be replaced.
    mode:    other permissions: 0o600 for a secret, which no other user can read at any time.
    sync:    write the bytes to the disk before renaming, so that a loss of power cannot leave half of them.
    Raises:  FileError that names path; then path is unchanged.
    """
    name = os.fsdecode(path)
    with _naming(name, ValueError):  # for a zero byte in the name
        target = os.path.realpath(name)
        old = _existing(target)
        renames = old is None or stat.S_ISREG(old.st_mode)
        folder = os.path.dirname(target)
        if renames and (sync or folder not in _swept):  # once per folder for many small files, which need not be synced
            _sweep(folder)
        new, lock = _create(target, 0o666 if mode is None else mode) if renames else (target, -1)
    if not renames:
        yield target
        return
    try:
        yield new
        with _naming(name):
            if mode is None and old is not None:
                os.chmod(new, stat.S_IMODE(old.st_mode))
            if sync:
                with open(new, "rb") as file:
                    os.fsync(file.fileno())
            os.replace(new, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        raise
    finally:
        os.close(lock)


def write_atomic(path: str | os.PathLike, data: str | bytes | Iterable[bytes | memoryview], *, mode: int | None = None,
                sync: bool = True) -> None:
    """Write data to path atomically, as replace_file does.

    data:  text (written in UTF-8), bytes, or pieces of bytes in order.
    """
    if isinstance(data, str):
        data = data.encode()
    with replace_file(path, mode=mode, sync=sync) as new, _naming(os.fsdecode(path)), open(new, "wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)


def open_regular(path: str | os.PathLike, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor for reading a file; an opener for open().

    Raises: FileError for a folder, a pipe or a device, which may be endless or block; OSError as open() does.
    """
    descriptor = os.open(path, flags | _READING)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError(f"{os.fsdecode(path)}: is a folder, a pipe or a device, and not a file.")
    return descriptor


def read_file(path: str | os.PathLike) -> bytes:
    """Return the bytes that a file has when it is opened.

    Raises: MissingFileError, an MXNetError that is a FileNotFoundError too, if there is no such file; otherwise as open_regular.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        raise MissingFileError(f"{os.fsdecode(path)}: cannot be opened: {os.strerror(errno.ENOENT)}.") from None


def _existing(target: str) -> os.stat_result | None:
    """Return the status of the file at target; None if none exists. Raises OSError if open() could not write it."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode) or not os.access(target, os.W_OK):
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EACCES
        raise OSError(number, os.strerror(number))
    return status


def _create(target: str, mode: int) -> tuple[str, int]:
    """Create an empty, hidden file beside target. Return its name, which is unique, and a descriptor that holds its lock."""
    folder, name = os.path.split(target)
    while True:
        new = os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}.part")
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        _lock(lock)
        if os.fstat(lock).st_nlink:
            return new, lock
        os.close(lock)  # another process removed it as a leftover before it was locked


def _lock(descriptor: int, wait: bool = True) -> bool:
    """Lock a file while the descriptor is open. Return False if that fails, as on a file system without locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _sweep(folder: str) -> None:
    """Remove the unfinished files in a folder that no living process writes, where possible."""
    _swept.add(folder)
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


@contextlib.contextmanager
def _naming(name: str, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (OSError, *kinds) as e:
        raise FileError(f"{name}: cannot be written: {getattr(e, 'strerror', None) or e}. The old file is unchanged.") from e
