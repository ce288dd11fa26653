"""The process that compiles: it reads jobs, forks compilers, and prints one line of JSON for each job.

A fork compiles several kernels, because Triton keeps what it has read once. A compiler that takes too long is killed with all
the processes it started, and the rest of its jobs go to another. concurrent.futures cannot do that: there one dead process
breaks the pool and every job in it, and no job has a time limit.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from .compile import compile_here

BATCH = 32  # jobs of one fork at most: Triton gives back little of the memory it takes

T = TypeVar("T")
Reply = dict[str, Any]  # JSON
Work = Callable[[T], Reply]
Answer = Callable[[int, Reply], None]


@dataclass
class _Compiler:
    """A fork, the jobs it still has to answer, and the time at which it is late with the first of them."""

    process: BaseProcess
    jobs: list[int]
    deadline: float


def run_pool(jobs: Sequence[T], work: Work[T], workers: int, timeout: float, answer: Answer) -> None:
    """Call answer(i, work(jobs[i])) for every job, several in each fork of this process, which must have one thread."""
    fork = multiprocessing.get_context("fork")
    batch = max(1, min(BATCH, len(jobs) // (4 * workers)))
    todo = [list(range(i, min(i + batch, len(jobs)))) for i in range(0, len(jobs), batch)][::-1]
    running: dict[Connection, _Compiler] = {}

    def finish(pipe: Connection, reply: Reply) -> None:
        """A compiler has ended: reply is the answer to the job it worked at, if any; its other jobs go to another."""
        pipe.close()
        left = running.pop(pipe).jobs
        if left:
            answer(left[0], reply)
        if left[1:]:
            todo.append(left[1:])

    try:
        while todo or running:
            while todo and len(running) < workers:
                numbers = todo.pop()
                pipe, theirs = fork.Pipe(duplex=False)
                process = fork.Process(target=_compile_all, args=(work, [jobs[i] for i in numbers], theirs))
                process.start()
                theirs.close()
                running[pipe] = _Compiler(process, numbers, time.monotonic() + timeout)
            patience = min(c.deadline for c in running.values()) - time.monotonic()
            for pipe in wait(list(running), max(0.0, patience)):
                assert isinstance(pipe, Connection)
                compiler = running[pipe]
                try:
                    reply = json.loads(pipe.recv_bytes())
                except (EOFError, OSError):
                    compiler.process.join()
                    finish(pipe, {"error": f"the compiler ended with exit code {compiler.process.exitcode}"})
                else:
                    answer(compiler.jobs.pop(0), reply)
                    compiler.deadline = time.monotonic() + timeout
            for pipe, compiler in list(running.items()):
                if time.monotonic() > compiler.deadline:
                    _kill(compiler.process)
                    finish(pipe, {"error": f"the compiler took more than {timeout:g} s", "late": True})
    finally:
        for compiler in running.values():
            _kill(compiler.process)


def _compile_all(work: Work[T], jobs: Sequence[T], pipe: Connection) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for job in jobs:
        pipe.send_bytes(json.dumps(work(job)).encode())


def _kill(process: BaseProcess) -> None:
    """Kill a compiler and the processes it started."""
    assert process.pid is not None
    for pid in (-process.pid, process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.join()


def _compiled(job: dict[str, Any]) -> Reply:
    try:
        with tempfile.TemporaryDirectory() as once:  # the result is kept in our own store, so not in Triton's as well
            os.environ["TRITON_CACHE_DIR"] = once
            facts, cubin = compile_here(job)
    except Exception as e:  # the parent names the kernel; one that fails must not lose the others
        return {"error": f"{type(e).__name__}: {e}"[:4000]}
    return {"facts": asdict(facts), "cubin": base64.b64encode(cubin).decode()}


def main() -> None:
    """Read jobs as JSON from standard input; print a line of JSON for each as it is done."""
    from triton.runtime import cache

    orders = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    key = getattr(cache, "triton_key", None)
    if key is not None:  # takes seconds and is remembered: once here and not in every fork
        key()
    run_pool(orders["jobs"], _compiled, orders["workers"], orders["timeout"],
             lambda i, reply: print(json.dumps({"i": i, **reply}), flush=True))


if __name__ == "__main__":
    main()
