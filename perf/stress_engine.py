"""Ten minutes of random engine programs against the serial engine, with forks, restarts and interrupts between them.

    python perf/stress_engine.py [--minutes M] [--seed S]

Every program of tests/support/engine_programs.py runs on 1, 2, 4 and 8 workers, on the engines' own threads and pushed from a
second thread, and must leave exactly what the serial engine leaves. Prints a JSON line a minute and one at the end:
programs, operations, resident memory, threads. Ends with status 1 and the seed at the first difference; after two
minutes without progress it prints every thread's stack and ends.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITIUM_GPU", "interpret")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import engine_programs as programs
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine

HANG = 120  # seconds without progress


def resident() -> int:
    """Bytes of memory this process holds, where the system says."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def pushed_elsewhere(program: list, engine: ThreadedEngine, foreign: Any) -> Any:
    """The values after the program, when a thread of its own pushes it."""
    got: list[Any] = []
    t = threading.Thread(target=lambda: got.append(programs.run_program(program, engine, foreign)))
    t.start()
    t.join()
    return got[0]


def forked(engine: ThreadedEngine) -> None:
    """A child made in the middle of a program drains its own engine and goes on; so does this process."""
    cells: list[int] = []
    v = engine.new_variable()
    for i in range(200):
        engine.push_sync(lambda run, i=i: cells.append(i), cpu(i % 2), (), (v,))
    child = os.fork()
    if not child:
        for i in range(200, 300):
            engine.push_sync(lambda run, i=i: cells.append(i), cpu(i % 2), (), (v,))
        engine.wait_for_all()
        os._exit(0 if cells == list(range(300)) else 1)
    assert cells == list(range(200)), "a fork lost work of the parent"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a fork lost work of the child"


def interrupted(engine: ThreadedEngine) -> float:
    """Seconds from Ctrl-C to the end of a wait; the engine is used afterwards."""
    gate, v, sent = threading.Event(), engine.new_variable(), [0.0]
    engine.push_sync(lambda run: gate.wait(), cpu(), (), (v,))

    def knock() -> None:
        sent[0] = time.perf_counter()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    timer = threading.Timer(random.random() * 0.01, knock)
    took = 0.0
    try:
        timer.start()
        engine.wait_for_var(v)
    except KeyboardInterrupt:
        took = time.perf_counter() - sent[0]
    timer.join()
    gate.set()
    engine.wait_for_all()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    naive, foreign = NaiveEngine(), programs.Foreign()
    engines = [ThreadedEngine(n) for n in (1, 2, 4, 8)]
    begin = said = time.monotonic()
    seed, operations, forks, slowest = args.seed, 0, 0, 0.0
    memory: list[int] = []
    random.seed(args.seed)

    def line(kind: str) -> None:
        memory.append(resident())
        print(json.dumps({"stress": kind, "minutes": round((time.monotonic() - begin) / 60, 2), "programs": seed - args.seed,
                          "operations": operations, "forks": forks, "slowest_interrupt_s": round(slowest, 4),
                          "resident_MiB": memory[-1] >> 20, "threads": threading.active_count()}), flush=True)

    while time.monotonic() - begin < args.minutes * 60:
        faulthandler.dump_traceback_later(HANG, exit=True)
        n, cells = random.choice([(20, 3), (40, 8), (100, 4), (400, 20), (2000, 40)])
        program = programs.random_program(seed, n=n, cells=cells)
        want = programs.run_program(program, naive, foreign)
        for engine in engines:
            run = pushed_elsewhere if random.random() < 0.2 else programs.run_program
            if run(program, engine, foreign) != want:
                line("different")
                sys.exit(f"seed {seed}, n {n}, cells {cells}, {engine.workers} workers: other values than the serial engine's")
            operations += n
        seed += 1
        if seed % 100 == 0:
            engine = random.choice(engines)
            engine.stop()
            engine.start()
            forked(random.choice(engines))
            forks += 1
            slowest = max(slowest, interrupted(random.choice(engines)))
        if time.monotonic() - said >= 60:
            said = time.monotonic()
            line("so far")
    faulthandler.cancel_dump_traceback_later()
    for engine in engines:
        engine.stop()
    foreign.close()
    line("done")


if __name__ == "__main__":
    main()
