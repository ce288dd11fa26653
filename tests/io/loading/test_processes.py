"""ProcessPool: order, errors, a worker that dies, an owner that is killed, a fork; no process is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tritium.errors import FileError, MXNetError, ParameterError
from tritium.io.loading import processes
from tritium.io.loading.processes import ProcessPool


def work(task):
    """Do a task by its kind, in a worker."""
    kind, value = task
    if kind == "square":
        return value * value
    if kind == "bytes":
        return bytes(value)
    if kind == "file":
        raise FileError(f"a.rec: record {value} is damaged")
    if kind == "never":
        threading.Event().wait()
    if kind == "die":
        os._exit(value)
    raise KeyError(value)


@pytest.fixture(params=[1])
def pool(request):
    made = ProcessPool(work, request.param, "Pool")
    yield made
    made.close()


@pytest.mark.parametrize("pool", [2], indirect=True)
def test_answers_and_errors_are_returned_in_order(pool):
    started = list(pool._processes)
    tasks = [("square", 3), ("file", 7), ("bytes", 1_000_000), ("none", "x"), ("square", 4)]
    for task in tasks:
        pool.ask(task)
    assert len(pool._pending) == 5
    assert pool.answer() == 9
    with pytest.raises(FileError, match=r"^a\.rec: record 7 is damaged$"):
        pool.answer()
    assert pool.answer() == bytes(1_000_000)
    with pytest.raises(MXNetError, match=r"^KeyError: 'x'$") as raised:
        pool.answer()
    assert "in work" in str(raised.value.__cause__), "the worker's own lines are shown"
    pool.cancel()
    pool.ask(("square", 5))
    assert len(pool._pending) == 1 + pool._cancelled and pool.answer() == 25, "answers to cancelled tasks are dropped"
    pool.close()
    with pytest.raises(ValueError, match="process object is closed"):
        started[0].is_alive()


def test_a_worker_that_dies_is_named(pool, monkeypatch):
    monkeypatch.setattr(processes, "END_TIMEOUT", 250)  # it may close its pipe much earlier than it ends
    pool.ask(("square", 2))
    pool.ask(("die", 3))
    assert pool.answer() == 4
    with pytest.raises(MXNetError, match=r"^Pool: worker process 0 died with exit code 3\.$"):
        pool.answer()
    assert pool.closed


def test_an_interrupted_wait_closes_the_pool(pool, monkeypatch):
    """After a KeyboardInterrupt in the middle of an answer, the rest of it would be left in the pipe."""
    monkeypatch.setattr(processes, "END_TIMEOUT", 0.01)
    main = threading.main_thread().ident

    def interrupt():
        while not any(code is Connection.recv.__code__ for code in running_in(main)):
            time.sleep(0)
        signal.pthread_kill(main, signal.SIGINT)
    pool.ask(("never", None))
    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        pool.answer()
    thread.join()
    assert pool.closed, "the worker that waited forever has ended, too"


def running_in(thread):
    """Yield the code objects of a thread's stack."""
    frame = sys._current_frames()[thread]
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def test_work_that_cannot_be_pickled_is_named():
    with pytest.raises(ParameterError, match=r"^Pool: cannot be passed to a worker process: .*at the top of a module\.$"):
        ProcessPool(lambda task: task, 1, "Pool")


KILLED = """
import os, signal, sys
sys.path[:0] = [sys.argv[1]]
from test_processes import work
from tritium.io.loading.processes import ProcessPool
if __name__ == "__main__":
    pool = ProcessPool(work, 2, "Pool")
    pool.ask(("square", 2))
    assert pool.answer() == 4
    for _ in range(6):
        pool.ask(("bytes", 1_000_000))  # more than a pipe holds, so the workers wait in the middle of an answer
    print(*(p.pid for p in pool._processes), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_workers_of_a_killed_process_end(tmp_path):
    (tmp_path / "owner.py").write_text(KILLED)
    done = subprocess.run([sys.executable, tmp_path / "owner.py", str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True,
                          timeout=250)  # returns when no process holds its output, so when the workers have ended
    assert done.returncode == -9
    assert len(done.stdout.split()) == 2
    for pid in done.stdout.split():  # an ending process closes its files first, and ends a moment later
        while running(int(pid)):
            time.sleep(0)


def running(pid):
    """Return True if a process exists and is not a zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
