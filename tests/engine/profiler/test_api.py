"""profiler: recording, the trace file against its format, the table, and explain."""

import json
import threading
from pathlib import Path

import pytest
from support.trace_format import check
from tritium.context import cpu
from tritium.engine import NaiveEngine, ThreadedEngine, profiler
from tritium.engine.memory import storage
from tritium.engine.profiler import api
from tritium.engine.profiler.operations import operations_of
from tritium.errors import EngineError


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Let profile.json, which "stop" writes, lie in a folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["naive", 2])
def engine(request, tmp_path):
    e = NaiveEngine() if request.param == "naive" else ThreadedEngine(request.param)
    api.set_config(**{**api._DEFAULTS, "filename": str(tmp_path / "profile.json"), "profile_all": True})
    api._profiler.clear()
    api.set_state("run", engine=e)
    yield e
    api.set_state("stop")
    api.set_config(**api._DEFAULTS)
    api._profiler.clear()
    e.stop()


def written(**kwargs):
    api.dump(**kwargs)
    with open(api._profiler.config["filename"], encoding="utf-8") as f:
        return check(f.read())


def nothing(run):
    pass


def test_every_operation_push_and_wait_is_in_the_file(engine):
    v, w = engine.new_variable(), engine.new_variable()
    for i in range(20):
        engine.push_sync(nothing, cpu(), [v], [w], name=f"op{i}")
    engine.push_async(lambda run, done: done(), cpu(), [w], [], name="handed on")
    engine.push(engine.new_operator(lambda run, done: done(), [w], [], name="prepared"), cpu(1))
    engine.stop()  # an asynchronous function may return later than it is done, and only then it is known how long it took
    events = written()
    slices = [e for e in events if e["ph"] == "X"]
    ran = [e["name"] for e in slices if e["cat"] == "operation"]
    want = [f"op{i}" for i in range(20)] + ["handed on", "prepared"]
    assert sorted(ran) == sorted(want)
    assert sorted(e["name"] for e in slices if e["name"].startswith("push ")) == sorted(f"push {n}" for n in want)
    assert all("test_api.py" in e["args"]["pushed at"] for e in slices if e["cat"] == "operation")
    if isinstance(engine, ThreadedEngine):
        assert any(e["name"] == "wait_for_all" for e in slices)
    assert api.state() == "stop"
    api.set_state("run")
    assert not api._profiler.recorder.ran


def test_a_finished_recording_is_shown_until_the_next_one(engine):
    """As the profiler's tutorial does: dump, then print dumps."""
    engine.push_sync(nothing, cpu(), [], [engine.new_variable()], name="before")
    engine.wait_for_all()
    assert [e["name"] for e in written() if e["ph"] == "X" and e["cat"] == "operation"] == ["before"]
    assert "before" in api.dumps() and "before" in api.dumps(reset=True) and "before" not in api.dumps()
    api.set_state("run", engine=engine)
    engine.push_sync(nothing, cpu(), [], [engine.new_variable()], name="after")
    engine.wait_for_all()
    assert "after" in api.dumps() and "before" not in api.dumps()


def test_arrows_and_explain_show_the_operations_that_held_one():
    engine, gate, begun = ThreadedEngine(2), threading.Event(), threading.Event()
    api.set_state("run", engine=engine)
    v, w = engine.new_variable(), engine.new_variable()

    def slow(run):
        begun.set()
        gate.wait()
    engine.push_sync(slow, cpu(), [], [v], name="slow")
    begun.wait()
    engine.push_sync(nothing, cpu(), [v], [w], name="reader")
    engine.push_sync(nothing, cpu(), [], [engine.new_variable()], name="free")
    gate.set()
    engine.wait_for_all()
    why = api.explain("reader")
    assert [h[:2] for h in why.holders] == [("slow", 0)] and why.index == 1
    assert why.held == why.holders[0][2] > 0 and abs(why.waited - why.held - why.queued) < 0.01
    assert "held by slow (operation 0), which used a variable it needs" in str(why) and "test_api.py" in why.pushed_at
    assert api.explain("free").holders == () and api.explain(-1).name == "free"
    with pytest.raises(EngineError, match=r"profiler\.explain: no operation 'redaer' was recorded\. Did you mean 'reader'"):
        api.explain("redaer")
    with pytest.raises(EngineError, match=r"operation 7 does not exist: 3 were recorded"):
        api.explain(7)
    made = operations_of(api._profiler.recorder)
    events = check(json.dumps(api.chrome_trace.document(api._profiler.recorder, made, api._profiler.began, True)))
    arrows = [e for e in events if e["ph"] in "sf"]
    assert len(arrows) == 2
    api.set_state("stop")
    api._profiler.clear()
    engine.stop()


