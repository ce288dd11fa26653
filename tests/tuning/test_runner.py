"""Candidates in a child: times, checks, and children that die or hang. Oracle: NumPy, and scripted children."""

import sys
import time

import numpy as np
import pytest
import tritium as mx
from tritium import engine
from tritium.tuning import TuningRequest, child, collect
from tritium.tuning.child import Bench, rooflines
from tritium.tuning.runner import Runner
from tritium.tuning.search import Failed, OutOfTime

REQUEST = TuningRequest(cases=[("dot", "256x256x256")], train=False)
CHILD = """
import json, os, signal, sys
sys.stdin.readline()
print(json.dumps({"ready": 1}), flush=True)
for line in sys.stdin:
    what = json.loads(line)["config"]["piece"]
    if what == 666:
        sys.stderr.write("illegal access\\n")
        sys.stderr.flush()
        os.abort()
    if what == 777:
        signal.pause()
    print(json.dumps({"error": "no such piece"} if what == 5 else {"seconds": 1.5, "differs": ""}), flush=True)
"""


def inside(work, ctx=None):
    """work(run) inside an engine function."""
    box = []
    engine.current().push_sync(lambda run: box.append(work(run)), ctx or mx.cpu(), [], [])
    engine.current().wait_for_all()
    return box[0]


@pytest.fixture
def item():
    return collect(REQUEST).items[0]


@pytest.fixture
def scripted():
    with Runner(REQUEST, [sys.executable, "-c", CHILD]) as runner:
        yield runner


def test_a_child_that_dies_costs_one_configuration(scripted, item):
    assert scripted.seconds(0, item, {"piece": 1}, 30) == 1.5
    with pytest.raises(Failed, match=r"the process ended \(SIGABRT\): illegal access"):
        scripted.seconds(0, item, {"piece": 666}, 30)
    assert scripted.seconds(0, item, {"piece": 2}, 30) == 1.5 and scripted.restarts == 2


def test_a_child_that_hangs_is_killed(scripted, item):
    with pytest.raises(Failed, match="no answer in 0 s"):
        scripted.seconds(0, item, {"piece": 777}, 0.3)
    assert scripted.seconds(0, item, {"piece": 2}, 30) == 1.5


@pytest.mark.parametrize("ahead", [0.2, -1.0], ids=["while it waits", "before it asks"])
def test_no_answer_is_awaited_when_the_time_is_over(item, ahead):
    with Runner(REQUEST, [sys.executable, "-c", CHILD]) as runner:
        assert runner.seconds(0, item, {"piece": 1}, 30) == 1.5
        child, runner.until = runner._child, time.monotonic() + ahead
        with pytest.raises(OutOfTime):
            runner.seconds(0, item, {"piece": 777}, 1e9)
        assert child.poll() is not None
        with pytest.raises(OutOfTime):
            runner.differs(0, item, {"piece": 1}, 30)
        assert runner.restarts == 1
    with Runner(REQUEST, [sys.executable, "-c", "import signal; signal.pause()"], time.monotonic() + ahead) as runner, \
            pytest.raises(OutOfTime):
        runner.rooflines(["float32"])


def test_an_error_is_passed_on_and_the_child_lives(scripted, item):
    with pytest.raises(Failed, match="no such piece"):
        scripted.differs(0, item, {"piece": 5}, 30)
    assert scripted.differs(0, item, {"piece": 1}, 30) == "" and scripted.restarts == 1


def test_a_real_child_times_and_checks(item):
    with Runner(REQUEST) as runner:
        assert 0 < runner.seconds(0, item, {"piece": 1 << 21, "threads": 0}, 60) < 10
        assert runner.differs(0, item, {"piece": 1 << 21, "threads": 0}, 60) == ""
        with pytest.raises(Failed, match="ZeroDivisionError"):
            runner.seconds(0, item, {"piece": 0, "threads": 0}, 60)
        limits = runner.rooflines(["float32"])
    assert limits["bytes_per_s"] > 1e8 and limits["flops float32"] > 1e8


def test_outputs_are_compared_with_the_default(item, monkeypatch):
    def check(run):
        bench, default = Bench(run, item.task), dict(item.task.default)
        right = bench.differs({"piece": 1 << 21, "threads": 0}, default)
        kernel = bench.kernels[next(reversed(bench.kernels))]

        def wrong(run, ins, outs):
            kernel(run, ins, outs)
            outs[0][3, 4] += 1.0

        bench.kernels[next(reversed(bench.kernels))] = wrong
        return right, bench.differs({"piece": 1 << 21, "threads": 0}, default)

    right, wrong = inside(check)
    assert right == "" and wrong.startswith("output 0 differs by 1 where its largest value is ")


def test_a_short_kernel_is_called_several_times(item):
    def count(run):
        bench = Bench(run, item.task)
        bench._timed = lambda work: 1e-5
        return bench.seconds(dict(item.task.default)), bench.calls

    seconds, calls = inside(count)
    assert calls == pytest.approx(100, abs=1) and seconds == 1e-5 / calls


def test_rooflines_are_of_this_machine():
    found = inside(lambda run: rooflines(run, ["float64", "bfloat16"]))
    assert set(found) == {"bytes_per_s", "flops float32", "flops float64"}
    assert all(np.isfinite(v) and v > 0 for v in found.values())


@pytest.mark.parametrize("fails", [False, True], ids=["captured", "refused"])
def test_a_gpus_calls_are_replayed_from_a_graph_or_made_one_by_one(fails, monkeypatch):
    """Interpreted: a graph calls its function again."""
    pytest.importorskip("triton")
    seen = []
    monkeypatch.setattr(child, "FLUSH", 1 << 10)
    monkeypatch.setattr(child, "SHORTEST", 0.0)

    class Graph:
        def __init__(self, device_id, name):
            assert (device_id, name) == (0, "tune")

        def capture(self, fn):
            if fails:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.fn = fn

        def replay(self):
            seen.append("replay")
            self.fn()

    monkeypatch.setattr(child.cuda, "Graph", Graph)
    (task,) = [i.task for i in collect(TuningRequest(cases=[("relu", "64x64")], target="gpu", train=False)).items]

    def work(run):
        bench = Bench(run, task)
        configs = [dict(task.default), {**dict(task.default), "num_warps": 8}]
        times = [bench.seconds(c) for c in (*configs, *configs)]
        return times, bench.differs(*configs)

    times, wrong = inside(work, mx.gpu())
    assert all(t > 0 for t in times) and wrong == ""
    assert seen == ([] if fails else ["replay"] * 4)
