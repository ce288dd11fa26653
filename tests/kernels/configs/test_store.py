"""The store of tuning results: one row per configuration, the best as a query, exchange as checked JSON lines."""

import ast
import fnmatch
import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tritium.errors import FileError, ParameterError
from tritium.kernels.configs import store as config_store
from tritium.kernels.configs.key import key
from tritium.kernels.configs.store import Store, TuningDevice, lookup_for, offline_device, pick, row_for, source_hash, spell

HERE = TuningDevice("a machine", "9.0", "CUDA 12.8", "triton 3.6.0")
KEY = key("cpu gemm", "float32", "", batch=1, m=1024, n=512, k=64)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "tune.sqlite") as s:
        yield s


def row(config, seconds=None, k=KEY, device=HERE, source="s", repeats=3, **more):
    return row_for(device, k, source, config, median_s=seconds, repeats=repeats, **more)


def test_one_row_per_configuration_so_adding_one_leaves_the_others(store):
    store.put([row({"piece": 1}, 3.0), row({"piece": 2}, 2.0)])
    before = store.rows()
    store.put([row({"piece": 4}, 1.0)])
    assert [r for r in store.rows() if r.config != spell({"piece": 4})] == before
    store.put([row({"piece": 4}, 0.5)])
    assert len(store.rows()) == 3 and store.best(HERE, KEY, "s")[0].median_s == 0.5


SIZES = {"batch": 1, "m": 1024, "n": 512, "k": 64}


@pytest.mark.parametrize("change", [
    {"device": replace(HERE, name="another")}, {"device": replace(HERE, cc="8.0")}, {"device": replace(HERE, driver="CUDA 13.0")},
    {"device": replace(HERE, compiler="triton 3.7.0")}, {"source": "changed"}, {"k": key("cpu tile", "float32", "", **SIZES)},
    {"k": key("cpu gemm", "float64", "", **SIZES)}, {"k": key("cpu gemm", "float32", "tn", **SIZES)}])
def test_everything_a_time_depends_on_is_in_the_key(store, change):
    store.put([row({"piece": 1}, 1.0, **change)])
    assert store.best(HERE, KEY, "s") is None


def test_a_compilation_never_replaces_a_time(store):
    store.put([row({"piece": 1}, 1.0, status="verified")])
    store.put([row({"piece": 1}, None, status="compiled", registers=12)])
    assert (store.rows()[0].median_s, store.rows()[0].status) == (1.0, "verified")


def test_the_default_stays_unless_another_is_clearly_faster():
    default = row({"piece": 1}, 1.0, is_default=True)
    assert pick([default, row({"piece": 2}, 0.99)]) is default
    assert pick([default, row({"piece": 2}, 0.9)]).median_s == 0.9
    assert pick([default, row({"piece": 2}, 0.1, status="wrong"), row({"piece": 3}, 0.1, status="failed")]) is default
    assert pick([]) is None


def test_few_rounds_do_not_beat_many():
    default, lucky = row({"piece": 1}, 1.0, is_default=True, repeats=100), row({"piece": 2}, 0.5, repeats=3)
    assert pick([default, lucky]) is default
    assert pick([default, lucky, row({"piece": 3}, 0.8, repeats=100)]).settings == {"piece": 3}


def test_a_single_round_replaces_nothing():
    default = row({"piece": 1}, 1.0, is_default=True, repeats=1)
    assert pick([default, row({"piece": 2}, 0.1, repeats=1)]) is default
    assert pick([row({"piece": 2}, 0.1, repeats=2)]) is None


def test_estimates_count_only_when_asked_and_never_before_times(store):
    store.put([row({"piece": 1}, None, status="compiled", estimate_s=1.0, is_default=True),
               row({"piece": 2}, None, status="compiled", estimate_s=0.5),
               row({"piece": 3}, None, status="rejected", estimate_s=0.1)])
    assert store.best(HERE, KEY, "s") is None
    assert store.best(HERE, KEY, "s", estimates=True)[0].settings == {"piece": 2}
    store.put([row({"piece": 1}, 7.0, status="timed", is_default=True)])
    assert store.best(HERE, KEY, "s", estimates=True)[0].settings == {"piece": 1}


def test_the_nearest_bucket_answers_for_sizes_that_were_not_tuned(store):
    store.put([row({"piece": 1}, 1.0, k=key("cpu gemm", "float32", "", batch=1, m=2048, n=512, k=64)),
               row({"piece": 2}, 1.0, k=key("cpu gemm", "float32", "", batch=1, m=512, n=256, k=64))])
    found, far = store.best(HERE, KEY, "s")
    assert found.settings == {"piece": 1} and far == 1
    assert store.best(HERE, key("cpu gemm", "float32", "", batch=1, m=64, n=512, k=64), "s") is None, "too far"


def test_less_aligned_results_serve_aligned_arrays_but_not_the_other_way(store):
    store.put([row({"piece": 1}, 1.0, k=key("cpu gemm", "float32", "", 4, batch=1, m=1024, n=512, k=64))])
    assert store.best(HERE, KEY, "s")
    assert store.best(HERE, key("cpu gemm", "float32", "", 2, batch=1, m=1024, n=512, k=64), "s") is None


