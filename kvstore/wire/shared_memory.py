"""Shared memory between a worker and the servers on its host: files in /dev/shm that only this user can open.

The worker owns the segments. Frames name a segment by its number, and the server adds the sender's authenticated rank to find the
file, so no file name is ever received. If there is no shared memory, or not enough, bytes are sent in frames.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import threading
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import FrameError
from ...integers import cdiv

DIRECTORY = Path("/dev/shm")
SMALLEST = 32 << 10  # bytes: a group of arrays that is smaller is sent in frames
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # map all pages at once: page faults would take several times as long


def segment_name(job: str, rank: int, incarnation: int, segment: int) -> str:
    assert re.fullmatch(r"[0-9a-f]{1,64}", job), job
    return f"tritium-{job}-{rank}-{incarnation}-{segment}"


def remove_segments(job: str) -> None:
    """Delete the files of a job that has ended. Mapped memory stays valid."""
    with contextlib.suppress(OSError):
        for path in DIRECTORY.glob(f"tritium-{job}-*"):
            path.unlink(missing_ok=True)


class SharedSlot(NamedTuple):
    """A range of shared memory that holds one array. `view`: its bytes, uint8."""

    segment: int
    view: np.ndarray


class SegmentPool:
    """A worker's segments. Each holds one slot, and is used again for the same size when nothing refers to the slot any more.

    Any thread may call it.
    """

    def __init__(self, job: str, rank: int, incarnation: int):
        self._prefix = (job, rank, incarnation)
        self._free: dict[int, list[tuple[int, mmap.mmap]]] = {}  # by size: numbers of segments, and their memory
        self._count = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> SharedSlot | None:
        """Return a slot of at least nbytes, or None if the system has no shared memory left."""
        size = cdiv(nbytes, mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            free = self._free.setdefault(size, [])
            segment = free.pop() if free else self._new_segment(size)
        if segment is None:
            return None
        number, memory = segment
        view = np.frombuffer(memory, np.uint8)
        weakref.finalize(view, free.append, segment).atexit = False
        return SharedSlot(number, view)

    def _new_segment(self, size: int) -> tuple[int, mmap.mmap] | None:
        path = DIRECTORY / segment_name(*self._prefix, self._count)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            os.posix_fallocate(fd, 0, size)
            memory = mmap.mmap(fd, size, mmap.MAP_SHARED | _POPULATE)
        except OSError:
            path.unlink(missing_ok=True)
            return None
        finally:
            os.close(fd)
        self._count += 1
        return self._count - 1, memory

    def close(self) -> None:
        for i in range(self._count):
            (DIRECTORY / segment_name(*self._prefix, i)).unlink(missing_ok=True)


class SegmentViews:
    """A server's mappings of the segments of one worker."""

    def __init__(self, job: str, rank: int, incarnation: int):
        self._prefix = (job, rank, incarnation)
        self._open: dict[int, np.ndarray] = {}

    def bytes(self, segment: int, at: int, nbytes: int) -> np.ndarray:
        """Return nbytes of a segment from byte `at`. Raises FrameError for a range or a file that is not valid."""
        view = self._open.get(segment)
        if view is None:
            view = self._open[segment] = self._map(segment)
        if at + nbytes > len(view):
            raise FrameError(f"shared memory: segment {segment} has {len(view)} bytes; {nbytes} from byte {at} were requested.")
        return view[at:at + nbytes]

    def _map(self, segment: int) -> np.ndarray:
        path = DIRECTORY / segment_name(*self._prefix, segment)
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            raise FrameError(f"shared memory: segment {segment} cannot be opened: {e.strerror}.") from e
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or not status.st_size:
                raise FrameError(f"shared memory: segment {segment} is not a regular file of this user.")
            return np.frombuffer(mmap.mmap(fd, status.st_size, mmap.MAP_SHARED | _POPULATE), np.uint8)
        finally:
            os.close(fd)
