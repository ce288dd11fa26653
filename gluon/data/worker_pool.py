"""WorkerPool: forked processes that compute batches. A worker that dies is an error, never a hang.

Task k is given to worker k modulo their number, so that random augmentations do not depend on timing.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recvfds, sendfds
from typing import Any

import numpy as np

from ...engine.current_engine import set_current
from ...engine.threaded import ThreadedEngine
from ...errors import MXNetError, ParameterError
from ...io.loading.processes import END_TIMEOUT, end_processes
from ...ndarray import random as nd_random
from .shared_array import Key, Outbox, Region, arrived, dumps, loads

_AHEAD = 1 << 15  # bytes of tasks sent to a busy worker; a pipe holds more, so sending never waits for it
_MOST_IDLE = 8  # regions of shared memory that wait for another array, per worker
_MOST_FDS = 200  # descriptors per message; the system allows 253


class PendingResult:
    """The result of a task. `get` waits for it. A task nobody holds any more is not sent, or its result is dropped."""

    def __init__(self, pool: WorkerPool, worker: int, task: bytes):
        self._pool, self._worker = pool, worker
        self._body: bytes | None = None
        self._keys: Sequence[Key] = ()  # of the arrays in the body
        pool._queued[worker].append((weakref.ref(self), task))
        pool._send(worker)

    def get(self, timeout: float | None = None) -> Any:
        """Return the result, waiting up to timeout seconds.

        Raises the error of the task; MXNetError if its worker dies; multiprocessing.TimeoutError.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._pool._lock:
            while self._body is None:
                self._pool._receive(self._worker, end)
        error, answer, text = loads(self._body)
        if error is not None:
            raise error from MXNetError(f"in a worker process:\n{text}")
        return answer

    def _arrive(self, body: bytes, keys: Sequence[Key]) -> None:
        self._body, self._keys = body, keys

    def __del__(self) -> None:
        _drop(self._keys)  # of arrays in an answer that was never unpickled


def _drop(keys: Sequence[Key]) -> None:
    for key in keys:
        region, home = arrived.pop(key, (None, None))
        if region is not None and home is not None:
            home.append(region)


class WorkerPool:
    """`processes` forked processes. `apply_async` has the interface of multiprocessing.Pool.

    initializer:  called with initargs in each process first. They need not be picklable, since a fork copies them.
    The processes end when the pool is terminated or dropped, or when its owner ends in any way.
    """

    def __init__(self, processes: int, initializer: Callable[..., None] | None = None, initargs: Sequence[Any] = ()):
        self.owner = os.getpid()
        self._next = 0
        self._lock = threading.RLock()  # several threads may iterate over one loader
        self._queued: list[deque[tuple[weakref.ref, bytes]]] = [deque() for _ in range(processes)]
        self._sent: list[deque[tuple[weakref.ref, int]]] = [deque() for _ in range(processes)]  # and their bytes
        self._returned: list[deque[Region]] = [deque() for _ in range(processes)]  # of arrays that were dropped since a task
        self._idle: list[dict[Key, Region]] = [{} for _ in range(processes)]  # given back to the worker, for other arrays
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._end = weakref.finalize(self, end_processes, self._pipes, self._processes, self.owner)
        methods = multiprocessing.get_all_start_methods()
        start: Any = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
        for number in range(processes):
            pipe, worker_end = start.Pipe()
            # a spawned process does not inherit pipes
            inherited = [*self._pipes, pipe] if start.get_start_method() == "fork" else []
            process = start.Process(target=_serve, daemon=True, name=f"DataLoader-{number}",
                                    args=(worker_end, inherited, _seeds(number), initializer, initargs))
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the worker ignores it
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                worker_end.close()
            self._pipes.append(pipe)
            self._processes.append(process)

    @property
    def closed(self) -> bool:
        """True after the processes have ended."""
        return not self._end.alive

    def apply_async(self, func: Callable[..., Any], args: Sequence[Any] = ()) -> PendingResult:
        """Have the next worker compute func(*args). Both must be picklable."""
        if self.closed:
            raise MXNetError("DataLoader: its worker processes have ended. Iterate over the loader again to start new ones.")
        try:
            task = bytes(dumps((func, tuple(args))))
        except Exception as e:  # pickling raises errors of many classes
            raise ParameterError(f"DataLoader: batchify_fn or indices cannot be passed to a worker process: {e}. Define "
                                 f"functions and classes at the top of a module.") from None
        with self._lock:
            worker, self._next = self._next, (self._next + 1) % len(self._pipes)
            return PendingResult(self, worker, task)

    def terminate(self) -> None:
        """End the processes at once, and wait for that."""
        self._end()

    def _send(self, worker: int) -> None:
        """Send tasks to a worker as far as that cannot wait: it may be busy, and then does not read."""
        queued, sent = self._queued[worker], self._sent[worker]
        try:
            while queued:
                result, task = queued[0]
                if result() is not None:
                    if sent and sum(n for _, n in sent) + len(task) > _AHEAD:
                        return
                    self._pipes[worker].send_bytes(dumps((*self._given_back(worker), task)))
                    sent.append((result, len(task)))
                queued.popleft()
        except OSError:
            return  # it died; `get` says so
        except BaseException:  # after Ctrl-C nobody knows what was sent
            self.terminate()
            raise

    def _given_back(self, worker: int) -> tuple[list[Key], list[Key]]:
        """Return the keys of regions that a worker may use again, and of those that it shall drop."""
        returned, idle = self._returned[worker], self._idle[worker]
        keep: list[Key] = []
        drop: list[Key] = []
        while returned:
            region = returned.popleft()
            assert region.key is not None
            if len(idle) < _MOST_IDLE:
                idle[region.key] = region
                keep.append(region.key)
            else:
                drop.append(region.key)
        return keep, drop

    def _receive(self, worker: int, end: float | None) -> None:
        """Take one answer of a worker."""
        if self.closed:
            raise MXNetError("DataLoader: its worker processes have ended. Iterate over the loader again to start new ones.")
        pipe = self._pipes[worker]
        try:
            if not wait([pipe], None if end is None else max(0.0, end - time.monotonic())):
                if not self._processes[worker].is_alive():  # a process that it started holds its pipe open
                    raise EOFError
                raise multiprocessing.TimeoutError
            keys, new = loads(pipe.recv_bytes())
            fds: list[int] = []
            if new:
                with socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                    while len(fds) < len(new):
                        fds += recvfds(channel, min(_MOST_FDS, len(new) - len(fds)))
            regions = {key: Region(fd, os.fstat(fd).st_size, key) for key, fd in zip(new, fds)}
            for key in keys:
                region = regions.get(key) or self._idle[worker].pop(key)
                region.close()
                arrived[key] = region, self._returned[worker]
            body = pipe.recv_bytes()
            result = self._sent[worker].popleft()[0]()
            if result is None:
                _drop(keys)
            else:
                result._arrive(body, keys)
        except (EOFError, OSError):
            raise self._death(worker) from None
        except BaseException:  # after Ctrl-C or too long a wait, the rest of this answer would be read as the next one
            self.terminate()
            raise
        self._send(worker)

    def _death(self, worker: int) -> MXNetError:
        process = self._processes[worker]
        process.join(END_TIMEOUT)
        code, pid = process.exitcode, process.pid
        self.terminate()
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"
        return MXNetError(f"DataLoader: worker process {worker} (pid {pid}) {how} while it computed a batch. Run with "
                          f"num_workers=0 to see its error; SIGKILL usually means that memory ran out.")


