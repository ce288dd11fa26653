""".ci/run, on suites of a few lines: what is unstable, what is broken, and what the last line says."""

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[1] / ".ci"

#: For tests that behave otherwise when they run the second time.
ONCE = """
import os, signal, pytest
def first(name):
    try: return open(f"{__file__}-{name}", "x").close() is None
    except FileExistsError: return False
"""
GOOD = "def test_good(): pass\n"
FLAKY = ONCE + "@pytest.mark.parametrize('n', [1, 2])\ndef test_flaky(n): assert n == 1 or not first(n)\n"
BROKEN = "def test_broken(): assert False\n"


def ci(tmp_path, files, workers=2, lint="true", options=""):
    """Exit status and output of .ci/run over a suite, with a Makefile as ours: first lint, then tests."""
    (tmp_path / ".ci").mkdir()
    for name in ("run", "pytest_twice.py"):
        shutil.copy(CI / name, tmp_path / ".ci" / name)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\ntestpaths = tests\n")
    run = f"{sys.executable} $(PYTEST) -n {workers} --dist loadfile {options}"
    (tmp_path / "Makefile").write_text(f"PYTEST ?= -m pytest\ntest: lint\n\t{run}\nlint:\n\t{lint}\n")
    (tmp_path / "tests").mkdir()
    for name, text in files.items():
        (tmp_path / "tests" / name).write_text(text)
    given = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MAKE"))}
    done = subprocess.run([tmp_path / ".ci" / "run"], env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def last(output):
    return output.splitlines()[-1]


def test_what_passes_alone_is_named_in_the_last_line(tmp_path):
    status, said = ci(tmp_path, {"test_a.py": GOOD, "test_b.py": FLAKY, "test_c.py": FLAKY})
    assert status == 0, said
    assert last(said) == "UNSTABLE tests/test_b.py::test_flaky[2] tests/test_c.py::test_flaky[2]"
    assert "2 passed" in said and "Once more, alone: " in said


FAILURES = {
    "twice": ({"test_a.py": BROKEN}, True),
    "twice, beside an unstable one": ({"test_a.py": BROKEN, "test_b.py": FLAKY}, True),
    "and is skipped when it is alone": (
        {"test_a.py": ONCE + "def test_a():\n    if first(1): assert False\n    pytest.skip()\n"}, True),
    "by a file that cannot be collected": ({"test_a.py": GOOD, "test_b.py": ONCE + "assert not first(1)\n" + GOOD}, False),
    "by Ctrl-C": ({"test_a.py": FLAKY + "def test_stop(): signal.raise_signal(signal.SIGINT)\n"}, False),
    "by nothing to do": ({"test_a.py": ""}, False),
    "by an error of pytest's own": (
        {"conftest.py": ONCE + "def pytest_collection_finish(): assert not first(1)\n", "test_a.py": GOOD}, False),
    "by a limit of failures": ({"test_a.py": FLAKY, "conftest.py": "def pytest_configure(config): "
                                "config.option.maxfail = 1\n", "test_b.py": GOOD}, False),
}


@pytest.mark.nightly
@pytest.mark.parametrize("files, again", FAILURES.values(), ids=FAILURES)
def test_all_else_is_a_failure(tmp_path, files, again):
    status, said = ci(tmp_path, files, workers=0)
    assert status != 0 and "UNSTABLE" not in said and ("Once more, alone" in said) == again, said


def test_a_file_that_cannot_be_collected_beside_an_unstable_test_is_a_failure(tmp_path):
    files = {"test_a.py": FLAKY, "test_b.py": ONCE + "assert not first(1)\n"}
    status, said = ci(tmp_path, files, workers=0, options="--continue-on-collection-errors")
    assert status != 0 and "UNSTABLE" not in said and "Once more" not in said, said
    assert "BROKEN tests/test_b.py: cannot be collected" in said


def dying(death):
    return {"test_a.py": FLAKY, "test_b.py": ONCE + f"def test_death():\n    if first(1): {death}\n"}


def test_a_process_that_dies_beside_an_unstable_test_is_a_failure(tmp_path):
    status, said = ci(tmp_path, dying("os.kill(os.getpid(), signal.SIGKILL)"))
    assert status != 0 and "UNSTABLE" not in said and "Once more, alone" not in said, said
    assert "BROKEN tests/test_b.py::test_death: its process died" in said


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("death", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "raise KeyboardInterrupt"])
def test_deaths_and_interruptions(tmp_path, workers, death):
    status, said = ci(tmp_path, dying(death), workers)
    assert status != 0 and "UNSTABLE" not in said and "Once more, alone" not in said, said


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_said_where_all_is_well(tmp_path, workers):
    status, said = ci(tmp_path, {"test_a.py": GOOD, "test_b.py": GOOD}, workers)
    assert status == 0 and "UNSTABLE" not in said and "Once more" not in said


@pytest.mark.nightly
def test_errors_around_a_test_count(tmp_path):
    """In a fixture, before the test and behind it."""
    around = ONCE + ("@pytest.fixture\ndef before(): assert not first(1)\n"
                     "@pytest.fixture\ndef behind():\n    yield\n    assert not first(2)\n"
                     "def test_before(before): pass\ndef test_behind(behind): pass\n")
    status, said = ci(tmp_path, {"test_a.py": around}, workers=0)
    assert status == 0 and last(said) == "UNSTABLE tests/test_a.py::test_before tests/test_a.py::test_behind", said


def test_lint_is_never_hidden(tmp_path):
    status, said = ci(tmp_path, {"test_a.py": FLAKY}, lint="false")
    assert status != 0 and "UNSTABLE" not in said and "passed" not in said


def outcomes():
    """Everything that can become of a run of three tests, in statuses of pytest from all is well to none was run."""
    for passed in itertools.product([True, False, None], repeat=2):  # None: not run, or skipped
        for broken in ([], ["a process died"]):
            for status in range(-2, 6):
                names = {result: [f"test_{i}" for i, p in enumerate(passed) if p is result] for result in (True, False)}
                if status or not (names[False] or broken):
                    yield {"status": status, "passed": names[True], "failed": names[False], "broken": broken}


def test_what_is_decided(monkeypatch, tmp_path):
    """Every pair of outcomes. It is unstable if the first run was whole, but for failed tests, and all of these pass alone."""
    spec = importlib.util.spec_from_file_location("pytest_twice", CI / "pytest_twice.py")
    twice = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(twice)
    monkeypatch.setenv("UNSTABLE", str(tmp_path / "names"))
    for first, second in itertools.product(outcomes(), repeat=2):
        runs = iter([first, second])
        monkeypatch.setattr(twice, "run", lambda options, runs=runs: next(runs))
        (tmp_path / "names").unlink(missing_ok=True)
        status = twice.main([])
        whole = first["status"] == 1 and first["failed"] and not first["broken"]
        mended = second["status"] == 0 and all(name in second["passed"] for name in first["failed"])
        assert (status == 0) == (first["status"] == 0 or bool(whole and mended)), (first, second)
        named = (tmp_path / "names").read_text().split() if (tmp_path / "names").exists() else []
        assert named == (first["failed"] if whole and mended else [])