def test_an_asynchronous_function_holds_its_variables_until_it_completes():
    engine, kept, handed = ThreadedEngine(1), [], threading.Event()
    api.set_state("run", engine=engine)
    v = engine.new_variable()
    engine.push_async(lambda run, done: (kept.append(done), handed.set()), cpu(), [], [v], name="load")
    handed.wait()
    engine.push_sync(nothing, cpu(), [v], [], name="after")
    kept[0]()
    engine.wait_for_all()
    why = api.explain("after")
    assert [h[0] for h in why.holders] == ["load"]
    api.set_state("stop")
    api._profiler.clear()
    engine.stop()


def test_pause_resume_and_states(engine):
    v = engine.new_variable()
    engine.push_sync(nothing, cpu(), [], [v], name="before")
    engine.wait_for_all()
    api.pause()
    engine.push_sync(nothing, cpu(), [], [v], name="unseen")
    engine.wait_for_all()
    api.resume()
    engine.push_sync(nothing, cpu(), [], [v], name="after")
    engine.wait_for_all()
    assert api.state() == "run"
    table = json.loads(api.dumps(format="json"))
    assert set(table["Time"]["operator"]) == {"before", "after"}
    with pytest.raises(EngineError, match=r'profiler\.set_state: state is \'on\'\. Give "run" or "stop"'):
        api.set_state("on")
    api.set_config(profile_api=True)  # MXNet allows it while the profiler runs
    assert api.state() == "run"


def test_stop_writes_the_file_and_keeps_the_recording(engine):
    engine.push_sync(nothing, cpu(), [], [engine.new_variable()], name="one")
    engine.wait_for_all()
    path = Path(api._profiler.config["filename"])
    assert not path.exists()
    api.set_state("stop")
    assert "one" in {e["name"] for e in json.loads(path.read_text())["traceEvents"]}
    assert "one" in api.dumps()


def test_the_table_adds_up(engine):
    v = engine.new_variable()
    for name, n in (("many", 7), ("few", 2)):
        for _ in range(n):
            engine.push_sync(nothing, cpu(), [], [v], name=name)
    engine.wait_for_all()
    rows = json.loads(api.dumps(format="json", sort_by="count", ascending=True))["Time"]["operator"]
    assert list(rows) == ["few", "many"] and [r["Count"] for r in rows.values()] == [2, 7]
    for r in rows.values():
        assert r["Min"] <= r["Avg"] <= r["Max"] <= r["Total"] and abs(r["Avg"] * r["Count"] - r["Total"]) < 1e-9
    lines = api.dumps(sort_by="count").splitlines()
    at = lines.index("operator")  # the lines of MXNet 1.9.1, to the space
    assert lines[:3] == ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    assert lines[at + 1:at + 4] == [
        "=================",
        "Name                          Total Count        Time (ms)    Min Time (ms)    Max Time (ms)    Avg Time (ms)",
        "----                          -----------        ---------    -------------    -------------    -------------"]
    assert lines[at + 4].startswith("many                                    7 ") and len(lines[at + 4]) == len(lines[at + 2])
    with pytest.raises(EngineError, match=r"profiler\.dumps: sort_by is 'size'\. Give one of count, total, min, max, avg"):
        api.dumps(sort_by="size")
    api.dumps(reset=True)
    assert not json.loads(api.dumps(format="json"))["Time"]["operator"]


def test_memory_over_time(engine):
    before = storage.stats(cpu(7)).in_use
    block = storage.alloc(1_000_000, cpu(7))
    storage.free(block)
    del block
    counters = [e for e in written() if e["ph"] == "C"]
    held = [e["args"]["in use"] for e in counters if e["name"] == "memory cpu(7)"]
    assert max(held) >= before + 1_000_000 and held[-1] == before
    recorded = list(api._profiler.recorder.memory)
    storage.alloc(1000, cpu(7))  # stopped: not recorded
    assert list(api._profiler.recorder.memory) == recorded


