"""ThreadPool: threads that start with the first job and end when the pool is closed or dropped.

`concurrent.futures.ThreadPoolExecutor` joins its threads at exit, so a program would not end while one of them waits for a
server or for another iterator. A forked child could not use it either.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable

from ...fork import in_forked_child


class ThreadPool:
    """`count` daemon threads that run the jobs passed to `put`, in order.

    A forked child starts its own threads with its first job. Jobs queued before the fork run in the parent only.
    """

    def __init__(self, count: int, name: str):
        self.count, self.name, self._closed = count, name, False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, self._jobs.put, None)

    def put(self, job: Callable[[], None]) -> None:
        """Run job on one of the threads, or in the caller's thread after `close`. It must not raise."""
        with self._lock:
            if not self._closed:
                while len(self._threads) < self.count:
                    thread = threading.Thread(target=_work, args=(self._jobs,), daemon=True,
                                              name=f"{self.name}-{len(self._threads)}")
                    thread.start()
                    self._threads.append(thread)
                self._jobs.put(job)
                return
        job()

    def close(self) -> None:
        """Run the queued jobs, end the threads and wait for them."""
        with self._lock:
            self._closed = True
            self._end()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


def _work(jobs: queue.SimpleQueue) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # a waiting thread must not keep the batch of its last job
    jobs.put(None)  # ends the next thread


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


@in_forked_child
def _forget_threads() -> None:
    for pool in list(_pools):
        pool._reset()
