"""Starting: what `import tritium` loads, and that no operator's first call takes long. All operators: perf/bench_first.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[1] / "perf"
LIMIT_MS = 20


def test_the_import_loads_no_optional_package():
    done = subprocess.run([sys.executable, "-c", "import sys, tritium; print(*sys.modules)"], capture_output=True, text=True,
                          timeout=250, check=True)
    assert not {"torch", "triton", "ray", "cv2", "pyarrow", "PIL"} & set(done.stdout.split())


@pytest.mark.parametrize("times", [20, pytest.param(5, marks=pytest.mark.nightly)])
def test_first_calls_are_short(times):
    """Within LIMIT_MS, `times` over, of processor: a machine may be slower, and run other tests at the same time."""
    done = subprocess.run([sys.executable, PERF / "bench_first.py", "--sample", "25"], capture_output=True, text=True,
                          timeout=250, check=True)
    *calls, last = [json.loads(text) for text in done.stdout.splitlines()][1:]
    assert last["failed"] == {} and len(calls) > 12
    assert not [c for c in calls if c["processor_ms"] > LIMIT_MS * times]
