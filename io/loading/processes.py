"""ProcessPool: spawned worker processes for work that holds the GIL, such as transforms written in Python.

`concurrent.futures.ProcessPoolExecutor` would leave its workers running when the owning process is killed.
"""

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

END_TIMEOUT = 2.0  # seconds until a worker that does not end is killed


class ProcessPool:
    """`count` spawned processes, each with a copy of `work`. Answers are returned in the order of the tasks.

    work:  a function or callable object. It, its argument and its result must be picklable.
    name:  the owner's name in error messages.
    A worker ends when its pipe closes: when the pool is closed or dropped, or its owner is killed. When a worker dies, or a
    wait for an answer is interrupted, the pool closes.
    """

    def __init__(self, work: Callable[[Any], Any], count: int, name: str):
        self.count, self.name, self.owner = count, name, os.getpid()
        spawn = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._end = weakref.finalize(self, end_processes, self._pipes, self._processes, self.owner)
        self._pending: deque[int] = deque()  # the worker of each unanswered task
        self._cancelled = 0  # the first so many pending answers are dropped
        self._next = 0
        for _ in range(count):
            pipe, worker_end = spawn.Pipe()
            self._pipes.append(pipe)
            process = spawn.Process(target=_serve, args=(worker_end, work), daemon=True, name=name)
            try:
                process.start()
            except OSError:
                raise
            except Exception as e:  # pickling raises errors of many classes
                self.close()
                raise ParameterError(f"{name}: cannot be passed to a worker process: {e}. Define classes and functions at "
                                     f"the top of a module.") from None
            finally:
                worker_end.close()
            self._processes.append(process)

    def ask(self, task: Any) -> None:
        """Give task to the next process."""
        worker, self._next = self._next, (self._next + 1) % self.count
        try:
            self._pipes[worker].send(task)
        except OSError:
            pass  # it died: `answer` raises that when it is its turn
        self._pending.append(worker)

    def answer(self) -> Any:
        """Wait for the result of the oldest task. Raises the worker's MXNetError, or another error's text as an MXNetError."""
        while self._cancelled:
            self._cancelled -= 1
            self._receive()
        error, answer, text = self._receive()
        if error is not None:
            raise error from MXNetError(f"in a worker process:\n{text}")
        return answer

    def cancel(self) -> None:
        """Drop the answers of all tasks given so far."""
        self._cancelled = len(self._pending)

    @property
    def closed(self) -> bool:
        """True after the processes have ended."""
        return not self._end.alive

    def close(self) -> None:
        """End the processes and wait for them."""
        self._end()

    def _receive(self) -> tuple[BaseException | None, Any, str]:
        worker = self._pending.popleft()
        try:
            return self._pipes[worker].recv()
        except (EOFError, OSError):
            process = self._processes[worker]
            process.join(END_TIMEOUT)
            code = process.exitcode
            self.close()
            raise MXNetError(f"{self.name}: worker process {worker} died with exit code {code}.") from None
        except BaseException:  # after Ctrl-C the rest of this answer would be read as the next one
            self.close()
            raise


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """Answer tasks in a worker process until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C and closes the pipe
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


def end_processes(pipes: list[Connection], processes: list[BaseProcess], owner: int) -> None:
    """Close the pipes to worker processes, and end the processes. A worker that does not end within two seconds is killed."""
    for pipe in pipes:
        pipe.close()
    if os.getpid() == owner:  # a forked child must not end the processes of its parent
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(END_TIMEOUT)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
    pipes.clear()
    processes.clear()