def test_objects_of_the_user_are_in_the_file(engine):
    domain = profiler.Domain("training")
    task, counter = domain.new_task("epoch"), domain.new_counter("loss", 3)
    with task, profiler.Event("inner"), domain.new_frame("batch"):
        counter += 2
        counter.decrement(1)
        domain.new_marker("now").mark("thread")
    assert counter.value == 4 and str(task) == "epoch" and str(domain) == "training"
    events = [e for e in written(finished=False) if e["ph"] in "beiC" and e["cat"] in ("training", "event")]
    assert [(e["ph"], e["name"]) for e in events] == [
        ("C", "loss"), ("b", "epoch"), ("b", "inner"), ("b", "batch"), ("C", "loss"), ("C", "loss"), ("i", "now"),
        ("e", "batch"), ("e", "inner"), ("e", "epoch")]
    with pytest.raises(EngineError, match=r"profiler: Task 'epoch' was not started"):
        task.stop()
    with pytest.raises(EngineError, match=r"profiler\.Marker: unknown scope 'galaxy'"):
        domain.new_marker("now").mark("galaxy")


def test_scopes_prefix_the_names_of_pushed_functions(engine):
    with api.scope("net"), profiler.Scope("layer1:"):
        engine.push_sync(nothing, cpu(), [], [], name="dot")
    engine.push_sync(nothing, cpu(), [], [], name="dot")
    engine.wait_for_all()
    assert set(json.loads(api.dumps(format="json"))["Time"]["operator"]) == {"net:layer1:dot", "dot"}


def test_entries_beyond_the_limit_are_counted(engine):
    api.set_state("stop")
    api.set_config(limit=10)
    api._profiler.clear()
    api.set_state("run", engine=engine)
    for _ in range(25):
        engine.push_sync(nothing, cpu(), [], [], name="one of many")
    engine.wait_for_all()
    assert api.dropped() == 15
    assert "15 entries exceeded the limit and are missing." in api.dumps()


def test_failures_bulks_and_inline_functions_are_recorded(engine):
    def fail(run):
        raise ValueError("too hot")
    v = engine.new_variable()
    engine.push_sync(fail, cpu(), [], [v], name="oven")
    with pytest.raises(ValueError):
        engine.wait_for_all()
    with engine.bulk(3):
        for _ in range(3):
            engine.push_sync(nothing, cpu(), [], [v], name="part")
    engine.push_sync(nothing, cpu(), [], [v], name="small", prop="inline")
    engine.wait_for_all()
    slices = {e["name"]: e for e in written() if e["ph"] == "X" and e["cat"] == "operation"}
    assert set(slices) == {"oven", "bulk of 3", "small"} and slices["oven"]["args"]["failed"] == "ValueError"


def test_unknown_options_raise():
    said = r"profiler\.set_config: unknown option 'filname'\. Known: filename, .* Did you mean 'filename'"
    with pytest.raises(EngineError, match=said):
        api.set_config(filname="x")


def test_the_profiler_follows_the_current_engine(tmp_path):
    from tritium.engine import current, set_current
    other = NaiveEngine()
    api.set_state("run")
    before = set_current(other)
    try:
        other.push_sync(nothing, cpu(), [], [], name="there")
        assert current() is other and "there" in api.dumps()
    finally:
        set_current(before)
        api.set_state("stop")
        api._profiler.clear()
    assert before._profiler is None and other._profiler is None


def test_continuous_dump_writes_while_it_runs(tmp_path):
    target = tmp_path / "live.json"
    engine = NaiveEngine()
    api.set_config(filename=str(target), continuous_dump=True, dump_period=0.001)
    api.set_state("run", engine=engine)
    thread = api._profiler.dumper
    engine.push_sync(nothing, cpu(), [], [], name="early")
    while not target.exists() or "early" not in target.read_text(encoding="utf-8"):
        thread.join(0.01)
        assert thread.is_alive()
    check(target.read_text(encoding="utf-8"))
    api.set_state("stop")
    thread.join()
    api.set_config(**api._DEFAULTS)
    api._profiler.clear()
