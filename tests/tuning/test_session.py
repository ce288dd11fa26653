"""A tuning run: timed, stored and verified configurations, interrupts, budgets. Fakes replace the child processes."""

import pytest
from tritium.kernels.configs.store import Store, TuningDevice, offline_device, row_for, source_hash, spell
from tritium.kernels.gpu.store import CompiledKernel
from tritium.tuning import TuningRequest, collect, session
from tritium.tuning.report import measured, roofline_s, write_report
from tritium.tuning.search import Failed, OutOfTime
from tritium.tuning.session import ProgressListener, Summary, TuningRun, plan, show, summarise, time_text

HERE = TuningDevice("a machine", "", "", "numpy 2")
FAST = {"piece": 1 << 22, "threads": 0}


class FakeRunner:
    """Answers from a table instead of a clock. seconds: of a configuration."""

    def __init__(self, seconds=lambda c: 0.5 if c == FAST else 1.0, wrong=(), stop_after=10**9):
        self.of, self.wrong, self.left, self.asked = seconds, wrong, stop_after, []
        self.now = 0.0

    def seconds(self, number, item, config, limit):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.asked.append(spell(config))
        self.now += 0.01
        return self.of(config)

    def differs(self, number, item, config, limit):
        return "output 0 differs" if config in self.wrong else ""

    def rooflines(self, dtypes, limit):
        return {"bytes_per_s": 1e9, "flops float32": 1e8}

    def clock(self):
        return self.now


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "tune.sqlite") as s:
        yield s


def run(store, runner, budget=1e9, cases=(("dot", "256x256x256"),), again=False):
    work = collect(TuningRequest(cases=cases, train=False))
    parts = plan(work, HERE, store, 90, again)
    summary = summarise(parts, Summary("timed", HERE.name, ""), work.kernels)
    TuningRun(parts, HERE, store, summary, ProgressListener(), runner.clock).time(runner, runner.now + budget)
    return parts, summary


def test_the_best_is_found_verified_and_kept(store):
    parts, summary = run(store, FakeRunner())
    assert summary.finished and summary.improved == 1 and summary.verified == 1 and summary.wrong == 0
    assert (summary.default_s, summary.tuned_s) == (1.0, 0.5)
    best = store.best(HERE, parts[0].item.task.key, parts[0].known[spell(FAST)].source)[0]
    assert best.settings == FAST and best.status == "verified" and best.median_s == 0.5
    assert len(store.rows()) == len(parts[0].kept)


def test_a_wrong_result_is_never_used_and_the_next_best_is_checked(store):
    second = {"piece": 1 << 21, "threads": 0}
    runner = FakeRunner(lambda c: 0.5 if c == FAST else 0.7 if c == second else 1.0, wrong=[FAST])
    parts, summary = run(store, runner)
    assert (summary.wrong, summary.verified) == (1, 1)
    assert store.best(HERE, parts[0].item.task.key, next(iter(parts[0].known.values())).source)[0].settings == second


def test_known_configurations_are_not_timed_again(store):
    run(store, FakeRunner())
    runner = FakeRunner()
    _, summary = run(store, runner)
    assert runner.asked == [] and summary.finished and summary.known == len(store.rows())
    run(store, runner, again=True)
    assert runner.asked


def test_a_new_configuration_is_timed_beside_the_default_and_the_best_only(store):
    parts, _ = run(store, FakeRunner())
    new = next(c for c in parts[0].kept if c != FAST and c != parts[0].default)
    store._db.execute("DELETE FROM configurations WHERE config = ?", (spell(new),))
    runner = FakeRunner()
    run(store, runner)
    assert set(runner.asked) == {spell(new), spell(FAST), spell(parts[0].default)}


def test_an_interrupt_keeps_what_was_timed(store):
    with pytest.raises(KeyboardInterrupt):
        run(store, FakeRunner(stop_after=4))
    assert sum(r.repeats for r in store.rows()) == 4


def test_a_budget_ends_the_run_and_leaves_the_rest_for_later(store):
    cases = [("dot", "256x256x256"), ("dot", "512x512x512")]
    _, summary = run(store, FakeRunner(), budget=0.06, cases=cases)
    assert not summary.finished
    _, summary = run(store, FakeRunner(), cases=cases)
    assert summary.finished and summary.tasks_done == 2


def test_no_timing_begins_when_the_time_is_over_not_even_of_a_first_round(store):
    runner = FakeRunner()
    parts, summary = run(store, runner, budget=0.035)
    assert runner.now <= 0.035 * 1.2 and len(runner.asked) == 4 < len(parts[0].kept) and not summary.finished
    assert {r.repeats for r in store.rows()} == {1}


def test_a_timing_cut_off_by_the_deadline_is_no_failure(store):
    def seconds(c):
        if c == FAST:
            raise OutOfTime
        return 1.0

    _, summary = run(store, FakeRunner(seconds))
    assert summary.failed == 0 and not summary.finished and spell(FAST) not in {r.config for r in store.rows()}


class SlowCompiler:
    """Stands for the compilers: a second a kernel by a clock of its own, cut off where the time is over, as the real one is."""

    def __init__(self):
        self.now, self.cut = 0.0, 0

    def clock(self):
        self.now += 1e-5
        return self.now

    def __call__(self, jobs, *, timeout, workers, until):
        for i in range(len(jobs)):
            if self.now + 1 > until:
                self.now, self.cut = until, self.cut + 1
                return
            self.now += 1
            yield i, CompiledKernel("k", 90, registers=64, stack=0, local=0, spills=0, shared=0, num_warps=4, accesses=(),
                                    wide_offsets=True, tensor_ops=4, async_copies=0, seconds=1.0)


