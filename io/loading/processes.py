"""ProcessPool: spawned workers for what holds Python's lock, as transforms written in Python do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from ...errors import MXNetError, ParameterError

_PATIENCE = 2.0  # seconds that a process is given to end by itself


class ProcessPool:
    """`count` spawned processes, each with a copy of `work`: what is asked is answered in order, whoever is done first.

    work:  a function or an object that can be called; it, what it is given and what it gives must be picklable.
    name:  what errors call the pool's owner.
    A process ends when its pipe does: when the pool is closed or dropped, and when the process that owns it is killed. Where
    one ends by itself, or a wait is interrupted, the pool is closed.
    """

    def __init__(self, work: Callable[[Any], Any], count: int, name: str):
        self.count, self.name, self.owner = count, name, os.getpid()
        spawn = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._end = weakref.finalize(self, _end, self._pipes, self._processes, self.owner)
        self._asked: deque[int] = deque()  # whose answer comes next
        self._stale = 0  # answers that nobody waits for any more
        self._next = 0
        for _ in range(count):
            pipe, theirs = spawn.Pipe()
            self._pipes.append(pipe)
            process = spawn.Process(target=_serve, args=(theirs, work), daemon=True, name=name)
            try:
                process.start()
            except OSError:
                raise
            except Exception as e:  # whatever pickling says
                self.close()
                raise ParameterError(f"{name}: cannot be handed to a worker process: {e}. Define classes and functions at "
                                     f"the top of a module.") from None
            finally:
                theirs.close()
            self._processes.append(process)

    def __len__(self) -> int:
        """How many answers are waited for."""
        return len(self._asked) - self._stale

    def ask(self, task: Any) -> None:
        """Let the next process work on task."""
        which, self._next = self._next, (self._next + 1) % self.count
        try:
            self._pipes[which].send(task)
        except OSError:
            pass  # it died: `answer` says so, in its place
        self._asked.append(which)

    def answer(self) -> Any:
        """What came of the oldest task. An error of the work is raised here: one of errors.py as it is, another in words."""
        while self._stale:
            self._stale -= 1
            self._receive()
        error, answer, text = self._receive()
        if error is not None:
            raise error from MXNetError(f"in a worker process:\n{text}")
        return answer

    def forget(self) -> None:
        """Nobody waits for what was asked so far."""
        self._stale = len(self._asked)

    @property
    def closed(self) -> bool:
        """Whether the processes have ended."""
        return not self._end.alive

    def close(self) -> None:
        """End the processes, and wait for that."""
        self._end()

    def _receive(self) -> tuple[BaseException | None, Any, str]:
        which = self._asked.popleft()
        try:
            return self._pipes[which].recv()
        except (EOFError, OSError):
            process = self._processes[which]
            process.join(_PATIENCE)
            code = process.exitcode
            self.close()
            raise MXNetError(f"{self.name}: worker process {which} ended by itself, with exit code {code}.") from None
        except BaseException:  # Ctrl-C: what is left of the answer would be taken for the next one
            self.close()
            raise


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """A worker's life: answer what is asked until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to answer; it then closes the pipe
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[BaseException | None, Any, str] = (None, work(task), "")
        except Exception as e:
            answer = (e if isinstance(e, MXNetError) else MXNetError(f"{type(e).__name__}: {e}"), None, traceback.format_exc())
        try:
            pipe.send(answer)
        except OSError:
            return


def _end(pipes: list[Connection], processes: list[BaseProcess], owner: int) -> None:
    for pipe in pipes:
        pipe.close()
    if os.getpid() == owner:  # a forked child's copy of the pool is not a parent of them
        for process in processes:
            process.join(_PATIENCE)
            if process.exitcode is None:
                process.terminate()
                process.join()
            process.close()
    pipes.clear()
    processes.clear()
