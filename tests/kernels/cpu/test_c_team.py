"""Threads in C: every piece is computed once, phases follow each other, callers share helpers, and a fork begins anew."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from support.layer_helpers import Run
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_math import PREAMBLE
from tritium.kernels.cpu.c_team import KEPT, TOGETHER, Phases, Scratch, Short, Step, int64s, step_of_elements
from tritium.kernels.cpu.c_template import Call, Template
from tritium.kernels.kernel import HostRun

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="no C compiler")

TEXT = PREAMBLE + """
/* numbers[i] = numbers[i] * 2 + 1, so that order and number of calls show */
void test_team_step(void *const *arrays, int64_t begin, int64_t end)
{
    double *x = arrays[0];
    for (int64_t i = begin; i < end; i++) x[i] = x[i] * 2 + 1;
}

/* the sum of all numbers into each of the second array */
void test_team_sum(void *const *arrays, int64_t begin, int64_t end)
{
    const double *x = arrays[0];
    double *y = arrays[1], total = 0;
    for (int64_t i = 0; i < *(const int64_t *)arrays[2]; i++) total += x[i];
    for (int64_t i = begin; i < end; i++) y[i] = total;
}
"""


class Threads(HostRun):
    def __init__(self, threads):
        self.threads = threads


RUNS = {"one thread": Threads(1), "two": Threads(2), "seven": Threads(7), "a context without threads": Run(backwards=True),
        "none": None}


@pytest.fixture
def functions():
    found = c_compile.library(TEXT, ("test_team_step", "test_team_sum"))
    assert found is not None
    return found


def addresses(*places):
    return (ctypes.c_void_p * len(places))(*places)


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
@pytest.mark.parametrize("n", [1, 2, 5, 1000])
def test_phases_follow_each_other_and_every_piece_is_computed_once(functions, run, n):
    x, y, size = np.arange(n, dtype="d"), np.zeros(n), int64s(n)
    step, total = addresses(x.ctypes.data), addresses(x.ctypes.data, y.ctypes.data, ctypes.addressof(size))
    again = Step(functions["test_team_step"], step, n)
    phases = Phases([[Step(functions["test_team_step"], step, n, then=again)], [], [Step(functions["test_team_sum"], total, n)]])
    for k in range(1, 20):
        before = x.copy()
        phases(run)
        np.testing.assert_array_equal(x, before * 4 + 3)
        np.testing.assert_array_equal(y, x.sum(), err_msg=str(k))
        x %= 1000


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_independent_steps_share_a_phase_and_elements_are_cut_into_ranges(functions, run):
    x, y = np.zeros(1003), np.ones(77)
    one, two = addresses(x.ctypes.data), addresses(y.ctypes.data)
    step = functions["test_team_step"]
    phases = Phases([[step_of_elements(step, one, 1003, 100, None), Step(step, two, 77)]])
    phases(run)
    assert (x == 1).all() and (y == 3).all()


def test_a_helper_begins_and_the_call_takes_part(functions):
    """Whichever of the two takes a piece, and also where the helper has not come when the call does."""
    arrays = [np.zeros(500), np.zeros(300)]
    first, second = [Phases([[Step(functions["test_team_step"], addresses(x.ctypes.data), len(x))]] * 3) for x in arrays]
    first.begin()  # it has not run: its threads are not known
    assert not first.begun
    for phases in (first, second):
        phases(Threads(2))
    for k in range(500):
        for x in arrays:
            x[:] = k
        first.begin()
        second.begin()  # may find that the first is still offered
        assert first.begun
        sum(range(k * 10))  # so that the helper comes at different times
        second(Threads(2))
        first(Threads(2))
        assert not first.begun and not second.begun
        for x in arrays:
            assert (x == (k * 2 + 1) * 4 + 3).all(), k


def test_a_call_sleeps_while_a_helper_computes_alone_and_is_woken_for_what_can_be_shared(functions):
    """A phase of one piece that takes longer than a call watches, then one of many pieces."""
    x, y, size = np.ones(3_000_000), np.zeros(64), int64s(3_000_000)
    total = Step(functions["test_team_sum"], addresses(x.ctypes.data, y.ctypes.data, ctypes.addressof(size)), 1)
    step = Step(functions["test_team_step"], addresses(y.ctypes.data), 64)
    phases = Phases([[total], [step], [total], [step]])
    phases(Threads(2))
    for _ in range(10):
        y[:] = 0
        phases.begin()
        phases(Threads(2))
        assert y[0] == 2 * 3_000_000 + 1 and (y[1:] == 3).all()


def test_begun_phases_are_logged_as_nothing_and_run_once(functions):
    x = np.zeros(100)
    phases = Phases([[Step(functions["test_team_step"], addresses(x.ctypes.data), 100)]])
    phases(Threads(2))
    phases.begin()
    assert phases.logged(Threads(2)) == [] and (x == 3).all()
    assert len(phases.logged(Threads(2))) == 100 and (x == 7).all()


@pytest.mark.parametrize("elements", [10, KEPT + 1], ids=["kept", "taken anew"])
def test_scratch_memory_is_aligned_and_its_address_is_written(functions, elements):
    given, taken = addresses(None), []

    class Recorded(HostRun):
        def workspace(self, shape, dtype):
            taken.append(shape)
            return super().workspace(shape, dtype)

    phases = Phases([[Step(functions["test_team_step"], given, 4)]], scratch=[Scratch(elements, [(given, 0)])])
    phases(Recorded())
    phases(Recorded())
    assert given[0] % 64 == 0 and len(taken) == (0 if elements <= KEPT else 2)


def test_callers_of_several_threads_share_the_helpers(functions):
    arrays = [np.zeros(64) for _ in range(4)]
    ready = threading.Barrier(4)

    def work(x):
        phases = Phases([[Step(functions["test_team_step"], addresses(x.ctypes.data), 64)]] * 5)
        ready.wait()
        for _ in range(100):
            x[:] = 0
            phases(Threads(3))
            if not (x == 31).all():
                return
        x[:] = 7

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((x == 7).all() for x in arrays)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_helpers_that_wake_leave_the_callers_processor_to_it():
    """In a process of its own, whose threads are the helpers."""
    code = """if True:
        import os
        import numpy as np
        from tritium.kernels.cpu import c_compile
        from tritium.kernels.cpu.c_math import PREAMBLE
        from tritium.kernels.cpu.c_team import Phases, Step, int64s
        from tritium.kernels.kernel import HostRun
        text = PREAMBLE + "void test_team_nothing(void *const *arrays, int64_t begin, int64_t end) {}"
        nothing = c_compile.library(text, ["test_team_nothing"])["test_team_nothing"]
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])
        class Two(HostRun):
            threads = 2
        known, allowed = set(os.listdir("/proc/self/task")), os.sched_getaffinity(0)
        phases = Phases([[Step(nothing, int64s(0), 4)]])
        while True:  # until it has slept
            phases(Two())
            helper, = set(os.listdir("/proc/self/task")) - known
            if len(os.sched_getaffinity(int(helper))) == len(allowed) - 1:
                break
        print(os.sched_getaffinity(int(helper)) < allowed)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "True\n", done.stderr


