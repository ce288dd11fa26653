"""perf/gpu_suite.py must not break on its first GPU: its table, and (nightly) all of it on tiny arrays in the interpreter."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "perf" / "gpu_suite.py"
pytestmark = pytest.mark.skipif(not (importlib.util.find_spec("torch") and importlib.util.find_spec("triton")),
                                reason="needs torch and triton")


def suite(*arguments, timeout=60):
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


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_all_of_it_on_tiny_arrays():
    done = suite("--smoke", timeout=1700)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["failed"] == [] and len(lines) > 80
    assert not [line for line in lines if any(k.endswith("_s") for k in line) or not line["smoke"]]
    (values,) = [line for line in lines if line["bench"] == "operators against float64"]
    assert values["wrong"] == {} and values["cases"] > 10
