"""Helpers for tests of stores over several processes: jobs, several workers in one process, and workers as processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tritium as mx
from tritium import engine
from tritium.errors import DeadWorkerError, MXNetError
from tritium.kvstore.job.local_job import LocalJob
from tritium.kvstore.worker.dist import DistKVStore

TIMEOUT = 120  # seconds: far more than any test takes


def until(condition):
    """Wait until condition() is true, however long a busy machine takes."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_state(pid, state):
    """Wait until a process is in a state of proc(5): "T" stopped, "Z" ended and not yet waited for."""
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == state)


@contextlib.contextmanager
def closing(stores):
    """Close stores afterwards. After a failure, do not wait for rounds that will not be completed."""
    try:
        yield
    except BaseException:
        for s in stores:
            s._client.timeout = 0.0
        raise
    finally:
        for s in stores:
            s.close()


_nesting = []  # one entry for each active `one_failure`: outer stores may be busy when an inner one ends


@contextlib.contextmanager
def one_failure():
    """After a failure inside, wait for the engine and discard the errors that follow from the failure."""
    _nesting.append(None)
    try:
        yield
    except BaseException:
        if engine.current()._wait_idle(TIMEOUT if len(_nesting) == 1 else 5.0):
            with contextlib.suppress(MXNetError):
                mx.nd.waitall()
        raise
    finally:
        _nesting.pop()


@contextlib.contextmanager
def worker(job, rank, kind="dist_sync"):
    """A store in this process, as one worker of a job."""
    kv = DistKVStore(kind, job.file, rank=rank, timeout=TIMEOUT)
    with one_failure(), closing([kv]):
        yield kv


@contextlib.contextmanager
def workers(n, kind="dist_sync", servers=1, **settings):
    """n stores of one job, all in this process, and each(fn), which runs fn(store) for all of them concurrently.

    each.submit(fn, ...) runs a function in another thread, until the stores are closed.
    """
    stores = []
    with (one_failure(), LocalJob(n, servers, **settings) as job, concurrent.futures.ThreadPoolExecutor(n + 4) as pool,
          closing(stores)):
        joining = [pool.submit(DistKVStore, kind, job.file, rank=r, timeout=TIMEOUT) for r in range(n)]
        concurrent.futures.wait(joining)
        stores += [j.result() for j in joining if j.exception() is None]
        for j in joining:
            j.result()

        def each(fn):
            running = [pool.submit(fn, s) for s in stores]
            ended, _ = concurrent.futures.wait(running, TIMEOUT, concurrent.futures.FIRST_EXCEPTION)
            for f in ended:
                f.result()
            return [f.result(0) for f in running]

        each.submit = pool.submit
        yield job, stores, each


class _Process(subprocess.Popen):
    """A process that is killed if the body of its `with` fails."""

    def __exit__(self, kind, *rest):
        if kind is not None:
            self.kill()
        return super().__exit__(kind, *rest)


def worker_process(job, rank, code, stderr=None):
    """A process that runs code as a worker; its stdout is a pipe."""
    return _Process([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=stderr, text=True, env={
        **os.environ, "TRITIUM_KV_JOB": str(job.file), "TRITIUM_KV_RANK": str(rank), "TRITIUM_GPU": "off"})


def pull(store, key, like):
    """The value of key as a NumPy array."""
    out = mx.nd.zeros(like.shape, dtype=like.dtype)
    store.pull(key, out)
    return out.asnumpy()


def push_until_applied(kv, key, value):
    """Pull, and push value again after each death, when no worker is dead. Returns the first element."""
    while True:
        out = mx.nd.zeros(3)
        try:
            kv.pull(key, out)
            return float(out.asnumpy()[0])
        except DeadWorkerError:
            while kv.get_num_dead_node(4):
                time.sleep(0.01)
            kv.push(key, value)


def array(values, dtype="float32"):
    return mx.nd.array(np.asarray(values), dtype=dtype)
