"""The output of a job's workers: whole lines, each with the rank of the worker that wrote it."""

from __future__ import annotations

import io
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

MOST = 1 << 16  # bytes of a line; what is longer comes in parts
ONCE = 1 << 16  # bytes that are read at once


class Lines:
    """The bytes of a stream, cut into lines. Of a line that was written over, as by a progress bar, the last text counts."""

    def __init__(self) -> None:
        self._begun = b""

    def add(self, data: bytes) -> list[bytes]:
        """Return the lines that data completes, without their ends."""
        *whole, self._begun = (self._begun + data).split(b"\n")
        lines = [part for line in whole for part in _parts(_last_text(line))]
        while len(self._begun) > MOST:
            lines.append(self._begun[:MOST])
            self._begun = self._begun[MOST:]
        return lines

    def end(self) -> list[bytes]:
        """Return the line that was begun, if it has any text: no more will come."""
        begun, self._begun = _last_text(self._begun), b""
        return [begun] if begun else []


def _last_text(line: bytes) -> bytes:
    """Return what is seen of a line in which carriage returns go back to its beginning."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _parts(line: bytes) -> list[bytes]:
    return [line[i:i + MOST] for i in range(0, max(1, len(line)), MOST)]


def describe_end(status: int) -> str:
    """Return what became of a process with this exit status, negative for a signal: "ended with status 2"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class Output:
    """Passes on what workers write to their standard output and error, line by line, each after `[worker RANK] `.

    folder:  gets a file worker-RANK.log for each, to which all that it writes is appended as it is; None: no files.
    last:    the last line of each worker, of its standard error if it wrote any there.
    """

    def __init__(self, folder: Path | None = None):
        self.last: dict[int, str] = {}
        self._folder, self._logs, self._wrote_errors = folder, dict[int, io.FileIO](), set[int]()
        self._lines: dict[tuple[int, bool], Lines] = {}
        self._selector = selectors.DefaultSelector()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def attach(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        """Pass on the output of a process, whose streams are pipes."""
        for pipe, errors in ((process.stdout, False), (process.stderr, True)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (rank, errors))

    def add(self, rank: int, errors: bool, data: bytes) -> None:
        """Pass on data that a worker wrote. errors: to its standard error."""
        if self._folder is not None and data:
            if rank not in self._logs:
                self._logs[rank] = io.FileIO(self._folder / f"worker-{rank}.log", "ab")
            self._logs[rank].write(data)
        self._print(rank, errors, self._lines.setdefault((rank, errors), Lines()).add(data))

    def wait(self, seconds: float) -> None:
        """Pass on what comes; return after so many seconds at the latest, and earlier when something came."""
        for key, _ in self._selector.select(seconds):
            self._read(key)

    def detach(self, rank: int) -> None:
        """Pass on what is left of a worker that has ended. What others write to its streams from now on is lost."""
        for key in [k for k in self._selector.get_map().values() if k.data[0] == rank]:
            pipe: Any = key.fileobj
            while self._read(key):
                pass
            if not pipe.closed:
                self._close(key)
        for errors in (False, True):
            if lines := self._lines.pop((rank, errors), None):
                self._print(rank, errors, lines.end())

    def close(self) -> None:
        """Pass on what is left of all, and close all files."""
        for rank in {key.data[0] for key in self._selector.get_map().values()} | {rank for rank, _ in self._lines}:
            self.detach(rank)
        self._selector.close()
        for log in self._logs.values():
            log.close()

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Read once. Return False if nothing is there now, or nothing more will come."""
        pipe: Any = key.fileobj
        try:
            data = os.read(pipe.fileno(), ONCE)
        except BlockingIOError:
            return False
        if data:
            rank, errors = key.data
            self.add(rank, errors, data)
        else:
            self._close(key)
        return bool(data)

    def _close(self, key: selectors.SelectorKey) -> None:
        pipe: Any = key.fileobj
        self._selector.unregister(pipe)
        pipe.close()

    def _print(self, rank: int, errors: bool, lines: list[bytes]) -> None:
        stream: IO[str] = sys.stderr if errors else sys.stdout
        for line in lines:
            text = line.decode(errors="replace")
            if text.strip() and (errors or rank not in self._wrote_errors):
                self.last[rank] = text.strip()
        if errors and lines:
            self._wrote_errors.add(rank)
        if lines:
            stream.write("".join(f"[worker {rank}] {line.decode(errors='replace')}\n" for line in lines))
            stream.flush()