# ---- in a worker process ------------------------------------------------------------------------------------------------
def _serve(pipe: Connection, inherited: Sequence[Connection], seeds: Sequence[int], initializer: Callable[..., None] | None,
           initargs: Sequence[Any]) -> None:
    """Answer tasks until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in inherited:  # the owner's ends: while a copy is open, the other workers do not see that the owner has ended
        other.close()
    gc.freeze()  # the collector would write to what the owner has made, so that its pages had to be copied
    set_current(ThreadedEngine(1))  # the processes share the cores, so none divides its work
    for seed, value in zip((np.random.seed, random.seed, nd_random.seed), seeds):
        seed(value)
    if initializer is not None:
        initializer(*initargs)
    with socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        while True:
            Outbox.open = outbox = []
            try:
                keep, drop, task = loads(pipe.recv_bytes())
                Outbox.take_back(keep, drop)
                body = _run(task)
                regions = {memory.region.key: memory.region for memory in outbox}
                new = {key: region for key, region in regions.items() if key not in Outbox.sent}
                Outbox.sent.update(new)
                Outbox.lent.update(regions)
                pipe.send_bytes(dumps((list(regions), list(new))))
                fds = [region.fd for region in new.values()]
                for start in range(0, len(fds), _MOST_FDS):
                    sendfds(channel, fds[start:start + _MOST_FDS])
                pipe.send_bytes(body)
            except (EOFError, OSError):
                return


def _run(task: bytes) -> Any:
    try:
        func, args = loads(task)
        return dumps((None, func(*args), ""))
    except Exception as e:
        text = traceback.format_exc()
        try:
            body = dumps((e, None, text))
            loads(body)  # an error with other arguments than its class takes cannot be made again
            return body
        except Exception:
            notes = "".join(f" {note}" for note in getattr(e, "__notes__", ()))
            return dumps((MXNetError(f"{type(e).__name__}: {e}.{notes}"), None, text))


def _seeds(number: int) -> tuple[int, int, int]:
    """Return seeds for worker `number` that follow from this process's generators, without drawing from them."""
    state: Any = np.random.get_state()
    own = random.getstate()[1]  # 624 numbers of the generator, then its place among them
    entropy = [number, int(state[2]), *map(int, state[1][:4]), *own[:4], own[-1]]
    a, b, c = np.random.SeedSequence(entropy).generate_state(3)
    return int(a), int(b), int(c & 0x7fffffff)