def test_export_and_import_give_the_same_rows(store, tmp_path):
    store.put([row({"piece": 1}, 1.5, spread_s=0.1, repeats=3), row({"piece": 2}, None, status="failed", note="späte Antwort")])
    assert store.export(tmp_path / "a.jsonl") == 2
    with Store(tmp_path / "other.sqlite") as other:
        assert other.load(tmp_path / "a.jsonl") == 2
        assert other.rows() == store.rows()


GOOD = {**row({"piece": 1}, 1.0).__dict__}


@pytest.mark.parametrize("line, text", [
    ("{", "line 2 is not a tuning result"), ("[]", "its names are not those of a result"),
    (json.dumps({"device": "x"}), "its names"), (json.dumps({**GOOD, "median_s": "fast"}), "median_s is 'fast', not float"),
    (json.dumps({**GOOD, "align": None}), "align is None"), (json.dumps({**GOOD, "status": "good"}), "status 'good'"),
    (json.dumps({**GOOD, "config": '{"tile": "x"}'}), "does not map names to integers"),
    ("[" * 100_000, "not a tuning result")])
def test_a_damaged_file_is_refused_whole_with_its_line(store, tmp_path, line, text):
    (tmp_path / "bad.jsonl").write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(FileError, match=text) as caught:
        store.load(tmp_path / "bad.jsonl")
    assert "Nothing was imported" in str(caught.value) and store.rows() == []


def test_a_file_that_is_no_store_is_named(tmp_path):
    (tmp_path / "x.sqlite").write_bytes(b"not a database, but long enough to be taken for one" * 40)
    with pytest.raises(FileError, match=r"x\.sqlite: not a store of tuning results"):
        Store(tmp_path / "x.sqlite")
    with pytest.raises(FileError, match="not a store"):
        Store(tmp_path / "missing.sqlite", read_only=True)


def test_writers_wait_for_each_other(tmp_path):
    path = tmp_path / "tune.sqlite"
    Store(path).close()

    def write(n):
        with Store(path) as s:
            for i in range(20):
                s.put([row({"piece": 1000 * n + i}, 1.0)])

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with Store(path, read_only=True) as s:
        assert len(s.rows()) == 80


def test_the_newest_run_is_resumed_until_it_is_finished(store):
    assert store.unfinished() is None
    number = store.begin({"model": "a"})
    assert store.unfinished() == {"model": "a"}
    store.finish(number)
    assert store.unfinished() is None


def test_a_lookup_answers_from_the_file_and_is_absent_without_one(tmp_path, monkeypatch):
    assert lookup_for(tmp_path / "none.sqlite") is None
    monkeypatch.setattr(config_store, "cpu_device", lambda: HERE)
    with Store(tmp_path / "tune.sqlite") as s:
        s.put([row({"piece": 9}, 1.0, source=source_hash("cpu gemm"))])
    lookup = lookup_for(tmp_path / "tune.sqlite")
    assert lookup(KEY) == {"piece": 9} and lookup(key("gpu gemm", "float32", m=1)) is None


def test_a_gpu_takes_what_was_compiled_for_its_capability_only_where_estimates_are_wanted(tmp_path):
    k = key("gpu gemm", "float16", "nn", batch=1, m=256, n=256, k=256)
    device = replace(offline_device(90), name="NVIDIA H200", driver="CUDA 12.8")
    with Store(tmp_path / "tune.sqlite") as s:
        s.put([row({"BM": 64}, None, k=k, device=offline_device(90), source=source_hash(k.template), status="compiled",
                   estimate_s=1.0)])
    assert lookup_for(tmp_path / "tune.sqlite", device=device)(k) is None
    assert lookup_for(tmp_path / "tune.sqlite", device=device, estimates=True)(k) == {"BM": 64}
    with Store(tmp_path / "tune.sqlite") as s:
        s.put([row({"BM": 128}, 1.0, k=k, device=device, source=source_hash(k.template))])
    assert lookup_for(tmp_path / "tune.sqlite", device=device, estimates=True)(k) == {"BM": 128}


def test_every_source_is_there_and_every_template_has_sources():
    """Templates are those that kernels ask with: the first argument of each call of key(...), read from the source."""
    top = Path(config_store.__file__).parents[1]
    for names in config_store.SOURCES.values():
        assert names and all((top / name).is_file() for name in names), names
    asked = set()
    for path in (*top.rglob("*.py"), *(top.parent / "tuning").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "key" and call.args:
                name = ast.unparse(call.args[0]).lstrip("f").strip("'\"")
                asked.add(re.sub(r"\{.*\}", "*", name))
    asked.discard("")  # a task that is not known yet
    assert len(asked) >= 8 and all(fnmatch.filter(config_store.SOURCES, a) for a in asked), asked
    hashes = {names: source_hash(template) for template, names in config_store.SOURCES.items()}
    assert len(set(hashes.values())) == len(hashes), "other files, another hash"


def test_a_missing_source_is_an_error(monkeypatch):
    monkeypatch.setitem(config_store.SOURCES, "moved", ("cpu/numpy_printer.py", "gone/away.py"))
    with pytest.raises(FileError, match=r"gone/away\.py: a source of 'moved' cannot be read: No such file or directory\. "
                                        r"Its text identifies tuned results"):
        source_hash("moved")
    with pytest.raises(ParameterError, match=r"source_hash: no source files are listed for the template 'unheard of'\. Add"):
        source_hash("unheard of")