def test_a_forked_child_has_helpers_of_its_own(functions):
    x = np.zeros(500)
    phases = Phases([[Step(functions["test_team_step"], addresses(x.ctypes.data), 500)]])
    phases(Threads(3))
    child = os.fork()
    if not child:
        try:
            phases(Threads(3))
            os._exit(0 if (x == 3).all() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0 and (x == 1).all()


def test_bound_calls_keep_their_arrays_and_numbers_alive():
    """Also when whatever made them is gone, as the entry of a full cache."""
    template = Template(lambda: TEXT.removeprefix(PREAMBLE), ("test_team_step", "test_team_sum"))
    x, y, size = np.ones(9), np.zeros(9), int64s(9)
    watched = [weakref.ref(x), weakref.ref(y), weakref.ref(size)]
    phases = Phases([[Call(template, "test_team_sum", 9, size).prepare(x, y)]])
    del x, y, size
    gc.collect()
    assert all(w() is not None for w in watched)
    phases(Threads(2))
    assert (watched[1]() == 9).all()
    del phases
    gc.collect()
    assert all(w() is None for w in watched)


def test_joined_phases_run_in_turn_and_share_their_scratch_memory(functions):
    x, scratch = np.zeros(100), [addresses(None) for _ in range(3)]
    step = functions["test_team_step"]
    parts = [Phases([[Step(step, addresses(x.ctypes.data), 100)], [Step(step, given, 4)]], threads=k,
                    scratch=[Scratch(8, [(given, 0)]), Scratch(elements, [])])
             for k, (given, elements) in enumerate(zip(scratch, (10, 1 << 18, 50)))]
    joined = Phases.join(parts)
    for run in (Threads(2), Threads(1), Run(backwards=True)):
        x[:] = 0
        joined(run)
        assert (x == 7).all()
        assert len({given[0] for given in scratch}) == 1 and scratch[0][0] % 64 == 0


def test_run_time_scalars_are_written_before_a_run(functions):
    x, numbers = np.zeros(7), (ctypes.c_double * 2)()
    phases = Phases([[Step(functions["test_team_step"], addresses(x.ctypes.data), 7)]], numbers=numbers)
    phases(Threads(2), (3.0, 4.0))
    assert list(numbers) == [3, 4] and (x == 1).all()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_log_has_every_piece_once_in_the_order_of_the_phases(functions, threads):
    x = np.zeros(30)
    at = (ctypes.c_void_p * 1)(x.ctypes.data)
    step = functions["test_team_step"]
    phases = Phases([[Step(step, at, 20), Step(step, (ctypes.c_void_p * 1)(x.ctypes.data + 160), 10)], [Step(step, at, 1)]])
    before = time.perf_counter_ns()
    pieces = phases.logged(Threads(threads))
    after = time.perf_counter_ns()
    assert x.tolist() == [3] + [1] * 29
    assert [p.phase for p in sorted(pieces, key=lambda p: p.begin)] == [0] * 30 + [1]
    assert all(before <= p.begin <= p.end <= after and 0 <= p.thread < 64 for p in pieces)
    assert phases.logged(None) or threads  # in one thread there is a log, too
    assert not Phases([[Step(step, at, 2)]]).logged(Run())  # pieces that Python hands out are in none


def test_functions_together_run_once_each_and_short_ones_share_a_piece(functions):
    step = functions["test_team_step"]
    arrays = [np.zeros(n) for n in (5, TOGETHER, 7, 9, 3 * TOGETHER)]
    ats = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in arrays]
    given = [Short(step, at, a.size, a.size, (at, a)) for at, a in zip(ats[:4], arrays)]
    given.append(Phases([[step_of_elements(step, ats[4], arrays[4].size, TOGETHER, None)]]))
    together = Phases.together(given)
    assert [sum(s.pieces for s in steps) for steps, _ in together._phases] == [3, 2]
    for run in RUNS.values():
        for a in arrays:
            a[:] = 0
        together(run)
        assert all((a == 1).all() for a in arrays)
