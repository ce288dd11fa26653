"""ThreadPool: threads that run jobs; they start with the first one and end when their pool is closed or dropped."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable

from ...fork import in_forked_child


class ThreadPool:
    """`count` threads that run what `put` hands them, first come first served.

    A forked child starts threads of its own with its first job; jobs that were queued in the parent are the parent's.
    """

    def __init__(self, count: int, name: str):
        self.count, self.name = count, name
        self._state = _State()
        weakref.finalize(self, self._state.stop)
        _all.add(self)

    def put(self, job: Callable[[], None]) -> None:
        """Run job on one of the threads; after `close`, in the caller's. It must not raise."""
        state = self._state
        with state.lock:
            if not state.closed:
                while len(state.threads) < self.count:
                    thread = threading.Thread(target=_work, args=(state.jobs,), daemon=True,
                                              name=f"{self.name}-{len(state.threads)}")
                    thread.start()
                    state.threads.append(thread)
                state.jobs.put(job)
                return
        job()

    def close(self) -> None:
        """Let the threads finish what is queued, end them, and wait for that."""
        for thread in self._state.stop():
            if thread is not threading.current_thread():
                thread.join()


class _State:
    """What the threads and the pool share; it does not know the pool, so that this can be dropped."""

    def __init__(self):
        self.closed = False
        self.forget()

    def forget(self) -> None:
        """In a forked child: no thread is here, and no lock may be trusted."""
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def stop(self) -> list[threading.Thread]:
        """Tell the threads to end after what is queued. The garbage collector may call it: then nobody is in `put`."""
        with self.lock:
            self.closed = True
            threads, self.threads = self.threads, []
            for _ in threads:
                self.jobs.put(None)
        return threads


def _work(jobs: queue.SimpleQueue) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # a thread that waits for the next job must not keep the last one's batch


_all: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


@in_forked_child
def _forget_threads() -> None:
    for workers in list(_all):
        workers._state.forget()
