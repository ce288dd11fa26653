"""perf/gpu_suite.py must not break on its first GPU: its table, and (nightly) all of it on tiny arrays in the interpreter."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "perf" / "gpu_suite.py"
SECTIONS = ["ceilings", "training", "convolutions", "products", "layers", "attention", "host", "operators", "elementwise",
            "epilogues", "configurations", "sanitizer", "tests"]
pytestmark = pytest.mark.skipif(not (importlib.util.find_spec("torch") and importlib.util.find_spec("triton")),
                                reason="needs torch and triton")


def suite(*arguments, timeout=250):
    env = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TRITIUM_GPU")}
    return subprocess.run([sys.executable, str(SUITE), *arguments], capture_output=True, text=True, env=env, timeout=timeout)


def test_a_table_of_what_was_measured(tmp_path):
    lines = [{"bench": "product", "dtype": "float32", "median_s": 1.5e-4, "of_copy": 0.93, "of_torch": 1.1,
              "asked": {"copy": 0.9}, "met": True}, {"bench": "broken", "error": "x"}]
    (tmp_path / "r.json").write_text(json.dumps(lines))
    done = suite("--table", str(tmp_path / "r.json"))
    assert done.stdout.splitlines()[2:] == ["| product | float32 | 150.0 µs | 0.93 | 1.1 (torch) | copy 0.9 | yes |"], done.stderr


def test_without_a_gpu_nothing_is_measured_and_a_smoke_test_keeps_nothing(tmp_path):
    import torch

    if not torch.cuda.is_available():
        assert json.loads(suite().stdout) == {"bench": "gpu_suite", "skipped": "no GPU here; nothing was measured"}
    done = suite("--smoke", "--out", str(tmp_path / "r.json"))
    assert done.returncode == 2 and "measures nothing" in done.stderr and not (tmp_path / "r.json").exists()


#: Stands for a section's process.
SECTION = """
import json, sys, time
name, first = sys.argv[1], int(sys.argv[2])
say = lambda **line: print(json.dumps(line), flush=True)
if name == "ceilings":
    say(bench="copy (torch)", dtype="float32", byte_per_s=4e12)
elif name == "operators":
    say(bench="ran", first=first, met=True)
    if first < 7:
        say(begins=first + 6)
        sys.exit("gone")
elif name == "layers":
    print("words")
    sys.exit("it broke")
else:
    say(begins=3)
    say(bench="before")
    open(sys.argv[3], "w").close()
    time.sleep(600)
"""
DRIVER = """
import sys, threading, time
from argparse import Namespace
from pathlib import Path
_, perf, out, section, hangs = sys.argv
sys.path.insert(0, perf)
import gpu_suite

class Timer(threading.Thread):
    "For the section that hangs, time is over when it says so."
    def __init__(self, seconds, then):
        super().__init__(daemon=True)
        self.seconds, self.then = seconds, then
    def run(self):
        while self.seconds or not Path(hangs).exists():
            time.sleep(0.01)
        self.then()
    def cancel(self):
        pass

def command(name, first, left, copy, given):
    gpu_suite.GRACE = -left if name == "epilogues" else 0
    return [sys.executable, section, name, str(first), hangs]

gpu_suite._command, gpu_suite.threading = command, Namespace(Timer=Timer)
torch = Namespace(cuda=Namespace(get_device_name=lambda: "none"), version=Namespace(cuda=""), __version__="")
gpu_suite._all(gpu_suite.Report(Path(out)), ["operators", "layers", "epilogues"], Namespace(seconds=1e6), torch, {})
"""


def test_a_section_that_dies_or_hangs_loses_no_line(tmp_path):
    out, section = tmp_path / "results" / "r.json", tmp_path / "section.py"
    section.write_text(SECTION)
    done = subprocess.run([sys.executable, "-c", DRIVER, str(SUITE.parent), str(out), str(section), str(tmp_path / "hangs")],
                          capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    lines = json.loads(out.read_text())
    assert [(line["bench"], line.get("first")) for line in lines[1:]] == [
        ("copy (torch)", None), ("ran", 0), ("operators", None), ("section", None), ("ran", 7), ("said", None), ("layers", None),
        ("before", None), ("epilogues", None), ("section", None), ("asked for", None), ("took", None)]
    ends = [(line["section"], line["next"]) for line in lines if line["bench"] == "section"]
    assert ends == [("operators", 7), ("epilogues", 4)]
    errors = {line["bench"]: line["error"] for line in lines if "error" in line}
    assert errors == {"operators": "status 1: gone", "layers": "status 1: it broke",
                      "epilogues": "it was ended: the time ran out"}
    assert lines[-2]["of"] == 2 and lines[-2]["failed"] == ["operators", "layers", "epilogues"]


def test_a_call_of_a_plan_goes_on_where_the_last_one_ended(tmp_path):
    """Of three calls one was made: it left the second case of one section, and a section that it never began."""
    out, ended = tmp_path / "r.json", [{"bench": "section", "section": n, "seconds": 1.0, "next": None} for n in SECTIONS
                                       if n not in ("epilogues", "sanitizer")]
    lines = [*ended, {"bench": "section", "section": "epilogues", "next": 1}, {"bench": "took", "seconds": 500.0}]
    out.write_text(json.dumps(lines))
    done = suite("--smoke", "--plan", "30", "--out", str(out))
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[0] == {"bench": "plan", "call": 2, "sections": {"ceilings": 1, "epilogues": 5, "sanitizer": 120}, "expected": 126,
                       "most": 540}
    assert [line["bench"] for line in said[1:]] == ["gpu_suite", "conv, bias, relu 3x3 128 7", "compute-sanitizer", "asked for"]
    assert json.loads(out.read_text()) == lines  # nothing was measured
    out.write_text(json.dumps([*lines, lines[-1], lines[-1]]))
    done = suite("--smoke", "--plan", "30", "--out", str(out))
    assert done.returncode == 2 and "has the lines of all calls" in done.stderr
    assert "--plan needs --out" in suite("--smoke", "--plan", "30").stderr


def test_a_plan_fits_its_minutes_and_begins_with_the_most_valuable(monkeypatch):
    monkeypatch.syspath_prepend(str(SUITE.parent))
    import gpu_plan

    assert list(gpu_plan.SECONDS) == SECTIONS
    for minutes in (6, 12, 30):
        calls = gpu_plan.plan(minutes, SECTIONS, [])
        left_out = calls.pop()["does_not_fit"] if "does_not_fit" in calls[-1] else {}
        assert len(calls) <= 3 and all(c["expected"] <= gpu_plan.LONGEST for c in calls)
        assert sum(c["expected"] + gpu_plan.START for c in calls) <= 60 * minutes
        order = list(dict.fromkeys(n for c in calls for n in c["sections"]))
        assert order == SECTIONS[:len(order)] and bool(left_out) == (minutes < 30)
        assert {n: sum(c["sections"].get(n, 0) for c in calls) + left_out.get(n, 0) for n in SECTIONS[1:]} == {
            n: gpu_plan.SECONDS[n] for n in SECTIONS[1:]}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_all_of_it_on_tiny_arrays():
    done = suite("--smoke", timeout=1700)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["failed"] == [] and len(lines) > 80
    assert not [line for line in lines if any(k.endswith("_s") for k in line) or not line["smoke"]]
    assert lines[-1]["wrong"] == [] and sum("right" in line for line in lines) > 60
    values = [line for line in lines if line["bench"] == "operators against float64"]
    assert all(v["wrong"] == {} for v in values) and sum(v["cases"] for v in values) > 10
