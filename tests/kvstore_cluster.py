"""What the tests of stores over several processes share: jobs, several workers in one process, and workers as processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import subprocess
import sys

import numpy as np
import tritium as mx
from tritium.kvstore.dist import DistKVStore
from tritium.kvstore.job import Job


@contextlib.contextmanager
def workers(n, kind="dist_sync", shards=1, **settings):
    """n stores of one job, all in this process, and a function that runs fn(store) for each at the same time."""
    with Job(n, shards, **settings) as job, concurrent.futures.ThreadPoolExecutor(n) as pool:
        stores = list(pool.map(lambda r: DistKVStore(kind, job.file, rank=r, timeout=300), range(n)))

        def each(fn):
            return [f.result(60) for f in [pool.submit(fn, s) for s in stores]]

        try:
            yield job, stores, each
        finally:
            for s in stores:
                s.close()


class _Process(subprocess.Popen):
    """With `with`: what fails is not followed by waiting for a process that waits for it."""

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


def array(values, dtype="float32"):
    return mx.nd.array(np.asarray(values), dtype=dtype)
