"""Files that are written whole or not at all: what stood there before stays until the new one is complete. And read whole.

The one way files are written here: the bytes go to a new name beside the file, which is then given the file's name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator

from .errors import FileError

_READING = os.O_CLOEXEC | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # waits for no pipe's writer


@contextlib.contextmanager
def whole_file(path: str | os.PathLike, *, mode: int | None = None, sync: bool = True) -> Iterator[str]:
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
        new = _create(target, 0o666 if mode is None else mode) if aside else target
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


def write_whole(path: str | os.PathLike, data: str | bytes | Iterable[bytes | memoryview], *, mode: int | None = None,
                sync: bool = True) -> None:
    """Write data to path, whole or not at all, as whole_file does.

    data:  text (written in UTF-8), bytes, or pieces of them in order.
    """
    if isinstance(data, str):
        data = data.encode()
    with whole_file(path, mode=mode, sync=sync) as new, _told(os.fsdecode(path)), open(new, "wb") as file:
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


def read_whole(path: str | os.PathLike) -> bytes:
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


def _create(target: str, mode: int) -> str:
    """A new, empty file beside target, hidden, with a name that no other call uses."""
    folder, name = os.path.split(target)
    new = os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}.part")
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    return new


def _to_disk(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _told(name: str, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (OSError, *kinds) as e:
        raise FileError(f"{name}: cannot be written: {getattr(e, 'strerror', None) or e}. What stood there is unchanged.") from e