@pytest.mark.parametrize("budget", [0.5, 10.3, 30.0])
def test_an_offline_run_ends_with_its_budget(store, monkeypatch, budget):
    compiler, device = SlowCompiler(), offline_device(90)
    monkeypatch.setattr(session, "build", compiler)
    cases = [("dot", "2048x2048x2048"), ("dot", "4096x2048x2048")]
    work = collect(TuningRequest(cases=cases, target="gpu", dtype="float16", train=False))
    parts = plan(work, device, store, 90)
    summary = summarise(parts, Summary("offline", device.name, ""), work.kernels)
    TuningRun(parts, device, store, summary, ProgressListener(), compiler.clock).compile(90, budget, 2)
    assert compiler.now <= budget * 1.2 and compiler.cut == 1
    assert summary.compiled == len(store.rows()) and not summary.finished and summary.failed == 0
    assert summary.choices == (0 if budget < 1 else 2), "the first choice of every task comes first"
    assert sum(len(p.known) for p in plan(work, device, store, 90)) == len(store.rows())


def test_an_interrupt_of_an_offline_run_leaves_counts_and_rows(store, monkeypatch):
    def build(jobs, **_):
        yield from list(SlowCompiler()(jobs[:3], timeout=1, workers=1, until=9))
        raise KeyboardInterrupt

    device = offline_device(90)
    monkeypatch.setattr(session, "build", build)
    work = collect(TuningRequest(cases=[("dot", "512x512x512")], target="gpu", dtype="float16", train=False))
    parts = plan(work, device, store, 90)
    summary = Summary("offline", device.name, "")
    with pytest.raises(KeyboardInterrupt):
        TuningRun(parts, device, store, summary, ProgressListener()).compile(90, 1e9, 2)
    assert summary.choices == 1 and len(store.rows()) == 3 == summary.rows


def test_a_configuration_that_fails_is_stored_as_failed(store):
    def seconds(c):
        if c == FAST:
            raise Failed("the process ended (SIGSEGV)")
        return 1.0

    _, summary = run(store, FakeRunner(seconds))
    failed = [r for r in store.rows() if r.status == "failed"]
    assert [r.settings for r in failed] == [FAST] and "SIGSEGV" in failed[0].note and summary.failed == 1


def test_configurations_rejected_offline_are_not_timed(store):
    work = collect(TuningRequest(cases=[("dot", "512x512x512")], target="gpu", dtype="float16", train=False))
    h200 = TuningDevice("NVIDIA H200", "9.0", "CUDA 12.8", offline_device(90).compiler)
    task, kept = work.items[0].task, plan(work, h200, store, 90)[0].kept
    source = source_hash(task.key.template)
    store.put([row_for(offline_device(90), task.key, source, c, status="rejected", note="3 instructions spill")
               for c in kept[:3]])
    part = plan(work, h200, store, 90)[0]
    assert part.kept == [kept[0], *kept[3:]], "the default stays"
    assert [p.why for p in part.pruned if p.reason == "compiled"] == ["3 instructions spill"] * 2


def test_the_report_has_the_worst_first_and_nothing_from_elsewhere(store, tmp_path):
    parts, _ = run(store, FakeRunner(), cases=[("dot", "256x256x256"), ("dot", "512x512x512")])
    found = measured(parts, store.rooflines(HERE.name))
    assert [m.lost_s for m in found] == sorted((m.lost_s for m in found), reverse=True)
    assert found[0].item.name.startswith("dot 256"), "0.5 s each, and the smaller product should take least"
    assert write_report(tmp_path / "r.html", parts, HERE, store.rooflines(HERE.name), "dot <&>") == 2
    text = (tmp_path / "r.html").read_text()
    assert "<svg" in text and "dot &lt;&amp;&gt;" in text and "(measured)" in text and "lost per step" in text
    for outside in ("http:", "https:", "src=", "@import", "url("):
        assert outside not in text


def test_the_report_states_that_nothing_was_measured(store, tmp_path):
    parts = plan(collect(TuningRequest(cases=[("dot", "256x256x256")])), HERE, store, 90)
    assert write_report(tmp_path / "r.html", parts, TuningDevice("sm_90", "9.0", "", "triton"), {}, "dot") == 0
    text = (tmp_path / "r.html").read_text()
    assert "Nothing was measured" in text and "a target of the compiler and not a machine" in text and "<svg" not in text


def test_roofline_time():
    assert roofline_s(100.0, 10, "float32", {"bytes_per_s": 1.0, "flops float32": 1.0}) == 100.0
    assert roofline_s(1.0, 10, "float16", {"bytes_per_s": 1.0, "flops float32": 1.0}) == 10.0
    assert roofline_s(1.0, 10, "float16", {}) is None


def test_times_and_configurations_as_text():
    assert [time_text(s) for s in (2.5, 0.0123, 4.56e-5, 7e-9)] == ["2.5 s", "12.3 ms", "45.6 µs", "7 ns"]
    assert show({"tile": 32768, "threads": 0, "num_warps": 4}) == "tile=2^15 threads=all warps=4"
