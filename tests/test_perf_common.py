"""perf/common.py: medians, spread, peers. The measuring scripts are not part of the package, so it is loaded by path."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[1] / "perf"


@pytest.fixture
def common():
    spec = importlib.util.spec_from_file_location("perf_common", PERF / "common.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_median_and_spread(common):
    assert common.median_and_spread([3.0]) == (3.0, 0.0)
    assert common.median_and_spread([5, 1, 2, 4, 3]) == (3, 2)


def test_rounds_count_the_finish(common):
    calls = []
    seconds = common.rounds_of(lambda: calls.append("work"), calls=4, rounds=3, warmup=2, finish=lambda: calls.append("wait"))
    assert len(seconds) == 3 and min(seconds) >= 0
    assert calls == ["work"] * 2 + ["wait"] + (["work"] * 4 + ["wait"]) * 3


def test_lines_and_ratios(common, capsys):
    ours = common.emit("step", [0.2, 0.1, 0.4], package="tritium", net="mlp")
    peers = [{"package": "torch", "median_s": m, "best_s": m} for m in (0.1, 0.4)]
    common.ratio("step", [ours, ours], peers, net="mlp")
    line, ratio = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["median_s"], line["best_s"], line["rounds"]) == (0.2, 0.1, 3)
    assert ratio == {"bench": "step", "net": "mlp", "times_as_fast_as": "torch", "ratio": 1.25, "ratio_iqr": 0.75,
                     "ratio_of_best": 1.0, "pairs": 2}


def test_a_peer_is_run_and_one_that_fails_is_said(common, tmp_path, capsys):
    script = tmp_path / "peer.py"
    script.write_text("import sys\nprint('noise')\nprint('{\"median_s\": %s}' % sys.argv[1])\n")
    assert common.run_peer(sys.executable, str(script), "2") == [{"median_s": 2}]
    script.write_text("raise SystemExit('no such package')")
    assert common.run_peer(sys.executable, str(script)) == []
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"peer": sys.executable, "error": "no such package"}


def test_bench_train_prints_a_line():
    done = subprocess.run([sys.executable, PERF / "bench_train.py", "--nets", "mlp", "--rounds", "2", "--steps", "1"],
                          capture_output=True, text=True, check=True)
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["bench"], line["package"], line["net"], line["rounds"]) == ("train_step", "tritium", "mlp", 2)
    assert 0 < line["best_s"] <= line["median_s"] and line["images_per_s"] > 0 and line["iqr_s"] >= 0
