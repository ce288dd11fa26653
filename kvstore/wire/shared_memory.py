"""Shared memory between a worker and the shards on its host: files in /dev/shm that only this user can open.

The worker owns the segments; a frame names them by number, and the shard finds them by the worker's authenticated rank, so no
name travels. Where there is no shared memory, or not enough, bytes travel in frames instead.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
from pathlib import Path

import numpy as np

from ...errors import FrameError
from ...integers import cdiv

DIRECTORY = Path("/dev/shm")
SMALLEST = 32 << 10  # bytes: what is smaller, with all that is sent together with it, travels in frames
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # all pages at once: one by one, as they are touched, takes several times as long


def segment_name(job: str, rank: int, incarnation: int, segment: int) -> str:
    """The file of one segment of one worker of one job."""
    assert re.fullmatch(r"[0-9a-f]{1,64}", job), job
    return f"tritium-{job}-{rank}-{incarnation}-{segment}"


def remove_segments(job: str) -> None:
    """Delete the files of a job that is over; memory still mapped stays valid."""
    with contextlib.suppress(OSError):
        for path in DIRECTORY.glob(f"tritium-{job}-*"):
            path.unlink(missing_ok=True)


class Slot:
    """A range of shared memory that holds one array. `view`: its bytes, uint8."""

    __slots__ = ("segment", "view")

    def __init__(self, segment: int, view: np.ndarray):
        self.segment, self.view = segment, view


class Pool:
    """A worker's segments, each one slot; a slot that is given back is used again for what fits."""

    def __init__(self, job: str, rank: int, incarnation: int):
        self._prefix = (job, rank, incarnation)
        self._free: dict[int, list[Slot]] = {}
        self._count = 0

    def take(self, nbytes: int) -> Slot | None:
        """A slot of at least nbytes; None if the system has no room."""
        size = cdiv(nbytes, mmap.PAGESIZE) * mmap.PAGESIZE
        free = self._free.get(size)
        if free:
            return free.pop()
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
        return Slot(self._count - 1, np.frombuffer(memory, np.uint8))

    def give(self, slot: Slot) -> None:
        """Take back a slot that nobody reads any more."""
        self._free.setdefault(len(slot.view), []).append(slot)

    def close(self) -> None:
        """Delete the files."""
        for i in range(self._count):
            (DIRECTORY / segment_name(*self._prefix, i)).unlink(missing_ok=True)
        self._free.clear()


class Views:
    """A shard's views of the segments of one worker."""

    def __init__(self, job: str, rank: int, incarnation: int):
        self._prefix = (job, rank, incarnation)
        self._open: dict[int, np.ndarray] = {}

    def bytes(self, segment: int, at: int, nbytes: int) -> np.ndarray:
        """nbytes of a segment from `at`. Raises FrameError if they are not all there, or not the worker's to show."""
        view = self._open.get(segment)
        if view is None:
            view = self._open[segment] = self._map(segment)
        if at + nbytes > len(view):
            raise FrameError(f"shared memory: segment {segment} has {len(view)} bytes; {nbytes} from {at} are asked for.")
        return view[at:at + nbytes]

    def _map(self, segment: int) -> np.ndarray:
        path = DIRECTORY / segment_name(*self._prefix, segment)
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            raise FrameError(f"shared memory: segment {segment} cannot be opened: {e.strerror}.") from e
        try:
            what = os.fstat(fd)
            if not stat.S_ISREG(what.st_mode) or what.st_uid != os.getuid() or not what.st_size:
                raise FrameError(f"shared memory: segment {segment} is no file of this user.")
            return np.frombuffer(mmap.mmap(fd, what.st_size, mmap.MAP_SHARED | _POPULATE), np.uint8)
        finally:
            os.close(fd)
